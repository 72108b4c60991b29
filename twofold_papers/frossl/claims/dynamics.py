"""Propositions D.1 and D.2, eq 14 to 18 and 30 to 34: how the linear variant learns, compared with the Barlow variant.

The data are X_v = P diag(√λ_v) Vᵀ, so Γ_v = V diag(λ_v) Vᵀ and X₂ᵀX₁ = V diag(√(λγ)) Vᵀ with λ = λ₁ and γ = λ₂. Aligned
weights are W_v = U diag(s_v) V̂, where the rows of V̂[d, m] are the first d columns of V.

Shapes: x[2, N, m], w[2, d, m] and s[2, d]; the first axis is that of the views.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from twofold_papers.frossl.claims.gradients import barlow_variant, frossl_variant, gradient, instances
from twofold_papers.frossl.claims.objective import flat, rotation
from twofold_papers.verify.claim import Sides, claim
from twofold_papers.verify.numerics import rk4

SIZES = [(9, 6, 4), (7, 4, 4)]  # N, m, d
TIME, STEPS = 2.0, 200  # for rates up to 10, the relative error of s from Runge–Kutta is then a few 1e-8


def flow(velocity: Callable[[Tensor], Tensor], start: Tensor, time: float, steps: int = STEPS) -> Tensor:
    """The states [steps + 1, ...] at equally spaced times, by the fourth-order Runge–Kutta method."""
    return torch.stack(rk4(velocity, start, time / steps, steps))


def descent(x: Tensor, loss: Callable[[Tensor, Tensor], Tensor] = frossl_variant) -> Callable[[Tensor], Tensor]:
    return lambda w: -gradient(loss, w, x)


@dataclass(frozen=True)
class Aligned:
    """Data, and networks whose right singular vectors are those of the data (eq 14 to 16)."""

    x: Tensor  # [2, N, m]
    spectrum: Tensor  # [2, m]: λ and γ in descending order
    u: Tensor  # [2, d, d]
    v: Tensor  # [m, m]
    s: Tensor  # [2, d]: the singular values of the networks at t = 0

    @property
    def weights(self) -> Tensor:
        return self.u * self.s[:, None] @ self.v[:, : self.s.shape[1]].T

    @property
    def learnable(self) -> Tensor:
        """λ and γ of the d directions that the networks learn, [2, d]."""
        return self.spectrum[:, : self.s.shape[1]]

    def seen_from_inside(self, w: Tensor) -> Tensor:
        """UᵀWV [..., 2, d, m]. It is diagonal as long as the singular vectors have not changed."""
        return self.u.mT @ w @ self.v


def aligned(samples: int, m: int, d: int, *, same_views: bool = False, same_sides: bool = True) -> Aligned:
    """Aligned data and networks. Both views always share the eigenvectors V.

    With `same_views`, λ = γ and s₁ = s₂. With `same_sides`, X₁ and X₂ also share their left singular vectors P, and W₁
    and W₂ share their left singular vectors U.
    """
    spectrum = (torch.rand(2, m, dtype=torch.float64) + 0.3).sort(dim=1, descending=True).values
    s = 0.05 + 0.2 * torch.rand(2, d, dtype=torch.float64)
    p, u = torch.stack([rotation(samples)[:, :m] for _ in range(2)]), torch.stack([rotation(d) for _ in range(2)])
    if same_views:
        spectrum, s = spectrum[:1].expand(2, m), s[:1].expand(2, d)
    if same_sides:
        p, u = p[:1].expand_as(p), u[:1].expand_as(u)
    v = rotation(m)
    return Aligned(p * spectrum[:, None].sqrt() @ v.T, spectrum, u, v, s)


def cases(same_views: bool = False, same_sides: bool = True) -> list[Aligned]:
    return [aligned(*sizes, same_views=same_views, same_sides=same_sides) for sizes in SIZES]


def singular_velocity(s: Tensor, spectrum: Tensor) -> Tensor:
    """The corrected eq 32: s₁' = 2λs₁ + 2√(λγ)s₂ − 4λ²s₁³, and the same for s₂ with 1 and 2 exchanged."""
    return 2 * spectrum * s + 2 * spectrum.prod(dim=0).sqrt() * s.flip(0) - 4 * spectrum**2 * s**3


