"""Section 2.1 and appendix A.1: the absolute objective, its minimum over the head, and the relative objective."""

import torch
from torch import Tensor

from twofold import linalg, objectives
from twofold_papers.birth.claims.setting import (
    RIDGES,
    SIZES,
    absolute_loss,
    centring,
    instances,
    orthonormal,
    quadratic_minimum,
    solved_head,
    stacked,
)
from twofold_papers.verify.claim import Sides, claim
from twofold_papers.verify.numerics import gradient, randn


def shrinkage(singular: Tensor, ridge: float, N: int) -> Tensor:
    """D_kk = s²/(s² + λN)."""
    return singular.square() / (singular.square() + ridge * N)


def trace_term(features: Tensor, graph: Tensor, ridge: float) -> Tensor:
    """−(1/N) Tr(VᵀGVD) of eq 2, by the SVD of the features as given."""
    N = len(features)
    V, singular, _ = torch.linalg.svd(features, full_matrices=False)
    return -((V.T @ graph @ V).diagonal() * shrinkage(singular, ridge, N)).sum() / N


@claim("birth", "eq 1", "ridge_labels = min over W, b of ‖WF + b1ᵀ − Y‖²/N + λ‖W‖², solved by Newton", tolerance=1e-10)
def minimum_of_the_absolute_loss() -> Sides:
    left, right = [], []
    for f, y, ridge in instances():
        left.append(objectives.ridge_labels(f, y, ridge).total)
        right.append(absolute_loss(f, y, *solved_head(f, y, ridge), ridge))
    return Sides(stacked(left), stacked(right))


@claim("birth", "A.1 (b)", "for any W the best bias is b = (Y − WF)1/N", tolerance=1e-10)
def best_bias() -> Sides:
    left, right = [], []
    for f, y, ridge in instances():
        N, C = y.shape
        head, ones = randn(f.shape[1], C), torch.ones(N, dtype=torch.float64)
        left.append(quadratic_minimum(lambda b, f=f, y=y, w=head, r=ridge: absolute_loss(f, y, w, b, r), C))
        right.append(ones @ y / N - ones @ f @ head / N)
    return Sides(stacked(left), stacked(right))


@claim("birth", "A.1 (b), loss", "with it the loss is ‖WFH − YH‖²/N + λ‖W‖², H = I − 11ᵀ/N", tolerance=1e-10)
def loss_with_the_best_bias() -> Sides:
    left, right = [], []
    for f, y, ridge in instances():
        head, H = randn(f.shape[1], y.shape[1]), centring(len(f))
        bias = quadratic_minimum(
            lambda b, f=f, y=y, w=head, r=ridge: absolute_loss(f, y, w, b, r),
            y.shape[1],
        )
        left.append(absolute_loss(f, y, head, bias, ridge))
        right.append((H @ f @ head - H @ y).square().sum() / len(f) + ridge * head.square().sum())
    return Sides(stacked(left), stacked(right))


@claim("birth", "A.1 (W)", "the best head is W = YHFᵀ(FHFᵀ + λN I)⁻¹", tolerance=1e-9)
def best_head() -> Sides:
    left, right = [], []
    for f, y, ridge in instances():
        N, K = f.shape
        left.append(solved_head(f, y, ridge)[0])
        covariance = f.T @ centring(N) @ f + ridge * N * torch.eye(K, dtype=torch.float64)
        right.append(torch.linalg.inv(covariance) @ f.T @ centring(N) @ y)
    return Sides(stacked(left), stacked(right))


