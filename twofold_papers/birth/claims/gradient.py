"""Theorem 2 and appendix A.2: the gradient to a singular value, and what it does and does not prevent."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from twofold import objectives
from twofold_papers.birth.claims.setting import RIDGES, centred_orthonormal, centring, orthonormal, stacked
from twofold_papers.verify.claim import Sides, claim
from twofold_papers.verify.numerics import gradient, randn, rk4_step

SIGMA = torch.tensor([0.05, 0.5, 3.0, 40.0], dtype=torch.float64)


def slopes(vectors: Tensor, sigma: Tensor, graph: Tensor, ridge: float) -> Tensor:
    """∂/∂σ of the library's relative loss of F = V diag(σ) Uᵀ, by autograd."""
    other = orthonormal(len(sigma) + 2, len(sigma))
    return gradient(lambda s: objectives.ridge_graph((vectors * s) @ other.T, graph, ridge).total, sigma)


def theorem(vectors: Tensor, sigma: Tensor, graph: Tensor, ridge: float) -> Tensor:
    """(VᵀGV)_kk · (−2σ_kλ)/(σ_k² + λN)²."""
    return (vectors.T @ graph @ vectors).diagonal() * (-2 * sigma * ridge) / (sigma**2 + ridge * len(graph)) ** 2


def settings(ridges: list[float]) -> Iterator[tuple[Tensor, Tensor, float]]:
    """V of centred features, G = YYᵀ and λ."""
    for N in (6, 9, 20):
        for ridge in ridges:
            y = randn(N, 3) + 1
            yield centred_orthonormal(N, len(SIGMA)), y @ y.T, ridge


@claim(
    "birth", "Theorem 2", "∂L/∂σ_k = (VᵀGV)_kk · (−2σ_kλ)/(σ_k² + λN)², the SVD that of the centred F", tolerance=1e-11
)
def theorem_2() -> Sides:
    left, right = [], []
    for vectors, graph, ridge in settings(RIDGES):
        left.append(slopes(vectors, SIGMA, graph, ridge))
        right.append(theorem(vectors, SIGMA, graph, ridge))
    return Sides(stacked(left), stacked(right))


@theorem_2.printed("the SVD that of f_θ(X) as it is")
def _() -> Sides:
    left, right = [], []
    for _, graph, ridge in settings(RIDGES):
        vectors = orthonormal(len(graph), len(SIGMA))
        left.append(slopes(vectors, SIGMA, graph, ridge))
        right.append(theorem(vectors, SIGMA, graph, ridge))
    return Sides(stacked(left), stacked(right))


def _line_1(sign: int) -> Sides:
    """Differences between two sets of singular values: the constant is not printed."""
    left, right = [], []
    for vectors, graph, ridge in settings(RIDGES):
        N, other = len(graph), orthonormal(6, len(SIGMA))
        values, sums = [], []
        for sigma in (SIGMA, SIGMA.flip(0) + 1):
            D = sigma**2 / ((sigma**2 + ridge * N) * N)
            values.append(objectives.ridge_graph((vectors * sigma) @ other.T, graph, ridge).total)
            sums.append(sign * (D * (vectors.T @ graph @ vectors).diagonal()).sum())
        left.append(values[0] - values[1])
        right.append(sums[0] - sums[1])
    return Sides(stacked(left), stacked(right))


@claim(
    "birth", "A.2, line 1", "the relative loss is −Σ_k D_kk (VᵀGV)_kk + cst, with D_kk = σ²/((σ²+λN)N)", tolerance=1e-11
)
def relative_loss_as_a_sum() -> Sides:
    return _line_1(-1)


@relative_loss_as_a_sum.printed("Σ_k D_kk (VᵀGV)_kk, without the minus")
def _() -> Sides:
    return _line_1(1)


def _slope_of_D(sign: int) -> Sides:
    left, right = [], []
    for N in (4, 10, 50):
        for ridge in RIDGES:
            left.append(gradient(lambda s, N=N, r=ridge: (s**2 / ((s**2 + r * N) * N)).sum(), SIGMA))
            right.append(sign * 2 * SIGMA * ridge / (SIGMA**2 + ridge * N) ** 2)
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "A.2, ∂D/∂σ",
    "∂D_kk/∂σ_k = +2σ_kλ/(σ_k² + λN)²; the minus of the theorem is that of the loss",
    tolerance=1e-13,
)
def slope_of_D() -> Sides:
    return _slope_of_D(1)


@slope_of_D.printed("the second line and the last result of A.2 have −")
def _() -> Sides:
    return _slope_of_D(-1)


