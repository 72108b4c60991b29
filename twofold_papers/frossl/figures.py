"""FroSSL Figure 2: how quickly the linear variant learns its eigenvalues, beside the Barlow variant."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from twofold_papers.frossl.claims.gradients import barlow_variant, frossl_variant, gradient
from twofold_papers.frossl.claims.objective import rotation
from twofold_papers.verify.figure import figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

SAMPLES, PIXELS, TOP = 1024, 64, 10
LR, STEPS = 0.04, 1400
SATURATED = 0.9  # of its last value


def views() -> Tensor:
    """Two views [2, N, m] of pictures whose variances fall as those of natural images do, as a power of their rank."""
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
    """Losses [T] and eigenvalues [T, 10] of the first view, by gradient descent on both networks."""
    loss = {"frossl": frossl_variant, "barlow": barlow_variant}[variant]
    x, w = views(), small_weights()
    # Only inner products of the data matter: a square root of their matrix has as many columns as rows, not N.
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
    """The time at which the last of the eigenvalues has reached most of its value."""
    last = spectra[:, -1]
    return LR * int((last < SATURATED * last[-1]).sum())


@figure(
    "frossl",
    "Figure 2",
    "The linear FroSSL variant (eq 10) and the Barlow variant ‖Z₁ᵀZ₂ − I‖² trained by full-batch gradient descent from "
    "the same small weights, one linear network for each view: the loss above, the ten eigenvalues of Z₁ᵀZ₁ below, "
    "against t = lr · step. As in the paper, directions are learnt one after another, the loss falls in steps, and the "
    "FroSSL variant is done in half the time, which is what the claims of section 5.1 say. The paper trains on 1024 "
    "images of CIFAR-10; here the 1024 samples are Gaussian with variances that fall as 1/rank, and each view has "
    "noise of its own. Because of that noise FroSSL's loss does not end at 0, and its eigenvalues end a little below "
    "1: the views never agree. The Barlow variant asks for products between views alone, and within a view some of "
    "its eigenvalues end above 1. The dashed line marks where the tenth eigenvalue "
    "has reached 90 % of its last value.",
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
