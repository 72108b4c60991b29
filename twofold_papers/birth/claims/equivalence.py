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
    """−(1/N) Tr(VᵀGVD) of eq 2, by the SVD of the features, which are not centred here."""
    N = len(features)
    V, singular, _ = torch.linalg.svd(features, full_matrices=False)
    return -((V.T @ graph @ V).diagonal() * shrinkage(singular, ridge, N)).sum() / N


@claim(
    "birth",
    "eq 1",
    "The library's ridge_labels is the minimum over W and b of eq 1, ‖WF + b1ᵀ − Y‖²/N + λ‖W‖². Checked: the "
    "loss and the minimum that Newton's method finds, for random features and labels",
    tolerance=1e-10,
)
def minimum_of_the_absolute_loss() -> Sides:
    left, right = [], []
    for f, y, ridge in instances():
        left.append(objectives.ridge_labels(f, y, ridge).total)
        right.append(absolute_loss(f, y, *solved_head(f, y, ridge), ridge))
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "A.1 (b)",
    "For any head W, the best bias is b = (Y − WF)1/N. Checked: the bias that Newton's method finds for "
    "random heads, and this formula",
    tolerance=1e-10,
)
def best_bias() -> Sides:
    left, right = [], []
    for f, y, ridge in instances():
        N, C = y.shape
        head, ones = randn(f.shape[1], C), torch.ones(N, dtype=torch.float64)
        left.append(quadratic_minimum(lambda b, f=f, y=y, w=head, r=ridge: absolute_loss(f, y, w, b, r), C))
        right.append(ones @ y / N - ones @ f @ head / N)
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "A.1 (b), loss",
    "With the best bias, the loss is ‖WFH − YH‖²/N + λ‖W‖², where H = I − 11ᵀ/N. Checked: eq 1 with the bias "
    "that Newton's method finds, and this formula, for random heads",
    tolerance=1e-10,
)
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


@claim(
    "birth",
    "A.1 (W)",
    "The best head is W = YHFᵀ(FHFᵀ + λN I)⁻¹. Checked: the head that Newton's method finds and this formula",
    tolerance=1e-9,
)
def best_head() -> Sides:
    left, right = [], []
    for f, y, ridge in instances():
        N, K = f.shape
        left.append(solved_head(f, y, ridge)[0])
        covariance = f.T @ centring(N) @ f + ridge * N * torch.eye(K, dtype=torch.float64)
        right.append(torch.linalg.inv(covariance) @ f.T @ centring(N) @ y)
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "A.1, four traces",
    "The minimum of eq 1 is ‖YH‖²/N plus three traces of the full SVD of FH. Checked: ridge_labels and the "
    "four terms of the paper",
    tolerance=1e-10,
)
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


@claim(
    "birth",
    "A.1, VᵀH = Vᵀ",
    "VᵀH = Vᵀ for the singular vectors of the centred F whose singular value is not 0. Checked: both sides "
    "for random features, K < N and K ≥ N",
    tolerance=1e-10,
)
def centred_vectors() -> Sides:
    return _right_vectors(with_zeros=False)


@centred_vectors.published("VᵀH = Vᵀ whenever the SVD is that of the centred X")
def _() -> Sides:
    return _right_vectors(with_zeros=True)


centred_vectors.holds_if(
    "V has only the singular vectors whose singular value is not 0",
    fails_if="V also has vectors with s_k = 0: if K ≥ N, one of these is 1/√N",
)(centred_vectors.compute)


@claim(
    "birth",
    "A.1, last line",
    "−2s²/(N(s²+λN)) + s⁴/(N(s²+λN)²) + λs²/(s²+λN)² = −s²/((s²+λN)N). Checked: both sides for 1000 random "
    "values of s, λ and N",
    tolerance=1e-13,
)
def simplification() -> Sides:
    s, ridge = torch.rand(1000, dtype=torch.float64) * 5, torch.rand(1000, dtype=torch.float64)
    N = torch.randint(1, 50, (1000,)).double()
    below = s**2 + ridge * N
    return Sides(-2 / N * s**2 / below + s**4 / below**2 / N + ridge * s**2 / below**2, -(s**2) / (below * N))


@claim(
    "birth",
    "Lemma 1",
    "The minimum of eq 1 is −Tr(VᵀYᵀYVD)/N + ‖YH‖²/N, with V and s from the SVD of the centred features FH. "
    "Checked: ridge_labels and this formula",
    tolerance=1e-10,
)
def lemma_1() -> Sides:
    left, right = [], []
    for f, y, ridge in instances():
        H = centring(len(f))
        left.append(objectives.ridge_labels(f, y, ridge).total)
        right.append(trace_term(H @ f, y @ y.T, ridge) + (H @ y).square().sum() / len(f))
    return Sides(stacked(left), stacked(right))