@claim("birth", "A.1, four traces", "the minimum as ‖YH‖²/N and three traces of the full SVD of FH", tolerance=1e-10)
def expansion() -> Sides:
    left, right = [], []
    for f, y, ridge in instances():
        N, K = f.shape
        left.append(objectives.ridge_labels(f, y, ridge).total)
        H = centring(N)
        _, singular, Vt = torch.linalg.svd((H @ f).T)  # the paper's orientation: U[K, K] S[K, N] Vᵀ[N, N]
        S = torch.zeros(K, N, dtype=torch.float64)
        S.diagonal().copy_(singular)
        V, Y = Vt.T, y.T
        inverse = torch.linalg.inv(S @ S.T + ridge * N * torch.eye(K, dtype=torch.float64))
        right.append(
            (Y @ H).square().sum() / N
            - 2 / N * (H.T @ Y.T @ Y @ V @ S.T @ inverse @ S @ V.T).trace()
            + (V.T @ Y.T @ Y @ V @ S.T @ inverse @ S @ S.T @ inverse @ S).trace() / N
            + ridge * (V.T @ Y.T @ Y @ V @ S.T @ inverse @ inverse @ S).trace()
        )
    return Sides(stacked(left), stacked(right))


def _right_vectors(with_zeros: bool) -> Sides:
    left, right = [], []
    for N, K, _ in SIZES:
        V, singular, _ = torch.linalg.svd(linalg.centred(randn(N, K) + 2), full_matrices=False)
        if not with_zeros:
            V = V[:, singular > 1e-10 * singular[0]]
        left.append(V.T @ centring(N))
        right.append(V.T)
    return Sides(stacked(left), stacked(right))


@claim("birth", "A.1, VᵀH = Vᵀ", "VᵀH = Vᵀ for the vectors of the centred F with s_k > 0", tolerance=1e-10)
def centred_vectors() -> Sides:
    return _right_vectors(with_zeros=False)


@centred_vectors.printed("VᵀH = Vᵀ whenever the SVD is of the centred F: not for s_k = 0, as 1/√N is one where K ≥ N")
def _() -> Sides:
    return _right_vectors(with_zeros=True)


@claim("birth", "A.1, last line", "−2s²/(N(s²+λN)) + s⁴/(N(s²+λN)²) + λs²/(s²+λN)² = −s²/((s²+λN)N)", tolerance=1e-13)
def simplification() -> Sides:
    s, ridge = torch.rand(1000, dtype=torch.float64) * 5, torch.rand(1000, dtype=torch.float64)
    N = torch.randint(1, 50, (1000,)).double()
    below = s**2 + ridge * N
    return Sides(-2 / N * s**2 / below + s**4 / below**2 / N + ridge * s**2 / below**2, -(s**2) / (below * N))


@claim("birth", "Lemma 1", "min L = −Tr(VᵀYᵀYVD)/N + ‖YH‖²/N, V and s of the SVD of the centred FH", tolerance=1e-10)
def lemma_1() -> Sides:
    left, right = [], []
    for f, y, ridge in instances():
        H = centring(len(f))
        left.append(objectives.ridge_labels(f, y, ridge).total)
        right.append(trace_term(H @ f, y @ y.T, ridge) + (H @ y).square().sum() / len(f))
    return Sides(stacked(left), stacked(right))


@lemma_1.printed("with V and s of the SVD of F as it is (differences between two networks: the constant is not fixed)")
def _() -> Sides:
    left, right = [], []
    for f, y, ridge in instances():
        other = randn(*f.shape) + 2
        left.append(objectives.ridge_labels(f, y, ridge).total - objectives.ridge_labels(other, y, ridge).total)
        right.append(trace_term(f, y @ y.T, ridge) - trace_term(other, y @ y.T, ridge))
    return Sides(stacked(left), stacked(right))


def _deficient() -> tuple[list[Tensor], list[Tensor]]:
    """D_kk as the library's loss shows it, 1 − N·loss for Y = v_k, and by its formula; one feature is there twice."""
    seen, formula = [], []
    for N, K, _ in SIZES:
        for ridge in RIDGES:
            f = randn(N, K)
            f[:, -1] = f[:, 0]
            V, singular, _ = torch.linalg.svd(linalg.centred(f), full_matrices=False)
            rank = min(N - 1, K - 1)
            if rank < N - 1:  # a centred vector for the singular value 0
                V = torch.linalg.qr(torch.cat([V[:, :rank], centring(N) @ randn(N, 1)], dim=1)).Q
            vectors = V[:, : min(N - 1, K)].T
            seen.append(1 - N * torch.stack([objectives.ridge_labels(f, v[:, None], ridge).total for v in vectors]))
            formula.append(shrinkage(singular[: len(vectors)], ridge, N))
    return seen, formula


