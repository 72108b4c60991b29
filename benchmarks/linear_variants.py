"""Compare the linear variants of FroSSL and of Barlow Twins on crops of CIFAR-10 images (FroSSL, Figure 2).

    python -m benchmarks.linear_variants [--data-dir data] [--out twofold_papers/frossl/linear_cifar10.json]

Two linear networks with ten outputs, one for each view, are trained by full-batch gradient descent on two crops of the
same 1,024 images, as in the paper. A crop may be mirrored. Three criteria say how soon a variant is done. Times are t =
lr · step. The record has the criteria of each seed, and the curves of the first.

Each view is centred and reduced to the principal components with a share `--variance` of its variance. Both views are
divided by one number such that the largest eigenvalue of the first view is 1.

Shapes: N images, m components, d outputs, T recorded steps.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.results import Table, keep
from twofold.data.readers.cifar import read_cifar10
from twofold_papers.frossl.claims.gradients import barlow_variant, frossl_variant, gradient

CROPS = {"mild": 0.8, "strong": 0.08}  # the least area of a crop, as a share of the image
OUTPUTS, SIZE = 10, 32
EVERY = 20  # steps between records
SHOWN = 4  # every 4th record is kept in the curves


def crop(images: Tensor, smallest: float) -> Tensor:
    """One random crop of each image [N, 3, 32, 32], mirrored with probability ½, as rows [N, 3072]."""
    rows = []
    for image in images:
        area, ratio = smallest + (1 - smallest) * torch.rand(()), (torch.rand(()) * 2 - 1) * torch.tensor(4 / 3).log()
        height, width = (
            min(SIZE, max(1, round(SIZE * (area * factor).sqrt().item()))) for factor in (ratio.exp(), (-ratio).exp())
        )
        top, left = (int(torch.randint(SIZE - extent + 1, ())) for extent in (height, width))
        part = image[None, :, top : top + height, left : left + width]
        row = functional.interpolate(part, (SIZE, SIZE), mode="bilinear", align_corners=False)[0]
        rows.append((row.flip(-1) if torch.rand(()) < 0.5 else row).flatten())
    return torch.stack(rows).double()


def components(view: Tensor, kept: float) -> Tensor:
    """The centred view [N, m] in its principal components, those with a share `kept` of the variance."""
    u, s, _ = torch.linalg.svd(view - view.mean(dim=0), full_matrices=False)
    before = s.square().cumsum(0) / s.square().sum() - s.square() / s.square().sum()
    return (u * s)[:, (before < kept) & (s > 1e-9 * s[0])]


@dataclass(frozen=True)
class Moments:
    """What the losses depend on, for views in their principal components."""

    within: tuple[Tensor, Tensor]  # the diagonals [m₁] and [m₂] of Γ₁ and Γ₂
    across: Tensor  # X₂ᵀX₁ [m₂, m₁]

    @classmethod
    def of(cls, first: Tensor, second: Tensor) -> "Moments":
        return cls((first.square().sum(dim=0), second.square().sum(dim=0)), second.T @ first)


Networks = tuple[Tensor, Tensor]


def frossl(w: Networks, of: Moments) -> tuple[Tensor, Networks]:
    """Eq 11 and its gradients (eq 28 and 29, corrected)."""
    scaled = [weights * within for weights, within in zip(w, of.within, strict=True)]
    crossed = (w[1] @ of.across, w[0] @ of.across.T)
    apart = [s @ weights.T - torch.eye(OUTPUTS, dtype=s.dtype) for s, weights in zip(scaled, w, strict=True)]
    loss = sum(a.square().sum() + (s * weights).sum() for a, s, weights in zip(apart, scaled, w, strict=True))
    slopes = [2 * s - 2 * c + 4 * a @ s for s, c, a in zip(scaled, crossed, apart, strict=True)]
    return loss - 2 * (crossed[0] * w[0]).sum(), (slopes[0], slopes[1])


def barlow(w: Networks, of: Moments) -> tuple[Tensor, Networks]:
    """‖Z₁ᵀZ₂ − I‖²_F and its gradients."""
    crossed = (w[1] @ of.across, w[0] @ of.across.T)
    apart = crossed[1] @ w[1].T - torch.eye(OUTPUTS, dtype=crossed[0].dtype)
    return apart.square().sum(), (2 * apart @ crossed[0], 2 * apart.T @ crossed[1])


VARIANTS = {"frossl": (frossl, frossl_variant), "barlow": (barlow, barlow_variant)}


def refuse_wrong_slopes(variant: str, x: Networks, w: Networks) -> None:
    """Compare the loss and the gradients with those of the claims, which are computed with autograd from the views."""
    quick, exact = VARIANTS[variant]
    width = max(view.shape[1] for view in x)
    padded_x, padded_w = (torch.stack([functional.pad(part, (0, width - part.shape[1])) for part in v]) for v in (x, w))
    loss, slopes = quick(w, Moments.of(*x))
    torch.testing.assert_close(loss, exact(padded_w, padded_x))
    for slope, expected in zip(slopes, gradient(exact, padded_w, padded_x), strict=True):
        torch.testing.assert_close(slope, expected[:, : slope.shape[1]])


def train(variant: str, x: Networks, lr: float, steps: int) -> tuple[Tensor, Tensor]:
    """The losses [T] and the eigenvalues [T, 10] of the first view. All runs of a seed start from the same weights."""
    w = tuple(1e-3 * torch.randn(OUTPUTS, 3 * SIZE**2, dtype=torch.float64)[:, : view.shape[1]] for view in x)
    refuse_wrong_slopes(variant, x, (100 * w[0], 100 * w[1]))
    moments = Moments.of(*x)
    losses, spectra = [], []
    for step in range(steps + 1):
        loss, slopes = VARIANTS[variant][0]((w[0], w[1]), moments)
        if step % EVERY == 0:
            losses.append(loss)
            spectra.append(torch.linalg.eigvalsh(w[0] * moments.within[0] @ w[0].T).flip(0))
        w = tuple(weights - lr * slope for weights, slope in zip(w, slopes, strict=True))
    return torch.stack(losses), torch.stack(spectra)


def times(losses: Tensor, spectra: Tensor, lr: float) -> dict[str, float]:
    """The first t after which the loss has done 50 % and 95 % of its fall, and the last eigenvalue 90 % of its rise."""
    done = (losses[0] - losses) / (losses[0] - losses[-1])
    learnt = spectra[:, -1] / spectra[-1, -1]
    reached = {"half of the fall": done < 0.5, "95 % of the fall": done < 0.95, "10th eigenvalue": learnt < 0.9}
    return {name: EVERY * lr * int(before.sum()) for name, before in reached.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=7_000)
    parser.add_argument("--variance", type=float, default=1.0, help="1: all components")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--commit", default="", help="the commit to record, if git is not available")
    options = parser.parse_args()
    torch.set_num_threads(1)
    pixels = torch.from_numpy(read_cifar10(options.data_dir, download=False)[0].images)
    table = Table("crops", "variant", "seed", "half of the fall", "95 % of the fall", "10th eigenvalue", "final loss")
    for seed in range(options.seeds):
        for crops, smallest in CROPS.items():
            torch.manual_seed(seed)
            chosen = pixels[torch.randperm(len(pixels))[: options.images]].permute(0, 3, 1, 2).float() / 255
            views = [components(crop(chosen, smallest), options.variance) for _ in range(2)]
            largest = torch.linalg.matrix_norm(views[0], ord=2)
            x = (views[0] / largest, views[1] / largest)
            for variant in VARIANTS:
                torch.manual_seed(seed)
                losses, spectra = train(variant, x, options.lr, options.steps)
                row: dict[str, Any] = {"crops": crops, "smallest crop": smallest, "variant": variant, "seed": seed}
                row |= times(losses, spectra, options.lr) | {
                    "final loss": losses[-1].item(),
                    "components": x[0].shape[1],
                }
                if seed == 0:
                    row["losses"] = rounded(losses[::SHOWN])
                    row["eigenvalues"] = [rounded(values) for values in spectra[::SHOWN].T]
                table.add(row)
    settings = {name: value for name, value in vars(options).items() if name not in ("out", "commit", "data_dir")}
    settings |= {"interval of the curves": EVERY * SHOWN * options.lr}
    keep("frossl-linear-cifar10", table, settings, "cpu", options.commit, options.out)


def rounded(values: Tensor) -> list[float]:
    return [round(value, 4) for value in values.tolist()]


if __name__ == "__main__":
    main()
