"""Appendix B: a head with orthonormal rows leads to another self-supervised objective. N here is the paper's P."""

from collections.abc import Iterator

import torch
from torch import Tensor

from twofold import linalg, objectives
from twofold_papers.birth.claims.setting import orthonormal, stacked
from twofold_papers.verify.claim import Sides, claim
from twofold_papers.verify.numerics import descended, gradient, randn

SIZES = [(8, 3, 5), (12, 2, 6), (6, 4, 7)]  # samples N, features K, classes C


def instances(sizes: list[tuple[int, int, int]] = SIZES) -> Iterator[tuple[Tensor, Tensor]]:
    for N, K, C in sizes:
        for _ in range(2):
            yield randn(N, K), randn(N, C)


def error(features: Tensor, head: Tensor, labels: Tensor) -> Tensor:
    """‖FW − Y‖²/N, W[K, C]."""
    return (features @ head - labels).square().sum() / len(features)


def closed_form(features: Tensor, labels: Tensor) -> Tensor:
    """The last line of appendix B, (‖F‖² + Tr G − 2 Tr √(FᵀGF))/N, with the root computed from eigenvalues."""
    graph = labels @ labels.T
    roots = torch.linalg.eigvalsh(features.T @ graph @ features).clamp_min(0).sqrt()
    return (features.square().sum() + graph.trace() - 2 * roots.sum()) / len(features)


@claim(
    "birth",
    "B, last line",
    "If K ≤ C, the minimum of ‖FW − Y‖²/N over WWᵀ = I is (‖F‖² + Tr G − 2 Tr √(FᵀGF))/N. Checked: "
    "orthogonal_head and this formula",
    tolerance=1e-9,
)
def needs_the_graph_alone() -> Sides:
    pairs = list(instances())
    return Sides(
        stacked([objectives.orthogonal_head(f, y).total for f, y in pairs]),
        stacked([closed_form(f, y) for f, y in pairs]),
    )


@needs_the_graph_alone.published("the minimum over orthogonal W is (‖F‖² + Tr G − 2 Tr √(FᵀGF))/N")
def _() -> Sides:
    left, right = [], []
    for f, y in instances([(8, 5, 3), (12, 6, 2)]):
        U, _, Vt = torch.linalg.svd(f.T @ y, full_matrices=False)
        left.append(error(f, U @ Vt, y))
        right.append(closed_form(f, y))
    return Sides(stacked(left), stacked(right))


needs_the_graph_alone.holds_if(
    "K ≤ C, so that W can have orthonormal rows",
    fails_if="K > C, where W can have orthonormal columns only, as the published W* has",
)(needs_the_graph_alone.compute)


@claim(
    "birth",
    "B (minimum)",
    "Gradient descent over heads with orthonormal rows reaches this minimum. Checked: orthogonal_head and the "
    "value that L-BFGS finds over rotations e^{X − Xᵀ}",
    tolerance=1e-9,
)
def descent_over_heads() -> Sides:
    left, right = [], []
    for f, y in instances():

        def loss(x: Tensor, f: Tensor = f, y: Tensor = y) -> Tensor:
            return error(f, torch.linalg.matrix_exp(x - x.T)[: f.shape[1]], y)

        left.append(objectives.orthogonal_head(f, y).total)
        right.append(loss(descended(loss, randn(y.shape[1], y.shape[1]))))
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "B (W*)",
    "The best head is W* = UVᵀ, where FᵀY = UΣVᵀ. Checked: its error equals orthogonal_head, and 100 random "
    "heads have no smaller error",
    tolerance=1e-10,
)
def best_head() -> Sides:
    left, right = [], []
    for f, y in instances():
        best = objectives.orthogonal_head(f, y).total
        U, _, Vt = torch.linalg.svd(f.T @ y, full_matrices=False)
        left += [best, error(f, U @ Vt, y)]  # each ≤ the other, so they are equal
        right += [error(f, U @ Vt, y), best]
        left += [best] * 100
        right += [error(f, orthonormal(y.shape[1], f.shape[1]).T, y) for _ in range(100)]
    return Sides(stacked(left), stacked(right), "≤")


def _third_line(right_order: bool) -> Sides:
    """Sizes with K = C, where the published product is defined."""
    left, right = [], []
    for f, y in instances([(8, 4, 4), (10, 6, 6)]):
        product = f.T @ y
        U, _, Vt = torch.linalg.svd(product)
        trace = ((U @ Vt).T @ product).trace() if right_order else (U @ Vt @ product).trace()
        left.append(objectives.orthogonal_head(f, y).total)
        right.append((f.square().sum() + (y @ y.T).trace() - 2 * trace) / len(f))
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "B, line 3",
    "The cross term is Tr(VUᵀFᵀY) = Tr(W*ᵀFᵀY). Checked: orthogonal_head and the loss with this cross term, for K = C",
    tolerance=1e-9,
)
def cross_term() -> Sides:
    return _third_line(right_order=True)


@cross_term.published("Tr(UVᵀFᵀY), which is not defined for K ≠ C")
def _() -> Sides:
    return _third_line(right_order=False)


@claim(
    "birth",
    "B, lines 4 and 5",
    "The cross term equals Σσ_k(FᵀY) = Σ√σ_k(FᵀYYᵀF). Checked: the trace with the library's polar factor, and "
    "both sums",
    tolerance=1e-9,
)
def nuclear_norm() -> Sides:
    left, right = [], []
    for f, y in instances():
        product = f.T @ y
        left += [(linalg.polar_factor(product) * product).sum()] * 2
        right.append(torch.linalg.svdvals(product).sum())
        right.append(torch.linalg.svdvals(product @ product.T).sqrt().sum())
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "B (gradient)",
    "The gradient with respect to F is 2(F − YW*ᵀ)/N, as if the head were fixed. Checked: the gradients of "
    "orthogonal_head and of the closed form by autograd, and this formula",
    tolerance=1e-9,
)
def gradient_with_the_head_fixed() -> Sides:
    left, right = [], []
    for f, y in instances():
        left.append(gradient(lambda f, y=y: objectives.orthogonal_head(f, y).total, f))
        right.append(gradient(lambda f, y=y: closed_form(f, y), f))
        U, _, Vt = torch.linalg.svd(f.T @ y, full_matrices=False)
        left.append(right[-1])
        right.append(2 * (f - y @ (U @ Vt).T) / len(f))
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "B (another method)",
    "The best features have σ_k² = λ_k(G), while those of eq 2 grow without bound. Checked: squared singular "
    "values of the features that L-BFGS finds, and the eigenvalues of G",
    tolerance=1e-6,
)
def best_features() -> Sides:
    left, right = [], []
    for N, K, C in SIZES:
        y = randn(N, C)
        f = descended(lambda f, y=y: objectives.orthogonal_head(f, y).total, randn(N, K))
        left.append(torch.linalg.svdvals(f).square())
        right.append(torch.linalg.eigvalsh(y @ y.T).flip(0)[:K])
    return Sides(stacked(left), stacked(right))
