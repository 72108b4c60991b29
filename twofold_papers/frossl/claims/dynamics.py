"""How the linear variant learns: propositions D.1 and D.2, equations 14 to 18 and 30 to 34; Barlow's rate beside it.

X_v = P diag(√λ_v) Vᵀ, so that Γ_v = V diag(λ_v) Vᵀ and X₂ᵀX₁ = V diag(√(λγ)) Vᵀ; λ = λ₁, γ = λ₂; W_v = U diag(s_v) V̂ᵀ,
V̂ the first d columns of V. Arrays of both views start with the axis of views: x[2, N, m], w[2, d, m], s[2, d].
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
TIME, STEPS = 2.0, 200  # at rates up to 10: Runge–Kutta's error is then a few 1e-8 of s


def flow(velocity: Callable[[Tensor], Tensor], start: Tensor, time: float, steps: int = STEPS) -> Tensor:
    """States [steps + 1, ...] at equal times, by Runge–Kutta of fourth order."""
    return torch.stack(rk4(velocity, start, time / steps, steps))


def descent(x: Tensor, loss: Callable[[Tensor, Tensor], Tensor] = frossl_variant) -> Callable[[Tensor], Tensor]:
    return lambda w: -gradient(loss, w, x)


@dataclass(frozen=True)
class Aligned:
    """Data, and networks whose singular vectors are the data's (eq 14 to 16)."""

    x: Tensor  # [2, N, m]
    spectrum: Tensor  # [2, m]: λ and γ, descending
    u: Tensor  # [2, d, d]
    v: Tensor  # [m, m]
    s: Tensor  # [2, d], at the start

    @property
    def weights(self) -> Tensor:
        return self.u * self.s[:, None] @ self.v[:, : self.s.shape[1]].T

    @property
    def learnable(self) -> Tensor:
        """[2, d]: λ and γ of the directions that are learnt."""
        return self.spectrum[:, : self.s.shape[1]]

    def seen_from_inside(self, w: Tensor) -> Tensor:
        """UᵀWV [..., 2, d, m]: diagonal as long as singular vectors have not moved."""
        return self.u.mT @ w @ self.v


def aligned(samples: int, m: int, d: int, *, same_views: bool = False, same_sides: bool = True) -> Aligned:
    """`same_views`: λ = γ and s₁ = s₂. Else only the eigenvectors are shared. `same_sides`: X₁ and X₂ have their left
    singular vectors P in common too, and so have W₁ and W₂ theirs."""
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
    """Eq 32, corrected: s₁' = 2λs₁ + 2√(λγ)s₂ − 4λ²s₁³, and with 1 and 2 swapped."""
    return 2 * spectrum * s + 2 * spectrum.prod(dim=0).sqrt() * s.flip(0) - 4 * spectrum**2 * s**3


def printed_velocity(s: Tensor, spectrum: Tensor) -> Tensor:
    return 2 * s * (spectrum - 2 * spectrum.prod(dim=0).sqrt() - 2 * s**2 * spectrum**2)


def embedded(rows: Tensor, m: int) -> Tensor:
    """diag(rows) [..., d, d], with columns of zeros up to m."""
    return torch.nn.functional.pad(rows.diag_embed(), (0, m - rows.shape[-1]))


def learnt(case: Aligned, time: float = TIME) -> Tensor:
    """UᵀW(t)V [T, 2, d, m] of the matrix gradient flow of eq 10."""
    return case.seen_from_inside(flow(descent(case.x), case.weights, time))


@claim(
    "frossl",
    "Proposition D.1 (vectors)",
    "aligned W keep their singular vectors, where X₁ and X₂ (and W₁ and W₂) also share the left ones",
    tolerance=1e-10,
)
def singular_vectors_stay() -> Sides:
    seen = [learnt(case) for case in cases()]
    return Sides(flat([a - embedded(a.diagonal(dim1=-2, dim2=-1), a.shape[-1]) for a in seen]), 0.0)


@singular_vectors_stay.printed("it is enough that Γ₁ and Γ₂ share eigenvectors, and U₁, U₂ are arbitrary")
def _() -> Sides:
    seen = [learnt(case) for case in cases(same_sides=False)]
    return Sides(flat([a - embedded(a.diagonal(dim1=-2, dim2=-1), a.shape[-1]) for a in seen]), 0.0)


