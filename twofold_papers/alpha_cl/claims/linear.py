"""Section 4: in a deep linear network, the max player performs PCA of the contrastive covariance X_α."""

from collections.abc import Callable
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor

from twofold import objectives
from twofold.linalg import covariance
from twofold_papers.alpha_cl.claims.nets import (
    Weights,
    ascend,
    deep_linear,
    flat,
    gradients,
    integrate,
    linear_energy,
    linear_slopes,
    normal,
    pair_weights,
    product,
    tracked,
    two_views,
    uniform,
    unit_filters,
    unit_layers,
)
from twofold_papers.alpha_cl.claims.players import ROWS, library_alpha, library_loss, plain_covariance
from twofold_papers.verify.claim import Sides, claim

NETWORKS = [[4, 3], [5, 4, 3], [4, 6, 5, 3], [5, 4, 4, 4, 4, 3]]  # widths, input first


def input_covariance(samples: int, dim: int, apart: float = 0.5) -> Tensor:
    """X_α of random views with different variances per direction, scaled to a largest |eigenvalue| of 1."""
    x = two_views(samples, dim, apart) * torch.linspace(0.5, 2, dim, dtype=torch.float64)
    found = objectives.contrastive_covariance(x[0], x[1], pair_weights(samples))
    return found / torch.linalg.matrix_norm(found, 2)


def with_spectrum(eigenvalues: Tensor) -> tuple[Tensor, Tensor]:
    """A random symmetric matrix with these eigenvalues, and its eigenvectors as columns."""
    vectors = torch.linalg.qr(normal(len(eigenvalues), len(eigenvalues))).Q
    return vectors * eigenvalues @ vectors.mT, vectors


@claim(
    "alpha-cl",
    "Corollary 2",
    "For z = Wx, C_α[z] = W X_α Wᵀ and E_α = tr(W X_α Wᵀ). Checked: contrastive_covariance and energy of the "
    "embeddings, and these formulas, for linear networks with 1, 2, 3 and 5 layers",
    tolerance=1e-12,
)
def linear_energy_is_pca() -> Sides:
    left, right = [], []
    for widths in NETWORKS:
        x, alpha, w = two_views(9, widths[0]), pair_weights(9), product(deep_linear(widths), widths[0])
        z = x @ w.mT
        x_alpha = plain_covariance(x, x, alpha)
        left += [objectives.contrastive_covariance(z[0], z[1], alpha), objectives.energy(z[0], z[1], alpha)]
        right += [w @ x_alpha @ w.mT, (w @ x_alpha @ w.mT).trace()]
    return Sides(flat(left), flat(right))


@claim(
    "alpha-cl",
    "eq 9",
    "The maximum of E_α over WWᵀ = I is the sum of the largest eigenvalues of X_α. Checked: the energy that "
    "gradient ascent reaches, and this sum",
    tolerance=1e-9,
)
def pca_optimum() -> Sides:
    left, right = [], []
    for dim, kept in ((5, 2), (8, 3), (10, 4)):
        x_alpha = input_covariance(20, dim, apart=0.9)
        w = torch.linalg.qr(normal(dim, kept)).Q
        for _ in range(3000):
            w = torch.linalg.qr(w + 2 * x_alpha @ w).Q
        left.append((w * (x_alpha @ w)).sum())
        right.append(torch.linalg.eigvalsh(x_alpha)[-kept:].sum())
    return Sides(torch.stack(left), torch.stack(right))


@claim(
    "alpha-cl",
    "section 4, PCA",
    "With x' = x and α_ij = 1/(2N(N−1)), X_α is the sample covariance of ordinary PCA. Checked: "
    "contrastive_covariance and the covariance, for random samples",
    tolerance=1e-12,
)
def ordinary_covariance() -> Sides:
    left, right = [], []
    for samples, dim in ((5, 3), (12, 6)):
        x = normal(samples, dim)
        alpha = (1 - torch.eye(samples, dtype=x.dtype)) / (2 * samples * (samples - 1))
        left.append(objectives.contrastive_covariance(x, x, alpha))
        right.append(covariance(x))
    return Sides(flat(left), flat(right))


@claim(
    "alpha-cl",
    "section 4, sign",
    "X_α can have negative eigenvalues if augmentation is strong. Checked: its smallest eigenvalue is below "
    "0, for three random data sets",
    tolerance=0.0,
)
def indefinite() -> Sides:
    smallest = [torch.linalg.eigvalsh(input_covariance(12, dim, apart=2.0))[0] for dim in (3, 5, 8)]
    return Sides(torch.stack(smallest), 0.0, "<")


