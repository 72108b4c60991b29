"""Eq 1, 3 to 6, 8, 10, 15, 17, 24, 26, 27 and appendix C: value and gradient of each loss for a pair of views."""

import torch
from torch import Tensor

from twofold_papers.isoloss.claims.cases import Case, cases, dot, gradient, gradients, length, library_matrix, sides
from twofold_papers.isoloss.claims.siamese import (
    COSINE,
    COSINE_ISO,
    COSINE_NO_PREDICTOR,
    COSINE_NO_STOP,
    EUCLIDEAN,
    EUCLIDEAN_ISO,
    EUCLIDEAN_NO_PREDICTOR,
    EUCLIDEAN_NO_STOP,
)
from twofold_papers.verify.claim import Sides, claim


@claim(
    "isoloss",
    "eq 1",
    "The matrix of DirectPred is U D^α Uᵀ, the power α of E[zzᵀ]. Checked: DirectPredictor and the power "
    "computed with eigh, for α = 0.5, 1 and 2",
    tolerance=1e-9,
)
def predictor_matrix() -> Sides:
    return sides((library_matrix(case), case.matrix) for case in cases())


@claim(
    "isoloss",
    "Lemma 1, eq 3",
    "In the eigenbasis of the predictor, L_euc = ½ Σ_m |λ_m ẑ¹_m − ẑ²_m|². Checked: the library's loss and "
    "this formula, for four random pairs of views",
    tolerance=1e-9,
)
def euclidean_in_eigenbasis() -> Sides:
    def formula(case: Case) -> Tensor:
        first, second = case.rotated
        return 0.5 * (case.eigenvalues * first - second).square().sum(-1).mean()

    return sides((EUCLIDEAN(case.z, case.exponent), formula(case)) for case in cases())


@claim(
    "isoloss",
    "Lemma 1, eq 4",
    "In the eigenbasis of the predictor, L_cos = −Σ_m λ_m ẑ¹_m ẑ²_m / (‖Dẑ¹‖‖ẑ²‖). Checked: the library's "
    "loss and this formula, for four random pairs of views",
    tolerance=1e-9,
)
def cosine_in_eigenbasis() -> Sides:
    def formula(case: Case) -> Tensor:
        first, second = case.rotated
        scaled = case.eigenvalues * first
        return -(dot(scaled, second) / (length(scaled) * length(second))).mean()

    return sides((COSINE(case.z, case.exponent), formula(case)) for case in cases())


@claim(
    "isoloss",
    "eq 5",
    "The gradient of L_euc is ∂L_euc/∂ẑ¹ = (Dẑ¹ − ẑ²) D. Checked: the gradient of the library's loss by "
    "autograd, and this formula, for four random pairs of views",
    tolerance=1e-9,
)
def euclidean_gradient() -> Sides:
    def formula(case: Case) -> Tensor:
        first, second = case.rotated
        return (first * case.eigenvalues - second) * case.eigenvalues

    return sides((gradient(EUCLIDEAN, case), formula(case)) for case in cases())


def cosine_formula(case: Case) -> Tensor:
    """Eq 6."""
    (first, second), eigenvalues = case.rotated, case.eigenvalues
    scaled = eigenvalues * first
    along = -eigenvalues * second / (length(scaled) * length(second))
    return along + dot(scaled, second) / (length(scaled) ** 3 * length(second)) * eigenvalues**2 * first


@claim(
    "isoloss",
    "eq 6",
    "The gradient of L_cos is ∂L_cos/∂ẑ¹ = −Dẑ²/(‖Dẑ¹‖‖ẑ²‖) + (Dẑ¹)ᵀẑ²/(‖Dẑ¹‖³‖ẑ²‖) D²ẑ¹. Checked: the "
    "gradient of the library's loss by autograd, and this formula, for four random pairs of views",
    tolerance=1e-9,
)
def cosine_gradient() -> Sides:
    return sides((gradient(COSINE, case), cosine_formula(case)) for case in cases())


