"""The first part of Theorem 5.1, and Lemma B.4: plain DIET suppresses the feature with more noise."""

import torch
from torch import Tensor

from twofold_papers.s_diet.claims.features import Setting
from twofold_papers.s_diet.claims.linear import stack
from twofold_papers.verify.claim import Sides, claim


def settings() -> list[Setting]:
    return [
        Setting(concepts=2, examples=3, d=6, m=6, bounds=(0.3, 0.9), phi=0.5),
        Setting(concepts=2, examples=2, d=5, m=3, bounds=(0.9, 0.8), phi=1.5, still=(0.7, 0.0)),
        Setting(concepts=3, examples=2, d=7, m=4, bounds=(0.2, 0.6), phi=0.9, still=(0.0, 0.5)),
    ]


def regression(setting: Setting) -> Tensor:
    """The W that minimises L_diet for the given W_H, by least squares over all augmentations."""
    root = setting.noise[1].sqrt()
    inputs = (setting.x * root[:, None]).repeat_interleave(setting.examples, dim=0)
    labels = torch.eye(setting.n, dtype=torch.float64)[:, None, :] * root[:, None]
    # ‖W_H z − e‖² = ‖z − W_Hᵀe‖² + constant
    return torch.linalg.lstsq(inputs.flatten(0, 1), (labels @ setting.head).flatten(0, 1)).solution.T


def alphas(setting: Setting) -> tuple[float, float, float]:
    """α1, α2 and k = (C−1)φ²/d."""
    k = (setting.concepts - 1) * setting.phi**2 / setting.d
    first, second = setting.variances
    return 1 + first + k, 1 + second + k, k


def inverse_moment(setting: Setting) -> Tensor:
    alpha1, alpha2, _ = alphas(setting)
    u, v = setting.u, setting.v
    inside = alpha2 * u.T @ u - u.T @ v - v.T @ u + alpha1 * v.T @ v
    rest = torch.eye(setting.d, dtype=torch.float64) - u.T @ u - v.T @ v
    return setting.concepts / (alpha1 * alpha2 - 1) * inside + setting.d / setting.phi**2 * rest


@claim(
    "s-diet",
    "Lemma B.4 (moments)",
    "(E[xxᵀ])⁻¹ = C/(α1α2−1) Σ(α2 uuᵀ − uvᵀ − vuᵀ + α1 vvᵀ) + d/φ² (I − Σ uuᵀ − Σ vvᵀ) with α = 1+σ²+(C−1)φ²/d. "
    "Checked: the inverse of the second moment over all augmentations, and this formula",
    tolerance=1e-11,
)
def moments() -> Sides:
    found, expected = [], []
    for setting in settings():
        x = setting.x
        moment = torch.einsum("cgd,cge,g->de", x, x, setting.noise[1]) / setting.concepts
        found.append(torch.linalg.inv(moment))
        expected.append(inverse_moment(setting))
    return Sides(stack(found), stack(expected))


@claim(
    "s-diet",
    "eq 16",
    "For a fixed W_H, DIET's W is the linear regression W_Hᵀ E[e_i xᵀ] E[xxᵀ]⁻¹. Checked: the least-squares solution "
    "over all augmentations, and this formula",
    tolerance=1e-11,
)
def closed_form() -> Sides:
    found, expected = [], []
    for setting in settings():
        found.append(regression(setting))
        expected.append(setting.r.T @ (setting.u + setting.v) / setting.n @ inverse_moment(setting))
    return Sides(stack(found), stack(expected))


@claim(
    "s-diet",
    "eq 4",
    "Gradient descent on L_diet from W = 0 converges to the W of eq 16. Checked: W after 400 steps, and the W of eq 16",
    tolerance=1e-8,
)
def descent() -> Sides:
    chosen = settings()[1:2]
    found = [setting.trained(normalise=False, steps=400, lr=0.8)[-1] for setting in chosen]
    return Sides(stack(found), stack([regression(setting) for setting in chosen]))


@claim(
    "s-diet",
    "Lemma B.4",
    "For DIET, ‖Wv_c‖/‖Wu_c‖ = (σ1²+k)/(σ2²+k) with k = (C−1)φ²/d. Checked: this ratio for the least-squares solution, "
    "and this formula",
    tolerance=1e-11,
)
def ratio() -> Sides:
    found, expected = [], []
    for setting in settings():
        alpha1, alpha2, _ = alphas(setting)
        found.append(setting.ratio(regression(setting)))
        expected.append(torch.full_like(found[-1], (alpha1 - 1) / (alpha2 - 1)))
    return Sides(stack(found), stack(expected))


@claim(
    "s-diet",
    "Theorem 5.1 (DIET)",
    "For DIET, ‖Wv_c‖/‖Wu_c‖ = σ1²/σ2² + o(1) if C = o(d). Checked: the difference between the ratio of the "
    "least-squares solution and σ1²/σ2² is at most (C−1)φ²/(d σ2²)",
    tolerance=1e-12,
)
def limit() -> Sides:
    found, bound = [], []
    for setting in settings():
        first, second = setting.variances
        found.append((setting.ratio(regression(setting)) - first / second).abs())
        bound.append(torch.full_like(found[-1], alphas(setting)[2] / second))
    return Sides(stack(found), stack(bound), "≤")