@claim("birth", "Lemma 1 (D)", "the loss for the labels v_k is (1 − D_kk)/N, D_kk = s_k²/(s_k² + λN)", tolerance=1e-10)
def diagonal() -> Sides:
    seen, formula = _deficient()
    return Sides(stacked(seen), stacked(formula))


@claim(
    "birth", "Lemma 1 (D ≥ 0)", "0 ≤ D_kk < 1 (the proof is left as 'ToDo'); 0 where a feature repeats", tolerance=1e-12
)
def diagonal_is_in_the_unit_interval() -> Sides:
    seen, _ = _deficient()
    D = stacked(seen)
    return Sides(torch.cat([-D, D]), torch.cat([torch.zeros_like(D), torch.ones_like(D)]), "≤")


@diagonal_is_in_the_unit_interval.printed("D is positive for any X and f_θ: all D_kk > 0 (here: above 1e-6)")
def _() -> Sides:
    seen, _ = _deficient()
    smallest = torch.stack([D.min() for D in seen])
    return Sides(smallest, 1e-6, ">")


def _grown(scale: float) -> tuple[Tensor, Tensor]:
    """|Tr(VᵀGVD)|/N = ‖YH‖²/N − loss of features that are scaled up, and ‖YH‖²/N."""
    seen, bound = [], []
    for f, y, ridge in instances():
        constant = (centring(len(f)) @ y).square().sum() / len(f)
        seen.append(constant - objectives.ridge_labels(f * scale, y, ridge).total)
        bound.append(constant)
    return stacked(seen), stacked(bound)


@claim(
    "birth", "section 2.1, boundedness", "|Tr(VᵀGVD)|/N ≤ ‖YH‖²/N however large the features: D < 1", tolerance=1e-10
)
def bounded() -> Sides:
    seen, bound = zip(*(_grown(scale) for scale in (1.0, 1e3, 1e6)), strict=True)
    return Sides(torch.cat(seen), torch.cat(bound), "≤")


@bounded.printed("|min L| → ∞: nothing prevents D from growing (features a million times larger, objective 10 times)")
def _() -> Sides:
    return Sides(_grown(1e6)[0], 10 * _grown(1.0)[0], "≥")


@claim(
    "birth",
    "Figure 2",
    "Lemma 1 at λ = 0: least squares = ‖YH‖²/N − Σ_{s_k>0} v_kᵀGv_k/N, N, K = 4 … 32",
    tolerance=1e-9,
)
def without_ridge() -> Sides:
    left, right = [], []
    for N in (4, 8, 16, 32):
        for K in (4, 8, 16, 32):
            f, y = randn(N, K) + 1, randn(N, 5)
            V, singular, _ = torch.linalg.svd(centring(N) @ f, full_matrices=False)
            V = V[:, singular > 1e-9 * singular[0]]
            left.append(objectives.ridge_labels(f, y, 0.0).total)
            right.append(((centring(N) @ y).square().sum() - (V.T @ y).square().sum()) / N)
    return Sides(stacked(left), stacked(right))


@claim("birth", "Theorem 1", "absolute with labels Y = relative with graph G = YᵀY, λ = 0 too", tolerance=1e-10)
def theorem_1() -> Sides:
    left, right = [], []
    for f, y, ridge in instances():
        for weight in (ridge, 0.0):
            left.append(objectives.ridge_labels(f, y, weight).total)
            right.append(objectives.ridge_graph(f, y @ y.T, weight).total)
    return Sides(stacked(left), stacked(right))