def _relative_slopes(vectors: Tensor, graph: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """|∂L/∂σ_k| / (VᵀGV)_kk from the library, and σ from 0.1 to 100."""
    sigma = torch.logspace(-1, 2, len(SIGMA), dtype=torch.float64)
    return slopes(vectors, sigma, graph, ridge).abs() / (vectors.T @ graph @ vectors).diagonal(), sigma


def _cubic_bound(ridges: list[float]) -> Sides:
    """σ³ times both sides: its 10⁶ times rounding is what the tolerance must bear."""
    left, right = [], []
    for vectors, graph, ridge in settings(ridges):
        seen, sigma = _relative_slopes(vectors, graph, ridge)
        left.append(seen * sigma**3)
        right.append(torch.full_like(sigma, 2 * ridge))
    return Sides(stacked(left), stacked(right), "≤")


@claim("birth", "Theorem 2 (vanishes)", "|∂L/∂σ_k| ≤ 2λ(VᵀGV)_kk/σ_k³: it vanishes as σ_k grows", tolerance=1e-8)
def vanishes_in_sigma() -> Sides:
    return _cubic_bound(RIDGES)


@claim(
    "birth",
    "A.2, first observation",
    "by the same bound, for each σ_k the gradient vanishes with λ; 0 at λ = 0",
    tolerance=1e-8,
)
def vanishes_in_lambda() -> Sides:
    return _cubic_bound([1e-3, 1e-5, 1e-7, 0.0])


@claim(
    "birth", "Figure 1", "the gradient is largest at σ = √(λN/3): 3√3/(8N√(λN)), which grows as λ → 0", tolerance=1e-10
)
def largest_gradient() -> Sides:
    N, found, formula = 8, [], []
    vector = centred_orthonormal(N, 1)
    for ridge in (1.0, 1e-1, 1e-2, 1e-4):
        peak = math.sqrt(ridge * N / 3)
        grid = peak * torch.linspace(0.5, 1.5, 101, dtype=torch.float64)  # the middle one is the peak itself
        each = torch.stack([slopes(vector, sigma.view(1), vector @ vector.T, ridge)[0] for sigma in grid])
        found.append(each.abs().max())
        formula.append(torch.tensor(3 * math.sqrt(3) / (8 * N * math.sqrt(ridge * N)), dtype=torch.float64))
    return Sides(stacked(found), stacked(formula))


@claim("birth", "A.2, second observation", "twice the (VᵀGV)_kk, twice the gradient to σ_k", tolerance=1e-11)
def linear_in_the_fit() -> Sides:
    left, right = [], []
    for vectors, graph, ridge in settings(RIDGES):
        fit = (vectors.T @ graph @ vectors).diagonal()
        left.append(slopes(vectors, SIGMA, graph, ridge) / fit)
        right.append(slopes(vectors, SIGMA, vectors @ vectors.T, ridge))  # whose fit is 1 everywhere
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "A.2, third observation",
    "(VᵀGV)_kk ≥ 0, so the gradient always pushes σ_k up: ∂L/∂σ_k ≤ 0",
    tolerance=1e-13,
)
def never_down() -> Sides:
    left = [slopes(vectors, SIGMA, graph, ridge) for vectors, graph, ridge in settings(RIDGES)]
    return Sides(stacked(left), 0.0, "≤")


def flow(features: Tensor, graph: Tensor, ridge: float, times: Tensor) -> list[Tensor]:
    """Features at the given times, moved by −∇L of the library's relative loss; RK4 from each time to the next."""

    def slope(f: Tensor) -> Tensor:
        return -gradient(lambda f: objectives.ridge_graph(f, graph, ridge).total, f)

    path = [features]
    for step in times.diff().tolist():
        path.append(rk4_step(slope, path[-1], step))
    return path


def _aligned_flow() -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
    """Singular values over time [T, 2], the times, (VᵀGV)_kk, N and λ; V are eigenvectors of HGH, and stay so."""
    N, ridge = 6, 0.2
    y = randn(N, 2)
    graph = centring(N) @ y @ y.T @ centring(N)
    fits, vectors = torch.linalg.eigh(graph)
    fits, vectors = fits[-2:], vectors[:, -2:]
    other = orthonormal(3, 2)
    times = torch.linspace(0, math.log(1e4), 251, dtype=torch.float64).expm1()
    start = (vectors * torch.tensor([0.4, 0.7], dtype=torch.float64)) @ other.T
    path = torch.stack([(vectors.T @ f @ other).diagonal() for f in flow(start, graph, ridge, times)])
    return path, times, fits, torch.tensor(float(N), dtype=torch.float64), ridge


# The tolerance is RK4's own error (3e-8 seen) on 250 steps that grow with the time. Until t = 10⁵ they would be too
# large for it: what rounding leaves off V then grows without end. With 1200 it does not: 1e-10.
@claim(
    "birth",
    "Theorem 2 (growth)",
    "gradient flow: σ⁴/4 + λNσ² + λ²N² ln σ rises by 2λ(VᵀGV)_kk t: σ grows as t^¼",
    tolerance=1e-7,
)
def growth() -> Sides:
    path, times, fits, N, ridge = _aligned_flow()
    law = path**4 / 4 + ridge * N * path**2 + (ridge * N) ** 2 * path.log()
    left = (law - law[0])[1:] / (2 * ridge * fits)
    return Sides(left / times[1:, None], 1.0)


@growth.printed(
    "the vanishing gradient prevents unbounded representations: σ ends growing (from t = 10² to 10⁴ it does not change)"
)
def _() -> Sides:
    path, times, _, _, _ = _aligned_flow()
    before = path[int((times < 1e2).sum())]
    return Sides(path[-1] / before, 1.0)
