"""The best linear map of frozen features for an objective, in closed form.

T, B and W = T − B are the total, between-group and within-group covariances of the features. The groups are those of a
graph: the views of an image, or all views of the images of a class. With B u_k = ρ_k T u_k and UᵀTU = I, the objectives
of "The birth of self supervised learning" and others have a minimum at A = diag(√p) Uᵀ, and differ only in p(ρ). ρ_k
is the share of the variance along u_k that is between groups, from 0 to 1.

All computations are in float64. Shapes: K features of the encoder, R ≤ K directions.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from twofold.errors import TwofoldError

RANKLESS = 1e-9  # a direction with a smaller share of variance between groups has none but rounding errors
ROUNDING = 1e-12  # directions with less variance than this share of the largest are rounding errors


@dataclass(frozen=True, eq=False)
class Directions:
    """The generalised eigenvectors of (B, T), with the largest ρ first."""

    vectors: Tensor  # U [K, R], UᵀTU = I
    ratios: Tensor  # ρ [R], from 1 to 0

    def map(self, weights: Tensor) -> Tensor:
        """Return A = diag(√p) Uᵀ without the rows with p = 0, [at most R, K]."""
        kept = weights > 0
        return weights[kept].sqrt()[:, None] * self.vectors.T[kept]


def directions(total: Tensor, between: Tensor, ridge: float = 0.0) -> Directions:
    """Solve B u = ρ (T + ridge · I) u.

    If T + ridge · I is singular, the directions without variance are left out.

    Parameters
    ----------
    total, between : Tensor [K, K]
        T and B.
    ridge : float
        At least 0. It adds noise of this variance to the views of each image.
    """
    values, vectors = torch.linalg.eigh(total.double())
    values = values + ridge
    kept = values > ROUNDING * values[-1].clamp_min(0)
    white = vectors[:, kept] * values[kept].rsqrt()
    ratios, turned = torch.linalg.eigh(white.T @ between.double() @ white)
    return Directions(white @ turned.flip(1), ratios.flip(0).clamp(0, 1))


def ridge_weights(ratios: Tensor, ridge: float, size: float) -> Tensor:
    """Return p of the ridge objective (eq 2) with λ = `ridge` and tr(ATAᵀ) = `size`: [√(λρ/ν) − λ]₊.

    ν is such that Σp = size. With λ = 0, the objective depends only on the space that the rows of A span, and the best
    space of R dimensions is that of the first R directions.
    """
    if ridge <= 0 or size <= 0:
        raise TwofoldError(f"ridge_weights needs ridge and size above 0, not {ridge:g} and {size:g}")
    roots = ratios.clamp_min(0).sqrt()
    # With the first r directions, Σp = scale · Σ√ρ − r λ. The right r is the largest whose last p is positive.
    counts = torch.arange(1, len(roots) + 1, dtype=roots.dtype, device=roots.device)
    scales = (size + counts * ridge) / roots.cumsum(0).clamp_min(torch.finfo(roots.dtype).tiny)
    kept = int((scales * roots > ridge).sum())
    if kept == 0:
        raise TwofoldError("the groups do not differ: every direction varies as much within them as between them")
    return (scales[kept - 1] * roots - ridge).clamp_min(0)


def threshold_weights(ratios: Tensor, alignment: float) -> Tensor:
    """Return p of γ tr(AWAᵀ) + α‖ATAᵀ − I‖² with γ/α = `alignment`: [1 − γ(1 − ρ)/2α]₊."""
    return (1 - alignment * (1 - ratios) / 2).clamp_min(0)


def whitening_weights(ratios: Tensor, rank: int) -> Tensor:
    """Return p of W-MSE, ATAᵀ = I: 1 for the first `rank` directions in which the groups differ."""
    within_rank = torch.arange(len(ratios), device=ratios.device) < rank
    return (within_rank & (ratios > RANKLESS)).to(ratios)


def within_weights(ratios: Tensor) -> Tensor:
    """Return p of tr(AWAᵀ) − log det ATAᵀ, AWAᵀ = I: 1/(1 − ρ). A direction without variance within groups has ρ = 1.

    The objective then has no minimum; pass directions with a ridge.
    """
    return 1 / (1 - ratios).clamp_min(ROUNDING)


def within_whitening(within: Tensor) -> Callable[[float], Tensor]:
    """Return a function of the shrinkage s: the symmetric A [K, K] with AW'A = I.

    W' = (1 − s) W/w + s I is W with its eigenvalues moved towards their mean w. s = 1 gives A = I. Up to a rotation and
    a scale, A is the map of `within_weights` for directions with the ridge s w/(1 − s).
    """
    wide = within.double()
    mean = wide.trace() / len(wide)
    if not mean > 0:
        return lambda _: torch.eye(len(wide), dtype=wide.dtype, device=wide.device)
    values, vectors = torch.linalg.eigh(wide / mean)
    return lambda shrinkage: (vectors * ((1 - shrinkage) * values.clamp_min(0) + shrinkage).rsqrt()) @ vectors.T