def with_gradients(sign_of_27: int) -> Callable[[], Sides]:
    """Ẇ_l = −∂L/∂W_l by autograd, and J_{>l}ᵀ Σ_i ∂L/∂z_i f_{l−1,i}ᵀ over both views, times a sign."""

    def compute() -> Sides:
        left, right = [], []
        for widths in NETWORKS:
            x, weights, row = two_views(7, widths[0]), tracked(deep_linear(widths)), ROWS[0]
            z = (x @ product(weights, widths[0]).mT).detach().requires_grad_()
            left += [-g for g in gradients(library_loss(x @ product(weights, widths[0]).mT, row), weights)]
            (by_output,) = gradients(library_loss(z, row), [z])
            for layer, weight in enumerate(weights):
                below = x @ product(weights[:layer], widths[0]).mT
                above = product(weights[layer + 1 :], weight.shape[0])
                right.append(sign_of_27 * above.mT @ torch.einsum("vnd,vnf->df", by_output, below))
        return Sides(flat(left).detach(), flat(right).detach())

    return compute


equation_27 = claim(
    "alpha-cl",
    "eq 27",
    "Gradient descent moves the weights by Ẇ_l = −W_{>l}ᵀ Σ_i (∂L/∂z_i f_iᵀ + ∂L/∂z_i' f_i'ᵀ). Checked: "
    "−∂L/∂W_l by autograd and this formula, for linear networks with 1, 2, 3 and 5 layers",
    tolerance=1e-12,
)(with_gradients(-1))
equation_27.published(
    "the corrected formula without the minus sign, which would increase the loss (Lemma 4 gives −C_α)"
)(with_gradients(+1))


@claim(
    "alpha-cl",
    "Lemma 1",
    "In a deep linear network, gradient descent on L gives Ẇ_l = W_{>l}ᵀ W_{>l} W_l C_α[f_{l−1}]. Checked: "
    "−∂L/∂W_l by autograd and this formula, for the eight losses of Figure 1 and linear networks with 1, 2, 3 "
    "and 5 layers",
    tolerance=1e-12,
)
def linear_dynamics() -> Sides:
    left, right = [], []
    for widths in NETWORKS:
        for row in ROWS:
            x, weights = two_views(7, widths[0]), tracked(deep_linear(widths))
            z = x @ product(weights, widths[0]).mT
            left += [-slope for slope in gradients(library_loss(z, row), weights)]
            alpha = library_alpha(z, row)
            right += linear_slopes(weights, objectives.contrastive_covariance(x[0], x[1], alpha))
    return Sides(flat(left).detach(), flat(right).detach())


def imbalance(weights: Weights) -> Tensor:
    return flat([low @ low.mT - high.mT @ high for low, high in pairwise(weights)])


@claim(
    "alpha-cl",
    "section 4.1, balance",
    "W_l W_lᵀ − W_{l+1}ᵀ W_{l+1} is constant along the gradient flow. Checked: its value before and after the "
    "flow, by fourth-order Runge–Kutta steps to time 1",
    tolerance=1e-9,
)
def balance() -> Sides:
    left, right = [], []
    for widths in NETWORKS[1:]:
        weights, x_alpha = deep_linear(widths), input_covariance(10, widths[0])
        end = integrate(lambda state, x_alpha=x_alpha: linear_slopes(state, x_alpha), weights, 1.0, 400)  # type: ignore[misc]
        left.append(imbalance(end))
        right.append(imbalance(weights))
    return Sides(flat(left), flat(right))


@claim(
    "alpha-cl",
    "section 4.2",
    "Without constraints, ‖W_l‖² grows at the rate 2E_α in every layer. Checked: the rates under the dynamics "
    "of Lemma 1, and 2E_α",
    tolerance=1e-12,
)
def unconstrained_growth() -> Sides:
    left, right = [], []
    for widths in NETWORKS:
        weights, x_alpha = deep_linear(widths), input_covariance(10, widths[0])
        rates = [2 * (w * slope).sum() for w, slope in zip(weights, linear_slopes(weights, x_alpha), strict=True)]
        left.append(torch.stack(rates))
        right.append((2 * linear_energy(weights, x_alpha)).expand(len(weights)))
    return Sides(flat(left), flat(right))


STARTS = 12


