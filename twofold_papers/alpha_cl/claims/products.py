"""Lemmas 8, 9 and 11: a product of matrices with given norms has the largest spectral norm if all are aligned."""

import torch
from torch import Tensor

from twofold_papers.alpha_cl.claims.nets import (
    Field,
    Weights,
    ascend,
    deep_linear,
    flat,
    gradients,
    normal,
    product,
    tracked,
    uniform,
    unit_filters,
    unit_layers,
)
from twofold_papers.verify.claim import Sides, claim

STARTS = 8
WIDTHS = [[4, 3], [4, 5, 3], [3, 4, 4, 5]]


def spectral_norm(weights: Weights) -> Tensor:
    """J(θ) = ‖W_L … W_1‖₂ (eq 74)."""
    return torch.linalg.matrix_norm(product(weights, weights[0].shape[-1]), 2)


def spectral_slopes(weights: Weights) -> Weights:
    at = tracked(weights)
    return gradients(spectral_norm(at).sum(), at)


def unit(*shape: int) -> Tensor:
    return torch.nn.functional.normalize(normal(*shape), dim=-1)


def climbed(project: Field, steps: int = 400) -> list[Weights]:
    return [ascend(project(deep_linear(widths, STARTS)), spectral_slopes, project, steps) for widths in WIDTHS]


def aligned_part(weights: Weights) -> Weights:
    """v_l v_{l−1}ᵀ with v_0 the first right singular vector of the product and v_l = W_l v_{l−1}, not normalised."""
    v = torch.linalg.svd(product(weights, weights[0].shape[-1])).Vh[..., 0, :, None]
    parts = []
    for weight in weights:
        parts.append(weight @ v @ v.mT)
        v = weight @ v
    return parts


@claim(
    "alpha-cl",
    "Lemma 8",
    "A matrix with rank 1 and ‖A‖_F = 1 is uvᵀ with unit vectors u and v. Checked: both sides for random "
    "matrices of rank 1, and the length of u",
    tolerance=1e-13,
)
def rank_one() -> Sides:
    left, right = [], []
    for n, m in ((2, 3), (5, 4)):
        (a,) = unit_layers([torch.outer(normal(n), normal(m))])
        row = a[a.norm(dim=1).argmax()]
        v = row / row.norm()
        u = a @ v
        left += [a, u.norm()]
        right += [torch.outer(u, v), torch.ones((), dtype=a.dtype)]
    return Sides(flat(left), flat(right))


@claim(
    "alpha-cl",
    "eq 75",
    "‖W_L … W_1‖₂ ≤ Π ‖W_l‖₂ ≤ Π ‖W_l‖_F = 1. Checked: both inequalities for 200 random products of each of "
    "three shapes",
    tolerance=1e-14,
)
def product_bound() -> Sides:
    left, right = [], []
    for widths in WIDTHS:
        weights = deep_linear(widths, 200)
        norms = torch.stack([torch.linalg.matrix_norm(weight, 2) for weight in weights]).prod(dim=0)
        left += [spectral_norm(weights), norms]
        right += [norms, torch.ones_like(norms)]
    return Sides(flat(left), flat(right), "≤")


@claim(
    "alpha-cl",
    "Lemma 9 (1)",
    "If factors of rank 1 are not aligned, the spectral norm of their product is Π |v_lᵀ v'_l| instead of 1. "
    "Checked: the norm and this product, for random vectors",
    tolerance=1e-12,
)
def misaligned() -> Sides:
    left, right = [], []
    for widths in WIDTHS[1:]:
        starts, ends = [unit(n) for n in widths[:-1]], [unit(n) for n in widths[1:]]
        left.append(spectral_norm([torch.outer(end, start) for start, end in zip(starts, ends, strict=True)]))
        right.append(torch.stack([(a * b).sum().abs() for a, b in zip(starts[1:], ends, strict=False)]).prod())
    return Sides(torch.stack(left), torch.stack(right))


@claim(
    "alpha-cl",
    "Lemma 9 (2)",
    "Weights with W_L … W_1 = 0 are not a maximum: a small step increases the spectral norm. Checked: the "
    "increase is positive for a random step, for three networks",
    tolerance=0.0,
)
def zero_is_no_maximum() -> Sides:
    found = []
    for widths, silent in (([4, 4, 4], 0), ([3, 4, 5, 3], 0), ([3, 4, 5, 3], 1)):
        weights = deep_linear(widths)
        weights[silent][1:] = 0  # this layer writes to one node only, and the next layer does not read it
        weights[silent + 1][:, 0] = 0
        near = [weight + 1e-3 * normal(*weight.shape) for weight in unit_layers(weights)]
        found.append(spectral_norm(unit_layers(near)) - spectral_norm(weights))
    return Sides(torch.stack(found), 0.0, ">")


@claim(
    "alpha-cl",
    "Lemma 9 (3)",
    "Gradient ascent on ‖W_L … W_1‖₂ under ‖W_l‖_F = 1 ends at W_l = v_l v_{l−1}ᵀ. Checked: W_l and this "
    "product from 8 random starts for each of three shapes",
    tolerance=1e-9,
)
def maxima_are_aligned() -> Sides:
    ends = climbed(unit_layers)
    return Sides(flat([flat(end) for end in ends]), flat([flat(aligned_part(end)) for end in ends]))


