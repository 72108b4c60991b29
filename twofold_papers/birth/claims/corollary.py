"""Corollary 1: for whitened features, the relative objective is an exact function of W-MSE and of VICReg."""

from collections.abc import Iterator

import torch
from torch import Tensor

from twofold import linalg, objectives
from twofold_papers.birth.claims.setting import centring, stacked
from twofold_papers.verify.claim import Sides, claim
from twofold_papers.verify.numerics import descended, randn

VIEWS = [(2, 12, 3), (3, 10, 4), (4, 8, 2)]  # views V, samples N, dimensions K


def eigenvalues(graph: Tensor) -> Tensor:
    """The eigenvalues of G, largest first."""
    return torch.linalg.eigvalsh(graph.double()).flip(0)


def _nonzero(values: Tensor) -> Tensor:
    return values[values > 1e-9]


def _graphs() -> Iterator[tuple[Tensor, float]]:
    """Graphs of views and of balanced classes, each with the size of a class."""
    for V, N, _ in VIEWS:
        yield objectives.view_graph(N, V), V
        yield objectives.label_graph(torch.arange(N * V) % N), V


@claim(
    "birth",
    "section 2.1, eigenvalues of G",
    "The graph G of views, or of balanced classes, has two distinct eigenvalues: the size of a class, once for "
    "each class, and 0. Checked: every nonzero eigenvalue equals the size of a class, for six graphs.",
    tolerance=1e-12,
)
def one_eigenvalue() -> Sides:
    pairs = [(_nonzero(eigenvalues(graph)), size) for graph, size in _graphs()]
    return Sides(stacked([v for v, _ in pairs]), stacked([torch.full_like(v, size) for v, size in pairs]))


@one_eigenvalue.published("G has only one nonzero eigenvalue")
def _() -> Sides:
    counts = [float(len(_nonzero(eigenvalues(graph)))) for graph, _ in _graphs()]
    return Sides(torch.tensor(counts), 1.0)


@one_eigenvalue.holds_if("equal eigenvalues count once", fails_if="an eigenvalue counts as often as it occurs")
def _() -> Sides:
    counts = [float(len(_nonzero(eigenvalues(graph)).mul(1e9).round().unique())) for graph, _ in _graphs()]
    return Sides(torch.tensor(counts), 1.0)


def white_views(V: int, N: int, K: int) -> tuple[Tensor, Tensor]:
    """Embeddings z[V, N, K], correlated between views; and the same with each view whitened by its Cholesky factor."""
    z = randn(1, N, K) + 0.7 * randn(V, N, K) + 1
    white = []
    for view in z:
        x = view - view.mean(dim=0)
        factor = torch.linalg.cholesky(x.T @ x / (N - 1))
        white.append(x @ torch.linalg.inv(factor).T)
    return z, torch.stack(white)


def relative(white: Tensor, ridge: float) -> Tensor:
    """The library's relative objective with the graph of views. Rows are scaled so that FᵀF = I: all σ_k = 1."""
    V, N, K = white.shape
    rows = white.reshape(V * N, K) / (V * (N - 1)) ** 0.5
    return objectives.ridge_graph(rows, objectives.view_graph(N, V), ridge).total


def from_distance(distance: Tensor, V: int, N: int, K: int, ridge: float) -> Tensor:
    """Eq 2 with σ_k = 1. `distance` is the mean of (z − z')² over pairs of views, samples and dimensions.

    (Tr HGH − (VK − Σ_{v<w}‖f_v − f_w‖²)/(1 + λVN))/(VN), Tr HGH = VN − V.
    """
    between_views = distance * K * (V - 1) * N / (2 * (N - 1))
    return ((V * N - V) - (V * K - between_views) / (1 + ridge * V * N)) / (V * N)