@cache
def trained(per_filter: bool) -> list[tuple[Tensor, Weights]]:
    """X_α, and networks after projected gradient ascent from random starts. Several claims use them."""
    found = []
    project = unit_filters if per_filter else unit_layers
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        for widths in NETWORKS[1:]:
            x_alpha = input_covariance(16, widths[0])
            start = project(deep_linear(widths, STARTS))
            end = ascend(start, lambda state, x=x_alpha: linear_slopes(state, x), project, 800)  # type: ignore[misc]
            found.append((x_alpha, end))
    return found


def largest_eigenvector(x_alpha: Tensor) -> Tensor:
    return torch.linalg.eigh(x_alpha).eigenvectors[:, -1]


def reached_values(per_filter: bool) -> Sides:
    energies = [linear_energy(weights, x_alpha) for x_alpha, weights in trained(per_filter)]
    expected = [torch.linalg.eigvalsh(x_alpha)[-1].expand(STARTS) for x_alpha, _ in trained(per_filter)]
    return Sides(flat(energies), flat(expected))


def reached_shapes(per_filter: bool) -> Sides:
    """W_l and v_l v_{l−1}ᵀ, where v_0 is the eigenvector and v_l = W_l v_{l−1}, which must have unit length."""
    left, right = [], []
    for x_alpha, weights in trained(per_filter):
        v = largest_eigenvector(x_alpha).expand(STARTS, -1)
        for weight in weights:
            above = (weight @ v[..., None]).squeeze(-1)
            left += [weight, above.norm(dim=-1)]
            right += [above[..., :, None] * v[..., None, :], v.new_ones(STARTS)]
            v = above
    return Sides(flat(left), flat(right))


@claim(
    "alpha-cl",
    "Theorem 3, value",
    "Under ‖W_l‖_F = 1, gradient ascent from every start ends at E = λ_max(X_α). Checked: the energy from 12 "
    "random starts for each of three networks, with 2, 3 and 5 layers",
    tolerance=1e-9,
)
def deep_linear_value() -> Sides:
    return reached_values(per_filter=False)


@claim(
    "alpha-cl",
    "Theorem 3, shape",
    "At the maximum under ‖W_l‖_F = 1, W_l = v_l v_{l−1}ᵀ, where v_0 is the largest eigenvector of X_α and "
    "all v_l have unit length. Checked: W_l and this product at the end of gradient ascent from 12 random "
    "starts",
    tolerance=1e-9,
)
def deep_linear_shape() -> Sides:
    return reached_shapes(per_filter=False)


@claim(
    "alpha-cl",
    "Theorem 3, bound",
    "No weights with ‖W_l‖_F = 1 have an energy above λ_max(X_α), if λ_max > 0. Checked: 500 random networks "
    "each with 1, 2 and 3 layers, λ_max = 1",
    tolerance=1e-14,
)
def deep_linear_bound() -> Sides:
    x_alpha, _ = with_spectrum(torch.tensor([-1.0, 0.2, 0.3, 0.9, 1.0], dtype=torch.float64))
    energies = [linear_energy(deep_linear([5, *hidden, 3], 500), x_alpha) for hidden in ((), (2,), (4, 4))]
    return Sides(flat(energies), 1.0, "≤")


@claim(
    "alpha-cl",
    "eqs 29-30",
    "For any eigenvector v_0, W_l = v_l v_{l−1}ᵀ is a critical point: W_{>l}ᵀW_{>l}W_lF_{l−1} = λW_l with λ = "
    "E. Checked: both equations for every eigenvector of random symmetric matrices",
    tolerance=1e-12,
)
def critical_points() -> Sides:
    left, right = [], []
    for widths in NETWORKS:
        eigenvalues = uniform(widths[0]) - 0.3
        x_alpha, vectors = with_spectrum(eigenvalues)
        for value, start in zip(eigenvalues, vectors.mT, strict=True):
            units = [start, *(vector / vector.norm() for vector in (normal(n) for n in widths[1:]))]
            weights = [torch.outer(high, low) for low, high in pairwise(units)]
            left += [*linear_slopes(weights, x_alpha), linear_energy(weights, x_alpha)]
            right += [*(value * weight for weight in weights), value]
    return Sides(flat(left), flat(right))


