"""Eq 1 and 3 to 6, 8, 10, 15, 17, 24, 26, 27 and appendix C: each loss, its value and gradient for a pair of views."""

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


@claim("isoloss", "eq 1", "DirectPred's matrix is U D^α Uᵀ, the power α of E[zzᵀ]", tolerance=1e-9)
def predictor_matrix() -> Sides:
    return sides((library_matrix(case), case.matrix) for case in cases())


@claim("isoloss", "Lemma 1, eq 3", "L_euc = ½ Σ_m |λ_m ẑ¹_m − ẑ²_m|² in the predictor's eigenbasis", tolerance=1e-9)
def euclidean_in_eigenbasis() -> Sides:
    def formula(case: Case) -> Tensor:
        first, second = case.rotated
        return 0.5 * (case.eigenvalues * first - second).square().sum(-1).mean()

    return sides((EUCLIDEAN(case.z, case.exponent), formula(case)) for case in cases())


@claim("isoloss", "Lemma 1, eq 4", "L_cos = −Σ_m λ_m ẑ¹_m ẑ²_m / (‖Dẑ¹‖‖ẑ²‖) in the eigenbasis", tolerance=1e-9)
def cosine_in_eigenbasis() -> Sides:
    def formula(case: Case) -> Tensor:
        first, second = case.rotated
        scaled = case.eigenvalues * first
        return -(dot(scaled, second) / (length(scaled) * length(second))).mean()

    return sides((COSINE(case.z, case.exponent), formula(case)) for case in cases())


@claim("isoloss", "eq 5", "∂L_euc/∂ẑ¹ = (Dẑ¹ − ẑ²) D", tolerance=1e-9)
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
    "∂L_cos/∂ẑ¹ = −Dẑ²/(‖Dẑ¹‖‖ẑ²‖) + (Dẑ¹)ᵀẑ²/(‖Dẑ¹‖³‖ẑ²‖) D²ẑ¹",
    tolerance=1e-9,
)
def cosine_gradient() -> Sides:
    return sides((gradient(COSINE, case), cosine_formula(case)) for case in cases())


def pairwise(first: Tensor, second: Tensor, eigenvalues: Tensor) -> Tensor:
    """Σ_{k≠m} λ_k(λ_k ẑ¹_k² ẑ²_m − λ_m ẑ¹_m ẑ¹_k ẑ²_k) for each m: the bracket of eq 10, mode by mode."""
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


@claim("isoloss", "eq 8", "−∂L_euc/∂ẑ¹_m = λ_m(ẑ²_m − λ_m ẑ¹_m): no mode sees another", tolerance=1e-9)
def euclidean_modes() -> Sides:
    def formula(case: Case) -> Tensor:
        first, second = case.rotated
        modes = [value * (second[:, m] - value * first[:, m]) for m, value in enumerate(case.eigenvalues.tolist())]
        return torch.stack(modes, dim=-1)

    return sides((-gradient(EUCLIDEAN, case), formula(case)) for case in cases())


@claim(
    "isoloss",
    "Theorem 2, eq 10",
    "−∂L_cos/∂ẑ¹_m = λ_m Σ_{k≠m} λ_k(λ_k ẑ¹_k² ẑ²_m − λ_m ẑ¹_m ẑ¹_k ẑ²_k) / (‖Dẑ¹‖³‖ẑ²‖): all modes coupled",
    tolerance=1e-9,
)
def cosine_modes() -> Sides:
    return sides((-gradient(COSINE, case), cosine_dynamics(*case.rotated, case.eigenvalues)) for case in cases())


@claim("isoloss", "C.1", "without stop-gradient ∂L_euc/∂ẑ = (λẑ¹ − ẑ²)(λ − 1), both views' parts", tolerance=1e-9)
def euclidean_no_stop_gradient() -> Sides:
    def formula(case: Case) -> Tensor:
        first, second = case.rotated
        return (case.eigenvalues * first - second) * (case.eigenvalues - 1)

    return sides((gradient(EUCLIDEAN_NO_STOP, case), formula(case)) for case in cases())


@claim(
    "isoloss",
    "C.2, gradient",
    "without stop-gradient −∂L_cos/∂ẑ_m = eq 10 + Σ_{k≠m} ẑ²_k(λ_m ẑ¹_m ẑ²_k − λ_k ẑ¹_k ẑ²_m) / (‖Dẑ¹‖‖ẑ²‖³)",
    tolerance=1e-9,
)
def cosine_no_stop_gradient() -> Sides:
    def formula(case: Case) -> Tensor:
        (first, second), eigenvalues = case.rotated, case.eigenvalues
        # All k may be summed: the term k = m is 0.
        target_part = eigenvalues * first * dot(second, second) - dot(eigenvalues * first, second) * second
        target_part = target_part / (length(eigenvalues * first) * length(second) ** 3)
        return cosine_dynamics(first, second, eigenvalues) + target_part

    return sides((-gradient(COSINE_NO_STOP, case), formula(case)) for case in cases())


@cosine_no_stop_gradient.printed(
    "eq 10 + λ_m Σ_k(λ_k² λ_m ẑ¹_k³ − λ_k ẑ²_m ẑ²_k ẑ¹_k) / (‖Dẑ¹‖³‖ẑ²‖), where λ_m³ ẑ¹_m³ stands for k = m"
)
def _() -> Sides:
    def formula(case: Case) -> Tensor:
        (first, second), eigenvalues = case.rotated, case.eigenvalues
        cubes = (eigenvalues**2 * first**3).sum(-1, keepdim=True) * eigenvalues
        products = dot(eigenvalues * first, second) * second
        printed = eigenvalues * (cubes - products) / (length(eigenvalues * first) ** 3 * length(second))
        return cosine_dynamics(first, second, eigenvalues) + printed

    return sides((-gradient(COSINE_NO_STOP, case), formula(case)) for case in cases())


