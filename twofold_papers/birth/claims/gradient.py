"""Theorem 2 and appendix A.2: the gradient with respect to a singular value, and what follows from it."""

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
    "birth",
    "Theorem 2",
    "∂L/∂σ_k = (VᵀGV)_kk · (−2σ_kλ)/(σ_k² + λN)², with the SVD of the centred F. Checked: the gradient of "
    "ridge_graph by autograd, and this formula",
    tolerance=1e-11,
)
def theorem_2() -> Sides:
    left, right = [], []
    for vectors, graph, ridge in settings(RIDGES):
        left.append(slopes(vectors, SIGMA, graph, ridge))
        right.append(theorem(vectors, SIGMA, graph, ridge))
    return Sides(stacked(left), stacked(right))


@theorem_2.published("∂L/∂σ_k = (VᵀGV)_kk · (−2σ_kλ)/(σ_k² + λN)²")
def _() -> Sides:
    left, right = [], []
    for _, graph, ridge in settings(RIDGES):
        vectors = orthonormal(len(graph), len(SIGMA))
        left.append(slopes(vectors, SIGMA, graph, ridge))
        right.append(theorem(vectors, SIGMA, graph, ridge))
    return Sides(stacked(left), stacked(right))


theorem_2.holds_if(
    "V and σ are from the SVD of the centred features f_θ(X)H, as in appendix A.1",
    fails_if="V and σ are from the SVD of f_θ(X), as section 2.1 says",
)(theorem_2.compute)


def _line_1(sign: int) -> Sides:
    """Differences between two sets of singular values, because the paper does not give the constant."""
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
    "birth",
    "A.2, line 1",
    "The relative loss is −Σ_k D_kk (VᵀGV)_kk plus a constant, with D_kk = σ²/((σ²+λN)N). Checked: the "
    "difference of ridge_graph between two sets of singular values, and that of the sum",
    tolerance=1e-11,
)
def relative_loss_as_a_sum() -> Sides:
    return _line_1(-1)


@relative_loss_as_a_sum.published("Σ_k D_kk (VᵀGV)_kk, without the minus sign")
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
    "∂D_kk/∂σ_k = +2σ_kλ/(σ_k² + λN)²; the minus sign of Theorem 2 comes from the loss. Checked: the "
    "derivative by autograd and this formula",
    tolerance=1e-13,
)
def slope_of_D() -> Sides:
    return _slope_of_D(1)


@slope_of_D.published("the second line and the result of A.2 have a minus sign")
def _() -> Sides:
    return _slope_of_D(-1)