@claim(
    "alpha-cl",
    "Theorem 3, saddles",
    "Only the critical point of the largest eigenvector is a maximum. Checked: for every other eigenvector, "
    "turning v_0 slightly towards the largest one increases E, in a network with two layers",
    tolerance=0.0,
)
def other_eigenvectors_are_saddles() -> Sides:
    eigenvalues = torch.tensor([-0.5, 0.2, 0.8, 1.0], dtype=torch.float64)
    x_alpha, vectors = with_spectrum(eigenvalues)
    v1 = torch.nn.functional.normalize(normal(3), dim=0)
    raised = []
    for start in vectors.mT[:-1]:
        turned = start + 1e-3 * vectors[:, -1]
        raised.append(linear_energy([torch.outer(v1, turned / turned.norm()), v1[None]], x_alpha))
    return Sides(torch.stack(raised), eigenvalues[:-1] + 1e-8, ">")


@claim(
    "alpha-cl",
    "eq 32",
    "vec(W_{>1}ᵀ W_{>1} W_1 X) = (X ⊗ W_{>1}ᵀ W_{>1}) vec(W_1), where vec stacks columns. Checked: both sides "
    "for random matrices",
    tolerance=1e-12,
)
def vectorised() -> Sides:
    left, right = [], []
    for dim, hidden in ((3, 2), (5, 4)):
        x_alpha, above, w1 = input_covariance(9, dim), normal(3, hidden), normal(hidden, dim)
        left.append((above.mT @ above @ w1 @ x_alpha).mT)
        right.append(torch.kron(x_alpha, above.mT @ above) @ w1.mT.flatten())
    return Sides(flat(left), flat(right))


@claim(
    "alpha-cl",
    "Theorem 3, λ_max > 0",
    "Theorem 3 needs λ_max > 0: if X_α is negative definite, weights with W_2 W_1 = 0 have E = 0 > λ_max. "
    "Checked: the energy of such weights is above λ_max",
    tolerance=0.0,
)
def positive_eigenvalue_is_needed() -> Sides:
    x_alpha, _ = with_spectrum(-uniform(4) - 0.2)
    first, second = torch.zeros(3, 4, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.float64)
    first[0], second[:, 1] = normal(4), normal(2)
    energy = linear_energy(unit_layers([first, second]), x_alpha)
    return Sides(energy, torch.linalg.eigvalsh(x_alpha)[-1], ">")


@claim(
    "alpha-cl",
    "section 4.3, remark",
    "The condition on the eigenvalues is needed: with one layer and a double λ_max, a W_1 of rank 2 also has "
    "E = λ_max. Checked: energy and rank of such a W_1",
    tolerance=1e-12,
)
def degenerate_layer() -> Sides:
    x_alpha, vectors = with_spectrum(torch.tensor([-0.4, 0.3, 1.0, 1.0], dtype=torch.float64))
    (w1,) = unit_layers([normal(3, 2) @ vectors[:, -2:].mT])
    rank = torch.linalg.matrix_rank(w1).double()
    return Sides(torch.stack([linear_energy([w1], x_alpha), rank]), torch.tensor([1.0, 2.0], dtype=torch.float64))


@claim(
    "alpha-cl",
    "Corollary 3, value",
    "If the norm of each filter is fixed, ‖w_lk‖ = 1/√n_l, every start still ends at E = λ_max(X_α). Checked: "
    "the energy from 12 random starts for each of three networks, with 2, 3 and 5 layers",
    tolerance=1e-9,
)
def per_filter_value() -> Sides:
    return reached_values(per_filter=True)


@claim(
    "alpha-cl",
    "Corollary 3, shape",
    "If the norm of each filter is fixed, the maximum still has W_l = v_l v_{l−1}ᵀ, where v_0 is the largest "
    "eigenvector of X_α. Checked: W_l and this product at the end of gradient ascent from 12 random starts",
    tolerance=1e-9,
)
def per_filter_shape() -> Sides:
    return reached_shapes(per_filter=True)


@claim(
    "alpha-cl",
    "Corollary 3, entries",
    "If the norm of each filter is fixed, all hidden v_l have entries ±1/√n_l at the maximum. Checked: the "
    "absolute values of the entries at the end of gradient ascent from 12 random starts",
    tolerance=1e-9,
)
def per_filter_entries() -> Sides:
    left, right = [], []
    for x_alpha, weights in trained(True):
        v = largest_eigenvector(x_alpha).expand(STARTS, -1)[..., None]
        for weight in weights[:-1]:
            v = weight @ v
            left.append(v.abs())
            right.append(torch.full_like(v, weight.shape[-2] ** -0.5))
    return Sides(flat(left), flat(right))
