"""Eq 8, 10 to 13 and 19 to 29: the linear variant of FroSSL and its gradients.

Shapes: two views x[2, N, m] of the data and two linear networks w[2, d, m]. Γ_v = X_vᵀX_v and Z_v = X_v W_vᵀ.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from twofold import linalg
from twofold_papers.frossl.claims.objective import flat, stacked, views
from twofold_papers.verify.claim import Sides, claim

SIZES = [(12, 5, 3), (8, 6, 6), (20, 4, 2), (5, 7, 4)]  # N, m, d
Instance = tuple[Tensor, Tensor]


def frossl_variant(w: Tensor, x: Tensor) -> Tensor:
    """Eq 10: ‖Z₁ᵀZ₁ − I‖²_F + ‖Z₂ᵀZ₂ − I‖²_F + ‖Z₁ − Z₂‖²_F. Batch axes follow the axis of views."""
    z = x @ w.mT
    return linalg.distance_from_orthonormal(z).sum(dim=0) + (z[0] - z[1]).square().sum(dim=(-2, -1))


def barlow_variant(w: Tensor, x: Tensor) -> Tensor:
    """The Barlow variant of Simon et al. (2023): ‖Z₁ᵀZ₂ − I‖²_F."""
    z = x @ w.mT
    return (z[0].mT @ z[1] - torch.eye(z.shape[-1], dtype=z.dtype)).square().sum(dim=(-2, -1))


def gradient(loss: Callable[[Tensor, Tensor], Tensor], w: Tensor, x: Tensor) -> Tensor:
    w = w.detach().requires_grad_()
    return torch.autograd.grad(loss(w, x).sum(), w)[0]


def instances() -> list[Instance]:
    """Random networks and data. The networks are not aligned with the data."""
    return [
        (torch.randn(2, d, m, dtype=torch.float64) / m, views(samples, m) / samples**0.5) for samples, m, d in SIZES
    ]


@claim(
    "frossl",
    "eq 8, 10, 11",
    "With Z_v = X_v W_vᵀ and Γ_v = X_vᵀX_v, the loss of the linear variant, ‖Z₁ᵀZ₁ − I‖²_F + ‖Z₂ᵀZ₂ − I‖²_F + ‖Z₁ − "
    "Z₂‖²_F (eq 8, 10), equals ‖W₁Γ₁W₁ᵀ − I‖²_F + ‖W₂Γ₂W₂ᵀ − I‖²_F + ‖X₁W₁ᵀ − X₂W₂ᵀ‖²_F (eq 11). Checked: both "
    "formulas for four random networks",
    tolerance=1e-12,
)
def variant() -> Sides:
    left, right = [], []
    for w, x in instances():
        left.append(frossl_variant(w, x))
        identity = torch.eye(w.shape[1], dtype=w.dtype)
        spread = (torch.einsum("nm,dm->nd", x[0], w[0]) - torch.einsum("nm,dm->nd", x[1], w[1])).norm() ** 2
        right.append(sum(((a @ (b.T @ b) @ a.T - identity).norm() ** 2 for a, b in zip(w, x, strict=True)), spread))
    return Sides(stacked(left), stacked(right))


@claim(
    "frossl",
    "eq 19 to 21",
    "‖Z₁ − Z₂‖²_F = tr(W₁Γ₁W₁ᵀ) + tr(W₂Γ₂W₂ᵀ) − 2 tr(W₂X₂ᵀX₁W₁ᵀ). Checked: both sides for four random networks",
    tolerance=1e-12,
)
def expanded() -> Sides:
    left, right = [], []
    for w, x in instances():
        z = x @ w.mT
        left.append((z[0] - z[1]).square().sum())
        within = sum((torch.trace(a @ b.T @ b @ a.T) for a, b in zip(w, x, strict=True)), torch.zeros(()))
        right.append(within - 2 * torch.trace(w[1] @ x[1].T @ x[0] @ w[0].T))
    return Sides(stacked(left), stacked(right))


def spread(w: Tensor, x: Tensor) -> Tensor:
    z = x @ w.mT
    return (z[0] - z[1]).square().sum()


def orthonormality(view: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda w, x: linalg.distance_from_orthonormal(x[view] @ w[view].T)


def by_autograd(loss: Callable[[Tensor, Tensor], Tensor], given: list[Instance], views: tuple[int, ...]) -> Tensor:
    return flat([gradient(loss, w, x)[view] for w, x in given for view in views])


def compared(
    loss: Callable[[Tensor, Tensor], Tensor], formula: Callable[[Tensor, Tensor, int], Tensor], *views: int
) -> Sides:
    """The gradient of the loss with respect to the networks of these views, by autograd and by the formula."""
    given = instances()
    return Sides(by_autograd(loss, given, views), flat([formula(w, x, view) for w, x in given for view in views]))


@claim(
    "frossl",
    "eq 22, 23",
    "∇_{W₁}‖Z₁ − Z₂‖²_F = 2W₁Γ₁ − 2W₂X₂ᵀX₁, and the same with 1 and 2 exchanged. Checked: both gradients by autograd, "
    "and this formula",
    tolerance=1e-12,
)
def gradient_of_invariance() -> Sides:
    return compared(spread, invariance_gradient, 0, 1)


def invariance_gradient(w: Tensor, x: Tensor, v: int) -> Tensor:
    return 2 * w[v] @ x[v].T @ x[v] - 2 * w[1 - v] @ x[1 - v].T @ x[v]


def variance_gradient(w: Tensor, x: Tensor, v: int) -> Tensor:
    gamma = x[v].T @ x[v]
    return 4 * (w[v] @ gamma @ w[v].T - torch.eye(w.shape[1], dtype=w.dtype)) @ w[v] @ gamma


@claim(
    "frossl",
    "eq 24",
    "∇_{W₁}‖W₁Γ₁W₁ᵀ − I‖²_F = +4(W₁Γ₁W₁ᵀ − I)W₁Γ₁. Checked: the gradient by autograd, and this formula",
    tolerance=1e-12,
)
def gradient_of_variance() -> Sides:
    return compared(orthonormality(0), variance_gradient, 0)


@gradient_of_variance.published("∇_{W₁}‖W₁Γ₁W₁ᵀ − I‖²_F = −4(W₁Γ₁W₁ᵀ − I)W₁Γ₁, with a minus sign")
def _() -> Sides:
    return compared(orthonormality(0), lambda w, x, v: -variance_gradient(w, x, v), 0)


@claim(
    "frossl",
    "eq 25, 26",
    "∇_{W₂}‖W₁Γ₁W₁ᵀ − I‖²_F = 0 and ∇_{W₁}‖W₂Γ₂W₂ᵀ − I‖²_F = 0. Checked: both gradients by autograd are exactly 0",
    tolerance=0,
)
def gradients_that_vanish() -> Sides:
    given = instances()
    left = [by_autograd(orthonormality(0), given, (1,)), by_autograd(orthonormality(1), given, (0,))]
    return Sides(flat(left), 0.0)


@claim(
    "frossl",
    "eq 27",
    "∇_{W₂}‖W₂Γ₂W₂ᵀ − I‖²_F = +4(W₂Γ₂W₂ᵀ − I)W₂Γ₂. Checked: the gradient by autograd, and this formula",
    tolerance=1e-12,
)
def gradient_of_other_variance() -> Sides:
    return compared(orthonormality(1), variance_gradient, 1)


@gradient_of_other_variance.published(
    "∇_{W₂}‖W₂Γ₂W₂ᵀ − I‖²_F = −4(W₂Γ₁W₂ᵀ − I)W₂Γ₂, with a minus sign, and with Γ₁ instead of Γ₂ in the bracket"
)
def _() -> Sides:
    def published(w: Tensor, x: Tensor, _: int) -> Tensor:
        first, second = x.mT @ x
        return -4 * (w[1] @ first @ w[1].T - torch.eye(w.shape[1], dtype=w.dtype)) @ w[1] @ second

    return compared(orthonormality(1), published, 1)


def whole_gradient(w: Tensor, x: Tensor, v: int) -> Tensor:
    gamma, cross = x[v].T @ x[v], x[1 - v].T @ x[v]
    return -2 * (w[v] @ gamma + w[1 - v] @ cross - 2 * w[v] @ gamma @ w[v].T @ w[v] @ gamma)


def published_gradient(w: Tensor, x: Tensor, v: int) -> Tensor:
    gamma, cross = x[v].T @ x[v], x[1 - v].T @ x[v]
    return -2 * (w[v] @ gamma + 2 * w[1 - v] @ cross + 2 * w[v] @ gamma @ w[v].T @ w[v] @ gamma)


@claim(
    "frossl",
    "eq 12",
    "∇_{W₁}L = −2(W₁Γ₁ + W₂X₂ᵀX₁ − 2W₁Γ₁W₁ᵀW₁Γ₁). Checked: the gradient of eq 10 by autograd, and this formula",
    tolerance=1e-12,
)
def gradient_of_first() -> Sides:
    return compared(frossl_variant, whole_gradient, 0)


@gradient_of_first.published("∇_{W₁}L = −2(W₁Γ₁ + 2W₂X₂ᵀX₁ + 2W₁Γ₁W₁ᵀW₁Γ₁)")
def _() -> Sides:
    return compared(frossl_variant, published_gradient, 0)


@claim(
    "frossl",
    "eq 13",
    "∇_{W₂}L = −2(W₂Γ₂ + W₁X₁ᵀX₂ − 2W₂Γ₂W₂ᵀW₂Γ₂). Checked: the gradient of eq 10 by autograd, and this formula",
    tolerance=1e-12,
)
def gradient_of_second() -> Sides:
    return compared(frossl_variant, whole_gradient, 1)


@gradient_of_second.published("∇_{W₂}L = −2(W₂Γ₂ + 2W₁X₁ᵀX₂ + 2W₂Γ₂W₂ᵀW₂Γ₂)")
def _() -> Sides:
    return compared(frossl_variant, published_gradient, 1)


def sum_of_terms(w: Tensor, x: Tensor, v: int) -> Tensor:
    return invariance_gradient(w, x, v) + variance_gradient(w, x, v)


def published_sum(w: Tensor, x: Tensor, v: int) -> Tensor:
    return invariance_gradient(w, x, v) - variance_gradient(w, x, v)


@claim(
    "frossl",
    "eq 28",
    "∇_{W₁}L = 2W₁Γ₁ − 2W₂X₂ᵀX₁ + 4(W₁Γ₁W₁ᵀ − I)W₁Γ₁. Checked: the gradient of eq 10 by autograd, and this formula",
    tolerance=1e-12,
)
def combined_first() -> Sides:
    return compared(frossl_variant, sum_of_terms, 0)


@combined_first.published(
    "∇_{W₁}L = 2W₁Γ₁ − 2W₂X₂ᵀX₁ − 4(W₁Γ₁W₁ᵀ − I)W₁Γ₁, with a minus sign before the last term. This is the first line "
    "of eq 28; the second line is not equal to it"
)
def _() -> Sides:
    return compared(frossl_variant, published_sum, 0)


@claim(
    "frossl",
    "eq 29",
    "∇_{W₂}L = 2W₂Γ₂ − 2W₁X₁ᵀX₂ + 4(W₂Γ₂W₂ᵀ − I)W₂Γ₂. Checked: the gradient of eq 10 by autograd, and this formula",
    tolerance=1e-12,
)
def combined_second() -> Sides:
    return compared(frossl_variant, sum_of_terms, 1)


@combined_second.published(
    "∇_{W₂}L = 2W₂Γ₂ − 2W₁X₁ᵀX₂ − 4(W₂Γ₂W₂ᵀ − I)W₂Γ₂, with a minus sign before the last term. This is the first line "
    "of eq 29; the second line is not equal to it"
)
def _() -> Sides:
    return compared(frossl_variant, published_sum, 1)


def loss_after(velocity: Callable[[Tensor, Tensor, int], Tensor], given: list[Instance]) -> Tensor:
    """Eq 10 after 200 steps of size 0.001 along the velocity."""
    values = []
    for w, x in given:
        for _ in range(200):
            w = w + 1e-3 * torch.stack([velocity(w, x, v) for v in (0, 1)])
        values.append(frossl_variant(w, x))
    return stacked(values)


def small(given: list[Instance]) -> list[Instance]:
    return [(w / 10, x) for w, x in given]


def losses(given: list[Instance]) -> Tensor:
    return stacked([frossl_variant(w, x) for w, x in given])


@claim(
    "frossl",
    "eq 12, 13 (flow)",
    "Gradient descent on eq 10 follows dW/dt = −∇L, with a minus sign. Checked: 200 such steps of size 0.001 from "
    "small weights lower L",
    tolerance=0,
)
def descent() -> Sides:
    given = small(instances())
    return Sides(loss_after(lambda w, x, v: -whole_gradient(w, x, v), given), losses(given), "<")


@descent.published("dW/dt = ∇L, without a minus sign, where ∇L is the published eq 12 and 13")
def _() -> Sides:
    given = small(instances())
    return Sides(loss_after(published_gradient, given), losses(given), "<")
