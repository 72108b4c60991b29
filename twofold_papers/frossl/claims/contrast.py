"""Propositions 3.1 to 3.3, E.1 and E.2: when FroSSL is dimension-contrastive, sample-contrastive, or both."""

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


@claim(
    "frossl",
    "definition 3.1",
    "A method is dimension-contrastive if it minimises L_nc(Z) = ‖ZᵀZ − diag(ZᵀZ)‖²_F, which is Σ_{i≠j} (ZᵀZ)_ij². "
    "Checked: the library's off_diagonal_norm_squared of Z, and this norm, for four random Z",
    tolerance=1e-12,
)
def dimension_contrastive_criterion() -> Sides:
    given = [views(*shape)[0] for shape in SHAPES]
    left = stacked([linalg.off_diagonal_norm_squared(z) for z in given])
    return Sides(left, stacked([between_dimensions(z) for z in given]))


@claim(
    "frossl",
    "definition 3.2",
    "A method is sample-contrastive if it minimises L_c(Z) = ‖ZZᵀ − diag(ZZᵀ)‖²_F, which is L_nc(Zᵀ). Checked: the "
    "library's off_diagonal_norm_squared of Zᵀ, and ‖ZZᵀ‖²_F − Σ_i ‖z_i‖⁴, for four random Z",
    tolerance=1e-12,
)
def sample_contrastive_criterion() -> Sides:
    given = [views(*shape)[0] for shape in SHAPES]
    left = stacked([linalg.off_diagonal_norm_squared(z.T) for z in given])
    products = [(z @ z.T).square().sum() - z.square().sum(dim=1).square().sum() for z in given]
    return Sides(left, stacked(products))


@claim(
    "frossl",
    "Proposition 3.1",
    "If all dimensions have equal variance, FroSSL is dimension-contrastive: for columns of norm 1, L = Σ_v "
    "log(L_nc(Z_v) + D) + L_MSE. Checked: the library's frossl, and this formula",
    tolerance=1e-12,
)
def contrasts_dimensions() -> Sides:
    left, right = [], []
    for samples, dims in SHAPES:
        z = views(samples, dims)
        columns = unit_columns(z)
        left.append(objectives.frossl(z).total)
        apart = (columns[0] - columns[1]).square().sum() / samples
        right.append(sum((torch.log(between_dimensions(y) + dims) for y in columns), apart))
    return Sides(stacked(left), stacked(right))


@claim(
    "frossl",
    "Proposition 3.1 (any ρ)",
    "If every column of Z has the squared norm ρ, ‖ZᵀZ‖²_F = L_nc(Z) + Dρ². Checked: the library's gram_norm_squared, "
    "and this formula, for ρ = 0.5, 1, 2 and 3",
    tolerance=1e-12,
)
def contrasts_dimensions_of_any_variance() -> Sides:
    left, right = [], []
    for (samples, dims), rho in zip(SHAPES, (0.5, 1.0, 2.0, 3.0), strict=True):
        z = rho**0.5 * unit_columns(views(samples, dims)[0])
        left.append(linalg.gram_norm_squared(z))
        right.append(between_dimensions(z) + dims * rho**2)
    return Sides(stacked(left), stacked(right))


def total(z: Tensor, logarithm: bool = True) -> Tensor:
    return objectives.frossl(z, logarithm=logarithm).total


# The loss is flat at a minimum: the solver finds Z only up to the square root of the rounding error. L_nc is much more
# accurate, because it is quadratic in the error of Z.
@claim(
    "frossl",
    "E.1 (minima)",
    "Embeddings that minimise L, with or without logarithms, have Z₁ = Z₂ and also minimise L_nc for both views. The "
    "minimum of L_nc is 0 for D < N and D²/(N−1) − D for D ≥ N. Checked: L_nc of both views and ‖Z₁ − Z₂‖²_F at "
    "minima that L-BFGS finds, for columns of norm 1",
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


@claim(
    "frossl",
    "section 5.2 (ρ)",
    "If the dimensions are normalised to variance ρ, L_Fro makes the eigenvalues of Z₁ᵀZ₁ approach ρ. Checked: the "
    "eigenvalues at minima of L that L-BFGS finds are all ρ, for columns of norm 1 (ρ = 1) and D < N",
    tolerance=1e-7,
)
def eigenvalues_approach_the_variance() -> Sides:
    """The tolerance is larger than for L_nc: eigenvalues are linear in the error of Z, L_nc is quadratic."""
    spectra = []
    for samples, dims in [(12, 4), (20, 6)]:
        z = descended(total, views(samples, dims))
        spectra.append(torch.linalg.svdvals(unit_columns(z)[0]).square())
    return Sides(torch.cat(spectra), 1.0)


@claim(
    "frossl",
    "Proposition 3.2",
    "If all embeddings have equal norm, FroSSL is sample-contrastive: for rows of squared norm κ, ‖ZᵀZ‖²_F = L_c(Z) + "
    "Nκ². Checked: the library's gram_norm_squared, and this formula, for κ = 0.5, 1, 2 and 3",
    tolerance=1e-12,
)
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
    "For embeddings of norm 1, the Z that minimises ‖ZᵀZ‖²_F also minimises L_c. The minimum of L_c is N²/D − N for D "
    "< N (the Welch bound) and 0 for D ≥ N. Checked: L_c at minima of ‖ZᵀZ‖²_F that L-BFGS finds",
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
    """A positive matrix whose rows all sum to 1 and whose columns all sum to N/D."""
    return linalg.sinkhorn(torch.randn(samples, dims, dtype=torch.float64), 300)


@claim(
    "frossl",
    "Proposition 3.3",
    "FroSSL is both dimension-contrastive and sample-contrastive if all row sums of Z⊙Z are κ and all column sums are "
    "ρ: then ‖ZᵀZ‖²_F = L_nc(Z) + Dρ² = L_c(Z) + Nκ². Checked: the library's gram_norm_squared, and both formulas, "
    "for κ = 1 and ρ = N/D",
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


@contrasts_both.published(
    "‖ZᵀZ‖²_F = L_nc(Z) + Dρ² = L_c(Z) + Nκ² if Z itself is doubly stochastic. Checked: both equations, where κ is "
    "the mean squared norm of the rows and ρ that of the columns"
)
def _() -> Sides:
    left, right = [], []
    for samples, dims in SHAPES:
        z = equal_sums(samples, dims)
        norm, squares = linalg.gram_norm_squared(z), z.square().sum()
        left += [norm, norm]
        right += [between_dimensions(z) + squares**2 / dims, between_samples(z) + squares**2 / samples]
    return Sides(stacked(left), stacked(right))


contrasts_both.holds_if(
    "'doubly stochastic' refers to the squares of the entries", fails_if="it refers to the entries of Z themselves"
)(contrasts_both.compute)
