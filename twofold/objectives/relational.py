"""Relational objectives: any labelling Y, or any graph G between samples, is a training objective.

N rows (samples, or the views of samples one view after the other), K features, C classes: F[N, K], Y[N, C], G[N, N].
H = I − 11ᵀ/N centres, F_c = HF. Equation numbers are those of "The birth of self supervised learning".
Linear systems are solved in float64 (float32 on MPS), by Cholesky on the smaller of K×K and N×N.
"""

import torch
from torch import Tensor

from twofold.errors import TwofoldError
from twofold.linalg import centred, cholesky, distance_from_orthonormal, double, full_precision, polar_factor
from twofold.objectives.graphs import label_matrix
from twofold.types import LossTerms


@full_precision
def ridge_labels(features: Tensor, labels: Tensor, ridge: float) -> LossTerms:
    """The absolute objective (eq 1): the least error of a linear head with bias that predicts Y from the features.

    min over W, b of ‖FW + 1bᵀ − Y‖²/N + ridge‖W‖² = ‖HY‖²/N − tr(Yᵀ F_c (F_cᵀF_c + ridge·N·I)⁻¹ F_cᵀ Y)/N.
    `labels` are class numbers, or a matrix Y. With ridge 0 the inverse is a pseudo-inverse, taken by an SVD that waits
    for the device, and only first derivatives are right.
    """
    N, _ = _shape(features, labels, ridge)
    f = centred(double(features))
    y = centred(label_matrix(labels).to(f))
    head = _best_head(f, y, ridge, features.dtype)
    total = (y - f @ head).square().sum() / N + ridge * head.square().sum()
    return _named("ridge", total, features)


@full_precision
def ridge_graph(features: Tensor, graph: Tensor, ridge: float) -> LossTerms:
    """The relative objective (eq 2): ridge · tr(HGH (F_cF_cᵀ + ridge·N·I)⁻¹).

    Equal to `ridge_labels` where G = YYᵀ (Theorem 1). The gradient to a singular value σ of F_c, with left vector u,
    is uᵀGu · (−2σ·ridge)/(σ² + ridge·N)² (Theorem 2). ridge 0 is the limit, as in `ridge_labels`.
    """
    N, _ = _shape(features, graph, ridge)
    f = centred(double(features))
    g = centred(centred(_graph(graph, f)).mT).mT  # HGH
    each = centred(torch.eye(N, dtype=f.dtype, device=f.device))  # H: every row its own class
    heads = _best_head(f, each, ridge, features.dtype)
    left_over = each - f @ heads
    total = ((left_over @ g) * left_over).sum() / N + ridge * ((heads @ g) * heads).sum()
    return _named("ridge", total, features)


@full_precision
def graph_vicreg(features: Tensor, graph: Tensor, weight: float) -> LossTerms:
    """−tr(HGH FFᵀ)/N + weight · ‖FᵀHF − I‖²_F: the trainable form of Corollary 1, for a graph of constant degree.

    The features that it asks for have centred columns of norm 1 over the batch (not variance 1), at right angles.
    """
    N, _ = _shape(features, graph)
    g = _graph(graph, features)
    f = centred(features)
    alignment = -((g @ f) * f).sum() / N
    orthogonality = weight * distance_from_orthonormal(f)
    terms = {"alignment": alignment.detach(), "orthogonality": orthogonality.detach()}
    return LossTerms(alignment + orthogonality, terms)


@full_precision
def orthogonal_head(features: Tensor, labels: Tensor) -> LossTerms:
    """The least error of a head with orthonormal rows, K ≤ C (appendix B): (‖F‖² + tr G − 2‖FᵀY‖_*)/N.

    min over WWᵀ = I of ‖FW − Y‖²/N, not centred. The nuclear norm is tr(PᵀFᵀY) with P the polar factor of FᵀY, held
    fixed, by Newton–Schulz: nothing is divided by singular values or by their differences, so the gradient
    2(F − YPᵀ)/N is finite for any of them; where some are 0 it is the subgradient of least norm. Only first derivatives
    are right. Class numbers allow any K: classes that do not occur in the batch make up the C.
    """
    N, K = _shape(features, labels)
    f = double(features)
    y = label_matrix(labels).to(f)
    if labels.dim() == 2 and labels.shape[1] < K:
        raise TwofoldError(
            f"orthogonal_head needs at least as many classes as features, not {labels.shape[1]} for {K}: "
            "narrow the features, or give class numbers"
        )
    product = f.T @ y
    nuclear = (polar_factor(product.detach()) * product).sum()
    total = (f.square().sum() + y.square().sum() - 2 * nuclear) / N
    return _named("orthogonal", total, features)


def _shape(features: Tensor, relation: Tensor, ridge: float = 0.0) -> tuple[int, int]:
    if features.dim() != 2 or len(features) < 2 or not features.is_floating_point():
        given = f"{str(features.dtype).removeprefix('torch.')} {list(features.shape)}"
        raise TwofoldError(f"features must be floats [rows, dim] with two rows or more, not {given}")
    if len(relation) != len(features):
        raise TwofoldError(f"{len(features)} rows of features have labels or a graph of {len(relation)} rows")
    if ridge < 0:
        raise TwofoldError(f"ridge={ridge} is negative: use 0 or more")
    N, K = features.shape
    return N, K


def _graph(graph: Tensor, like: Tensor) -> Tensor:
    if graph.dim() != 2 or graph.shape[0] != graph.shape[1]:
        raise TwofoldError(f"a graph must be a matrix [rows, rows], not {list(graph.shape)}")
    return graph.to(like)


def _best_head(f: Tensor, y: Tensor, ridge: float, precision: torch.dtype) -> Tensor:
    """W[K, C] = (FᵀF + ridge·N·I)⁻¹FᵀY, that minimises ‖FW − Y‖²/N + ridge‖W‖².

    The losses are written in W, as what it minimises: they are stationary in it, so that its errors enter them, and
    their gradient, as squares. The closed forms without W lose all digits of the gradient to large singular values.
    With ridge 0 W has no gradient of its own: none is needed, for the same reason.
    """
    N, K = f.shape
    if ridge == 0:  # singular values that are rounding, in the precision that the features came in, are 0
        return torch.linalg.pinv(f.detach(), rtol=max(N, K) * torch.finfo(precision).eps) @ y
    gram = f @ f.T if N <= K else f.T @ f
    factor = cholesky(gram + ridge * N * torch.eye(len(gram), dtype=f.dtype, device=f.device))
    return f.T @ torch.cholesky_solve(y, factor) if N <= K else torch.cholesky_solve(f.T @ y, factor)


def _named(name: str, total: Tensor, features: Tensor) -> LossTerms:
    total = total.to(features.dtype)
    return LossTerms(total, {name: total.detach()})
