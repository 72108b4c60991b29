"""Predictive objectives: one view's embedding, through a predictor, meets the other's, held fixed."""

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
    """d(W_P z, sg(target)) for one ordered pair of views z[..., N, D], target[..., N, D] (IsoLoss eq 1 and 2).

    d is −cos, or ½‖·‖²; the mean over samples, and over pairs where several are given at once. Where the predictor is a
    network, z is its output and W_P is left out.
    """
    prediction = z if predictor_matrix is None else predicted(z, predictor_matrix)
    return mean_distance(prediction, target.detach() if stop_gradient else target, distance)


@full_precision
def isoloss(z: Tensor, target: Tensor, predictor_matrix: Tensor, *, distance: Distance = "cosine") -> LossTerms:
    """d(z + sg(W_P z − z), sg(target)): the value of `asymmetric`, the gradients of IsoLoss eq 15 and 17.

    The gradient passes the predictor unchanged, so that no eigenvalue of W_P scales the learning of its mode.
    """
    # z − sg(z) is exactly 0; z + sg(W_P z − z) would round a small W_P z to the precision of z.
    straight_through = predicted(z, predictor_matrix).detach() + (z - z.detach())
    return mean_distance(straight_through, target.detach(), distance)


def predicted(z: Tensor, predictor_matrix: Tensor) -> Tensor:
    return z @ predictor_matrix.T.to(z.dtype)


def mean_distance(prediction: Tensor, target: Tensor, distance: str) -> LossTerms:
    if prediction.shape != target.shape or prediction.numel() == 0:
        shapes = f"{list(prediction.shape)} and {list(target.shape)}"
        raise TwofoldError(f"predictions and targets have shapes {shapes}: give both as [N, D], N at least 1")
    if distance == "cosine":
        # cos = p·t/(‖p‖‖t‖), with ‖p‖ taken out of the sum: only the target is divided entry by entry.
        length = torch.linalg.vector_norm(prediction, dim=-1).clamp_min(SMALLEST_NORM)
        total = -((prediction * normalized(target, SMALLEST_NORM)).sum(dim=-1) / length).mean()
    elif distance == "euclidean":
        total = 0.5 * (prediction - target).square().sum(dim=-1).mean()
    else:
        raise TwofoldError(f"distance={distance!r} is not known{nearest(distance, list(get_args(Distance)))}")
    return LossTerms(total, {distance: total.detach()})