@claim(
    "birth",
    "Corollary 1 (Whitening-MSE)",
    "If all σ_k = 1, eq 2 is a linear function of Whitening-MSE: [VN − V − (VK − c·W-MSE)/(1+λVN)]/VN with c "
    "= KN(V−1)/(2N−2). Checked: ridge_graph on whitened random views, and this function of w_mse on the views "
    "before whitening",
    tolerance=1e-10,
)
def whitening_mse() -> Sides:
    left, right = [], []
    for V, N, K in VIEWS:
        for ridge in (0.01, 1.0):
            z, white = white_views(V, N, K)
            left.append(relative(white, ridge))
            right.append(from_distance(objectives.w_mse(z, normalize=False).total, V, N, K, ridge))
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "Corollary 1 (VICReg)",
    "If all σ_k = 1, eq 2 is the same function of VICReg, because the variance and covariance terms of VICReg "
    "are 0. Checked: ridge_graph and this function of vicreg, divided by its weight 25, on whitened random "
    "views",
    tolerance=1e-10,
)
def vicreg() -> Sides:
    left, right = [], []
    for V, N, K in VIEWS:
        for ridge in (0.01, 1.0):
            _, white = white_views(V, N, K)
            left.append(relative(white, ridge))
            right.append(from_distance(objectives.vicreg(white).total / 25, V, N, K, ridge))
    return Sides(stacked(left), stacked(right))


def _stretched(weighted: bool) -> Sides:
    """σ_k ≥ 1: orthogonal columns whose variance is at least 1 and the same in each view."""
    left, right = [], []
    for V, N, K in VIEWS:
        ridge = 0.01
        _, white = white_views(V, N, K)
        wide = white * (1 + 2 * torch.rand(K, dtype=torch.float64))
        left.append(relative(wide, ridge))
        if weighted:  # per dimension: VICReg's distance divided by its variance, weighted by D_kk
            variances = wide[0].var(dim=0)
            total = torch.tensor((N - 1) / N, dtype=torch.float64)
            for k in range(K):
                alone = objectives.vicreg(wide[..., k : k + 1]).total / 25 / variances[k]
                between_views = alone * (V - 1) * N / (2 * (N - 1))
                total = total - (V - between_views) * variances[k] / (variances[k] + ridge * V * N) / (V * N)
            right.append(total)
        else:
            right.append(from_distance(objectives.vicreg(wide).total / 25, V, N, K, ridge))
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "Corollary 1 (σ_k ≥ 1)",
    "If σ_k ≥ 1, eq 2 is a sum over dimensions of VICReg's distances, each divided by its variance and "
    "weighted by D_kk. Checked: both sides on orthogonal random views with different variances",
    tolerance=1e-10,
)
def vicreg_with_larger_variances() -> Sides:
    return _stretched(weighted=True)


@vicreg_with_larger_variances.published("if σ_k ≥ 1, eq 2 recovers VICReg up to a rescaling of the dimension")
def _() -> Sides:
    return _stretched(weighted=False)


vicreg_with_larger_variances.holds_if(
    "the rescaling divides each dimension of VICReg's distance by its variance and weights it with D_kk",
    fails_if="no dimension is rescaled: eq 2 is then not the same function of VICReg as for σ_k = 1",
)(vicreg_with_larger_variances.compute)


def _uneven_graph(N: int) -> Tensor:
    y = randn(N, N)
    return y @ y.T


@claim(
    "birth",
    "Corollary 1 (minimum)",
    "Among features with all σ_k = 1, the minimum of eq 2 is [Tr HGH − Σ_{k≤K} λ_k(HGH)/(1+λN)]/N. Checked: "
    "the minimum that L-BFGS finds for random graphs equals this formula",
    tolerance=1e-9,
)
def minimum_on_the_constraint() -> Sides:
    left, right = [], []
    for N, K in ((6, 2), (9, 3), (10, 4)):
        ridge, graph = 0.1, _uneven_graph(N)

        def loss(x: Tensor, graph: Tensor = graph, ridge: float = ridge) -> Tensor:
            return objectives.ridge_graph(torch.linalg.qr(linalg.centred(x)).Q, graph, ridge).total

        left.append(loss(descended(loss, randn(N, K))))
        values = eigenvalues(centring(N) @ graph @ centring(N))
        right.append((values.sum() - values[:K].sum() / (1 + ridge * N)) / N)
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "section 2.1, trainable form",
    "The trainable form of the objective, graph_vicreg, is −Tr(HGH FᵀF)/N + α‖FHFᵀ − I‖². Checked: the "
    "library's loss and this formula for random features and graphs",
    tolerance=1e-11,
)
def trainable_form() -> Sides:
    left, right = [], []
    for N, K in ((9, 4), (4, 9), (20, 3)):
        f, graph, H = randn(N, K) + 1, _uneven_graph(N), centring(N)
        left.append(objectives.graph_vicreg(f, graph, 0.7).total)
        apart = f.T @ H @ f - torch.eye(K, dtype=torch.float64)
        right.append(-(H @ graph @ H @ f @ f.T).trace() / N + 0.7 * apart.square().sum())
    return Sides(stacked(left), stacked(right))


