"""Eq 11, 14, 22, 23, 25 and the regimes of Theorem 2 and C.2: rates of the cosine loss, averaged over augmentations.

There are M modes with any positive λ. One input has the K augmentations ẑ[K, M]; each pair of them is a pair of views.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from twofold_papers.isoloss.claims.cases import length, sides
from twofold_papers.isoloss.claims.losses import cosine_dynamics
from twofold_papers.isoloss.claims.siamese import (
    COSINE,
    COSINE_NO_PREDICTOR,
    COSINE_NO_STOP,
    EUCLIDEAN,
    Loss,
    balanced_views,
    flow,
    linear,
    orthogonal,
    spectra,
    velocity,
    weights,
    white_views,
)
from twofold_papers.verify.claim import Sides, claim
from twofold_papers.verify.numerics import randn


def augmented(k: int = 12) -> Iterator[tuple[Tensor, Tensor]]:
    """λ[M] and ẑ[K, M]. The augmentations are so small that no component changes its sign."""
    for m in (2, 4, 7):
        centre = randn(m).sign() * (0.5 + torch.rand(m, dtype=torch.float64))
        yield 0.2 + torch.rand(m, dtype=torch.float64), centre + 0.4 * torch.rand(k, m, dtype=torch.float64) - 0.2


def mean_rate(loss: Loss, eigenvalues: Tensor, z: Tensor) -> Tensor:
    """dẑ[M]/dt, averaged over all pairs of augmentations, by autograd through the library's loss in a random basis."""
    basis = orthogonal(len(eigenvalues))
    k = len(z)
    pairs = torch.stack([z.repeat_interleave(k, 0), z.repeat(k, 1)]) @ basis.T
    pairs.requires_grad_()
    matrix = basis * eigenvalues @ basis.T if loss.predictor else None
    return -torch.autograd.grad(loss.of(pairs, matrix), pairs)[0].sum((0, 1)) @ basis


def without_diagonal(terms: Tensor) -> Tensor:
    """Σ_{k≠m} of terms[m, k]."""
    return terms.sum(1) - terms.diagonal()


def eq_22(eigenvalues: Tensor, z: Tensor) -> Tensor:
    """The second line of eq 22."""
    scaled, unit = length(eigenvalues * z) ** 3, (z / length(z)).mean(0)
    squares, products = (z**2 / scaled).mean(0), torch.einsum("am,ak->mk", z / scaled, z) / len(z)
    rising = eigenvalues**2 * squares * unit[:, None]
    falling = eigenvalues[:, None] * eigenvalues * products * unit
    return eigenvalues * without_diagonal(rising - falling)


@claim(
    "isoloss",
    "eq 22",
    "For the cosine loss, E[dẑ_m/dt] = λ_m Σ_{k≠m}(λ_k² E[ẑ_k²/‖Dẑ‖³]E[ẑ_m/‖ẑ‖] − λ_mλ_k "
    "E[ẑ_mẑ_k/‖Dẑ‖³]E[ẑ_k/‖ẑ‖]). Checked: the average over pairs of random augmentations, by autograd through "
    "the library's loss, and this formula",
    tolerance=1e-12,
)
def cosine_average() -> Sides:
    return sides((mean_rate(COSINE, values, z), eq_22(values, z)) for values, z in augmented())


@claim(
    "isoloss",
    "eq 22, signs",
    "If no component changes its sign, eq 22 can be written with χ_m = |ẑ_m|/‖ẑ‖ and γ_m = sign ẑ_m. Checked: "
    "the average over pairs of random augmentations, by autograd through the library's loss, and this formula",
    tolerance=1e-12,
)
def cosine_average_in_shares() -> Sides:
    def formula(eigenvalues: Tensor, z: Tensor) -> Tensor:
        shares, signs = z.abs() / length(z), z[0].sign()
        weight = length(z) ** 2 / length(eigenvalues * z) ** 3
        rising = eigenvalues**2 * (shares**2 * weight).mean(0) * shares.mean(0)[:, None]
        products = torch.einsum("am,ak->mk", shares * weight, shares) / len(z)
        falling = eigenvalues[:, None] * eigenvalues * products * shares.mean(0)
        return eigenvalues * signs * without_diagonal(rising - falling)

    return sides((mean_rate(COSINE, values, z), formula(values, z)) for values, z in augmented())


