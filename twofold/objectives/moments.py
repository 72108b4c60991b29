"""Moments of embeddings: the statistics from which covariance losses are computed, and which shards can add up.

Shapes: V views, N samples, D dimensions, P = V(V−1)/2 pairs of views; embeddings z[V, N, D].
"""

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from twofold.errors import TwofoldError
from twofold.linalg import centred, full_precision

SMALLEST_NORM = 1e-6  # of a column over the batch; a column without variance is divided by this


@dataclass(frozen=True)
class Moments:
    """Moments of embeddings: sums over centred samples, for each view and between views. The D×D sums are optional."""

    count: int  # the number N of samples
    mean_VD: Tensor  # the mean of each view
    cross_VVD: Tensor  # Σ_n (z_vn − mean_v) ⊙ (z_wn − mean_w); for v = w, these are squared norms of columns
    spread: Tensor  # Σ_n Σ_{v<w} ‖z_vn − z_wn‖²; computed from the embeddings, because cross_VVD would lose digits
    within_VDD: Tensor | None = None  # Σ_n (z_vn − mean_v)(z_vn − mean_v)ᵀ
    between_PDD: Tensor | None = None  # Σ_n (z_vn − mean_v)(z_wn − mean_w)ᵀ for the P pairs of views v < w

    def merge(self, other: "Moments") -> "Moments":
        """Return the moments of two shards together, by Chan's update, which subtracts no large numbers."""
        count = self.count + other.count
        apart = other.mean_VD - self.mean_VD
        weight = self.count * other.count / count
        return Moments(
            count,
            self.mean_VD + apart * (other.count / count),
            self.cross_VVD + other.cross_VVD + weight * apart[:, None] * apart[None],
            self.spread + other.spread,
            _merged(self.within_VDD, other.within_VDD, weight, apart, apart),
            _merged(self.between_PDD, other.between_PDD, weight, *view_pairs(apart)),
        )

    def about(self, count: int, mean_VD: Tensor) -> "Moments":
        """Return this shard's contribution to the moments of a batch with this count and mean.

        The sums of the contributions of all shards are the moments of the batch. `mean_VD` may be a constant. Its
        gradient would be 0, because the differences between the means of the shards and `mean_VD`, weighted by count,
        sum to 0.
        """
        apart = self.mean_VD - mean_VD
        return Moments(
            count,
            mean_VD,
            self.cross_VVD + self.count * apart[:, None] * apart[None],
            self.spread,
            _moved(self.within_VDD, self.count, apart, apart),
            _moved(self.between_PDD, self.count, *view_pairs(apart)),
        )

    def norms(self, epsilon: float = 0.0) -> Tensor:
        """Return the norms [V, D] of the centred columns, at least 1e-6. `epsilon` is added to the variances."""
        return norms_of(self.cross_VVD.diagonal().mT, self.count, epsilon)


def _merged(a: Tensor | None, b: Tensor | None, weight: float, left: Tensor, right: Tensor) -> Tensor | None:
    return None if a is None or b is None else _moved(a + b, weight, left, right)


def _moved(a: Tensor | None, weight: float, left: Tensor, right: Tensor) -> Tensor | None:
    return None if a is None else a + weight * left[:, :, None] * right[:, None, :]


def norms_of(squares: Tensor, count: int, epsilon: float = 0.0) -> Tensor:
    return (squares + count * epsilon).clamp_min(SMALLEST_NORM**2).sqrt()


def view_pairs(x_V: Tensor) -> tuple[Tensor, Tensor]:
    """x of the first and of the second view of every pair v < w: two tensors [P, ...]."""
    one, other = zip(*combinations(x_V.unbind(), 2), strict=True)
    return torch.stack(one), torch.stack(other)


@full_precision
def moments(z: Tensor, *, within: bool = True, between: bool = False) -> Moments:
    """The moments of a shard of a batch.

    Parameters
    ----------
    z : Tensor [V, N, D]
        Embeddings of V ≥ 2 views.
    within : bool
        Include the covariances within each view, [V, D, D]; FroSSL and VICReg need them.
    between : bool
        Include the covariances between views, [P, D, D]; Barlow Twins needs only these.

    Returns
    -------
    Moments

    Examples
    --------
    >>> frossl_of_moments(moments(z[:, :64]).merge(moments(z[:, 64:])))  # the same as frossl(z)
    """
    _, N, _ = shape_of(z)
    x = centred(z)
    one, other = view_pairs(x)
    return Moments(
        count=N,
        mean_VD=z.mean(dim=1),
        cross_VVD=torch.einsum("vnd,wnd->vwd", x, x),
        spread=spread_of(z),
        within_VDD=x.mT @ x if within else None,
        between_PDD=one.mT @ other if between else None,
    )


def spread_of(z: Tensor) -> Tensor:
    """Σ_{v<w} ‖z_v − z_w‖²."""
    return _Spread.apply(z)


class _Spread(torch.autograd.Function):
    """V Σ_v ‖z_v − mean‖². The gradient is 2V(z_v − mean); the part through the mean is 0."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        apart = _apart(z)
        ctx.save_for_backward(z, apart)
        return len(z) * apart.square().sum()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        z, apart = ctx.saved_tensors
        return 2 * len(z) * gradient * (_apart(z) if torch.is_grad_enabled() else apart)


def _apart(z: Tensor) -> Tensor:
    # Views are close to each other, but not to 0: rounding in their mean could exceed their differences.
    apart = z - z[:1].detach()
    return apart - apart.mean(dim=0)


def shape_of(z: Tensor) -> tuple[int, int, int]:
    if z.dim() != 3 or z.shape[0] < 2:
        raise TwofoldError(f"embeddings have shape {list(z.shape)}: give [views, samples, dim] with two views or more")
    V, N, D = z.shape
    return V, N, D