def outer_velocity(case: Aligned, inner: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    return case.u * inner(case.s, case.learnable)[:, None] @ case.v[:, : case.s.shape[1]].T


@claim("frossl", "eq 30, 31", "dW₁/dt = U[2S₁D₁ + 2S₂(D₁D₂)^½ − 4S₁³D₁²]V̂", tolerance=1e-12)
def velocity_of_weights() -> Sides:
    given = cases()
    left = flat([descent(case.x)(case.weights) for case in given])
    return Sides(left, flat([outer_velocity(case, singular_velocity) for case in given]))


@velocity_of_weights.printed("U[2S₁D₁ − 4S₁(D₁D₂)^½ − 4S₁³D₁²]V̂")
def _() -> Sides:
    given = cases()
    left = flat([descent(case.x)(case.weights) for case in given])
    return Sides(left, flat([outer_velocity(case, printed_velocity) for case in given]))


def inner_velocity(case: Aligned) -> Tensor:
    return case.seen_from_inside(descent(case.x)(case.weights)).diagonal(dim1=-2, dim2=-1)


@claim("frossl", "eq 32", "s₁' = 2λs₁ + 2√(λγ)s₂ − 4λ²s₁³", tolerance=1e-12)
def velocity_of_singular_values() -> Sides:
    given = cases()
    left = flat([inner_velocity(case) for case in given])
    return Sides(left, flat([singular_velocity(case.s, case.learnable) for case in given]))


@velocity_of_singular_values.printed("s₁' = 2s₁(λ − 2√(λγ) − 2λ²s₁²)")
def _() -> Sides:
    given = cases()
    left = flat([inner_velocity(case) for case in given])
    return Sides(left, flat([printed_velocity(case.s, case.learnable) for case in given]))


def printed_solution(s: Tensor, spectrum: Tensor, times_T: Tensor) -> Tensor:
    """Eq 18 and 34 as they stand, [T, 2, d]."""
    a = 2 * spectrum.prod(dim=0).sqrt() - spectrum
    squares = spectrum**2
    growth = (4 * a * times_T[:, None, None]).exp()
    return (a / ((2 * squares + a / s**2) * growth - 2 * squares)).sqrt()


def times(time: float, steps: int = STEPS) -> Tensor:
    return torch.linspace(0, time, steps + 1, dtype=torch.float64)


@claim("frossl", "eq 33, 34", "they do solve eq 32 as it is printed: only the equation is wrong", tolerance=1e-9)
def solution_of_the_printed_equation() -> Sides:
    """Runge–Kutta's error at these rates is about 1e-10."""
    given = cases()
    left = [flow(partial(printed_velocity, spectrum=case.learnable), case.s, TIME) for case in given]
    return Sides(flat(left), flat([printed_solution(case.s, case.learnable, times(TIME)) for case in given]))


@claim(
    "frossl",
    "eq 17",
    "the matrix flow is W(t) = U diag(s(t)) V̂, s of the corrected eq 32, for any λ, γ and starts",
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
    "λ = γ and s₁ = s₂: s² = s₀²e^{8λt}/(1 + λs₀²(e^{8λt} − 1)) in the matrix gradient flow",
    tolerance=1e-7,
)
def closed_form() -> Sides:
    """As near as Runge–Kutta of 200 steps comes; with twice the steps the error is 16 times smaller."""
    given = cases(same_views=True)
    left, right = [], []
    for case in given:
        left.append(learnt(case).diagonal(dim1=-2, dim2=-1).square())
        growth = (8 * case.learnable * times(TIME)[:, None, None]).exp()
        right.append(case.s**2 * growth / (1 + case.learnable * case.s**2 * (growth - 1)))
    return Sides(flat(left), flat(right))


@closed_form.printed("eq 18, which goes to 0: s² = λ/((2λ² + λ/s₀²)e^{4λt} − 2λ²) where λ = γ")
def _() -> Sides:
    given = cases(same_views=True)
    left = [learnt(case).diagonal(dim1=-2, dim2=-1) for case in given]
    return Sides(flat(left), flat([printed_solution(case.s, case.learnable, times(TIME)) for case in given]))


@claim("frossl", "Proposition D.1 (limit)", "s₁ → 1/√λ and s₂ → 1/√γ: Z₁ = Z₂ with orthonormal columns", tolerance=1e-8)
def limit() -> Sides:
    given = cases()
    left = [learnt(case, time=10.0)[-1].diagonal(dim1=-2, dim2=-1) for case in given]
    return Sides(flat(left), flat([case.learnable.rsqrt() for case in given]))


@limit.printed("the limit of eq 18, t → ∞")
def _() -> Sides:
    given = cases()
    left = [printed_solution(case.s, case.learnable, times(10.0))[-1] for case in given]
    return Sides(flat(left), flat([case.learnable.rsqrt() for case in given]))


def shared_velocity(w: Tensor, x: Tensor) -> Tensor:
    return descent(x)(w.expand(2, -1, -1)).sum(dim=0)


@claim(
    "frossl",
    "Proposition D.1 (shared weights)",
    "W₁ = W₂: s² = A/(B + (A/s₀² − B)e^{−2At}), A = 4(λ+γ) − 2(√λ−√γ)², B = 4(λ²+γ²)",
    tolerance=1e-7,
)
def shared_weights() -> Sides:
    """Half the time, because rates add up over the views."""
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
FALLING = ((2.0, 1.0, 0.4, 0.15, 0.05), (1.8, 1.1, 0.5, 0.1, 0.06))  # λ and γ, far enough apart to be told apart early


def small_starts() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights W(t) [T, 2, σ, start, d, m] from N(0, σ²), the aligned ones that they follow, and eigenvalues of both.

    While weights are small, each column of WV grows by its own law: its part along (√λ, √γ), of the two views, as
    e^{2(λ+γ)t}, the other not at all. Columns that grow sooner claim their directions first, which is Gram–Schmidt: the
    QR decomposition of those parts, in the order of their rates, gives U and the s(0) of the aligned flow.
    """
    samples, m, d, starts, time, steps = 8, 5, 3, 3, 14.0, 450
    spectrum = torch.tensor(FALLING, dtype=torch.float64)
    v = rotation(m)
    x = (rotation(samples)[:, :m] * spectrum[:, None].sqrt() @ v.T)[:, None, None]
    unit = torch.randn(2, 1, starts, d, m, dtype=torch.float64)
    w = flow(descent(x), unit * torch.tensor(SIGMAS, dtype=torch.float64)[:, None, None, None], time, steps)
    growing = (w[0] @ v * spectrum.sqrt()[:, None, None, None]).sum(dim=0) / spectrum.sum(dim=0)
    q, r = torch.linalg.qr(growing[..., :d])
    s = r.diagonal(dim1=-2, dim2=-1)  # its signs belong to U, and the law is odd in s
    learnable = spectrum[:, None, None, :d]
    followed = flow(partial(singular_velocity, spectrum=learnable), learnable.sqrt() * s, time, steps)
    z = x @ w.mT
    eigenvalues = torch.linalg.eigvalsh(z.mT @ z).flip(-1)
    return w, q * followed[..., None, :] @ v[:, :d].T, eigenvalues, learnable * followed.square()


@claim(
    "frossl",
    "Proposition D.2",
    "W from N(0, σ²), σ = 1e-8: eigenvalues of Z_vᵀZ_v follow an aligned start's, s(0) by QR of what grows",
    tolerance=1e-5,
)
def small_initialisation() -> Sides:
    """What is left is of the order of a power of σ that depends on the gaps of the spectrum: see the next claim."""
    _, _, eigenvalues, followed = small_starts()
    return Sides(eigenvalues[:, :, -1], followed[:, :, -1])


@claim("frossl", "Proposition D.2 (σ → 0)", "‖W(t) − aligned‖ falls by more than 3 when σ falls by 100", tolerance=0)
def smaller_initialisation() -> Sides:
    w, followed, _, _ = small_starts()
    apart = (w - followed).abs().amax(dim=(0, 1, 4, 5))
    return Sides(apart[1:], apart[:-1] / 3, "<")


def alike() -> list[tuple[Tensor, Tensor]]:
    """Views and networks that do not differ; nothing is aligned."""
    return [(w[:1].repeat(2, 1, 1), x[:1].repeat(2, 1, 1)) for w, x in instances()]


@claim("frossl", "section 5.1 (gradient)", "Z₁ = Z₂: the gradient is twice that of ‖Z₁ᵀZ₂ − I‖²", tolerance=1e-12)
def twice_the_gradient() -> Sides:
    given = alike()
    left = flat([gradient(frossl_variant, w, x) for w, x in given])
    return Sides(left, flat([2 * gradient(barlow_variant, w, x) for w, x in given]))


@claim("frossl", "section 5.1 (rate)", "Z₁ = Z₂: the matrix flow at t is the Barlow variant's at 2t", tolerance=1e-10)
def twice_the_rate() -> Sides:
    given = [(w, x / torch.linalg.matrix_norm(x[0], ord=2)) for w, x in alike()]
    left = flat([flow(descent(x), w, 2.0, 100) for w, x in given])
    return Sides(left, flat([flow(descent(x, barlow_variant), w, 4.0, 100) for w, x in given]))


def growth_rates(loss: Callable[[Tensor, Tensor], Tensor], x: Tensor) -> Tensor:
    """Of all directions of one output's weights near 0, descending: eigenvalues of −∇²L."""
    m = x.shape[-1]
    start = torch.zeros(2 * m, dtype=torch.float64)
    hessian = torch.autograd.functional.hessian(lambda w: loss(w.reshape(2, 1, m), x), start)
    return torch.linalg.eigvalsh(-hessian).flip(0)[:m]


@claim(
    "frossl",
    "section 5.1 (small weights)",
    "directions grow from small weights at 2(λ+γ), at 2√(λγ) under the Barlow variant",
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


@claim("frossl", "section 5.1 (quicker)", "at least twice as quick for any λ and γ: (λ+γ)/√(λγ) ≥ 2", tolerance=1e-12)
def at_least_twice() -> Sides:
    given = [*cases(), *cases(same_views=True)]
    rates = [(growth_rates(frossl_variant, case.x), growth_rates(barlow_variant, case.x)) for case in given]
    return Sides(flat([ours for ours, _ in rates]), flat([2 * theirs for _, theirs in rates]), "≥")