@claim(
    "isoloss",
    "eq 14, eq 25",
    "Without a predictor, E[dẑ_m/dt] = Σ_{k≠m}(E[ẑ_k²/‖ẑ‖³]E[ẑ_m/‖ẑ‖] − E[ẑ_mẑ_k/‖ẑ‖³]E[ẑ_k/‖ẑ‖]). Checked: "
    "the average over pairs of random augmentations, by autograd through the library's loss, and this formula",
    tolerance=1e-12,
)
def cosine_no_predictor_average() -> Sides:
    return sides(
        (mean_rate(COSINE_NO_PREDICTOR, values, z), eq_22(torch.ones_like(values), z)) for values, z in augmented()
    )


def target_average(eigenvalues: Tensor, z: Tensor) -> Tensor:
    """The term that the gradient of the target adds without stop-gradient."""
    first, second = (z / length(eigenvalues * z)).mean(0), z / length(z) ** 3
    squares, products = (second * z).mean(0), torch.einsum("am,ak->mk", second, z) / len(z)
    return without_diagonal((eigenvalues * first)[:, None] * squares - eigenvalues * first * products)


@claim(
    "isoloss",
    "C.2, average",
    "Without stop-gradient, E[dẑ_m/dt] is eq 22 plus Σ_{k≠m}(λ_m E[ẑ_m/‖Dẑ‖]E[ẑ_k²/‖ẑ‖³] − λ_k "
    "E[ẑ_k/‖Dẑ‖]E[ẑ_mẑ_k/‖ẑ‖³]). Checked: the average over pairs of random augmentations, by autograd through "
    "the library's loss, and this formula",
    tolerance=1e-12,
)
def cosine_no_stop_average() -> Sides:
    return sides(
        (mean_rate(COSINE_NO_STOP, values, z), eq_22(values, z) + target_average(values, z))
        for values, z in augmented()
    )


@cosine_no_stop_average.published(
    "eq 22 plus λ_m Σ_k λ_k(λ_mλ_k E[|ẑ_k|³/‖Dẑ‖³]E[1/‖ẑ‖] − E[|ẑ_k|/‖Dẑ‖³]E[|ẑ_mẑ_k|/‖ẑ‖]) sign ẑ_m"
)
def _() -> Sides:
    def formula(eigenvalues: Tensor, z: Tensor) -> Tensor:
        scaled, size = length(eigenvalues * z) ** 3, z.abs()
        cubes = eigenvalues[:, None] * eigenvalues * (size**3 / scaled).mean(0) * (1 / length(z)).mean()
        crossed = (size / scaled).mean(0) * torch.einsum("am,ak->mk", size / length(z), size) / len(z)
        added = (eigenvalues * (cubes - crossed)).sum(1)
        return eq_22(eigenvalues, z) + eigenvalues * z[0].sign() * added

    return sides((mean_rate(COSINE_NO_STOP, values, z), formula(values, z)) for values, z in augmented())


SMALL = 1e-4  # ε; the neglected terms have relative size ε²


def dominated() -> Iterator[tuple[Tensor, Tensor]]:
    """λ_1 is much larger than the others, and ẑ = (±1, ±ε, …, ±ε), without noise."""
    for m in (2, 5, 8):
        eigenvalues = torch.cat([torch.tensor([2.0]), 0.1 + 0.5 * torch.rand(m - 1)]).double()
        z = randn(m).sign() * SMALL
        z[0] = z[0].sign()
        yield eigenvalues, z[None]