# The loss is flat at its minimum: rounding of 1e-16 in the loss allows an error of 1e-8 in the features.
@claim(
    "birth",
    "section 2.1, trainable form (minimum)",
    "At the minimum of the trainable form, σ_k² = 1 + λ_k(HGH)/(2αN), which is 1 only in the limit α → ∞. "
    "Checked: squared singular values at the minimum that L-BFGS finds, and this formula, for two values of α",
    tolerance=1e-6,
)
def minimum_of_the_trainable_form() -> Sides:
    left, right = [], []
    for N, K in ((8, 2), (10, 3)):
        for weight in (0.5, 5.0):
            graph = _uneven_graph(N)
            f = descended(lambda f, g=graph, a=weight: objectives.graph_vicreg(f, g, a).total, 0.3 * randn(N, K))
            left.append(torch.linalg.svdvals(linalg.centred(f)).square())
            right.append(1 + eigenvalues(centring(N) @ graph @ centring(N))[:K] / (2 * weight * N))
    return Sides(stacked(left), stacked(right))


def _pairs(corrected: bool) -> Sides:
    """The trainable form and the sum over pairs. The difference between two sets of features removes the constant."""
    left, right = [], []
    for V, samples, K in VIEWS:
        N, weight = V * samples, 0.7
        graph = objectives.view_graph(samples, V, dtype=torch.float64)
        values, sums = [], []
        for f in (randn(N, K) + 1, 2 * randn(N, K)):
            f_c = f - f.mean(dim=0)
            pairs = (graph * torch.cdist(f, f).square()).sum() / N
            if corrected:  # Cov (divided by N) of √N·f, and V‖FH‖²/N, which is constant if σ_k = 1
                covariance = torch.cov((N**0.5 * f).T, correction=0)
                pairs = pairs / 2 - V * f_c.square().sum() / N
            else:
                covariance = torch.cov(f.T, correction=0)
            values.append(objectives.graph_vicreg(f, graph, weight).total)
            sums.append(pairs + weight * (covariance - torch.eye(K, dtype=torch.float64)).square().sum())
        left.append(values[0] - values[1])
        right.append(sums[0] - sums[1])
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "section 2.1, sum over pairs",
    "For a graph of degree V, the trainable form equals ΣG_ij‖f_i − f_j‖²/2N − V‖FH‖²/N + α‖Cov(√N f) − I‖² "
    "up to a constant. Checked: the difference between two sets of random features, on both sides",
    tolerance=1e-10,
)
def sum_over_pairs() -> Sides:
    return _pairs(corrected=True)


@sum_over_pairs.published("the trainable form equals ΣG_ij‖f_i − f_j‖²/N + α‖Cov(f) − I‖² up to a constant")
def _() -> Sides:
    return _pairs(corrected=False)


@sum_over_pairs.holds_if(
    "Cov(√N f) = I, which the penalty enforces as α → ∞, and a factor of 2 is ignored",
    fails_if="f is arbitrary, because Σ‖f_i − f_j‖² also depends on ‖FH‖², which the trainable form does not punish",
)
def _() -> Sides:
    left, right = [], []
    for V, samples, K in VIEWS:
        graph = objectives.view_graph(samples, V, dtype=torch.float64)
        features = [torch.linalg.qr(linalg.centred(randn(V * samples, K))).Q for _ in range(2)]
        values = [objectives.graph_vicreg(f, graph, 0.7).total for f in features]
        sums = [(graph * torch.cdist(f, f).square()).sum() / (V * samples) for f in features]
        left.append(2 * (values[0] - values[1]))
        right.append(sums[0] - sums[1])
    return Sides(stacked(left), stacked(right))