def published_velocity(s: Tensor, spectrum: Tensor) -> Tensor:
    return 2 * s * (spectrum - 2 * spectrum.prod(dim=0).sqrt() - 2 * s**2 * spectrum**2)


def embedded(rows: Tensor, m: int) -> Tensor:
    """diag(rows), padded with columns of zeros to [..., d, m]."""
    return torch.nn.functional.pad(rows.diag_embed(), (0, m - rows.shape[-1]))


def learnt(case: Aligned, time: float = TIME) -> Tensor:
    """UᵀW(t)V [T, 2, d, m] under the gradient flow of eq 10."""
    return case.seen_from_inside(flow(descent(case.x), case.weights, time))


@claim(
    "frossl",
    "Proposition D.1 (vectors)",
    "The singular vectors of W₁ and W₂, initialised as in eq 16, do not change over time if U₁ = U₂ and if X₁ and X₂ "
    "have the same left singular vectors. Checked: UᵀW(t)V stays diagonal under the gradient flow of eq 10 up to t = 2",
    tolerance=1e-10,
)
def singular_vectors_stay() -> Sides:
    seen = [learnt(case) for case in cases()]
    return Sides(flat([a - embedded(a.diagonal(dim1=-2, dim2=-1), a.shape[-1]) for a in seen]), 0.0)


@singular_vectors_stay.published(
    "it is enough that Γ₁ and Γ₂ share their eigenvectors and that the weights are initialised as in eq 16"
)
def _() -> Sides:
    seen = [learnt(case) for case in cases(same_sides=False)]
    return Sides(flat([a - embedded(a.diagonal(dim1=-2, dim2=-1), a.shape[-1]) for a in seen]), 0.0)


singular_vectors_stay.holds_if(
    "'W₂ follows identically' means that U₂ = U₁, and X₁ and X₂ also have the same left singular vectors",
    fails_if="U₁ and U₂, or the left singular vectors of X₁ and X₂, differ",
)(singular_vectors_stay.compute)