def dominant_rates(loss: Loss, first: Callable[[Tensor], Tensor], others: Callable[[Tensor], Tensor]) -> Sides:
    """γ_1 dẑ_1/dt in units of ε² and γ_m dẑ_m/dt in units of ε, and formulas for them in λ."""

    def case(eigenvalues: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        rate = mean_rate(loss, eigenvalues, z) * z[0].sign() / SMALL
        return torch.cat([rate[:1] / SMALL, rate[1:]]), torch.cat([first(eigenvalues)[None], others(eigenvalues)])

    return sides(case(values, z) for values, z in dominated())


@claim(
    "isoloss",
    "Theorem 2, dominant",
    "If λ_1 dominates, mode 1 shrinks and the others grow: the rates are ε²λ_1Σλ_k(λ_k−λ_1)/λ_1³ < 0 for mode "
    "1 and ελ_mλ_1(λ_1−λ_m)/λ_1³ > 0 for the others. Checked: rates by autograd for ẑ = (±1, ±ε, …, ±ε) with "
    "ε = 1e-4, and these formulas",
    tolerance=1e-6,
)
def cosine_dominant() -> Sides:
    return dominant_rates(
        COSINE,
        lambda v: (v[1:] * (v[1:] - v[0])).sum() / v[0] ** 2,
        lambda v: v[1:] * (v[0] - v[1:]) / v[0] ** 2,
    )


@claim(
    "isoloss",
    "C.2, dominant",
    "Without stop-gradient, if λ_1 dominates, mode 1 grows and the others shrink, so rank is lost: the rates "
    "are ε²Σ(1−λ_k/λ_1)² for mode 1 and −ε(1−λ_m/λ_1)² for the others. Checked: rates by autograd for ẑ = "
    "(±1, ±ε, …, ±ε) with ε = 1e-4, and these formulas",
    tolerance=1e-6,
)
def cosine_no_stop_dominant() -> Sides:
    return dominant_rates(
        COSINE_NO_STOP, lambda v: (1 - v[1:] / v[0]).square().sum(), lambda v: -((1 - v[1:] / v[0]) ** 2)
    )


@cosine_no_stop_dominant.published("dẑ_1/dt ≈ λ_1⁴/λ_1³ and dẑ_m/dt ≈ λ_m²λ_1²/λ_1³, so all modes diverge")
def _() -> Sides:
    return dominant_rates(COSINE_NO_STOP, lambda v: v[0] / SMALL**2, lambda v: v[1:] ** 2 / v[0] / SMALL)


def uniform(scale: float = 0.8) -> Iterator[tuple[Tensor, Tensor]]:
    """Any λ, and ẑ whose components have equal magnitude and random signs, without noise."""
    for m in (2, 5, 8):
        yield 0.5 + torch.rand(m, dtype=torch.float64), scale * randn(m).sign()[None]


@claim(
    "isoloss",
    "eq 23",
    "If all |ẑ_m| are equal, dẑ_m/dt = λ_mγ_m E[χ²‖ẑ‖²/‖Dẑ‖³]E[χ] Σ_{k≠m} λ_k(λ_k − λ_m). Checked: the rate "
    "by autograd without noise, and this formula",
    tolerance=1e-12,
)
def cosine_uniform() -> Sides:
    def formula(eigenvalues: Tensor, z: Tensor) -> Tensor:
        share, size = len(eigenvalues) ** -0.5, z.norm()
        gaps = (eigenvalues * (eigenvalues - eigenvalues[:, None])).sum(1)
        weight = share**2 * size**2 / (eigenvalues * z).norm() ** 3
        return eigenvalues * z[0].sign() * weight * share * gaps

    return sides((mean_rate(COSINE, values, z), formula(values, z)) for values, z in uniform())


def uniform_no_stop(eigenvalues: Tensor, z: Tensor) -> Tensor:
    """γ_m dẑ_m/dt for equal |ẑ_m| = c."""
    m, total, squares = len(eigenvalues), eigenvalues.sum(), eigenvalues.square().sum()
    bracket = 2 * eigenvalues - eigenvalues**2 * total / squares - total / m
    return bracket / (z[0, 0].abs() * (m * squares).sqrt())


@claim(
    "isoloss",
    "C.2, near-uniform",
    "Without stop-gradient, if all |ẑ_m| = c, then γ_m dẑ_m/dt = (2λ_m − λ_m²Σλ/Σλ² − Σλ/M)/(c√(MΣλ²)), and "
    "these rates sum to 0. Checked: the rates by autograd without noise and this formula, and their sum",
    tolerance=1e-12,
)
def cosine_no_stop_uniform() -> Sides:
    def case(eigenvalues: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        rate = mean_rate(COSINE_NO_STOP, eigenvalues, z) * z[0].sign()
        return torch.cat([rate, rate.sum()[None]]), torch.cat([uniform_no_stop(eigenvalues, z), torch.zeros(1)])

    return sides(case(values, z) for values, z in uniform())


@cosine_no_stop_uniform.published("γ_m dẑ_m/dt > 0 for all m, so the dynamics diverge in the near-uniform regime")
def _() -> Sides:
    return sides(
        ((mean_rate(COSINE_NO_STOP, values, z) * z[0].sign(), torch.zeros_like(values)) for values, z in uniform()), ">"
    )


def eigenvalue_rates(s: Tensor, x: Tensor) -> Tensor:
    """ds_m/dt of L_cos in the linear network, in ascending order of s."""
    w = weights(s, x.shape[-1], aligned=True)
    basis = torch.linalg.eigh(w @ w.T).eigenvectors
    return 2 * (basis.T @ velocity(COSINE, x, w) @ w.T @ basis).diagonal()


def comparable(m: int, spectra: int = 60) -> Iterator[tuple[Tensor, Tensor]]:
    """λ of comparable size in ascending order, and ds/dt of the network for white Gaussian inputs."""
    x = balanced_views(6, 15, m)
    for _ in range(spectra):
        s = (0.7 + 0.6 * torch.rand(m, dtype=torch.float64)).sort().values
        yield s, eigenvalue_rates(s, x)


def eq_11_sign(s: Tensor) -> Tensor:
    return (s * (s - s[:, None])).sum(1).sign()


def samples_agreeing() -> Tensor:
    """The share of samples and modes for which eq 11 predicts the growth of |ẑ_m| under eq 10, without noise."""
    agree = []
    for _ in range(60):
        s = 0.7 + 0.6 * torch.rand(10, dtype=torch.float64)
        z = randn(300, 10) * s.sqrt()
        agree.append((z * cosine_dynamics(z, z, s)).sign() == eq_11_sign(s))
    return torch.stack(agree).double().mean()


@claim(
    "isoloss",
    "eq 11, samples",
    "For most samples and modes with comparable λ, the sign of Σ_k λ_k(λ_k − λ_m) decides whether |ẑ_m| "
    "grows. Checked: it does for more than 80 % of Gaussian samples and modes, M = 10, under eq 10 without "
    "noise",
    tolerance=0.0,
)
def cosine_sample_sign() -> Sides:
    return Sides(samples_agreeing(), 0.8, ">")


@cosine_sample_sign.published(
    "for every sample, the sign of Σ_k λ_k(λ_k − λ_m) decides whether dẑ_m/dt has the sign of ẑ_m"
)
def _() -> Sides:
    return Sides(samples_agreeing(), 1.0)


@cosine_sample_sign.holds_if(
    "all |ẑ_m| of a sample are equal, as in the approximation that leads to eq 11", fails_if="they are not equal"
)
def _() -> Sides:
    return sides(((z * cosine_dynamics(z, z, values)).sign()[0], eq_11_sign(values)) for values, z in uniform())


@claim(
    "isoloss",
    "eq 11",
    "Averaged over samples, the sign of Σ_k λ_k(λ_k − λ_m) is the sign of ds_m/dt. Checked: this holds for "
    "more than 95 % of modes in the linear network, M = 10, 60 random spectra",
    tolerance=0.0,
)
def cosine_sign() -> Sides:
    return Sides(torch.cat([(eq_11_sign(s) == rate.sign()).double() for s, rate in comparable(10)]).mean(), 0.95, ">")


@claim(
    "isoloss",
    "eq 11, extremes",
    "The largest eigenvalue decreases and the smallest increases, as eq 11 says. Checked: both rates in the "
    "linear network, for M = 2, 5 and 10 and 20 random spectra each",
    tolerance=0.0,
)
def cosine_extremes() -> Sides:
    rates = [rate for m in (2, 5, 10) for _, rate in comparable(m, 20)]
    return Sides(torch.stack([torch.stack([-rate[-1], rate[0]]) for rate in rates]), 0.0, ">")


@claim(
    "isoloss",
    "C.4, sum",
    "The total power changes at the rate d/dt Σ_m E[ẑ_m²] = 2 E[Σ_m ẑ_m dẑ_m/dt]. Checked: both sides for the "
    "Euclidean loss in the linear network, the left one by a central difference",
    tolerance=1e-8,
)
def power_rate() -> Sides:
    return Sides(*power_and_radial(2.0))


@power_rate.published("d/dt Σ_m E[ẑ_m²] = E[Σ_m ẑ_m dẑ_m/dt], without the factor 2")
def _() -> Sides:
    return Sides(*power_and_radial(1.0))


@power_rate.holds_if(
    "the loss is L_cos without a predictor, as in C.4: both sides are 0", fails_if="it is another loss, such as L_euc"
)
def _() -> Sides:
    return Sides(*power_and_radial(1.0, COSINE_NO_PREDICTOR))


def power_and_radial(factor: float, loss: Loss = EUCLIDEAN) -> tuple[Tensor, Tensor]:
    """Both sides, by default for the Euclidean loss, for which they are not 0; the left one is a central difference."""
    x, w = white_views(60, 6), weights(torch.linspace(0.2, 2, 4, dtype=torch.float64), 6)
    rate, step = velocity(loss, x, w), 1e-5
    ahead, behind = (linear(x[0], w + sign * step * rate).square().sum(-1).mean() for sign in (1, -1))
    radial = (linear(x[0], w) * linear(x[0], rate)).sum(-1).mean()
    return (ahead - behind) / (2 * step), factor * radial


@claim(
    "isoloss",
    "C.4, conservation",
    "The sum of the eigenvalues is constant under L_cos without a predictor; it is also constant with a "
    "predictor, and without stop-gradient. Checked: Σ s along the gradient flow of the linear network, for "
    "all three, and with a predictor for α = 1 and 0.5",
    tolerance=1e-9,  # the drift of Runge–Kutta over 40 steps of 0.05
)
def conserved_sum() -> Sides:
    def case(loss: Loss, exponent: float) -> tuple[Tensor, Tensor]:
        x, w = white_views(100, 7), weights(torch.linspace(0.2, 2, 5, dtype=torch.float64), 7)
        total = spectra(x, flow(loss, x, w, step=0.05, steps=40, exponent=exponent)).sum(1)
        return total, total[:1].expand_as(total)

    losses = ((COSINE_NO_PREDICTOR, 1.0), (COSINE, 1.0), (COSINE, 0.5), (COSINE_NO_STOP, 1.0))
    return sides(case(*which) for which in losses)


@claim(
    "isoloss",
    "C.2, finite steps",
    "A step η of gradient descent on any of these losses adds exactly η²‖∂L/∂W‖² to ‖W‖², so only large steps "
    "make it grow. Checked: ‖W‖² after steps of 0.1 and 3 for the three losses",
    tolerance=1e-12,
)
def growth_of_finite_steps() -> Sides:
    def case(loss: Loss, step: float) -> tuple[Tensor, Tensor]:
        x, w = white_views(100, 7), weights(torch.linspace(0.2, 2, 5, dtype=torch.float64), 7)
        slope = velocity(loss, x, w)
        return (w + step * slope).square().sum(), w.square().sum() + step**2 * slope.square().sum()

    return sides(case(loss, step) for loss in (COSINE_NO_PREDICTOR, COSINE, COSINE_NO_STOP) for step in (0.1, 3.0))
