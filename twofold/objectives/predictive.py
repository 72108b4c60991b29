"""Predictive objectives (BYOL, SimSiam, DirectPred, IsoLoss): predict the embedding of one view from that of another.

The embedding that is predicted, the target, is usually held fixed.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from twofold.errors import TwofoldError, nearest
from twofold.linalg import full_precision, normalized
from twofold.types import LossTerms

Distance = Literal["cosine", "euclidean"]
SMALLEST_NORM = 1e-8


@full_precision
def asymmetric(
    z: Tensor,
    target: Tensor,
    predictor_matrix: Tensor | None = None,
    *,
    distance: Distance = "cosine",
    stop_gradient: bool = True,
) -> LossTerms:
    """The asymmetric loss d(W_P z, sg(target)) of BYOL and SimSiam (IsoLoss eq 1 and 2).

    Parameters
    ----------
    z : Tensor [..., N, D]
        Embeddings of one view. If the predictor is a network, pass its output and no `predictor_matrix`.
    target : Tensor [..., N, D]
        Embeddings of another view.
    predictor_matrix : Tensor [D, D], optional
        W_P of a linear predictor.
    distance : {"cosine", "euclidean"}
        d is −cos, or half the squared distance.
    stop_gradient : bool
        Send no gradient to the target.

    Returns
    -------
    LossTerms
        The mean over samples and over leading axes, such as pairs of views. The term is named after the distance.

    Examples
    --------
    >>> asymmetric(predictor(z[0]), z[1]).total.backward()
    """
    prediction = z if predictor_matrix is None else predicted(z, predictor_matrix)
    return mean_distance(prediction, target.detach() if stop_gradient else target, distance)


@full_precision
def isoloss(z: Tensor, target: Tensor, predictor_matrix: Tensor, *, distance: Distance = "cosine") -> LossTerms:
    """The isotropic loss d(z + sg(W_P z − z), sg(target)) of IsoLoss.

    Its value is that of `asymmetric`, and its gradients are those of IsoLoss eq 15 and 17. The gradient skips the
    predictor, so the eigenvalues of W_P do not change how fast the embeddings learn along its eigenvectors.

    Parameters
    ----------
    z : Tensor [..., N, D]
        Embeddings of one view.
    target : Tensor [..., N, D]
        Embeddings of another view, which get no gradient.
    predictor_matrix : Tensor [D, D]
        W_P.
    distance : {"cosine", "euclidean"}
        d is −cos, or half the squared distance.

    Returns
    -------
    LossTerms
        The mean over samples and over leading axes. The term is named after the distance.
    """
    # z − sg(z) is exactly 0. z + sg(W_P z − z) would round a small W_P z to the precision of z.
    straight_through = predicted(z, predictor_matrix).detach() + (z - z.detach())
    return mean_distance(straight_through, target.detach(), distance)


def predicted(z: Tensor, predictor_matrix: Tensor) -> Tensor:
    return z @ predictor_matrix.T.to(z.dtype)


def mean_distance(prediction: Tensor, target: Tensor, distance: str) -> LossTerms:
    if prediction.shape != target.shape or prediction.numel() == 0:
        shapes = f"{list(prediction.shape)} and {list(target.shape)}"
        raise TwofoldError(f"predictions and targets have shapes {shapes}: give both as [N, D], N at least 1")
    if distance == "cosine":
        # cos = p·t/(‖p‖‖t‖). Dividing the sum by ‖p‖ saves the division of each entry.
        length = torch.linalg.vector_norm(prediction, dim=-1).clamp_min(SMALLEST_NORM)
        total = -((prediction * normalized(target, SMALLEST_NORM)).sum(dim=-1) / length).mean()
    elif distance == "euclidean":
        total = 0.5 * (prediction - target).square().sum(dim=-1).mean()
    else:
        raise TwofoldError(f"distance={distance!r} is unknown{nearest(distance, list(get_args(Distance)))}")
    return LossTerms(total, {distance: total.detach()})
