"""Eq 9, 11 to 14, 16, 22, 23, 25 and appendix C: rates averaged over augmentations, and modes followed in time."""

import torch
from torch import Tensor

from twofold.theory.claim import Sides, claim
from twofold.theory.isoloss.cases import dot, length, sides
from twofold.theory.isoloss.losses import cosine_dynamics
from twofold.theory.isoloss.siamese import (
    COSINE,
    COSINE_ISO,
    COSINE_NO_PREDICTOR,
    COSINE_NO_STOP,
    EUCLIDEAN,
    EUCLIDEAN_ISO,
    EUCLIDEAN_NO_PREDICTOR,
    EUCLIDEAN_NO_STOP,
    NOISE,
    Loss,
    balanced_views,
    eigenvalues,
    flow,
    linear,
    orthogonal,
    randn,
    spectra,
    velocity,
    weights,
    white_views,
)
from twofold import objectives

STARTS = torch.linspace(0.15, 0.85, 4, dtype=torch.float64)  # s of WWᵀ
EXPONENTS = (1.0, 0.5)


def modes_in_time(loss: Loss, s: Tensor, exponent: float, time: float, noise: float = 0.0) -> tuple[Tensor, Tensor]:
    """λ at the start and after `time`. Steps of 0.01: the Runge–Kutta error is below 1e-9 of λ."""
    x, w = white_views(60, 6, noise), weights(s, 6)
    path = flow(loss, x, w, step=0.01, steps=round(time / 0.01), exponent=exponent)
    return eigenvalues(x, path[0]) ** exponent, eigenvalues(x, path[-1]) ** exponent


@claim("isoloss", "Theorem 1, eq 9", "dẑ_m/dt = λ_m(1 − λ_m)ẑ_m: Δ[ln(λ/(1−λ)) − 1/λ] = 2αt for each mode", tolerance=1e-8)
def euclidean_time_course() -> Sides:
    """The equation's integral, λ = s^α, beside the time for which the network was trained."""

    def clock(value: Tensor) -> Tensor:
        return (value / (1 - value)).log() - 1 / value

    def case(exponent: float) -> tuple[Tensor, Tensor]:
        start, end = modes_in_time(EUCLIDEAN, STARTS, exponent, time=1.0)
        return (clock(end) - clock(start)) / (2 * exponent), torch.ones_like(end)

    return sides(case(exponent) for exponent in EXPONENTS)


@claim("isoloss", "Theorem 1, samples", "with E[xxᵀ] = I every sample obeys dẑ_m/dt = λ_m(1 − λ_m)ẑ_m", tolerance=1e-9)
def euclidean_samples() -> Sides:
    def case(exponent: float) -> tuple[Tensor, Tensor]:
        x, w = white_views(60, 6, noise=0.0), weights(STARTS, 6)
        values, basis = torch.linalg.eigh(w @ w.T)
        rate = values**exponent * (1 - values**exponent)
        return linear(x[0], velocity(EUCLIDEAN, x, w, exponent)) @ basis, rate * (linear(x[0], w) @ basis)

    return sides(case(exponent) for exponent in EXPONENTS)


@claim("isoloss", "eq 12", "without stop-gradient dẑ_m/dt = −(1−λ_m)²ẑ_m: Δ[ln(λ/|1−λ|) + 1/(1−λ)] = −2αt", tolerance=1e-8)
def euclidean_no_stop_time_course() -> Sides:
    def clock(value: Tensor) -> Tensor:
        return (value / (1 - value).abs()).log() + 1 / (1 - value)

    def case(exponent: float) -> tuple[Tensor, Tensor]:
        starts = torch.cat([STARTS, STARTS + 1])
        start, end = modes_in_time(EUCLIDEAN_NO_STOP, starts[1::2], exponent, time=0.5)
        return (clock(start) - clock(end)) / (2 * exponent), torch.full_like(end, 0.5)

    return sides(case(exponent) for exponent in EXPONENTS)


LATE = 20.0


def no_stop_end(noise: float) -> Tensor:
    x, w = white_views(60, 6, noise), weights(STARTS[:2] + 1, 6)
    return eigenvalues(x, flow(EUCLIDEAN_NO_STOP, x, w, step=0.1, steps=round(LATE / 0.1))[-1])


@claim(
    "isoloss",
    "eq 12, limit",
    "eq 12 stops at λ = 1 where it comes from above: λ ≥ 1 for ever; only noise in the views carries it on to 0",
    tolerance=0.0,
)
def euclidean_no_stop_from_above() -> Sides:
    return sides([(no_stop_end(0.0), torch.ones(2)), (-no_stop_end(NOISE), torch.full((2,), -1e-6))], "≥")


@euclidean_no_stop_from_above.printed("eq 12 drives every representation toward zero, with exponentially falling λ")
def _() -> Sides:
    return Sides(no_stop_end(0.0), 1e-6, "≤")


@claim("isoloss", "eq 12, noise", "with noise of size σ the rate of eq 12 is −(1 − λ_m)² − σ²(1 + λ_m²)", tolerance=1e-10)
def euclidean_no_stop_noise() -> Sides:
    return sides(
        noisy_rate(EUCLIDEAN_NO_STOP, noise, lambda v, noise=noise: -((1 - v) ** 2) - noise**2 * (1 + v**2))
        for noise in NOISES
    )


NOISES = (0.0, NOISE, 0.5)


def noisy_rate(loss: Loss, noise: float, rate) -> tuple[Tensor, Tensor]:
    """The growth d ln ẑ_m/dt of the network's modes, beside a function of the predictor's eigenvalue."""
    x, w = white_views(60, 6, noise), weights(STARTS, 6)
    values, basis = torch.linalg.eigh(w @ w.T)
    motion = basis.T @ velocity(loss, x, w) @ w.T @ basis
    return motion, torch.diag(rate((1 + noise**2) * values) * values)
