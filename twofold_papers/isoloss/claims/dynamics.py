"""Eq 9, 12, 13 and 16: the modes of the Euclidean losses, followed in time, without noise in the views and with it.

The paper averages dẑ¹/dt over augmentations as if ẑ¹ did not share its noise with the input that moves the weights;
noise of size σ therefore adds terms in σ² to each rate.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from twofold_papers.isoloss.claims.cases import sides
from twofold_papers.isoloss.claims.siamese import (
    EUCLIDEAN,
    EUCLIDEAN_ISO,
    EUCLIDEAN_NO_PREDICTOR,
    EUCLIDEAN_NO_STOP,
    NOISE,
    Loss,
    eigenvalues,
    flow,
    linear,
    velocity,
    weights,
    white_views,
)
from twofold_papers.verify.claim import Sides, claim

STARTS = torch.linspace(0.15, 0.85, 4, dtype=torch.float64)  # s of WWᵀ
EXPONENTS = (1.0, 0.5)  # the library's square root is an iteration, good to 1e-9; tolerances below allow for it
NOISES = (0.0, NOISE, 0.5)


def modes_in_time(loss: Loss, s: Tensor, exponent: float, time: float) -> tuple[Tensor, Tensor]:
    """λ at the start and after `time`, views without noise. Steps of 0.01: Runge–Kutta errs by less than 1e-9."""
    x, w = white_views(60, 6, noise=0.0), weights(s, 6)
    path = flow(loss, x, w, step=0.01, steps=round(time / 0.01), exponent=exponent)
    return eigenvalues(x, path[0]) ** exponent, eigenvalues(x, path[-1]) ** exponent


def mode_rates(loss: Loss, noise: float, rate: Callable[[Tensor, float], Tensor]) -> tuple[Tensor, Tensor]:
    """Uᵀ (dW/dt) Wᵀ U of the network, beside diag(rate(λ_m, σ) · s_m): what dẑ_m/dt = rate · ẑ_m makes of it."""
    x, w = white_views(60, 6, noise), weights(STARTS, 6)
    values, basis = torch.linalg.eigh(w @ w.T)
    return basis.T @ velocity(loss, x, w) @ w.T @ basis, torch.diag(rate((1 + noise**2) * values, noise) * values)


@claim(
    "isoloss",
    "Theorem 1, eq 9",
    "dẑ_m/dt = λ_m(1 − λ_m)ẑ_m, λ = s^α: in a time t each mode's ln(λ/(1−λ)) − 1/λ grows by 2αt",
    tolerance=1e-7,
)
def euclidean_time_course() -> Sides:
    def clock(value: Tensor) -> Tensor:
        return (value / (1 - value)).log() - 1 / value

    def case(exponent: float) -> tuple[Tensor, Tensor]:
        start, end = modes_in_time(EUCLIDEAN, STARTS, exponent, time=1.0)
        return (clock(end) - clock(start)) / (2 * exponent), torch.ones_like(end)

    return sides(case(exponent) for exponent in EXPONENTS)


@claim("isoloss", "Theorem 1, samples", "with E[xxᵀ] = I every sample obeys dẑ_m/dt = λ_m(1 − λ_m)ẑ_m", tolerance=1e-8)
def euclidean_samples() -> Sides:
    def case(exponent: float) -> tuple[Tensor, Tensor]:
        x, w = white_views(60, 6, noise=0.0), weights(STARTS, 6)
        values, basis = torch.linalg.eigh(w @ w.T)
        rate = values**exponent * (1 - values**exponent)
        return linear(x[0], velocity(EUCLIDEAN, x, w, exponent)) @ basis, rate * (linear(x[0], w) @ basis)

    return sides(case(exponent) for exponent in EXPONENTS)


@claim(
    "isoloss",
    "Theorem 1, noise",
    "with noise σ in the views the rate is λ_m(1 − (1+σ²)λ_m): the fixed point is λ = 1/(1+σ²)",
    tolerance=1e-10,
)
def euclidean_noise() -> Sides:
    return sides(mode_rates(EUCLIDEAN, noise, lambda v, n: v * (1 - (1 + n**2) * v)) for noise in NOISES)


@euclidean_noise.printed("after the expectation over augmentations the rate is λ_m(1 − λ_m)")
def _() -> Sides:
    return sides(mode_rates(EUCLIDEAN, noise, lambda v, _: v * (1 - v)) for noise in NOISES)


@claim(
    "isoloss",
    "eq 12",
    "without stop-gradient dẑ_m/dt = −(1−λ_m)²ẑ_m: in a time t ln(λ/|1−λ|) + 1/(1−λ) falls by 2αt",
    tolerance=1e-7,
)
def euclidean_no_stop_time_course() -> Sides:
    def clock(value: Tensor) -> Tensor:
        return (value / (1 - value).abs()).log() + 1 / (1 - value)

    def case(exponent: float) -> tuple[Tensor, Tensor]:
        starts = torch.cat([STARTS[:2], STARTS[2:] + 1])  # below 1 and above
        start, end = modes_in_time(EUCLIDEAN_NO_STOP, starts, exponent, time=0.5)
        return (clock(start) - clock(end)) / (2 * exponent), torch.full_like(end, 0.5)

    return sides(case(exponent) for exponent in EXPONENTS)


def late_without_stop(noise: float) -> Tensor:
    """s long after a start above 1."""
    x, w = white_views(60, 6, noise), weights(STARTS[2:] + 1, 6)
    return eigenvalues(x, flow(EUCLIDEAN_NO_STOP, x, w, step=0.1, steps=250)[-1])


@claim(
    "isoloss",
    "eq 12, limit",
    "from above, eq 12 stops at λ = 1; only noise in the views carries λ on to 0",
    tolerance=0.0,
)
def euclidean_no_stop_from_above() -> Sides:
    fallen = late_without_stop(NOISE)
    return sides([(late_without_stop(0.0), torch.ones(2)), (torch.full((2,), 1e-6), fallen)], "≥")


@euclidean_no_stop_from_above.printed("eq 12 drives all representations toward zero, with exponentially falling λ")
def _() -> Sides:
    return Sides(late_without_stop(0.0), 1e-6, "≤")


@claim("isoloss", "eq 12, noise", "with noise σ the rate of eq 12 is −(1 − λ_m)² − σ²(1 + λ_m²)", tolerance=1e-10)
def euclidean_no_stop_noise() -> Sides:
    return sides(
        mode_rates(EUCLIDEAN_NO_STOP, noise, lambda v, n: -((1 - v) ** 2) - n**2 * (1 + v**2)) for noise in NOISES
    )


@euclidean_no_stop_noise.printed("after the expectation over augmentations the rate is −(1 − λ_m)²")
def _() -> Sides:
    return sides(mode_rates(EUCLIDEAN_NO_STOP, noise, lambda v, _: -((1 - v) ** 2)) for noise in NOISES)


@claim("isoloss", "eq 13", "without predictor dẑ_m/dt = −σ²ẑ_m: 0 only where the views have no noise", tolerance=1e-10)
def euclidean_no_predictor() -> Sides:
    return sides(
        mode_rates(EUCLIDEAN_NO_PREDICTOR, noise, lambda v, n: torch.full_like(v, -(n**2))) for noise in NOISES
    )


@euclidean_no_predictor.printed("dẑ_m/dt = 0 in expectation over augmentations")
def _() -> Sides:
    return sides(mode_rates(EUCLIDEAN_NO_PREDICTOR, noise, lambda v, _: torch.zeros_like(v)) for noise in NOISES)


@claim(
    "isoloss",
    "eq 16",
    "Euclidean IsoLoss: dẑ_m/dt = (1 − λ_m)ẑ_m, so λ(t) = λ₀e^{2αt}/(1 + λ₀(e^{2αt} − 1))",
    tolerance=1e-8,
)
def euclidean_iso_time_course() -> Sides:
    def case(exponent: float) -> tuple[Tensor, Tensor]:
        start, end = modes_in_time(EUCLIDEAN_ISO, STARTS, exponent, time=1.0)
        growth = torch.tensor(2 * exponent, dtype=torch.float64).exp()
        return end, start * growth / (1 + start * (growth - 1))

    return sides(case(exponent) for exponent in EXPONENTS)


@claim("isoloss", "eq 16, noise", "with noise σ the rate of eq 16 is 1 − (1+σ²)λ_m", tolerance=1e-10)
def euclidean_iso_noise() -> Sides:
    return sides(mode_rates(EUCLIDEAN_ISO, noise, lambda v, n: 1 - (1 + n**2) * v) for noise in NOISES)


@euclidean_iso_noise.printed("after the expectation over augmentations the rate is 1 − λ_m")
def _() -> Sides:
    return sides(mode_rates(EUCLIDEAN_ISO, noise, lambda v, _: 1 - v) for noise in NOISES)
