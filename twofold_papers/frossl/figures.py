"""FroSSL, Figures 2 and 3: the eigenvalues of embeddings during training."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from twofold_papers.frossl import early, linear
from twofold_papers.frossl.claims.gradients import barlow_variant, frossl_variant, gradient
from twofold_papers.frossl.claims.objective import rotation
from twofold_papers.verify.figure import figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

SAMPLES, PIXELS, TOP = 1024, 64, 10
LR, STEPS = 0.04, 1400
SATURATED = 0.9  # of the final value
EARLY_RANKS = 14  # the eigenvalues of Figure 3


def views() -> Tensor:
    """Two views [2, N, m] of Gaussian samples. The variances fall as a power of the rank, as in natural images."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        shared = torch.randn(SAMPLES, PIXELS, dtype=torch.float64)
        apart = 0.15 * torch.randn(2, SAMPLES, PIXELS, dtype=torch.float64)
        scale = torch.arange(1, PIXELS + 1, dtype=torch.float64).pow(-0.5)
        return (shared + apart) * scale @ rotation(PIXELS) / SAMPLES**0.5


def small_weights() -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return 1e-3 * torch.randn(2, TOP, PIXELS, dtype=torch.float64)


def trained(variant: str) -> tuple[Tensor, Tensor]:
    """The losses [T] and the eigenvalues [T, 10] of the first view, while gradient descent trains both networks."""
    loss = {"frossl": frossl_variant, "barlow": barlow_variant}[variant]
    x, w = views(), small_weights()
    # The loss depends only on the inner products of the columns of `both`. R of its QR decomposition has the same inner
    # products, and 2m rows instead of N.
    both = torch.cat(tuple(x), dim=1)
    x = torch.linalg.qr(both).R.unflatten(1, (2, PIXELS)).movedim(1, 0)
    losses, spectra = [], []
    for _ in range(STEPS):
        z = x[0] @ w[0].T
        losses.append(loss(w, x))
        spectra.append(torch.linalg.eigvalsh(z.T @ z).flip(0))
        w = w - LR * gradient(loss, w, x)
    return torch.stack(losses), torch.stack(spectra)


def saturation(spectra: Tensor) -> float:
    """The time at which the smallest eigenvalue reaches 90 % of its final value."""
    last = spectra[:, -1]
    return LR * int((last < SATURATED * last[-1]).sum())


@figure(
    "frossl",
    "Figure 2",
    "Two linear networks, one for each view, are trained by full-batch gradient descent from the same small weights. "
    "Left: the FroSSL variant (eq 10). Right: the Barlow variant ‖Z₁ᵀZ₂ − I‖²_F. Top: the loss. Bottom: the ten "
    "eigenvalues of Z₁ᵀZ₁. The horizontal axis is t = lr · step. The dashed line marks when the tenth eigenvalue "
    "reaches 90 % of its final value. As in the paper, the networks learn one direction after another, the loss falls "
    "in steps, and the FroSSL variant converges faster. It needs half the time, as the claims of section 5.1 predict. "
    "Unlike in the paper, which uses 1024 images of CIFAR-10, the 1024 samples are Gaussian with variances "
    "proportional to 1/rank, and each view has its own noise. Because of this noise, the views never agree, so the "
    "loss of the FroSSL variant does not reach 0, and its eigenvalues end a little below 1. The loss of the Barlow "
    "variant contains only products between the views, so some eigenvalues of one view end above 1.",
)
def figure_2() -> "Drawing":
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(9, 5.6), layout="constrained")
    axes = drawing.subplots(2, 2, sharex=True, sharey="row")
    times = LR * torch.arange(STEPS)
    for column, (variant, title) in enumerate([("frossl", "FroSSL variant (eq 10)"), ("barlow", "Barlow variant")]):
        losses, spectra = trained(variant)
        above, below = axes[:, column]
        above.plot(times, losses, color="black")
        above.set_title(title)
        draw_spectrum(below, times, spectra)
        when = saturation(spectra)
        for one in (above, below):
            one.axvline(when, color="grey", linestyle="--", linewidth=1)
        above.annotate(
            f"10th eigenvalue learnt\nat t = {when:.0f}",
            (when, 17),
            xytext=(6 if column == 0 else -6, 0),
            textcoords="offset points",
            ha="left" if column == 0 else "right",
            color="dimgrey",
        )
    axes[0, 0].set_ylabel("loss")
    axes[1, 0].set_ylabel("eigenvalues of $Z_1^T Z_1$")
    drawing.legend(*axes[1, 1].get_legend_handles_labels(), title="eigenvalue", loc="outside right center")
    return drawing