def pairwise(first: Tensor, second: Tensor, eigenvalues: Tensor) -> Tensor:
    """Σ_{k≠m} λ_k(λ_k ẑ¹_k² ẑ²_m − λ_m ẑ¹_m ẑ¹_k ẑ²_k) for each m: the bracket of eq 10."""
    modes = range(len(eigenvalues))
    return torch.stack(
        [
            sum(
                (
                    eigenvalues[k]
                    * (
                        eigenvalues[k] * first[:, k] ** 2 * second[:, m]
                        - eigenvalues[m] * first[:, m] * first[:, k] * second[:, k]
                    )
                    for k in modes
                    if k != m
                ),
                torch.zeros_like(first[:, m]),
            )
            for m in modes
        ],
        dim=-1,
    )


def cosine_dynamics(first: Tensor, second: Tensor, eigenvalues: Tensor) -> Tensor:
    """Eq 10, η = 1."""
    scale = eigenvalues / (length(eigenvalues * first) ** 3 * length(second))
    return scale * pairwise(first, second, eigenvalues)


@claim(
    "isoloss",
    "eq 8",
    "Under L_euc the modes are independent: −∂L_euc/∂ẑ¹_m = λ_m(ẑ²_m − λ_m ẑ¹_m). Checked: the gradient of "
    "the library's loss by autograd, and this formula, for four random pairs of views",
    tolerance=1e-9,
)
def euclidean_modes() -> Sides:
    def formula(case: Case) -> Tensor:
        first, second = case.rotated
        modes = [value * (second[:, m] - value * first[:, m]) for m, value in enumerate(case.eigenvalues.tolist())]
        return torch.stack(modes, dim=-1)

    return sides((-gradient(EUCLIDEAN, case), formula(case)) for case in cases())


@claim(
    "isoloss",
    "Theorem 2, eq 10",
    "Under L_cos all modes are coupled: −∂L_cos/∂ẑ¹_m = λ_m Σ_{k≠m} λ_k(λ_k ẑ¹_k² ẑ²_m − λ_m ẑ¹_m ẑ¹_k ẑ²_k) "
    "/ (‖Dẑ¹‖³‖ẑ²‖). Checked: the gradient of the library's loss by autograd, and this formula, for four "
    "random pairs of views",
    tolerance=1e-9,
)
def cosine_modes() -> Sides:
    return sides((-gradient(COSINE, case), cosine_dynamics(*case.rotated, case.eigenvalues)) for case in cases())


@claim(
    "isoloss",
    "C.1",
    "Without stop-gradient, the gradients of L_euc with respect to both views sum to (λẑ¹ − ẑ²)(λ − 1). "
    "Checked: the gradients of the library's loss by autograd, and this formula, for four random pairs of "
    "views",
    tolerance=1e-9,
)
def euclidean_no_stop_gradient() -> Sides:
    def formula(case: Case) -> Tensor:
        first, second = case.rotated
        return (case.eigenvalues * first - second) * (case.eigenvalues - 1)

    return sides((gradient(EUCLIDEAN_NO_STOP, case), formula(case)) for case in cases())


@claim(
    "isoloss",
    "C.2, gradient",
    "Without stop-gradient, −∂L_cos/∂ẑ_m is eq 10 plus Σ_{k≠m} ẑ²_k(λ_m ẑ¹_m ẑ²_k − λ_k ẑ¹_k ẑ²_m) / "
    "(‖Dẑ¹‖‖ẑ²‖³). Checked: the gradient of the library's loss by autograd, and this formula, for four random "
    "pairs of views",
    tolerance=1e-9,
)
def cosine_no_stop_gradient() -> Sides:
    def formula(case: Case) -> Tensor:
        (first, second), eigenvalues = case.rotated, case.eigenvalues
        # The sum may include k = m, because that term is 0.
        target_part = eigenvalues * first * dot(second, second) - dot(eigenvalues * first, second) * second
        target_part = target_part / (length(eigenvalues * first) * length(second) ** 3)
        return cosine_dynamics(first, second, eigenvalues) + target_part

    return sides((-gradient(COSINE_NO_STOP, case), formula(case)) for case in cases())


