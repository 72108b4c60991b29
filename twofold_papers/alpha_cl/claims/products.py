"""Lemmas 8, 9 and 11: products of matrices of given norm, whose spectral norm is largest where all are aligned."""

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
    """v_l v_{l−1}ᵀ with v_0 the product's first right singular vector and v_l = W_l v_{l−1}, of unit length or not."""
    v = torch.linalg.svd(product(weights, weights[0].shape[-1])).Vh[..., 0, :, None]
    parts = []
    for weight in weights:
        parts.append(weight @ v @ v.mT)
        v = weight @ v
    return parts


@claim("alpha-cl", "Lemma 8", "a matrix of rank 1 and ‖A‖_F = 1 is uvᵀ with unit vectors u, v", tolerance=1e-13)
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


@claim("alpha-cl", "eq 75", "‖W_L … W_1‖₂ ≤ Π ‖W_l‖₂ ≤ Π ‖W_l‖_F = 1", tolerance=1e-14)
def product_bound() -> Sides:
    left, right = [], []
    for widths in WIDTHS:
        weights = deep_linear(widths, 200)
        norms = torch.stack([torch.linalg.matrix_norm(weight, 2) for weight in weights]).prod(dim=0)
        left += [spectral_norm(weights), norms]
        right += [norms, torch.ones_like(norms)]
    return Sides(flat(left), flat(right), "≤")


@claim(
    "alpha-cl", "Lemma 9 (1)", "rank-1 factors that are not aligned fall short of 1 by Π |v_lᵀ v'_l|", tolerance=1e-12
)
def misaligned() -> Sides:
    left, right = [], []
    for widths in WIDTHS[1:]:
        starts, ends = [unit(n) for n in widths[:-1]], [unit(n) for n in widths[1:]]
        left.append(spectral_norm([torch.outer(end, start) for start, end in zip(starts, ends, strict=True)]))
        right.append(torch.stack([(a * b).sum().abs() for a, b in zip(starts[1:], ends, strict=False)]).prod())
    return Sides(torch.stack(left), torch.stack(right))


@claim("alpha-cl", "Lemma 9 (2)", "where W_L … W_1 = 0, a small step of the weights makes it larger", tolerance=0.0)
def zero_is_no_maximum() -> Sides:
    found = []
    for widths, silent in (([4, 4, 4], 0), ([3, 4, 5, 3], 0), ([3, 4, 5, 3], 1)):
        weights = deep_linear(widths)
        weights[silent][1:] = 0  # writes one node, which the next layer does not read
        weights[silent + 1][:, 0] = 0
        near = [weight + 1e-3 * normal(*weight.shape) for weight in unit_layers(weights)]
        found.append(spectral_norm(unit_layers(near)) - spectral_norm(weights))
    return Sides(torch.stack(found), 0.0, ">")


@claim(
    "alpha-cl",
    "Lemma 9 (3)",
    "gradient ascent of ‖W_L … W_1‖₂ under ‖W_l‖_F = 1 ends at W_l = v_l v_{l−1}ᵀ",
    tolerance=1e-9,
)
def maxima_are_aligned() -> Sides:
    ends = climbed(unit_layers)
    return Sides(flat([flat(end) for end in ends]), flat([flat(aligned_part(end)) for end in ends]))


@claim("alpha-cl", "Lemma 9 (4)", "with the value 1, from every start", tolerance=1e-12)
def maxima_are_global() -> Sides:
    return Sides(flat([spectral_norm(end) for end in climbed(unit_layers)]), 1.0)


@claim("alpha-cl", "eqs 76-78", "‖W v'‖ over ‖W‖_F = 1 is at most ‖v'‖, reached at W = v_L v'ᵀ/‖v'‖", tolerance=1e-12)
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
    "with ‖w_lk‖ = 1/√n_l in place of ‖W_l‖_F = 1 (l < L) the maxima still have the value 1",
    tolerance=1e-12,
)
def filters_value() -> Sides:
    return Sides(flat([spectral_norm(end) for end in climbed(unit_filters)]), 1.0)


@claim(
    "alpha-cl", "Lemma 11, shape", "and W_l = v_l v_{l−1}ᵀ, with entries ±1/√n_l in every hidden v_l", tolerance=1e-9
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


def multipliers_at_a_maximum() -> tuple[Tensor, Tensor]:
    """Λ of eq 87, W v'v'ᵀ = ΛW, row by row at the maximum of eq 86; and ‖v'‖²."""
    v = 0.5 + uniform(4)
    signs = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
    w = torch.outer(signs / 3**0.5, v / v.norm())
    return (w @ torch.outer(v, v) / w)[:, 0], v.square().sum().expand(3)


@claim("alpha-cl", "eq 87", "at the maximum of eq 86 the multipliers are Λ_kk = ‖v'_{l−1}‖²", tolerance=1e-12)
def filter_multipliers() -> Sides:
    return Sides(*multipliers_at_a_maximum())


@filter_multipliers.printed("Λ_kk = 1: the eigenvalues of v'v'ᵀ can only be 0 or 1")
def _() -> Sides:
    return Sides(multipliers_at_a_maximum()[0], 1.0)


def orthogonal_filter(v: Tensor) -> Tensor:
    w = normal(len(v))
    w = w - (w @ v) * v / v.square().sum()
    return w / w.norm() / 3**0.5


@claim(
    "alpha-cl",
    "eq 87, Λ_kk = 0",
    "has the filters of full length at right angles to v', and they are no maximum: a turn to v' gains",
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


@zero_multiplier.printed("Λ_kk = 0 would make the row of W_l zero, against its given length")
def _() -> Sides:
    v = normal(5)
    return Sides(orthogonal_filter(v).norm(), 0.0)
