"""Figure 1 (the gradient with respect to a singular value) and Figure 2 (Lemma 1 at λ = 0)."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from twofold import objectives
from twofold_papers.birth.claims import digits
from twofold_papers.birth.claims.equivalence import trace_term
from twofold_papers.birth.claims.gradient import slopes, theorem
from twofold_papers.birth.claims.setting import absolute_loss, centring, randn, solved_head
from twofold_papers.verify.figure import figure

COLOURS = ["#1b6ca8", "#d1731f", "#2e8b57", "#8a4fa3"]
SIGMA = r"singular value $\sigma_k$"


@contextmanager
def seeded() -> Iterator[None]:
    """Use a fixed seed; the state of the caller's random numbers does not change."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@figure(
    "birth",
    "Figure 1",
    "The gradient of eq 2 with respect to σ_k, for (VᵀGV)_kk = 1 and N = 10. Lines: Theorem 2. Dots: autograd "
    "through ridge_graph. As in the paper, the gradient vanishes as σ_k grows and, for a given σ_k, as λ goes "
    "to 0. The right panel is not in the paper and shows two more things. First, the gradient is largest at "
    "σ_k = √(λN/3) (diamonds), and this largest value grows as λ decreases: a small λ opposes σ_k = 0 more "
    "strongly. Second, the gradient falls only as σ⁻³, so under gradient flow σ_k grows as t^¼ without bound. "
    "In the left panel, the line for λ = 0.001 continues down to −0.65. The paper does not give its N and λ.",
)
@seeded()
def gradient_to_a_singular_value() -> Drawing:
    N = 10
    vector = torch.linalg.qr(centring(N) @ randn(N, 1)).Q
    graph = vector @ vector.T
    drawing = Drawing(figsize=(10, 4.2), layout="constrained")
    plain, logarithmic = drawing.subplots(1, 2)
    near, far = torch.linspace(0, 5, 400).double(), torch.logspace(-2, 2, 400).double()
    for ridge, colour in zip((1.0, 0.1, 0.01, 0.001), COLOURS, strict=True):
        for axes, sigma, sign in ((plain, near, 1), (logarithmic, far, -1)):
            axes.plot(sigma, sign * theorem(vector, sigma, graph, ridge), color=colour, label=f"λ = {ridge:g}")
            some = sigma[15::35]
            seen = torch.stack([slopes(vector, value.view(1), graph, ridge)[0] for value in some])
            axes.plot(some, sign * seen, "o", color=colour, markersize=4)
        peak = torch.tensor([(ridge * N / 3) ** 0.5], dtype=torch.float64)
        height = -theorem(vector, peak, graph, ridge)
        logarithmic.plot(peak, height, "D", color=colour, markersize=8, markerfacecolor="white", zorder=3)
    plain.set(xlabel=SIGMA, ylabel=r"$\partial L/\partial\sigma_k$", ylim=(-0.25, 0.01))
    plain.set_title("The gradient with respect to a singular value")
    plain.axhline(0, color="#888888", linewidth=0.8)
    logarithmic.set(xscale="log", yscale="log", xlabel=SIGMA, ylabel=r"$-\partial L/\partial\sigma_k$")
    logarithmic.set_title("Its absolute value, on logarithmic axes")
    logarithmic.plot(far[270:], 20 * far[270:] ** -3.0, "--", color="#888888", label="slope −3")
    logarithmic.set_ylim(1e-9, 3)
    for axes in (plain, logarithmic):
        axes.grid(alpha=0.25)
        axes.legend()
    return drawing