@claim(
    "isoloss",
    "C.2, radial",
    "without stop-gradient z·∂L_cos/∂z = 0 for each view: nothing makes z longer or shorter",
    tolerance=1e-9,
)
def cosine_no_stop_radial() -> Sides:
    def radial(case: Case) -> Tensor:
        parts = gradients(lambda z, case: COSINE_NO_STOP(z, case.exponent), case)
        return torch.stack([dot(z, part) for z, part in zip(case.rotated, parts, strict=True)])

    return sides((radial(case), torch.zeros(2, case.z.shape[1], 1)) for case in cases())


@claim("isoloss", "C.3", "without predictor −∂L_euc/∂ẑ¹ = ẑ² − ẑ¹", tolerance=1e-9)
def euclidean_no_predictor_gradient() -> Sides:
    return sides((-gradient(EUCLIDEAN_NO_PREDICTOR, case), case.rotated[1] - case.rotated[0]) for case in cases())


@claim(
    "isoloss",
    "C.4, eq 24",
    "without predictor −∂L_cos/∂ẑ¹_m = Σ_{k≠m}(ẑ¹_k² ẑ²_m − ẑ¹_m ẑ¹_k ẑ²_k) / (‖ẑ¹‖³‖ẑ²‖)",
    tolerance=1e-9,
)
def cosine_no_predictor_gradient() -> Sides:
    return sides(
        (-gradient(COSINE_NO_PREDICTOR, case), cosine_dynamics(*case.rotated, torch.ones_like(case.eigenvalues)))
        for case in cases()
    )


@claim("isoloss", "C.4, radial", "Σ_m ẑ¹_m dẑ¹_m/dt = 0 without predictor, and also with one", tolerance=1e-9)
def cosine_radial() -> Sides:
    return sides(
        (dot(case.rotated[0], gradient(loss, case)), torch.zeros(case.z.shape[1], 1))
        for loss in (COSINE_NO_PREDICTOR, COSINE)
        for case in cases()
    )


def euclidean_iso(z: Tensor, case: Case) -> Tensor:
    """Eq 15 as printed."""
    first, second = z
    return 0.5 * (first - (second + first - first @ case.matrix).detach()).square().sum(-1).mean()


@claim("isoloss", "eq 15, value", "the Euclidean IsoLoss has the value of L_euc", tolerance=1e-9)
def euclidean_iso_value() -> Sides:
    return sides(
        (torch.stack([EUCLIDEAN_ISO(case.z, case.exponent)] * 2),
         torch.stack([euclidean_iso(case.z, case), EUCLIDEAN(case.z, case.exponent)]))
        for case in cases()
    )  # fmt: skip


@claim("isoloss", "eq 15, gradient", "eq 15 has the gradient λẑ¹ − ẑ²: eq 5 without its factor D", tolerance=1e-9)
def euclidean_iso_gradient() -> Sides:
    def both(case: Case) -> Tensor:
        first, second = case.rotated
        wanted = first * case.eigenvalues - second
        return torch.stack([wanted, gradients(euclidean_iso, case)[0]])

    return sides((torch.stack([gradient(EUCLIDEAN_ISO, case)] * 2), both(case)) for case in cases())


@claim("isoloss", "C.5.1", "Σ sg(λẑ¹ − ẑ²)(ẑ¹ − sg(ẑ²)) has the gradient of eq 15 too", tolerance=1e-9)
def euclidean_iso_alternative() -> Sides:
    def alternative(z: Tensor, case: Case) -> Tensor:
        first, second = z @ case.basis
        return ((case.eigenvalues * first - second).detach() * (first - second.detach())).sum(-1).mean()

    return sides((gradient(EUCLIDEAN_ISO, case), gradients(alternative, case)[0]) for case in cases())


def cosine_iso(z: Tensor, case: Case) -> Tensor:
    """Eq 17 as printed, with its W_P^½."""
    first, second = z
    predicted = first @ case.matrix
    towards = (second / (length(predicted) * length(second))).detach()
    away = (dot(predicted, second) / (length(predicted) ** 3 * length(second))).detach()
    return (-dot(first, towards) + 0.5 * away * dot(first @ case.power(0.5), first @ case.power(0.5))).mean()


@claim(
    "isoloss",
    "eq 17, gradient",
    "eq 17 has the gradient of d(z + sg(W_P z − z), sg(z²)), which needs no W_P^½",
    tolerance=1e-9,
)
def cosine_iso_straight_through() -> Sides:
    return sides((gradient(COSINE_ISO, case), gradients(cosine_iso, case)[0]) for case in cases())


@claim(
    "isoloss", "C.5.2", "the gradient of the cosine IsoLoss is eq 27 with λ_m taken out of its front", tolerance=1e-9
)
def cosine_iso_gradient() -> Sides:
    return sides(
        (-gradient(COSINE_ISO, case) * case.eigenvalues, cosine_dynamics(*case.rotated, case.eigenvalues))
        for case in cases()
    )


@claim(
    "isoloss", "eq 17, value", "eq 17 does not have the value of L_cos; the straight-through form has", tolerance=1e-9
)
def cosine_iso_value() -> Sides:
    return sides((COSINE_ISO(case.z, case.exponent), COSINE(case.z, case.exponent)) for case in cases())


@claim("isoloss", "eq 17, other value", "|eq 17 − L_cos| > 0, as the paper says of its own form", tolerance=0.0)
def cosine_iso_other_value() -> Sides:
    return sides(
        (((cosine_iso(case.z, case) - COSINE(case.z, case.exponent)).abs(), torch.tensor(1e-3)) for case in cases()),
        ">",
    )