def _relative_slopes(vectors: Tensor, graph: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """|∂L/∂σ_k| / (VᵀGV)_kk from the library, and σ from 0.1 to 100."""
    sigma = torch.logspace(-1, 2, len(SIGMA), dtype=torch.float64)
    return slopes(vectors, sigma, graph, ridge).abs() / (vectors.T @ graph @ vectors).diagonal(), sigma


def _cubic_bound(ridges: list[float]) -> Sides:
    """Both sides times σ³. The factor, up to 10⁶, also multiplies the rounding error; the tolerance allows for it."""
    left, right = [], []
    for vectors, graph, ridge in settings(ridges):
        seen, sigma = _relative_slopes(vectors, graph, ridge)
        left.append(seen * sigma**3)
        right.append(torch.full_like(sigma, 2 * ridge))
    return Sides(stacked(left), stacked(right), "≤")


@claim(
    "birth",
    "Theorem 2 (vanishes)",
    "The gradient vanishes as σ_k grows: |∂L/∂σ_k| ≤ 2λ(VᵀGV)_kk/σ_k³. Checked: this bound, times σ_k³, for σ "
    "from 0.1 to 100",
    tolerance=1e-8,
)
def vanishes_in_sigma() -> Sides:
    return _cubic_bound(RIDGES)


@claim(
    "birth",
    "A.2, first observation",
    "For a given σ_k, the gradient vanishes as λ goes to 0. Checked: the bound 2λ(VᵀGV)_kk/σ_k³ for λ = 10⁻³, "
    "10⁻⁵, 10⁻⁷ and 0",
    tolerance=1e-8,
)
def vanishes_in_lambda() -> Sides:
    return _cubic_bound([1e-3, 1e-5, 1e-7, 0.0])


@claim(
    "birth",
    "Figure 1",
    "The gradient is largest at σ = √(λN/3), where its size is 3√3/(8N√(λN)), which grows as λ → 0. Checked: "
    "the largest gradient on a grid around this σ, and the formula",
    tolerance=1e-10,
)
def largest_gradient() -> Sides:
    N, found, formula = 8, [], []
    vector = centred_orthonormal(N, 1)
    for ridge in (1.0, 1e-1, 1e-2, 1e-4):
        peak = math.sqrt(ridge * N / 3)
        grid = peak * torch.linspace(0.5, 1.5, 101, dtype=torch.float64)  # the value in the middle is the peak
        each = torch.stack([slopes(vector, sigma.view(1), vector @ vector.T, ridge)[0] for sigma in grid])
        found.append(each.abs().max())
        formula.append(torch.tensor(3 * math.sqrt(3) / (8 * N * math.sqrt(ridge * N)), dtype=torch.float64))
    return Sides(stacked(found), stacked(formula))


@claim(
    "birth",
    "A.2, second observation",
    "The gradient with respect to σ_k is proportional to (VᵀGV)_kk. Checked: the gradient divided by "
    "(VᵀGV)_kk, and the gradient for a graph with (VᵀGV)_kk = 1",
    tolerance=1e-11,
)
def linear_in_the_fit() -> Sides:
    left, right = [], []
    for vectors, graph, ridge in settings(RIDGES):
        fit = (vectors.T @ graph @ vectors).diagonal()
        left.append(slopes(vectors, SIGMA, graph, ridge) / fit)
        right.append(slopes(vectors, SIGMA, vectors @ vectors.T, ridge))  # here (VᵀGV)_kk = 1 for every k
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "A.2, third observation",
    "(VᵀGV)_kk ≥ 0, so gradient descent never decreases σ_k. Checked: ∂L/∂σ_k ≤ 0 for random graphs YYᵀ",
    tolerance=1e-13,
)
def never_down() -> Sides:
    left = [slopes(vectors, SIGMA, graph, ridge) for vectors, graph, ridge in settings(RIDGES)]
    return Sides(stacked(left), 0.0, "≤")


def flow(features: Tensor, graph: Tensor, ridge: float, times: Tensor) -> list[Tensor]:
    """Features at the given times, under gradient flow of the library's relative loss; one RK4 step per interval."""

    def slope(f: Tensor) -> Tensor:
        return -gradient(lambda f: objectives.ridge_graph(f, graph, ridge).total, f)

    path = [features]
    for step in times.diff().tolist():
        path.append(rk4_step(slope, path[-1], step))
    return path


def _aligned_flow() -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
    """Singular values over time [T, 2], the times, (VᵀGV)_kk, N and λ. V starts as eigenvectors of HGH and stays so."""
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


# The tolerance covers the error of RK4 (3e-8) over 250 steps that become longer with time. Up to t = 10⁵ the steps
# would be unstable: rounding errors orthogonal to V would grow. With 1200 steps they do not (error 1e-10).
@claim(
    "birth",
    "Theorem 2 (growth)",
    "Under gradient flow, σ⁴/4 + λNσ² + λ²N² ln σ increases by 2λ(VᵀGV)_kk t, so σ grows as t^¼. Checked: the "
    "increase divided by 2λ(VᵀGV)_kk t is 1, up to t = 10⁴, with V made of eigenvectors of HGH",
    tolerance=1e-7,
)
def growth() -> Sides:
    path, times, fits, N, ridge = _aligned_flow()
    law = path**4 / 4 + ridge * N * path**2 + (ridge * N) ** 2 * path.log()
    left = (law - law[0])[1:] / (2 * ridge * fits)
    return Sides(left / times[1:, None], 1.0)


@growth.published("the vanishing gradient prevents unbounded representations")
def _() -> Sides:
    path, times, _, _, _ = _aligned_flow()
    before = path[int((times < 1e2).sum())]
    return Sides(path[-1] / before, 1.0)


@growth.holds_if(
    "'prevent' means that growth becomes slow: σ⁴ ≤ σ₀⁴ + 8λ(VᵀGV)_kk t",
    fails_if="'prevent' means that σ converges: it does not change from t = 10² to 10⁴",
)
def _() -> Sides:
    path, times, fits, _, ridge = _aligned_flow()
    return Sides(path, (path[0] ** 4 + 8 * ridge * fits * times[:, None]) ** 0.25, "≤")
