"""Eq 9, 12, 13 and 16: how the modes of the Euclidean losses change in time, with and without noise in the views.

The paper averages dẑ¹/dt over augmentations as if ẑ¹ were independent of the noise in the input that moves the
weights. If both views have noise, it is not, so noise of size σ adds terms in σ² to each rate. In the authors'
notebook, the noise is in the target view alone. The published rates of the losses with stop-gradient are then exact.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from twofold_papers.isoloss.claims.cases import sides
from twofold_papers.isoloss.claims.siamese import (
    BOTH_NOISE,
    EUCLIDEAN,
    EUCLIDEAN_ISO,
    EUCLIDEAN_NO_PREDICTOR,
    EUCLIDEAN_NO_STOP,
    NOISE,
    TARGET_NOISE,
    Loss,
    eigenvalues,
    flow,
    in_notebook,
    linear,
    predictor,
    velocity,
    weights,
    white_views,
)
from twofold_papers.verify.claim import Sides, claim
from twofold_papers.verify.numerics import randn

STARTS = torch.linspace(0.15, 0.85, 4, dtype=torch.float64)  # s of WWᵀ
EXPONENTS = (1.0, 0.5)  # the library computes the square root by iteration, to 1e-9; the tolerances below allow for it
NOISES = (0.0, NOISE, 0.5)


def modes_in_time(loss: Loss, s: Tensor, exponent: float, time: float) -> tuple[Tensor, Tensor]:
    """λ at the start and after `time`, without noise. With steps of 0.01, the error of Runge–Kutta is below 1e-9."""
    x, w = white_views(60, 6, noise=0.0), weights(s, 6)
    path = flow(loss, x, w, step=0.01, steps=round(time / 0.01), exponent=exponent)
    return eigenvalues(x, path[0]) ** exponent, eigenvalues(x, path[-1]) ** exponent


def mode_rates(loss: Loss, noise: float, rate: Callable[[Tensor, float], Tensor]) -> tuple[Tensor, Tensor]:
    """Uᵀ (dW/dt) Wᵀ U of the network, and diag(rate(λ_m, σ) · s_m), which follows from dẑ_m/dt = rate · ẑ_m."""
    x, w = white_views(60, 6, noise), weights(STARTS, 6)
    values, basis = torch.linalg.eigh(w @ w.T)
    return basis.T @ velocity(loss, x, w) @ w.T @ basis, torch.diag(rate((1 + noise**2) * values, noise) * values)


def notebook_rates(loss: Loss, noise: float, rate: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """As `mode_rates`, with noise in the target view alone."""
    x, w = white_views(60, 6, noise, target_only=True), weights(STARTS, 6)
    values, basis = torch.linalg.eigh(w @ w.T)
    return basis.T @ velocity(in_notebook(loss), x, w) @ w.T @ basis, torch.diag(rate(values) * values)


@claim(
    "isoloss",
    "Theorem 1, eq 9",
    "Under L_euc, dẑ_m/dt = λ_m(1 − λ_m)ẑ_m with λ = s^α, so ln(λ/(1−λ)) − 1/λ of each mode grows by 2αt in a "
    "time t. Checked: this growth in the linear network from t = 0 to 1, without noise, for α = 1 and 0.5",
    tolerance=1e-7,
)
def euclidean_time_course() -> Sides:
    def clock(value: Tensor) -> Tensor:
        return (value / (1 - value)).log() - 1 / value

    def case(exponent: float) -> tuple[Tensor, Tensor]:
        start, end = modes_in_time(EUCLIDEAN, STARTS, exponent, time=1.0)
        return (clock(end) - clock(start)) / (2 * exponent), torch.ones_like(end)

    return sides(case(exponent) for exponent in EXPONENTS)


@claim(
    "isoloss",
    "Theorem 1, samples",
    "If E[xxᵀ] = I, every sample obeys dẑ_m/dt = λ_m(1 − λ_m)ẑ_m under L_euc. Checked: the velocity of each "
    "sample in the linear network and this formula, without noise, for α = 1 and 0.5",
    tolerance=1e-8,
)
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
    "With noise σ in both views, the rate under L_euc is λ_m(1 − (1+σ²)λ_m), so the fixed point is λ = "
    "1/(1+σ²). Checked: the velocity of W in the linear network and this rate, for σ = 0, 0.1 and 0.5",
    tolerance=1e-10,
)
def euclidean_noise() -> Sides:
    return sides(mode_rates(EUCLIDEAN, noise, lambda v, n: v * (1 - (1 + n**2) * v)) for noise in NOISES)


@euclidean_noise.published("averaged over augmentations, the rate is λ_m(1 − λ_m)")
def _() -> Sides:
    return sides(mode_rates(EUCLIDEAN, noise, lambda v, _: v * (1 - v)) for noise in NOISES)


@euclidean_noise.holds_if(TARGET_NOISE, fails_if=BOTH_NOISE)
def _() -> Sides:
    return sides(notebook_rates(EUCLIDEAN, noise, lambda v: v * (1 - v)) for noise in NOISES)


@claim(
    "isoloss",
    "eq 12",
    "Without stop-gradient, dẑ_m/dt = −(1−λ_m)²ẑ_m, so ln(λ/|1−λ|) + 1/(1−λ) decreases by 2αt in a time t. "
    "Checked: this decrease in the linear network from t = 0 to 0.5, without noise, from starts below and "
    "above 1, for α = 1 and 0.5",
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


def late_without_stop(noise: float, start: Tensor = STARTS[2:] + 1) -> Tensor:
    """s at t = 25. The default start is above 1."""
    x, w = white_views(60, 6, noise), weights(start, 6)
    return eigenvalues(x, flow(EUCLIDEAN_NO_STOP, x, w, step=0.1, steps=250)[-1])


@claim(
    "isoloss",
    "eq 12, limit",
    "From a start above 1, eq 12 stops at λ = 1; only noise in the views lets λ fall to 0. Checked: at t = "
    "25, λ is at least 1 without noise and at most 1e-6 with σ = 0.1",
    tolerance=0.0,
)
def euclidean_no_stop_from_above() -> Sides:
    fallen = late_without_stop(NOISE)
    return sides([(late_without_stop(0.0), torch.ones(2)), (torch.full((2,), 1e-6), fallen)], "≥")


@euclidean_no_stop_from_above.published("eq 12 drives all representations towards zero, and λ decreases exponentially")
def _() -> Sides:
    return Sides(late_without_stop(0.0), 1e-6, "≤")


@euclidean_no_stop_from_above.holds_if(
    "λ starts below 1, or the views have noise", fails_if="λ starts above 1 and the views have no noise"
)
def _() -> Sides:
    late = [late_without_stop(0.0, start=STARTS), late_without_stop(NOISE, start=STARTS), late_without_stop(NOISE)]
    return Sides(torch.cat(late), 1e-6, "≤")


@claim(
    "isoloss",
    "eq 12, noise",
    "With noise σ, the rate of eq 12 in a linear network is −(1 − λ_m)² − σ²(1 + λ_m²) if both views have noise, and "
    "−(1 − λ_m)² − σ² if only the target has it. Checked: the velocity of W in the linear network and both rates, for "
    "σ = 0, 0.1 and 0.5",
    tolerance=1e-10,
)
def euclidean_no_stop_noise() -> Sides:
    def pairs(noise: float) -> list[tuple[Tensor, Tensor]]:
        return [
            mode_rates(EUCLIDEAN_NO_STOP, noise, lambda v, n: -((1 - v) ** 2) - n**2 * (1 + v**2)),
            notebook_rates(EUCLIDEAN_NO_STOP, noise, lambda v: -((1 - v) ** 2) - noise**2),
        ]

    return sides(pair for noise in NOISES for pair in pairs(noise))


@euclidean_no_stop_noise.published("averaged over augmentations, the rate is −(1 − λ_m)²")
def _() -> Sides:
    return sides(notebook_rates(EUCLIDEAN_NO_STOP, noise, lambda v: -((1 - v) ** 2)) for noise in NOISES)


@euclidean_no_stop_noise.holds_if(
    "each embedding moves along the average of its own gradients over augmentations, as eq 21 assumes",
    fails_if="the weights of a linear network move, with noise in the target view alone or in both views",
)
def _() -> Sides:
    def case(z: Tensor, matrix: Tensor) -> tuple[Tensor, Tensor]:
        slope = torch.autograd.grad(EUCLIDEAN_NO_STOP.of(z, matrix), z)[0]
        return -slope.sum((0, 1)), -(z[0].mean(0) @ (torch.eye(4, dtype=z.dtype) - matrix) @ (torch.eye(4) - matrix))

    def views() -> Tensor:  # the views of one image; both have noise, whose mean over these views is 0
        noise = randn(2, 30, 4)
        return (randn(4) + noise - noise.mean(1, keepdim=True)).requires_grad_()

    return sides(case(views(), predictor(randn(1, 50, 4), 1.0)) for _ in range(3))


@claim(
    "isoloss",
    "eq 13",
    "Without a predictor, dẑ_m/dt = −σ²ẑ_m under L_euc if both views have noise σ. Checked: "
    "the velocity of W in the linear network and this rate, for σ = 0, 0.1 and 0.5",
    tolerance=1e-10,
)
def euclidean_no_predictor() -> Sides:
    return sides(
        mode_rates(EUCLIDEAN_NO_PREDICTOR, noise, lambda v, n: torch.full_like(v, -(n**2))) for noise in NOISES
    )


@euclidean_no_predictor.published("dẑ_m/dt = 0, averaged over augmentations")
def _() -> Sides:
    return sides(mode_rates(EUCLIDEAN_NO_PREDICTOR, noise, lambda v, _: torch.zeros_like(v)) for noise in NOISES)


@euclidean_no_predictor.holds_if(TARGET_NOISE, fails_if=BOTH_NOISE)
def _() -> Sides:
    return sides(notebook_rates(EUCLIDEAN_NO_PREDICTOR, noise, torch.zeros_like) for noise in NOISES)


@claim(
    "isoloss",
    "eq 16",
    "Under the Euclidean IsoLoss, dẑ_m/dt = (1 − λ_m)ẑ_m, so λ(t) = λ₀e^{2αt}/(1 + λ₀(e^{2αt} − 1)). Checked: "
    "λ of the linear network at t = 1 and this formula, without noise, for α = 1 and 0.5",
    tolerance=1e-8,
)
def euclidean_iso_time_course() -> Sides:
    def case(exponent: float) -> tuple[Tensor, Tensor]:
        start, end = modes_in_time(EUCLIDEAN_ISO, STARTS, exponent, time=1.0)
        growth = torch.tensor(2 * exponent, dtype=torch.float64).exp()
        return end, start * growth / (1 + start * (growth - 1))

    return sides(case(exponent) for exponent in EXPONENTS)


@claim(
    "isoloss",
    "eq 16, noise",
    "With noise σ in both views, the rate of eq 16 is 1 − (1+σ²)λ_m. Checked: the velocity of W in the linear "
    "network and this rate, for σ = 0, 0.1 and 0.5",
    tolerance=1e-10,
)
def euclidean_iso_noise() -> Sides:
    return sides(mode_rates(EUCLIDEAN_ISO, noise, lambda v, n: 1 - (1 + n**2) * v) for noise in NOISES)


@euclidean_iso_noise.published("averaged over augmentations, the rate is 1 − λ_m")
def _() -> Sides:
    return sides(mode_rates(EUCLIDEAN_ISO, noise, lambda v, _: 1 - v) for noise in NOISES)


@euclidean_iso_noise.holds_if(TARGET_NOISE, fails_if=BOTH_NOISE)
def _() -> Sides:
    return sides(notebook_rates(EUCLIDEAN_ISO, noise, lambda v: 1 - v) for noise in NOISES)
