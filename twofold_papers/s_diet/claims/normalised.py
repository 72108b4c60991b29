"""The second part of Theorem 5.1, appendix A.3 and Lemmas B.5 to B.8: normalised DIET learns both features.

All of these need orthogonal W_Hᵀe_i for different i. If no W_Hᵀe_i is 0, this is possible only for m = n.
"""

from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from twofold.linalg import normalized
from twofold_papers.s_diet.claims.features import Setting
from twofold_papers.s_diet.claims.linear import fixed_seed, stack
from twofold_papers.s_diet.claims.solver import gradient
from twofold_papers.verify.claim import Sides, claim

SMALL = Setting(concepts=2, examples=2, d=5, m=4, bounds=(0.3, 0.7), phi=1.0)
LARGE = Setting(concepts=3, examples=1, d=7, m=3, bounds=(0.2, 0.6), phi=1.2)
# The first disproves the published bounds. In the second, the feature with less variance has the larger bound.
TRAINED = [
    replace(SMALL, bounds=(0.01, 0.9), order=9),
    replace(SMALL, bounds=(0.9, 0.4), still=(0.9, 0.0), phi=0.6, order=9),
    replace(SMALL, bounds=(0.4, 0.5), still=(0.0, 0.2), phi=2.0, order=9),
]


@cache
def trained() -> tuple[tuple[Setting, list[Tensor]], ...]:
    """Settings, and W after each of 400 steps. After 400 steps its gradient is at the level of rounding."""
    with fixed_seed():
        return tuple((setting, setting.trained(normalise=True, steps=400, lr=1.0)) for setting in TRAINED)


def settings() -> list[Setting]:
    """New settings, each with its own random features and W_H."""
    return [replace(SMALL), replace(SMALL, examples=3, m=6, phi=0.4), replace(LARGE)]


def coefficients(setting: Setting) -> Tensor:
    """Random a and b, [2, C]."""
    return 0.2 + torch.rand(2, setting.concepts, dtype=torch.float64)


def normalised_gradient(setting: Setting, w: Tensor) -> Tensor:
    return gradient(lambda x: setting.loss(x, normalise=True), w)


def along(setting: Setting, ab: Tensor) -> Tensor:
    """The components of Wx along each r_c, [C, G, C]: κ for the own concept, λ for the others."""
    return ab[0] * (setting.x @ setting.u.T) + ab[1] * (setting.x @ setting.v.T)


@claim(
    "s-diet",
    "A.3",
    "The Jacobian of norm(x) is (I − xxᵀ/‖x‖²)/‖x‖, and I at x = 0. Checked: the Jacobian of the library's function by "
    "autograd; at 0 it is multiplied by the smallest norm that the library divides by",
    tolerance=1e-12,
)
def jacobian() -> Sides:
    found, expected = [], []
    for dim in (2, 3, 7):
        x, identity = torch.randn(dim, dtype=torch.float64), torch.eye(dim, dtype=torch.float64)
        found.append(torch.autograd.functional.jacobian(normalized, x))
        expected.append((identity - torch.outer(x, x) / x.square().sum()) / x.norm())
        found.append(torch.autograd.functional.jacobian(lambda y: normalized(y, 1e-8), torch.zeros_like(x)) * 1e-8)
        expected.append(identity)
    return Sides(stack(found), stack(expected))