@lemma_1.published(
    "the minimum of eq 1 is −Tr(VᵀYᵀYVD)/N plus a constant. Checked: the difference between the losses of two random "
    "sets of features"
)
def _() -> Sides:
    left, right = [], []
    for f, y, ridge in instances():
        other = randn(*f.shape) + 2
        left.append(objectives.ridge_labels(f, y, ridge).total - objectives.ridge_labels(other, y, ridge).total)
        right.append(trace_term(f, y @ y.T, ridge) - trace_term(other, y @ y.T, ridge))
    return Sides(stacked(left), stacked(right))


lemma_1.holds_if(
    "V and s are from the SVD of the centred features f_θ(X)H, as in appendix A.1",
    fails_if="V and s are from the SVD of f_θ(X), as section 2.1 says",
)(lemma_1.compute)


def _deficient() -> tuple[list[Tensor], list[Tensor]]:
    """D_kk computed from the library's loss (1 − N·loss for Y = v_k) and by its formula. One feature is a copy."""
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


@claim(
    "birth",
    "Lemma 1 (D)",
    "D_kk = s_k²/(s_k² + λN): the loss for the labels v_k is (1 − D_kk)/N. Checked: D_kk computed from "
    "ridge_labels and by the formula",
    tolerance=1e-10,
)
def diagonal() -> Sides:
    seen, formula = _deficient()
    return Sides(stacked(seen), stacked(formula))


@claim(
    "birth",
    "Lemma 1 (D ≥ 0)",
    "0 ≤ D_kk < 1, and D_kk = 0 is possible, for example if one feature is a copy of another. The paper "
    "leaves the proof as 'ToDo'. Checked: 0 ≤ D_kk ≤ 1 within the tolerance, with a copied feature",
    tolerance=1e-12,
)
def diagonal_is_in_the_unit_interval() -> Sides:
    seen, _ = _deficient()
    D = stacked(seen)
    return Sides(torch.cat([-D, D]), torch.cat([torch.zeros_like(D), torch.ones_like(D)]), "≤")


@diagonal_is_in_the_unit_interval.published("D is positive for any X and f_θ. Checked: all D_kk are above 1e-6")
def _() -> Sides:
    seen, _ = _deficient()
    smallest = torch.stack([D.min() for D in seen])
    return Sides(smallest, 1e-6, ">")


@diagonal_is_in_the_unit_interval.holds_if("'positive' means at least 0", fails_if="'positive' means above 0")
def _() -> Sides:
    return Sides(stacked(_deficient()[0]), 0.0, "≥")


def _grown(scale: float) -> tuple[Tensor, Tensor]:
    """|Tr(VᵀGVD)|/N = ‖YH‖²/N − loss for features times `scale`, and ‖YH‖²/N."""
    seen, bound = [], []
    for f, y, ridge in instances():
        constant = (centring(len(f)) @ y).square().sum() / len(f)
        seen.append(constant - objectives.ridge_labels(f * scale, y, ridge).total)
        bound.append(constant)
    return stacked(seen), stacked(bound)


@claim(
    "birth",
    "section 2.1, boundedness",
    "The objective stays bounded although the features are not: |Tr(VᵀGVD)|/N ≤ ‖YH‖²/N, because D < 1. The paper "
    "calls unbounded growth an apparent issue, and this bound shows that it is only apparent. Checked: the bound for "
    "features times 1, 10³ and 10⁶",
    tolerance=1e-10,
)
def bounded() -> Sides:
    seen, bound = zip(*(_grown(scale) for scale in (1.0, 1e3, 1e6)), strict=True)
    return Sides(torch.cat(seen), torch.cat(bound), "≤")


