"""IsoLoss, Figures 2, 4, 5 and 6: simulations of the Siamese network of section 3."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from matplotlib import colormaps
from matplotlib.figure import Figure as Drawing
from torch import Tensor

from twofold_papers.isoloss.claims.siamese import (
    COSINE,
    COSINE_ISO,
    COSINE_NO_PREDICTOR,
    COSINE_NO_STOP,
    EUCLIDEAN,
    EUCLIDEAN_ISO,
    EUCLIDEAN_NO_PREDICTOR,
    EUCLIDEAN_NO_STOP,
    NOISE,
    Encode,
    Loss,
    alignment,
    flow,
    learnt_predictor,
    linear,
    relu,
    spectra,
    velocity,
    weights,
    white_views,
)
from twofold_papers.isoloss.claims.table import PAIRS, polar_views
from twofold_papers.verify.figure import figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INPUTS, OUTPUTS = 15, 10
TITLES = ("(a) no stop-gradient", "(b) no predictor", "(c) BYOL/SimSiam loss", "(d) IsoLoss")
LOSSES = {
    "Euclidean": (EUCLIDEAN_NO_STOP, EUCLIDEAN_NO_PREDICTOR, EUCLIDEAN, EUCLIDEAN_ISO),
    "cosine": (COSINE_NO_STOP, COSINE_NO_PREDICTOR, COSINE, COSINE_ISO),
}
# Training times, for the network with ten outputs and for that with two.
LINEAR_TIMES = {"Euclidean": ((16, 16, 16, 16), (3, 16, 8, 4)), "cosine": ((60, 3000, 60, 60), (3, 150, 8, 6))}
RELU_TIMES = {"Euclidean": ((16, 16, 40, 16), (3, 16, 8, 4)), "cosine": ((120, 3000, 300, 120), (3, 60, 8, 6))}
STEPS = 160
SHOWN = 40  # the number of samples whose path is drawn


def train(loss: Loss, w: Tensor, time: float, encode: Encode = linear) -> tuple[Tensor, list[Tensor]]:
    """Times and weights of gradient descent on new views in every step, as in the paper. Steps grow with time."""
    times = time * torch.linspace(0, 1, STEPS + 1).square()
    samples = 600 if loss.predictor else 1500  # without a predictor, most of the gradient is noise
    path = [w]
    for step in times.diff().tolist():
        path.append(path[-1] + step * velocity(loss, white_views(samples, INPUTS), path[-1], encode=encode))
    return times, path


def start(outputs: int) -> Tensor:
    return weights(torch.linspace(0.1, 1.5, outputs, dtype=torch.float64), INPUTS)


def draw_eigenvalues(ax: "Axes", loss: Loss, time: float, encode: Encode) -> None:
    times, path = train(loss, start(OUTPUTS), time, encode)
    s = spectra(white_views(600, INPUTS), path, encode)
    for mode, shade in enumerate(torch.linspace(0.1, 0.9, OUTPUTS).tolist()):
        ax.plot(times, s[:, mode], color=colormaps["viridis"](shade), linewidth=1.4)
    ax.set_xlabel("time")
    ax.set_xlim(0, time)
    ax.set_ylim(0, 1.05 * s.max().item())


def draw_representations(ax: "Axes", loss: Loss, time: float, encode: Encode) -> None:
    _, path = train(loss, start(2), time, encode)
    x = white_views(600, INPUTS)[0]
    z = torch.stack([encode(x, w) for w in path])
    ax.scatter(z[-1, :, 0], z[-1, :, 1], s=5, color="tab:blue", alpha=0.45, linewidths=0)
    ax.plot(z[:, :SHOWN, 0], z[:, :SHOWN, 1], color="0.45", linewidth=0.7)
    ax.scatter(z[-1, :SHOWN, 0], z[-1, :SHOWN, 1], s=12, color="tab:red", linewidths=0, zorder=3)
    reach = 1.05 * max(z[0].abs().max().item(), z[-1].abs().max().item())
    low = -reach if encode is linear else -0.05 * reach
    ax.set_xlim(low, reach)
    ax.set_ylim(low, reach)
    ax.set_aspect("equal")
    ax.set_xlabel("$z_1$")


def draw_table(encode: Encode, times: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]) -> Drawing:
    drawing = Drawing(figsize=(12, 12.5), layout="constrained")
    axes = drawing.subplots(4, 4)
    with torch.random.fork_rng(devices=[]):
        for half, (distance, losses) in enumerate(LOSSES.items()):
            for place, (loss, ten, two) in enumerate(zip(losses, *times[distance], strict=True)):
                torch.manual_seed(place)
                above, below = axes[2 * half, place], axes[2 * half + 1, place]
                draw_representations(above, loss, two, encode)
                draw_eigenvalues(below, loss, ten, encode)
                above.set_title(f"{TITLES[place]}\n{distance}", fontsize=12)
            axes[2 * half, 0].set_ylabel("$z_2$  (M = 2)")
            axes[2 * half + 1, 0].set_ylabel("eigenvalues $\\lambda_m$  (M = 10)")
    return drawing


@figure(
    "isoloss",
    "Figure 2",
    "The linear network with N = 15, σ = 0.1 and α = 1, trained on new views in each step. Rows 1 and 3: M = "
    "2, the paths of 40 samples (grey) and where they end (red; blue: more samples). Rows 2 and 4: the "
    "eigenvalues of the predictor, M = 10. As in the paper: without stop-gradient, the Euclidean loss "
    "collapses; without a predictor, the cosine loss moves slowly (see its time axis); both full losses end "
    "isotropic; IsoLoss moves small eigenvalues as fast as large ones. Unlike in the paper: without "
    "stop-gradient, the cosine loss does not diverge. It conserves the sum of the eigenvalues, so the large "
    "ones grow only by what the small ones lose, and rank is lost. (A finite step η adds η²‖∂L/∂W‖² to the "
    "sum, so large steps do make it grow. The update in the authors' notebook differs from the gradient in one "
    "term, and with it the sum grows.) Here, both views have noise. Therefore the eigenvalues decay as exp(−2σ²t) "
    "under the Euclidean loss without a predictor. In the authors' notebook, only the target has noise, and they "
    "are constant.",
)
def figure_2() -> Drawing:
    return draw_table(linear, LINEAR_TIMES)


@figure(
    "isoloss",
    "Figure 6",
    "Figure 2 with a ReLU on the embeddings, z = max(Wx, 0). As in the paper, the losses behave as in the "
    "linear network: without stop-gradient the network collapses or loses rank, without a predictor it hardly "
    "moves, and with IsoLoss all eigenvalues grow together. Two things differ from the linear network. First, "
    "one eigenvalue is larger than the others: that of the mean, which is not 0 for embeddings that are never "
    "negative. Second, from this start, with eigenvalues from 0.1 up, (c) loses its smallest modes under both "
    "distances, while (d) keeps all modes; under the cosine IsoLoss their sum grows, because it is not "
    "conserved.",
)
def figure_6() -> Drawing:
    return draw_table(relu, RELU_TIMES)


@figure(
    "isoloss",
    "Figure 5",
    "Two output neurons from three starts (colours; solid and dashed: the two eigenvalues). As in the paper: "
    "under the Euclidean loss, both eigenvalues reach 1 from every start (here 1/(1+σ²) = 0.990, because both "
    "views have noise); under the cosine loss, they meet at a value that depends on the start. This value is the "
    "mean of the two initial eigenvalues (dotted), because their sum is conserved.",
)
def figure_5() -> Drawing:
    drawing = Drawing(figsize=(10, 4), layout="constrained")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        x = polar_views()
        for ax, loss, name in zip(
            drawing.subplots(1, 2, sharey=True), (EUCLIDEAN, COSINE), ("(a) Euclidean", "(b) cosine"), strict=True
        ):
            for colour, pair in zip(("tab:blue", "tab:orange", "tab:green"), PAIRS, strict=True):
                first = torch.tensor(pair, dtype=torch.float64)
                s = spectra(x, flow(loss, x, weights(first / (1 + NOISE**2), 2, aligned=True), 20 / STEPS, STEPS // 2))
                times = torch.linspace(0, 10, len(s))
                ax.plot(times, s[:, 1], color=colour, label=f"start {pair[0]}, {pair[1]}")
                ax.plot(times, s[:, 0], color=colour, linestyle="--")
                limit = 1.0 if loss is EUCLIDEAN else s[0].mean().item()
                ax.axhline(limit, color="0.3" if loss is EUCLIDEAN else colour, linestyle=":", linewidth=1)
            ax.set_title(name)
            ax.set_xlabel("time")
            ax.set_xlim(0, 10)
            ax.set_ylim(0, 2.2)
            ax.legend(loc="upper right")
        drawing.axes[0].set_ylabel("eigenvalues $\\lambda_1, \\lambda_2$")
    return drawing


@figure(
    "isoloss",
    "Figure 4",
    "A learnt linear predictor in the linear network of Figure 2: the cosine between u and W_P u for each "
    "eigenvector u of E[zzᵀ]. As in the paper, which shows a deep network over epochs, the predictor is not "
    "aligned at first and aligns with the eigenvectors under both losses, with the smallest last. From about "
    "one start in ten (3 of 30), the cosine loss loses its smallest mode instead, and the predictor does not "
    "align with it.",
)
def figure_4() -> Drawing:
    drawing = Drawing(figsize=(10, 4), layout="constrained")
    axes = drawing.subplots(1, 2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for ax, loss, name, time in zip(
            axes, (EUCLIDEAN, COSINE), ("(a) Euclidean", "(b) cosine"), (8, 30), strict=True
        ):
            x, w = white_views(600, INPUTS), weights(torch.linspace(0.1, 1.5, OUTPUTS, dtype=torch.float64), INPUTS)
            path = learnt_predictor(loss, x, w, step=time / 60, steps=60)
            aligned = torch.stack([alignment(x, both) for both in path]).flip(1)
            image = ax.imshow(
                aligned.T.numpy(),
                aspect="auto",
                origin="upper",
                vmin=-1,
                vmax=1,
                cmap="RdBu",
                extent=(0, time, OUTPUTS + 0.5, 0.5),
            )
            ax.set_title(name)
            ax.set_xlabel("time")
            ax.set_ylabel("eigenvector, in order of descending eigenvalue")
            ax.set_yticks(range(1, OUTPUTS + 1))
        drawing.colorbar(image, ax=axes, label="$\\cos(u_i, W_P u_i)$")
    return drawing
