"""Relational objectives: train with any labels Y or any graph G between samples.

Shapes: N rows (samples, or views of samples ordered view by view), K features, C classes; F[N, K], Y[N, C], G[N, N].
H = I − 11ᵀ/N is the centring matrix, F_c = HF. Equation numbers are those of "The birth of self supervised learning".
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
    """The absolute objective (eq 1): the smallest error of a linear head that predicts the labels from the features.

    The loss is the minimum over W and b of ‖FW + 1bᵀ − Y‖²/N + ridge‖W‖², which equals
    ‖HY‖²/N − tr(Yᵀ F_c (F_cᵀF_c + ridge·N·I)⁻¹ F_cᵀ Y)/N.

    Parameters
    ----------
    features : Tensor [N, K]
        F, N ≥ 2.
    labels : int64 Tensor [N] or Tensor [N, C]
        Class numbers, or a matrix Y.
    ridge : float
        0 uses the pseudo-inverse. It needs an SVD, for which the host waits, and only first derivatives are correct.

    Returns
    -------
    LossTerms
        With the term `ridge`.
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

    It equals `ridge_labels` if G = YYᵀ (Theorem 1). The derivative with respect to a singular value σ of F_c with left
    singular vector u is uᵀGu · (−2σ·ridge)/(σ² + ridge·N)² (Theorem 2).

    Parameters
    ----------
    features : Tensor [N, K]
        F, N ≥ 2.
    graph : Tensor [N, N]
        G, for example from `view_graph`, `label_graph` or `group_graph`.
    ridge : float
        0 gives the limit, as in `ridge_labels`.

    Returns
    -------
    LossTerms
        With the term `ridge`.

    Examples
    --------
    >>> graph = across_views(label_graph(labels), views=2)
    >>> ridge_graph(features.flatten(0, 1), graph, ridge=0.1)
    """
    N, _ = _shape(features, graph, ridge)
    f = centred(double(features))
    g = centred(centred(_graph(graph, f)).mT).mT  # HGH
    each = centred(torch.eye(N, dtype=f.dtype, device=f.device))  # H: each row is its own class
    heads = _best_head(f, each, ridge, features.dtype)
    left_over = each - f @ heads
    total = ((left_over @ g) * left_over).sum() / N + ridge * ((heads @ g) * heads).sum()
    return _named("ridge", total, features)


@full_precision
def graph_vicreg(features: Tensor, graph: Tensor, weight: float) -> LossTerms:
    """VICReg on a graph: −tr(HGH FFᵀ)/N + weight · ‖FᵀHF − I‖²_F (the trainable form of Corollary 1).

    Corollary 1 holds for a graph of constant degree. The second term asks for centred columns that are orthogonal and
    have norm 1 over the batch (not variance 1).

    Parameters
    ----------
    features : Tensor [N, K]
        F, N ≥ 2.
    graph : Tensor [N, N]
        G.
    weight : float
        Weight of the second term.

    Returns
    -------
    LossTerms
        With the terms `alignment` and `orthogonality`.
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
    """The smallest error of a linear head with orthonormal rows (appendix B): (‖F‖² + tr G − 2‖FᵀY‖_*)/N.

    The loss is the minimum over WWᵀ = I of ‖FW − Y‖²/N, without centring. The nuclear norm ‖FᵀY‖_* is tr(PᵀFᵀY), where
    P, the polar factor of FᵀY, is held fixed and computed by Newton–Schulz. Nothing is divided by singular values or
    their differences, so the gradient 2(F − YPᵀ)/N is always finite. If singular values are 0, it is the subgradient of
    least norm. Only first derivatives are correct.

    Parameters
    ----------
    features : Tensor [N, K]
        F, N ≥ 2.
    labels : int64 Tensor [N] or Tensor [N, C]
        Class numbers, or a matrix Y with C ≥ K. Class numbers allow any K: classes that are not in the batch count
        towards C.

    Returns
    -------
    LossTerms
        With the term `orthogonal`.
    """
    N, K = _shape(features, labels)
    f = double(features)
    y = label_matrix(labels).to(f)
    if labels.dim() == 2 and labels.shape[1] < K:
        raise TwofoldError(
            f"orthogonal_head needs at least as many classes as features, not {labels.shape[1]} for {K} features: "
            "use fewer features, or pass class numbers"
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
        raise TwofoldError(
            f"{len(features)} rows of features, but labels or a graph of {len(relation)} rows: give one row for each"
        )
    if ridge < 0:
        raise TwofoldError(f"ridge={ridge} is negative: use 0 or more")
    N, K = features.shape
    return N, K


def _graph(graph: Tensor, like: Tensor) -> Tensor:
    if graph.dim() != 2 or graph.shape[0] != graph.shape[1]:
        raise TwofoldError(f"a graph must be a matrix [rows, rows], not {list(graph.shape)}")
    return graph.to(like)


def _best_head(f: Tensor, y: Tensor, ridge: float, precision: torch.dtype) -> Tensor:
    """The W[K, C] = (FᵀF + ridge·N·I)⁻¹FᵀY that minimises ‖FW − Y‖²/N + ridge‖W‖².

    The losses are computed as the quantity that W minimises. They are stationary in W, so errors in W enter the loss
    and its gradient only as squares. With the closed forms without W, large singular values would leave no correct
    digit of the gradient. For the same reason W needs no gradient if ridge is 0.
    """
    N, K = f.shape
    if ridge == 0:  # singular values at the rounding error of the features' dtype count as 0
        return torch.linalg.pinv(f.detach(), rtol=max(N, K) * torch.finfo(precision).eps) @ y
    gram = f @ f.T if N <= K else f.T @ f
    factor = cholesky(gram + ridge * N * torch.eye(len(gram), dtype=f.dtype, device=f.device))
    return f.T @ torch.cholesky_solve(y, factor) if N <= K else torch.cholesky_solve(f.T @ y, factor)


def _named(name: str, total: Tensor, features: Tensor) -> LossTerms:
    total = total.to(features.dtype)
    return LossTerms(total, {name: total.detach()})