@claim(
    "birth",
    "Figure 2",
    "At λ = 0, the minimum of eq 1 is ‖YH‖²/N − Σ_{s_k>0} v_kᵀGv_k/N. Checked: ridge_labels and this formula, "
    "for N and K from 4 to 32",
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


@claim(
    "birth",
    "Theorem 1",
    "The absolute objective with labels Y equals the relative objective with the graph G = YᵀY. Checked: "
    "ridge_labels and ridge_graph for random features and labels, also at λ = 0",
    tolerance=1e-10,
)
def theorem_1() -> Sides:
    left, right = [], []
    for f, y, ridge in instances():
        for weight in (ridge, 0.0):
            left.append(objectives.ridge_labels(f, y, weight).total)
            right.append(objectives.ridge_graph(f, y @ y.T, weight).total)
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "eq 2",
    "For any graph, ridge_graph = Tr(HGH)/N − Tr(VᵀGVD)/N = λ Tr(HGH(FᵀF + λN I)⁻¹). Checked: the library's "
    "loss and both formulas, for random graphs with negative eigenvalues",
    tolerance=1e-10,
)
def relative_loss_of_any_graph() -> Sides:
    left, right = [], []
    for f, _, ridge in instances():
        N = len(f)
        H, graph = centring(N), randn(N, N)
        graph = graph + graph.T  # not YYᵀ for any labels: it has negative eigenvalues
        inverse = torch.linalg.inv(H @ f @ f.T @ H + ridge * N * torch.eye(N, dtype=torch.float64))
        left += [objectives.ridge_graph(f, graph, ridge).total] * 2
        right.append((H @ graph @ H).trace() / N + trace_term(H @ f, H @ graph @ H, ridge))
        right.append(ridge * (H @ graph @ H @ inverse).trace())
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "Theorem 1 (gradient)",
    "The absolute and the relative objective have the same gradient with respect to F, so both train any f_θ "
    "in the same way. Checked: the gradient of ridge_graph and that of eq 1 at its best head",
    tolerance=1e-9,
)
def theorem_1_gradient() -> Sides:
    left, right = [], []
    for f, y, ridge in instances():
        left.append(gradient(lambda f, y=y, r=ridge: objectives.ridge_graph(f, y @ y.T, r).total, f))
        # At the best head, the gradient of eq 1 is that of its minimum over the head (envelope theorem).
        head, bias = solved_head(f, y, ridge)
        right.append(gradient(lambda f, y=y, w=head, b=bias, r=ridge: absolute_loss(f, y, w, b, r), f))
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "Theorem 1 (G alone)",
    "The loss depends only on which samples share a class; renaming or rotating the classes does not change "
    "it. Checked: eq 1 at its minimum, and the library's losses with renamed classes, rotated labels and the "
    "graph",
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


@claim(
    "birth",
    "section 2.1, U",
    "The left singular vectors of f_θ(X) do not affect the loss. Checked: ridge_labels before and after a "
    "random rotation of the features",
    tolerance=1e-10,
)
def feature_rotations_do_not_matter() -> Sides:
    left, right = [], []
    for f, y, ridge in instances():
        K = f.shape[1]
        left.append(objectives.ridge_labels(f, y, ridge).total)
        right.append(objectives.ridge_labels(f @ orthonormal(K, K), y, ridge).total)
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "section 2.1, W",
    "The best head maps u_k to s_k/(s_k² + λN) · Y v_k. Checked: the head that Newton's method finds, applied "
    "to u_k, and this formula",
    tolerance=1e-9,
)
def what_the_head_does() -> Sides:
    left, right = [], []
    for f, y, ridge in instances():
        V, singular, Ut = torch.linalg.svd(centring(len(f)) @ f, full_matrices=False)
        left.append(Ut @ solved_head(f, y, ridge)[0])
        right.append((singular / (singular**2 + ridge * len(f)))[:, None] * (V.T @ y))
    # If K ≥ N, the last s_k is 0, and so are both sides.
    return Sides(stacked(left), stacked(right))


@what_the_head_does.published("the best head maps the left singular vectors of f_θ(X) to those of Y")
def _() -> Sides:
    nearest = []
    for f, y, ridge in instances():
        _, _, Ut = torch.linalg.svd(centring(len(f)) @ f, full_matrices=False)
        mapped = Ut[0] @ solved_head(f, y, ridge)[0]
        nearest.append((torch.linalg.svd(y, full_matrices=False).Vh @ mapped).abs().max() / mapped.norm())
    return Sides(stacked(nearest), 1.0)


@what_the_head_does.holds_if(
    "each u_k is mapped into the span of the left singular vectors of Y",
    fails_if="each u_k is mapped to one of these vectors, up to its length: |cos| = 1 for u_1",
)
def _() -> Sides:
    images, projected = [], []
    for f, y, ridge in instances():
        y = y @ randn(y.shape[1], 2) @ randn(2, y.shape[1])  # rank 2, so that these vectors do not span everything
        _, _, Ut = torch.linalg.svd(centring(len(f)) @ f, full_matrices=False)
        vectors = torch.linalg.svd(y, full_matrices=False).Vh[:2]
        images.append(Ut @ solved_head(f, y, ridge)[0])
        projected.append(images[-1] @ vectors.T @ vectors)
    return Sides(stacked(images), stacked(projected))