def _rows(share: float) -> Sides:
    """W_HW_Hᵀ and its diagonal, for m = share · n."""
    found, expected = [], []
    for n in (4, 6, 10):
        head = replace(SMALL, concepts=2, examples=n // 2, m=int(share * n)).head
        found.append(head @ head.T)
        expected.append(found[-1].diagonal().diag())
    return Sides(stack(found), stack(expected))


@claim(
    "s-diet",
    "Lemma B.5 (1)",
    "For an isometry W_H with m = n, (W_Hᵀe_i)ᵀ(W_Hᵀe_j) = 0 if i ≠ j. Checked: W_HW_Hᵀ of random isometries, and its "
    "diagonal",
    tolerance=1e-12,
)
def rows_are_orthogonal() -> Sides:
    return _rows(1.0)


@rows_are_orthogonal.published("the corrected statement, but for every isometry with m ≤ n")
def _() -> Sides:
    return _rows(0.5)


def _alignments(share: float) -> Sides:
    found, expected = [], []
    for examples in (2, 3, 5):
        setting = replace(SMALL, examples=examples, m=int(share * 2 * examples))
        rows = setting.head.unflatten(0, (setting.concepts, examples))
        found.append(torch.einsum("cem,cm->ce", rows, setting.r))
        expected.append(rows.square().sum(dim=-1))
    return Sides(stack(found), stack(expected))


@claim(
    "s-diet",
    "Lemma B.5 (2)",
    "For an isometry W_H with m = n, r_cᵀW_Hᵀe_i = h_i² for the examples i of concept c. Checked: both sides for "
    "random isometries, with h_i = ‖W_Hᵀe_i‖",
    tolerance=1e-12,
)
def rows_align() -> Sides:
    return _alignments(1.0)


@rows_align.published("the corrected statement, but for every isometry with m ≤ n")
def _() -> Sides:
    return _alignments(0.5)


def _off_the_form(runs: list[tuple[Setting, list[Tensor]]]) -> Sides:
    """The part of W that is not Σ_c (a_c r_cu_cᵀ + b_c r_cv_cᵀ), relative to W, after every 20th step."""
    parts = [(w - setting.encoder(*setting.coefficients(w))) / w.norm() for setting, path in runs for w in path[::20]]
    return Sides(stack(parts), 0.0)


@claim(
    "s-diet",
    "Lemma B.6",
    "If m = n, then after every step Wu_c and Wv_c are parallel to r_c, and Wp = 0 for every p orthogonal to the "
    "features. Checked: the part of W that violates this, after every 20th of 400 steps from W = 0",
    tolerance=1e-10,
)
def stays_parallel() -> Sides:
    return _off_the_form(list(trained()))


@stays_parallel.published("the corrected statement, but for every isometry with m ≤ n")
def _() -> Sides:
    setting = replace(SMALL, m=3)
    return _off_the_form([(setting, setting.trained(normalise=True, steps=100, lr=1.0))])


def _gradient_on_u(published: bool) -> Sides:
    found, expected = [], []
    for setting in settings():
        ab = coefficients(setting)
        w = setting.encoder(*ab)
        found.append(setting.u @ normalised_gradient(setting, w).T)
        coordinates, parts = setting.x @ setting.u.T, along(setting, ab)
        noise = ab[0] * coordinates if published else parts  # component of Wx along r_c, from Wu_c only, or also Wv_c
        norms = (setting.x @ w.T).norm(dim=-1)
        for c in range(setting.concepts):
            eps, alpha = coordinates[c, :, c], parts[c, :, c]  # 1 + ε1
            own = setting.mean(eps / norms[c]) / (1 if published else setting.n)
            back = setting.mean(eps * alpha**2 / norms[c] ** 3) / setting.concepts
            others = [k for k in range(setting.concepts) if k != c]
            shrink = sum(
                setting.mean(parts[k, :, k] * coordinates[k, :, c] * noise[k, :, c] / norms[k] ** 3) for k in others
            )
            expected.append((back - own + shrink / setting.concepts) * setting.r[c])
    return Sides(stack(found), stack(expected))


@claim(
    "s-diet",
    "Lemma B.6 (gradient)",
    "∂L/∂W u_c = −E[(1+ε1)/‖z‖]r_c/n + Σ_{i∈c} E[(1+ε1)α²h²/‖z‖³]r_c/n + Σ_{i∉c} E[αξ_c h²(ξ_cWu_c + "
    "ξ'_cWv_c)/‖z‖³]/n. Checked: the gradient by autograd over all augmentations, and this formula",
    tolerance=1e-12,
)
def gradient_on_u() -> Sides:
    return _gradient_on_u(published=False)


@gradient_on_u.published(
    "the first term has no factor 1/n, and the last has no ξ_cξ'_cWv_c. But Wu_c and Wv_c are both parallel to r_c, so "
    "the signs of ξ_c and ξ'_c matter"
)
def _() -> Sides:
    return _gradient_on_u(published=True)


@claim(
    "s-diet",
    "Lemma B.7 (proof)",
    "If r_cᵀWu_c = 0, then r_cᵀ ∂L/∂W u_c < 0, so W is not a critical point; the same holds for v_c. Checked: the sign "
    "of this derivative for random W",
    tolerance=0.0,
)
def is_learnt() -> Sides:
    slopes = []
    for setting in settings():
        for which, feature in enumerate((setting.u, setting.v)):
            ab = coefficients(setting)
            ab[which, 0] = 0
            slopes.append(setting.r[0] @ normalised_gradient(setting, setting.encoder(*ab)) @ feature[0])
    return Sides(torch.stack(slopes), 0.0, "<")


@claim(
    "s-diet",
    "Lemma B.7",
    "After training to convergence, r_cᵀWu_c and r_cᵀWv_c are not 0. Checked: both are positive after 400 steps from "
    "W = 0",
    tolerance=0.0,
)
def both_are_learnt() -> Sides:
    return Sides(stack([torch.stack(setting.coefficients(path[-1])) for setting, path in trained()]), 0.0, ">")


def _spread(power: float) -> Sides:
    """The mean and the variance of Wx along r_c, and its standard deviations along the others."""
    found, expected = [], []
    for setting in settings():
        ab = coefficients(setting)
        z = setting.x @ setting.encoder(*ab).T
        parts = z @ setting.r.T / setting.r.square().sum(dim=1)
        first, second = setting.variances
        for c in range(setting.concepts):
            own, others = parts[c, :, c], [k for k in range(setting.concepts) if k != c]
            mean = setting.mean(own)
            found += [mean, setting.mean((own - mean) ** 2), setting.mean(parts[c][:, others].T ** 2).sqrt()]
            a, b = ab[:, c]
            scale = (setting.phi**2 / setting.d) ** power
            expected += [a + b, a**2 * first + b**2 * second, scale * ab[:, others].norm(dim=0)]
    return Sides(stack(found), stack(expected))


@claim(
    "s-diet",
    "eq 17",
    "Wx = (a_c(1+ε1) + b_c(1+ε2))r_c + Σ_{c'≠c} (φ/√d) √(a²+b²) ξ_c' r_c' with standard normal ξ_c'. Checked: the mean "
    "and variance of Wx along r_c and its standard deviation along the other r_c', over all augmentations, and these "
    "from the formula",
    tolerance=1e-12,
)
def representation() -> Sides:
    return _spread(0.5)


@representation.published("the factor is φ²/d instead of φ/√d")
def _() -> Sides:
    return _spread(1.0)


@claim(
    "s-diet",
    "Lemma B.8 (loss)",
    "L = 1 − E[κ h²/√(κ²‖r_c‖² + Σ λ²‖r_c'‖²)], where κ and λ are the components of Wx along r_c and along the other "
    "r_c'. Checked: the normalised loss over all augmentations, and this formula",
    tolerance=1e-12,
)
def loss_in_a_and_b() -> Sides:
    found, expected = [], []
    for setting in settings():
        ab = coefficients(setting)
        found.append(setting.loss(setting.encoder(*ab), normalise=True))
        parts = along(setting, ab)
        norms = (parts.square() @ setting.r.square().sum(dim=1)).sqrt()
        expected.append(1 - setting.mean(parts.diagonal(dim1=0, dim2=2).T / norms).mean())
    return Sides(stack(found), stack(expected))


@claim(
    "s-diet",
    "Lemma B.8 (derivative)",
    "If a da + b db = 0, then dL = −E[h² S ((1+ε1)da + (1+ε2)db)/(κ²‖r_c‖² + S)^{3/2}]/C with S = Σ λ²‖r_c'‖². "
    "Checked: the derivative of the loss by autograd, and this formula",
    tolerance=1e-9,  # exact for normal ξ, because examples of other concepts do not change; here ξ has 31 points
)
def derivative() -> Sides:
    found, expected = [], []
    for bounds, phi in (((0.3, 0.7), 1.0), ((0.1, 0.5), 0.5)):
        setting = replace(SMALL, bounds=bounds, phi=phi, order=31)
        ab = coefficients(setting)
        slopes = gradient(lambda ab, setting=setting: setting.loss(setting.encoder(*ab), normalise=True), ab)
        parts, squares = along(setting, ab), setting.r.square().sum(dim=1)
        for c in range(setting.concepts):
            direction = torch.stack([-ab[1, c], ab[0, c]])
            found.append(slopes[:, c] @ direction)
            others = [k for k in range(setting.concepts) if k != c]
            s = parts[c][:, others].square() @ squares[others]
            moved = direction[0] * (setting.x[c] @ setting.u[c]) + direction[1] * (setting.x[c] @ setting.v[c])
            weight = s / (parts[c, :, c] ** 2 * squares[c] + s) ** 1.5
            expected.append(-setting.mean(weight * moved) / setting.concepts)
    return Sides(stack(found), stack(expected))


def _bounds(swapped: bool) -> Sides:
    """Lower bound ≤ ratio ≤ upper bound."""
    left, right = [], []
    for setting, path in trained():
        one, two = reversed(setting.bounds) if swapped else setting.bounds
        ratio = setting.ratio(path[-1])
        left += [torch.full_like(ratio, (1 - two) / (1 + one)), ratio]
        right += [ratio, torch.full_like(ratio, (1 + two) / (1 - one))]
    return Sides(stack(left), stack(right), "≤")


@claim(
    "s-diet",
    "Theorem 5.1 (normalised), Lemma B.8",
    "After training to convergence, (1−ν2)/(1+ν1) ≤ ‖Wv_c‖/‖Wu_c‖ ≤ (1+ν2)/(1−ν1). Checked: both inequalities after "
    "400 steps from W = 0, for three choices of noise",
    tolerance=1e-9,
)
def both_are_balanced() -> Sides:
    return _bounds(swapped=False)


@both_are_balanced.published("(1−ν1)/(1+ν2) ≤ ‖Wv_c‖/‖Wu_c‖ ≤ (1+ν1)/(1−ν2)")
def _() -> Sides:
    return _bounds(swapped=True)


@claim(
    "s-diet",
    "Section 5.1.1",
    "If ν1, ν2 ≤ ½, then ‖Wv_c‖ and ‖Wu_c‖ differ by a factor of at most 3. Checked: the ratio after 400 steps from "
    "W = 0",
    tolerance=1e-9,
)
def factor_of_three() -> Sides:
    ratios = stack([setting.ratio(path[-1]) for setting, path in trained() if max(setting.bounds) <= 0.5])
    return Sides(ratios.log().abs(), torch.tensor(3.0).double().log().expand_as(ratios), "≤")