@figure(
    "birth",
    "Figure 2",
    "Lemma 1 at λ = 0. Left, for random features and 5 targets: the minimum of eq 1 over W and b (dots, by "
    "Newton's method with derivatives from autograd) and eq 2 with its constant ‖YH‖²/N (lines, by the SVD of "
    "the centred features). As in the paper, they agree for all N and K; from K = N − 1 on both are 0. Right: "
    "the differences between them. The difference between eq 1 or ridge_labels and eq 2 is rounding error. If "
    "the SVD is of features that are not centred, as published in section 2.1, the difference is large.",
)
@seeded()
def lemma_1_without_ridge() -> Drawing:
    drawing = Drawing(figsize=(10, 4.2), layout="constrained")
    values, differences = drawing.subplots(1, 2)
    sizes, widths = (8, 16, 32, 64), (1, 2, 3, 5, 7, 10, 15, 22, 31, 45)
    apart: dict[str, list[tuple[int, float]]] = {"eq 1 − eq 2": [], "ridge_labels − eq 2": [], "SVD not centred": []}
    tiny = 1e-13  # this ridge makes Newton's system solvable for K ≥ N and changes the loss by about as much
    for N, colour in zip(sizes, COLOURS, strict=True):
        absolute, relative = [], []
        everything, y, H = randn(N, max(widths)) + 1, randn(N, 5), centring(N)
        for K in widths:
            f = everything[:, :K]
            constant = (H @ y).square().sum() / N
            absolute.append(absolute_loss(f, y, *solved_head(f, y, tiny), 0.0).item())
            relative.append((constant + trace_term(H @ f, y @ y.T, 1e-16)).item())
            published = (constant + trace_term(f, y @ y.T, 1e-16)).item()
            library = objectives.ridge_labels(f, y, 0.0).total.item()
            apart["eq 1 − eq 2"].append((K, abs(absolute[-1] - relative[-1])))
            apart["ridge_labels − eq 2"].append((K, abs(library - relative[-1])))
            apart["SVD not centred"].append((K, abs(absolute[-1] - published)))
        values.plot(widths, relative, color=colour, label=f"N = {N}")
        values.plot(widths, absolute, "o", color=colour, markersize=5)
    values.set(xscale="log", xlabel="features K", ylabel="loss", title="eq 2 (lines) and minimum of eq 1 (dots)")
    shifts = (0.96, 1.04, 1.0)  # otherwise the first two kinds of points would cover each other
    for (name, points), colour, marker, shift in zip(apart.items(), COLOURS, "osx", shifts, strict=False):
        errors = [max(error, 1e-17) for _, error in points]
        differences.plot([K * shift for K, _ in points], errors, marker, color=colour, markersize=4, label=name)
    differences.set(
        xscale="log",
        yscale="log",
        xlabel="features K",
        ylabel="|difference| (0 drawn at 1e-17)",
        title="Differences, all N",
    )
    for axes in (values, differences):
        axes.grid(alpha=0.25)
        axes.legend()
    return drawing


@figure(
    "birth",
    "Section 2.2 (reduced scale)",
    "Reduced scale: 120 digits of 10 classes in two views, an MLP with 32 features, three seeds (lines: means, dots: "
    "seeds). The paper has no such figure. It states that labels which treat each image as a class ensure the best "
    "worst-case performance on downstream tasks. Here, each class is divided into parts, each with its own label: from "
    "10 labels, the classes, to 120, one for each image. Left: the largest and the mean error on 300 random balanced "
    "tasks. Both fall, as the paper states. The dotted line is the smallest mean that 32 features allow. Right: the "
    "price. The error on the classes of the digits rises. Over all tasks, the worst error is 1 for any labels, because "
    "there are more images than features (claim 'section 2.2, few features').",
)
def labels_between_classes_and_images() -> Drawing:
    drawing = Drawing(figsize=(10, 4.2), layout="constrained")
    drawing.suptitle("Reduced scale: 120 digits in two views, an MLP with 32 features")
    random, classes = drawing.subplots(1, 2)
    counts = [digits.CLASSES * parts for parts in digits.PARTS]
    found = [digits.of_seeds(parts) for parts in digits.PARTS]
    draw_errors(random, counts, [[e.random.max().item() for e in seeds] for seeds in found], COLOURS[1], "largest")
    draw_errors(random, counts, [[e.random.mean().item() for e in seeds] for seeds in found], COLOURS[0], "mean")
    draw_errors(classes, counts, [[e.classes.item() for e in seeds] for seeds in found], COLOURS[2], "digit classes")
    images = counts[-1]
    random.axhline(1 - digits.FEATURES / (images - 1), color="#888888", linestyle=":", label="bound of the mean")
    random.set(title="Random tasks", ylabel="error", ylim=(0.7, 1.0))
    classes.set(title="Classes of the digits", ylabel="error", ylim=(0, None))
    for axes in (random, classes):
        axes.set(xscale="log", xlabel="labels (10: classes, 120: one for each image)", xticks=counts)
        axes.set_xticks([], minor=True)
        axes.set_xticklabels([str(count) for count in counts])
        axes.grid(alpha=0.25)
        axes.legend()
    return drawing


def draw_errors(axes: Axes, counts: list[int], of_seeds: list[list[float]], colour: str, label: str) -> None:
    axes.plot(counts, [sum(seeds) / len(seeds) for seeds in of_seeds], color=colour, label=label)
    for count, seeds in zip(counts, of_seeds, strict=True):
        axes.plot([count] * len(seeds), seeds, "o", color=colour, markersize=4)