@cosine_no_stop_gradient.published(
    "eq 10 plus λ_m Σ_k(λ_k² λ_m ẑ¹_k³ − λ_k ẑ²_m ẑ²_k ẑ¹_k) / (‖Dẑ¹‖³‖ẑ²‖), with λ_m³ ẑ¹_m³ as the first "
    "term for k = m"
)
def _() -> Sides:
    def formula(case: Case) -> Tensor:
        (first, second), eigenvalues = case.rotated, case.eigenvalues
        cubes = (eigenvalues**2 * first**3).sum(-1, keepdim=True) * eigenvalues
        products = dot(eigenvalues * first, second) * second
        published = eigenvalues * (cubes - products) / (length(eigenvalues * first) ** 3 * length(second))
        return cosine_dynamics(first, second, eigenvalues) + published

    return sides((-gradient(COSINE_NO_STOP, case), formula(case)) for case in cases())


@claim(
    "isoloss",
    "C.2, radial",
    "Without stop-gradient, z·∂L_cos/∂z = 0 for each view, so the gradient does not change the length of z. "
    "Checked: the inner products for four random pairs of views",
    tolerance=1e-9,
)
def cosine_no_stop_radial() -> Sides:
    def radial(case: Case) -> Tensor:
        parts = gradients(lambda z, case: COSINE_NO_STOP(z, case.exponent), case)
        return torch.stack([dot(z, part) for z, part in zip(case.rotated, parts, strict=True)])

    return sides((radial(case), torch.zeros(2, case.z.shape[1], 1)) for case in cases())


@claim(
    "isoloss",
    "C.3",
    "Without a predictor, −∂L_euc/∂ẑ¹ = ẑ² − ẑ¹. Checked: the gradient of the library's loss by autograd, and "
    "this formula, for four random pairs of views",
    tolerance=1e-9,
)
def euclidean_no_predictor_gradient() -> Sides:
    return sides((-gradient(EUCLIDEAN_NO_PREDICTOR, case), case.rotated[1] - case.rotated[0]) for case in cases())


@claim(
    "isoloss",
    "C.4, eq 24",
    "Without a predictor, −∂L_cos/∂ẑ¹_m = Σ_{k≠m}(ẑ¹_k² ẑ²_m − ẑ¹_m ẑ¹_k ẑ²_k) / (‖ẑ¹‖³‖ẑ²‖). Checked: the "
    "gradient of the library's loss by autograd, and this formula, for four random pairs of views",
    tolerance=1e-9,
)
def cosine_no_predictor_gradient() -> Sides:
    return sides(
        (-gradient(COSINE_NO_PREDICTOR, case), cosine_dynamics(*case.rotated, torch.ones_like(case.eigenvalues)))
        for case in cases()
    )


@claim(
    "isoloss",
    "C.4, radial",
    "Under L_cos, Σ_m ẑ¹_m dẑ¹_m/dt = 0 without a predictor; this also holds with a predictor. Checked: the "
    "sum for both losses and four random pairs of views",
    tolerance=1e-9,
)
def cosine_radial() -> Sides:
    return sides(
        (dot(case.rotated[0], gradient(loss, case)), torch.zeros(case.z.shape[1], 1))
        for loss in (COSINE_NO_PREDICTOR, COSINE)
        for case in cases()
    )


def euclidean_iso(z: Tensor, case: Case) -> Tensor:
    """Eq 15, as published."""
    first, second = z
    return 0.5 * (first - (second + first - first @ case.matrix).detach()).square().sum(-1).mean()