def draw_spectrum(axes: "Axes", times: Tensor, spectra: Tensor) -> None:
    from matplotlib import colormaps

    for rank, values in enumerate(spectra.T):
        axes.plot(times, values, color=colormaps["viridis"](rank / TOP), label=f"{rank + 1}", linewidth=1.4)
    axes.set_xlabel("t = lr · step")


@figure(
    "frossl",
    "Figure 2 (CIFAR-10)",
    "Figure 2 on two crops of the same 1024 images of CIFAR-10, as in the paper, which does not describe its crops. "
    "Mild crops have 80 to 100 % of the area of an image, strong ones 8 to 100 %. Top: the loss as a share of its "
    "value at the start. Bottom: the ten eigenvalues of Z₁ᵀZ₁; the dashed line marks when the tenth has done 90 % of "
    "its rise. "
    f"The curves are those of the first seed. {linear.summary()} `python -m benchmarks.linear_variants` repeats this; "
    "the figure is drawn from its record.",
)
def figure_2_on_images() -> "Drawing":
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(12, 5.6), layout="constrained")
    axes = drawing.subplots(2, 4, sharex=True)
    pairs = [(crops, variant) for crops in ("mild", "strong") for variant in ("frossl", "barlow")]
    for column, (crops, variant) in enumerate(pairs):
        row = linear.record().of(crops, variant)[0]
        times = linear.record().interval * torch.arange(len(row["losses"]))
        losses = torch.tensor(row["losses"])
        axes[0, column].plot(times, losses / losses[0], color="black")
        axes[0, column].set_ylim(-0.03, 1.03)
        axes[0, column].set_title(f"{'FroSSL' if variant == 'frossl' else 'Barlow'} variant, {crops} crops")
        draw_spectrum(axes[1, column], times, torch.tensor(row["eigenvalues"]).T)
        for ax in axes[:, column]:
            ax.axvline(row["10th eigenvalue"], color="grey", linestyle="--", linewidth=1)
    axes[0, 0].set_xlim(0, 600)
    axes[0, 0].set_ylabel("loss / loss at the start")
    axes[1, 0].set_ylabel("eigenvalues of $Z_1^T Z_1$")
    drawing.legend(*axes[1, 3].get_legend_handles_labels(), title="eigenvalue", loc="outside right center")
    return drawing


@figure(
    "frossl",
    "Figure 3 (reduced scale)",
    "A small MLP on 1024 digits, trained for 240 steps of SGD with the same learning rate and four losses; one seed. "
    "The paper trains a ResNet-18 on STL-10. The 14 largest eigenvalues of the embeddings are shown as shares of the "
    "sum of all 64. The numbers are the condition number of these 14 and the entropy of all, at the last step. Top: "
    "the paper's version, Z₁ᵀZ₁ of the normalised embeddings of one view. Bottom: the version of our table "
    "`frossl-spectrum`, the covariance of the embeddings of both views, which are not normalised. The two versions "
    "differ little here, and the order of the losses is the same. As in the paper, FroSSL has the smallest condition "
    "number and the highest entropy. The losses have different scales, so another learning rate can change how fast "
    "each of them learns.",
)
def figure_3() -> "Drawing":
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(12, 5.6), layout="constrained")
    drawing.suptitle("Reduced scale: an MLP on 1024 digits, 64 dimensions")
    axes = drawing.subplots(2, len(early.LOSSES), sharex=True, sharey=True)
    for column, (name, loss) in enumerate(early.LOSSES.items()):
        found = early.spectra(loss)
        for ax, shares in zip(axes[:, column], (found.normalised, found.plain), strict=True):
            draw_shares(ax, shares)
        axes[0, column].set_title(name)
        axes[1, column].set_xlabel("step")
    axes[0, 0].set_ylabel("normalised, one view\n(paper)")
    axes[1, 0].set_ylabel("not normalised, both views\n(frossl-spectrum)")
    return drawing


def draw_shares(ax: "Axes", shares: Tensor) -> None:
    from matplotlib import colormaps

    steps = early.EVERY * torch.arange(len(shares))
    for rank in range(EARLY_RANKS):
        ax.plot(steps, shares[:, rank], color=colormaps["viridis"](rank / EARLY_RANKS), linewidth=1.2)
    last = shares[-1]
    condition, entropy = (last[0] / last[EARLY_RANKS - 1]).item(), torch.special.entr(last).sum().item()
    ax.text(
        0.97,
        0.03,
        f"condition {condition:.3g}\nentropy {entropy:.2f}",
        transform=ax.transAxes,
        ha="right",
        va="bottom",
        backgroundcolor="#ffffffb0",
    )
    ax.set_yscale("log")