@claim(
    "alpha-cl",
    "Lemma 9 (4)",
    "All maxima of ‖W_L … W_1‖₂ under ‖W_l‖_F = 1 have the value 1. Checked: the value that gradient ascent "
    "reaches from 8 random starts for each of three shapes",
    tolerance=1e-12,
)
def maxima_are_global() -> Sides:
    return Sides(flat([spectral_norm(end) for end in climbed(unit_layers)]), 1.0)


@claim(
    "alpha-cl",
    "eqs 76-78",
    "The maximum of ‖W v'‖ over ‖W‖_F = 1 is ‖v'‖, at W = v_L v'ᵀ/‖v'‖. Checked: the value and the W that "
    "gradient ascent reaches, and these formulas",
    tolerance=1e-12,
)
def one_layer() -> Sides:
    left, right = [], []
    for n, m in ((3, 4), (5, 2)):
        v = normal(m)
        (end,) = ascend(deep_linear([m, n]), lambda w, v=v: [w[0] @ torch.outer(v, v)], unit_layers, 400)  # type: ignore[misc]
        left += [(end @ v).norm(), end]
        right += [v.norm(), torch.outer(end @ v, v) / v.norm().square()]
    return Sides(flat(left), flat(right))


@claim(
    "alpha-cl",
    "Lemma 11, value",
    "If ‖w_lk‖ = 1/√n_l replaces ‖W_l‖_F = 1 in the layers l < L, the maxima still have the value 1. Checked: "
    "the value that gradient ascent reaches from 8 random starts for each of three shapes",
    tolerance=1e-12,
)
def filters_value() -> Sides:
    return Sides(flat([spectral_norm(end) for end in climbed(unit_filters)]), 1.0)


@claim(
    "alpha-cl",
    "Lemma 11, shape",
    "If ‖w_lk‖ = 1/√n_l, the maxima have W_l = v_l v_{l−1}ᵀ, and every hidden v_l has entries ±1/√n_l. "
    "Checked: both, at the end of gradient ascent from 8 random starts for each of three shapes",
    tolerance=1e-9,
)
def filters_shape() -> Sides:
    left, right = [], []
    for end in climbed(unit_filters):
        left.append(flat(end))
        right.append(flat(aligned_part(end)))
        v = torch.linalg.svd(product(end, end[0].shape[-1])).Vh[..., 0, :, None]
        for weight in end[:-1]:
            v = weight @ v
            left.append(v.abs().flatten())
            right.append(torch.full_like(left[-1], weight.shape[-2] ** -0.5))
    return Sides(flat(left), flat(right))


def multipliers_at_a_maximum(length: float | None = None) -> tuple[Tensor, Tensor]:
    """Λ in eq 87, W v'v'ᵀ = ΛW, for each row at the maximum of eq 86; and ‖v'‖²."""
    v = 0.5 + uniform(4)
    v = v if length is None else length * v / v.norm()
    signs = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
    w = torch.outer(signs / 3**0.5, v / v.norm())
    return (w @ torch.outer(v, v) / w)[:, 0], v.square().sum().expand(3)


@claim(
    "alpha-cl",
    "eq 87",
    "At the maximum of eq 86, the multipliers are Λ_kk = ‖v'_{l−1}‖². Checked: the ratio of the rows of W "
    "v'v'ᵀ and W at the maximum, and ‖v'‖²",
    tolerance=1e-12,
)
def filter_multipliers() -> Sides:
    return Sides(*multipliers_at_a_maximum())


@filter_multipliers.published("Λ_kk = 1, because the eigenvalues of v'v'ᵀ can only be 0 or 1")
def _() -> Sides:
    return Sides(multipliers_at_a_maximum()[0], 1.0)


@filter_multipliers.holds_if(
    "v' has length 1; its length does not change the maximum of eq 86", fails_if="v' has another length"
)
def _() -> Sides:
    return Sides(multipliers_at_a_maximum(length=1.0)[0], 1.0)


def orthogonal_filter(v: Tensor) -> Tensor:
    w = normal(len(v))
    w = w - (w @ v) * v / v.square().sum()
    return w / w.norm() / 3**0.5


@claim(
    "alpha-cl",
    "eq 87, Λ_kk = 0",
    "If Λ_kk = 0, the filters are orthogonal to v' and keep their length, and they are not a maximum. "
    "Checked: a small rotation towards v' increases |w·v'| by more than 1e-6",
    tolerance=0.0,
)
def zero_multiplier() -> Sides:
    gains = []
    for m in (2, 4, 6):
        v = normal(m)
        w = orthogonal_filter(v)
        turned = w + 1e-3 * v
        turned = turned / turned.norm() / 3**0.5
        gains.append((turned @ v).abs() - (w @ v).abs())
    return Sides(torch.stack(gains), 1e-6, ">")


@zero_multiplier.published(
    "if Λ_kk = 0, the row of W_l is zero, which contradicts its given length. The conclusion, Λ_kk ≠ 0, is right"
)
def _() -> Sides:
    v = normal(5)
    return Sides(orthogonal_filter(v).norm(), 0.0)