@claim(
    "isoloss",
    "eq 15, value",
    "The Euclidean IsoLoss has the same value as L_euc. Checked: the library's loss, eq 15 and L_euc",
    tolerance=1e-9,
)
def euclidean_iso_value() -> Sides:
    return sides(
        (torch.stack([EUCLIDEAN_ISO(case.z, case.exponent)] * 2),
         torch.stack([euclidean_iso(case.z, case), EUCLIDEAN(case.z, case.exponent)]))
        for case in cases()
    )  # fmt: skip


@claim(
    "isoloss",
    "eq 15, gradient",
    "The gradient of eq 15 is λẑ¹ − ẑ², which is eq 5 without its factor D. Checked: the gradients of the "
    "library's loss and of eq 15 by autograd, and this formula",
    tolerance=1e-9,
)
def euclidean_iso_gradient() -> Sides:
    def both(case: Case) -> Tensor:
        first, second = case.rotated
        wanted = first * case.eigenvalues - second
        return torch.stack([wanted, gradients(euclidean_iso, case)[0]])

    return sides((torch.stack([gradient(EUCLIDEAN_ISO, case)] * 2), both(case)) for case in cases())


@claim(
    "isoloss",
    "C.5.1",
    "Σ sg(λẑ¹ − ẑ²)(ẑ¹ − sg(ẑ²)) has the same gradient as eq 15. Checked: its gradient and that of the "
    "library's loss, by autograd",
    tolerance=1e-9,
)
def euclidean_iso_alternative() -> Sides:
    def alternative(z: Tensor, case: Case) -> Tensor:
        first, second = z @ case.basis
        return ((case.eigenvalues * first - second).detach() * (first - second.detach())).sum(-1).mean()

    return sides((gradient(EUCLIDEAN_ISO, case), gradients(alternative, case)[0]) for case in cases())


def cosine_iso(z: Tensor, case: Case) -> Tensor:
    """Eq 17, as published, with W_P^½."""
    first, second = z
    predicted = first @ case.matrix
    towards = (second / (length(predicted) * length(second))).detach()
    away = (dot(predicted, second) / (length(predicted) ** 3 * length(second))).detach()
    return (-dot(first, towards) + 0.5 * away * dot(first @ case.power(0.5), first @ case.power(0.5))).mean()


@claim(
    "isoloss",
    "eq 17, gradient",
    "Eq 17 has the same gradient as d(z + sg(W_P z − z), sg(z²)), the form that the library uses, which does "
    "not need W_P^½. Checked: both gradients by autograd",
    tolerance=1e-9,
)
def cosine_iso_straight_through() -> Sides:
    return sides((gradient(COSINE_ISO, case), gradients(cosine_iso, case)[0]) for case in cases())


@claim(
    "isoloss",
    "C.5.2",
    "The gradient of the cosine IsoLoss is eq 27 with one factor λ_m removed. Checked: λ_m times the gradient "
    "of the library's loss by autograd, and eq 10, which equals eq 27",
    tolerance=1e-9,
)
def cosine_iso_gradient() -> Sides:
    return sides(
        (-gradient(COSINE_ISO, case) * case.eigenvalues, cosine_dynamics(*case.rotated, case.eigenvalues))
        for case in cases()
    )


@claim(
    "isoloss",
    "eq 17, value",
    "The form that the library uses for eq 17 has the same value as L_cos. Checked: both values for four "
    "random pairs of views",
    tolerance=1e-9,
)
def cosine_iso_value() -> Sides:
    return sides((COSINE_ISO(case.z, case.exponent), COSINE(case.z, case.exponent)) for case in cases())


@claim(
    "isoloss",
    "eq 17, other value",
    "Eq 17 does not have the value of L_cos, as the paper says. Checked: the difference is above 0.001 for "
    "four random pairs of views",
    tolerance=0.0,
)
def cosine_iso_other_value() -> Sides:
    return sides(
        (((cosine_iso(case.z, case) - COSINE(case.z, case.exponent)).abs(), torch.tensor(1e-3)) for case in cases()),
        ">",
    )
