"""FroSSL contrasts dimensions, samples, or both at once: propositions 3.1 to 3.3, and what their minima are."""

from functools import partial

import torch
from torch import Tensor

from twofold import linalg, objectives
from twofold_papers.frossl.claims.objective import SHAPES, stacked, unit_columns, views
from twofold_papers.verify.claim import Sides, claim
from twofold_papers.verify.numerics import descended


def between_dimensions(z: Tensor) -> Tensor:
    """L_nc of definition 3.1: ‖ZᵀZ − diag(ZᵀZ)‖²_F."""
    product = z.T @ z
    return (product - product.diagonal().diag()).square().sum()


def between_samples(z: Tensor) -> Tensor:
    """L_c of definition 3.2: ‖ZZᵀ − diag(ZZᵀ)‖²_F."""
    return between_dimensions(z.T)


@claim("frossl", "definition 3.1", "L_nc(Z) = ‖ZᵀZ − diag(ZᵀZ)‖² is Σ_{i≠j} (ZᵀZ)_ij²", tolerance=1e-12)
def dimension_contrastive_criterion() -> Sides:
    given = [views(*shape)[0] for shape in SHAPES]
    left = stacked([linalg.off_diagonal_norm_squared(z) for z in given])
    return Sides(left, stacked([between_dimensions(z) for z in given]))


@claim("frossl", "definition 3.2", "L_c(Z) = ‖ZZᵀ − diag(ZZᵀ)‖² is L_nc(Zᵀ)", tolerance=1e-12)
def sample_contrastive_criterion() -> Sides:
    given = [views(*shape)[0] for shape in SHAPES]
    left = stacked([linalg.off_diagonal_norm_squared(z.T) for z in given])
    products = [(z @ z.T).square().sum() - z.square().sum(dim=1).square().sum() for z in given]
    return Sides(left, stacked(products))


@claim("frossl", "Proposition 3.1", "columns of unit norm: L = Σ_v log(L_nc(Z_v) + D) + L_MSE", tolerance=1e-12)
def contrasts_dimensions() -> Sides:
    left, right = [], []
    for samples, dims in SHAPES:
        z = views(samples, dims)
        columns = unit_columns(z)
        left.append(objectives.frossl(z).total)
        apart = (columns[0] - columns[1]).square().sum() / samples
        right.append(sum((torch.log(between_dimensions(y) + dims) for y in columns), apart))
    return Sides(stacked(left), stacked(right))


@claim("frossl", "Proposition 3.1 (any ρ)", "columns of squared norm ρ: ‖ZᵀZ‖² = L_nc + Dρ²", tolerance=1e-12)
def contrasts_dimensions_of_any_variance() -> Sides:
    left, right = [], []
    for (samples, dims), rho in zip(SHAPES, (0.5, 1.0, 2.0, 3.0), strict=True):
        z = rho**0.5 * unit_columns(views(samples, dims)[0])
        left.append(linalg.gram_norm_squared(z))
        right.append(between_dimensions(z) + dims * rho**2)
    return Sides(stacked(left), stacked(right))


def total(z: Tensor, logarithm: bool = True) -> Tensor:
    return objectives.frossl(z, logarithm=logarithm).total


# A minimum is flat, so the solver knows its place to the square root of rounding; values there are much closer.
@claim(
    "frossl",
    "E.1 (minima)",
    "minima of L, with and without logs, have L_MSE = 0 and the least L_nc: 0, or D²/(N−1) − D where D ≥ N",
    tolerance=1e-9,
)
def minima_contrast_dimensions() -> Sides:
    left, right = [], []
    for samples, dims in [(12, 4), (20, 6), (5, 8)]:
        least = max(dims**2 / (samples - 1) - dims, 0.0)
        for logarithm in (True, False):
            z = descended(partial(total, logarithm=logarithm), views(samples, dims))
            columns = unit_columns(z)
            left += [between_dimensions(y) for y in columns] + [(columns[0] - columns[1]).square().sum()]
            right += [least, least, 0.0]
    return Sides(stacked(left), torch.tensor(right, dtype=torch.float64))


@claim("frossl", "section 5.2 (ρ)", "at the minimum every eigenvalue of Z₁ᵀZ₁ is the variance ρ = 1", tolerance=1e-7)
def eigenvalues_approach_the_variance() -> Sides:
    """Known less well than L_nc, which is a square: eigenvalues move by the first power of Z's error."""
    spectra = []
    for samples, dims in [(12, 4), (20, 6)]:
        z = descended(total, views(samples, dims))
        spectra.append(torch.linalg.svdvals(unit_columns(z)[0]).square())
    return Sides(torch.cat(spectra), 1.0)


@claim("frossl", "Proposition 3.2", "rows of squared norm κ: ‖ZᵀZ‖² = L_c + Nκ²", tolerance=1e-12)
def contrasts_samples() -> Sides:
    left, right = [], []
    for (samples, dims), kappa in zip(SHAPES, (0.5, 1.0, 2.0, 3.0), strict=True):
        z = kappa**0.5 * linalg.normalized(views(samples, dims)[0])
        left.append(linalg.gram_norm_squared(z))
        right.append(between_samples(z) + samples * kappa**2)
    return Sides(stacked(left), stacked(right))


@claim(
    "frossl",
    "E.2 (minima)",
    "over unit rows the minimum of ‖ZᵀZ‖² has the least L_c there is: N²/D − N (Welch), 0 where D ≥ N",
    tolerance=1e-9,
)
def minima_contrast_samples() -> Sides:
    left, right = [], []
    for samples, dims in [(12, 4), (9, 7), (5, 8)]:
        start = torch.randn(samples, dims, dtype=torch.float64)
        z = descended(lambda z: linalg.gram_norm_squared(linalg.normalized(z)), start)
        left.append(between_samples(torch.nn.functional.normalize(z, dim=1)))
        right.append(max(samples**2 / dims - samples, 0.0))
    return Sides(stacked(left), torch.tensor(right, dtype=torch.float64))


def equal_sums(samples: int, dims: int) -> Tensor:
    """A positive matrix whose rows all have sum 1, and whose columns all have sum N/D."""
    return linalg.sinkhorn(torch.randn(samples, dims, dtype=torch.float64), 300)


@claim(
    "frossl",
    "Proposition 3.3",
    "Z⊙Z with equal row sums κ and equal column sums ρ: ‖ZᵀZ‖² = L_nc + Dρ² = L_c + Nκ²",
    tolerance=1e-10,
)
def contrasts_both() -> Sides:
    left, right = [], []
    for samples, dims in SHAPES:
        signs = torch.randn(samples, dims, dtype=torch.float64).sign()
        z = signs * equal_sums(samples, dims).sqrt()
        norm = linalg.gram_norm_squared(z)
        left += [norm, norm]
        right += [between_dimensions(z) + dims * (samples / dims) ** 2, between_samples(z) + samples]
    return Sides(stacked(left), stacked(right))


@contrasts_both.printed("the same for Z doubly stochastic itself (rows of mean ‖z‖² = κ, columns of mean ‖z‖² = ρ)")
def _() -> Sides:
    left, right = [], []
    for samples, dims in SHAPES:
        z = equal_sums(samples, dims)
        norm, squares = linalg.gram_norm_squared(z), z.square().sum()
        left += [norm, norm]
        right += [between_dimensions(z) + squares**2 / dims, between_samples(z) + squares**2 / samples]
    return Sides(stacked(left), stacked(right))