@claim(
    "birth", "eq 2", "for any graph, ridge_graph = Tr(HGH)/N − Tr(VᵀGVD)/N = λ Tr(HGH(FᵀF + λN I)⁻¹)", tolerance=1e-10
)
def relative_loss_of_any_graph() -> Sides:
    left, right = [], []
    for f, _, ridge in instances():
        N = len(f)
        H, graph = centring(N), randn(N, N)
        graph = graph + graph.T  # of no labels: it has negative eigenvalues
        inverse = torch.linalg.inv(H @ f @ f.T @ H + ridge * N * torch.eye(N, dtype=torch.float64))
        left += [objectives.ridge_graph(f, graph, ridge).total] * 2
        right.append((H @ graph @ H).trace() / N + trace_term(H @ f, H @ graph @ H, ridge))
        right.append(ridge * (H @ graph @ H @ inverse).trace())
    return Sides(stacked(left), stacked(right))


@claim(
    "birth", "Theorem 1 (gradient)", "both have one gradient to F, so any f_θ is trained alike by both", tolerance=1e-9
)
def theorem_1_gradient() -> Sides:
    left, right = [], []
    for f, y, ridge in instances():
        left.append(gradient(lambda f, y=y, r=ridge: objectives.ridge_graph(f, y @ y.T, r).total, f))
        head, bias = solved_head(
            f, y, ridge
        )  # eq 1 is stationary in the head: its gradient there is that of the minimum
        right.append(gradient(lambda f, y=y, w=head, b=bias, r=ridge: absolute_loss(f, y, w, b, r), f))
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "Theorem 1 (G alone)",
    "who shares a class is enough: names and rotations of classes do not matter",
    tolerance=1e-10,
)
def names_of_classes_do_not_matter() -> Sides:
    left, right = [], []
    for f, _, ridge in instances():
        C = 4
        classes = torch.randint(0, C, (len(f),))
        one_hot = torch.eye(C, dtype=torch.float64)[classes]
        renamed = torch.randperm(C)[classes]
        value = absolute_loss(f, one_hot, *solved_head(f, one_hot, ridge), ridge)
        left += [value] * 3
        right.append(objectives.ridge_labels(f, renamed, ridge).total)
        right.append(objectives.ridge_labels(f, one_hot @ orthonormal(C, C), ridge).total)
        right.append(objectives.ridge_graph(f, objectives.label_graph(renamed), ridge).total)
    return Sides(stacked(left), stacked(right))


@claim("birth", "section 2.1, U", "the left singular vectors of f_θ(X) do not contribute to the loss", tolerance=1e-10)
def feature_rotations_do_not_matter() -> Sides:
    left, right = [], []
    for f, y, ridge in instances():
        K = f.shape[1]
        left.append(objectives.ridge_labels(f, y, ridge).total)
        right.append(objectives.ridge_labels(f @ orthonormal(K, K), y, ridge).total)
    return Sides(stacked(left), stacked(right))


@claim("birth", "section 2.1, W", "the best head maps u_k to s_k/(s_k² + λN) · Y v_k", tolerance=1e-9)
def what_the_head_does() -> Sides:
    left, right = [], []
    for f, y, ridge in instances():
        V, singular, Ut = torch.linalg.svd(centring(len(f)) @ f, full_matrices=False)
        left.append(Ut @ solved_head(f, y, ridge)[0])
        right.append((singular / (singular**2 + ridge * len(f)))[:, None] * (V.T @ y))
    # Where K ≥ N the last s_k is 0, and both sides are.
    return Sides(stacked(left), stacked(right))


@what_the_head_does.printed("it maps them to the left singular vectors of Y: |cos| with the nearest of them is 1")
def _() -> Sides:
    nearest = []
    for f, y, ridge in instances():
        _, _, Ut = torch.linalg.svd(centring(len(f)) @ f, full_matrices=False)
        mapped = Ut[0] @ solved_head(f, y, ridge)[0]
        nearest.append((torch.linalg.svd(y, full_matrices=False).Vh @ mapped).abs().max() / mapped.norm())
    return Sides(stacked(nearest), 1.0)