def outer_velocity(case: Aligned, inner: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    return case.u * inner(case.s, case.learnable)[:, None] @ case.v[:, : case.s.shape[1]].T


@claim(
    "frossl",
    "eq 30, 31",
    "For weights as in eq 16, dW₁/dt = U[2S₁D₁ + 2S₂(D₁D₂)^½ − 4S₁³D₁²]V̂. For dW₂/dt, exchange 1 and 2. Checked: −∇L "
    "of eq 10 by autograd, and this formula, for both networks",
    tolerance=1e-12,
)
def velocity_of_weights() -> Sides:
    given = cases()
    left = flat([descent(case.x)(case.weights) for case in given])
    return Sides(left, flat([outer_velocity(case, singular_velocity) for case in given]))


@velocity_of_weights.published("dW₁/dt = U[2S₁D₁ − 4S₁(D₁D₂)^½ − 4S₁³D₁²]V̂")
def _() -> Sides:
    given = cases()
    left = flat([descent(case.x)(case.weights) for case in given])
    return Sides(left, flat([outer_velocity(case, published_velocity) for case in given]))


def inner_velocity(case: Aligned) -> Tensor:
    return case.seen_from_inside(descent(case.x)(case.weights)).diagonal(dim1=-2, dim2=-1)


@claim(
    "frossl",
    "eq 32",
    "The singular values of W₁ follow s₁' = 2λs₁ + 2√(λγ)s₂ − 4λ²s₁³. For those of W₂, exchange 1 and 2, and λ and γ. "
    "Checked: the diagonal of Uᵀ(dW/dt)V by autograd, and this formula, for both networks",
    tolerance=1e-12,
)
def velocity_of_singular_values() -> Sides:
    given = cases()
    left = flat([inner_velocity(case) for case in given])
    return Sides(left, flat([singular_velocity(case.s, case.learnable) for case in given]))


@velocity_of_singular_values.published("s₁' = 2s₁(λ − 2√(λγ) − 2λ²s₁²)")
def _() -> Sides:
    given = cases()
    left = flat([inner_velocity(case) for case in given])
    return Sides(left, flat([published_velocity(case.s, case.learnable) for case in given]))


def published_solution(s: Tensor, spectrum: Tensor, times_T: Tensor) -> Tensor:
    """Eq 18 and 34 as published, [T, 2, d]."""
    a = 2 * spectrum.prod(dim=0).sqrt() - spectrum
    squares = spectrum**2
    growth = (4 * a * times_T[:, None, None]).exp()
    return (a / ((2 * squares + a / s**2) * growth - 2 * squares)).sqrt()


def times(time: float, steps: int = STEPS) -> Tensor:
    return torch.linspace(0, time, steps + 1, dtype=torch.float64)


@claim(
    "frossl",
    "eq 33, 34",
    "The published eq 34 solves the published eq 32, so the error is in eq 32. Checked: the published eq 32, "
    "integrated by Runge–Kutta up to t = 2, and eq 34",
    tolerance=1e-9,
)
def solution_of_the_printed_equation() -> Sides:
    """The error of Runge–Kutta is about 1e-10 at these rates."""
    given = cases()
    left = [flow(partial(published_velocity, spectrum=case.learnable), case.s, TIME) for case in given]
    return Sides(flat(left), flat([published_solution(case.s, case.learnable, times(TIME)) for case in given]))


@claim(
    "frossl",
    "eq 17",
    "For weights initialised as in eq 16, W(t) = U diag(s(t)) V̂, where s(t) solves the corrected eq 32. Checked: "
    "W(t) under the gradient flow of eq 10 up to t = 2, and this formula, for λ ≠ γ and s₁ ≠ s₂",
    tolerance=1e-10,
)
def matrix_flow_is_scalar() -> Sides:
    given = cases()
    right = []
    for case in given:
        s = flow(partial(singular_velocity, spectrum=case.learnable), case.s, TIME)
        right.append(case.u * s[..., None, :] @ case.v[:, : s.shape[-1]].T)
    return Sides(flat([flow(descent(case.x), case.weights, TIME) for case in given]), flat(right))


@claim(
    "frossl",
    "Proposition D.1, eq 18, 34",
    "If λ = γ and s₁(0) = s₂(0) = s₀, then s(t)² = s₀²e^{8λt}/(1 + λs₀²(e^{8λt} − 1)). Checked: the singular values "
    "of W(t) under the gradient flow of eq 10 up to t = 2, and this formula",
    tolerance=1e-7,
)
def closed_form() -> Sides:
    """The error is that of Runge–Kutta with 200 steps. With twice as many steps, it is 16 times smaller."""
    given = cases(same_views=True)
    left, right = [], []
    for case in given:
        left.append(learnt(case).diagonal(dim1=-2, dim2=-1).square())
        growth = (8 * case.learnable * times(TIME)[:, None, None]).exp()
        right.append(case.s**2 * growth / (1 + case.learnable * case.s**2 * (growth - 1)))
    return Sides(flat(left), flat(right))


@closed_form.published("eq 18. For λ = γ, it is s² = λ/((2λ² + λ/s₀²)e^{4λt} − 2λ²), which goes to 0")
def _() -> Sides:
    given = cases(same_views=True)
    left = [learnt(case).diagonal(dim1=-2, dim2=-1) for case in given]
    return Sides(flat(left), flat([published_solution(case.s, case.learnable, times(TIME)) for case in given]))


@claim(
    "frossl",
    "Proposition D.1 (limit)",
    "For t → ∞, s₁ → 1/√λ and s₂ → 1/√γ, so Z₁ = Z₂ with orthonormal columns. Checked: the singular values of W(t) "
    "under the gradient flow of eq 10 at t = 10, and these limits",
    tolerance=1e-8,
)
def limit() -> Sides:
    given = cases()
    left = [learnt(case, time=10.0)[-1].diagonal(dim1=-2, dim2=-1) for case in given]
    return Sides(flat(left), flat([case.learnable.rsqrt() for case in given]))


@limit.published(
    "eq 18, in which s₁ goes to 0 for t → ∞ if λ < 4γ. Checked: s₁ and s₂ of eq 18 at t = 10, and the limits 1/√λ and "
    "1/√γ"
)
def _() -> Sides:
    given = cases()
    left = [published_solution(case.s, case.learnable, times(10.0))[-1] for case in given]
    return Sides(flat(left), flat([case.learnable.rsqrt() for case in given]))


def shared_velocity(w: Tensor, x: Tensor) -> Tensor:
    return descent(x)(w.expand(2, -1, -1)).sum(dim=0)


@claim(
    "frossl",
    "Proposition D.1 (shared weights)",
    "If the networks share their weights, W₁ = W₂, then s(t)² = A/(B + (A/s₀² − B)e^{−2At}) with A = 4(λ+γ) − "
    "2(√λ−√γ)² and B = 4(λ²+γ²). Checked: the singular values of W(t) under the gradient flow of eq 10 with shared "
    "weights up to t = 1, and this formula",
    tolerance=1e-7,
)
def shared_weights() -> Sides:
    """The flow needs half the time, because the gradients of both views add up."""
    left, right = [], []
    for case in cases():
        start = (case.u[0] * case.s[0]) @ case.v[:, : case.s.shape[1]].T
        both = flow(partial(shared_velocity, x=case.x), start, TIME / 2)
        left.append((case.u[0].T @ both @ case.v).diagonal(dim1=-2, dim2=-1).square())
        one, other = case.learnable
        a = 4 * (one + other) - 2 * (one.sqrt() - other.sqrt()).square()
        b = 4 * (one**2 + other**2)
        right.append(a / (b + (a / case.s[0] ** 2 - b) * (-2 * a * times(TIME / 2)[:, None]).exp()))
    return Sides(flat(left), flat(right))


SIGMAS = (1e-4, 1e-6, 1e-8)
# λ and γ. The gaps are large enough that the directions grow one after another.
FALLING = ((2.0, 1.0, 0.4, 0.15, 0.05), (1.8, 1.1, 0.5, 0.1, 0.06))


def small_starts() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """W(t) [T, 2, σ, start, d, m] from N(0, σ²), the aligned weights that W(t) follows, and the eigenvalues of both.

    While the weights are small, the columns of WV grow independently of each other. Take the values of one entry in
    both views as a vector: its part along (√λ, √γ) grows as e^{2(λ+γ)t}, and the orthogonal part stays constant.
    Columns that grow faster take their directions first, as in Gram–Schmidt orthogonalisation. Therefore the QR
    decomposition of the growing parts, in the order of their rates, gives U and s(0) of the aligned weights.
    """
    samples, m, d, starts, time, steps = 8, 5, 3, 3, 14.0, 450
    spectrum = torch.tensor(FALLING, dtype=torch.float64)
    v = rotation(m)
    x = (rotation(samples)[:, :m] * spectrum[:, None].sqrt() @ v.T)[:, None, None]
    unit = torch.randn(2, 1, starts, d, m, dtype=torch.float64)
    w = flow(descent(x), unit * torch.tensor(SIGMAS, dtype=torch.float64)[:, None, None, None], time, steps)
    growing = (w[0] @ v * spectrum.sqrt()[:, None, None, None]).sum(dim=0) / spectrum.sum(dim=0)
    q, r = torch.linalg.qr(growing[..., :d])
    s = r.diagonal(dim1=-2, dim2=-1)  # can be negative: W(t) is the same if s_j and column j of U change their signs
    learnable = spectrum[:, None, None, :d]
    followed = flow(partial(singular_velocity, spectrum=learnable), learnable.sqrt() * s, time, steps)
    z = x @ w.mT
    eigenvalues = torch.linalg.eigvalsh(z.mT @ z).flip(-1)
    return w, q * followed[..., None, :] @ v[:, :d].T, eigenvalues, learnable * followed.square()


@claim(
    "frossl",
    "Proposition D.2",
    "If the initial weights are drawn from N(0, σ²) with a small σ, they have the same dynamics as weights with an "
    "aligned initialisation. Checked: the eigenvalues of Z_vᵀZ_v for σ = 1e-8 up to t = 14, and those for aligned "
    "weights. A QR decomposition of the growing part of the initial weights gives U and s(0) of the aligned weights",
    tolerance=1e-5,
)
def small_initialisation() -> Sides:
    """The difference is of the order of a power of σ that depends on the gaps of the spectrum; see the next claim."""
    _, _, eigenvalues, followed = small_starts()
    return Sides(eigenvalues[:, :, -1], followed[:, :, -1])


@claim(
    "frossl",
    "Proposition D.2 (σ → 0)",
    "The smaller σ is, the closer W(t) stays to the aligned weights. Checked: the largest difference falls by more "
    "than a factor of 3 when σ falls by a factor of 100, from 1e-4 to 1e-6 and from 1e-6 to 1e-8",
    tolerance=0,
)
def smaller_initialisation() -> Sides:
    w, followed, _, _ = small_starts()
    apart = (w - followed).abs().amax(dim=(0, 1, 4, 5))
    return Sides(apart[1:], apart[:-1] / 3, "<")


def alike() -> list[tuple[Tensor, Tensor]]:
    """Equal views and equal networks, which are not aligned with the data."""
    return [(w[:1].repeat(2, 1, 1), x[:1].repeat(2, 1, 1)) for w, x in instances()]


@claim(
    "frossl",
    "section 5.1 (gradient)",
    "The FroSSL variant converges faster than the Barlow variant ‖Z₁ᵀZ₂ − I‖²_F: for Z₁ = Z₂, its gradient is twice "
    "as large. Checked: both gradients by autograd, for equal views and equal networks",
    tolerance=1e-12,
)
def twice_the_gradient() -> Sides:
    given = alike()
    left = flat([gradient(frossl_variant, w, x) for w, x in given])
    return Sides(left, flat([2 * gradient(barlow_variant, w, x) for w, x in given]))


@claim(
    "frossl",
    "section 5.1 (rate)",
    "For Z₁ = Z₂, the FroSSL variant learns exactly twice as fast as the Barlow variant. Checked: W(t) under the "
    "gradient flow of eq 10, and W(2t) under that of the Barlow variant, up to t = 2",
    tolerance=1e-10,
)
def twice_the_rate() -> Sides:
    given = [(w, x / torch.linalg.matrix_norm(x[0], ord=2)) for w, x in alike()]
    left = flat([flow(descent(x), w, 2.0, 100) for w, x in given])
    return Sides(left, flat([flow(descent(x, barlow_variant), w, 4.0, 100) for w, x in given]))


def growth_rates(loss: Callable[[Tensor, Tensor], Tensor], x: Tensor) -> Tensor:
    """The rates at which small weights of one output grow: the m largest eigenvalues of −∇²L at W = 0, descending."""
    m = x.shape[-1]
    start = torch.zeros(2 * m, dtype=torch.float64)
    hessian = torch.autograd.functional.hessian(lambda w: loss(w.reshape(2, 1, m), x), start)
    return torch.linalg.eigvalsh(-hessian).flip(0)[:m]


@claim(
    "frossl",
    "section 5.1 (small weights)",
    "From small weights, a direction with the eigenvalues λ and γ grows at the rate 2(λ+γ) under the FroSSL variant "
    "and 2√(λγ) under the Barlow variant. Checked: the eigenvalues of −∇²L at W = 0 for both variants, and these rates",
    tolerance=1e-12,
)
def rates_of_growth() -> Sides:
    given = cases()
    left = [growth_rates(loss, case.x) for case in given for loss in (frossl_variant, barlow_variant)]
    right = []
    for case in given:
        rates = (2 * case.spectrum.sum(dim=0), 2 * case.spectrum.prod(dim=0).sqrt())
        right += [rate.sort(descending=True).values for rate in rates]
    return Sides(flat(left), flat(right))


@claim(
    "frossl",
    "section 5.1 (quicker)",
    "From small weights, every direction grows at least twice as fast under the FroSSL variant as under the Barlow "
    "variant, because (λ+γ)/√(λγ) ≥ 2. Checked: the m largest eigenvalues of −∇²L at W = 0 for the FroSSL variant, "
    "each at least twice that of the same rank for the Barlow variant",
    tolerance=1e-12,
)
def at_least_twice() -> Sides:
    given = [*cases(), *cases(same_views=True)]
    rates = [(growth_rates(frossl_variant, case.x), growth_rates(barlow_variant, case.x)) for case in given]
    return Sides(flat([ours for ours, _ in rates]), flat([2 * theirs for _, theirs in rates]), "≥")
