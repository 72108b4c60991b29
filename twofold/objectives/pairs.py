"""Pairs of a target and a different view, for objectives with a teacher or codes.

Shapes: V views, N samples, T targets (for the first T views). The target of a view is compared with all other views.
"""

import torch
from torch import Tensor

from twofold.errors import TwofoldError


def check_targets(objective: str, views: Tensor, targets: Tensor) -> None:
    """Raise unless views[V, N, ·] and targets[T, N, ·] fit, and every target has another view to be compared with."""
    fits = views.ndim == 3 and views.shape[1:] == targets.shape[1:] and views.numel() > 0
    if not fits or len(views) < 2 or not 1 <= len(targets) <= len(views):
        raise TwofoldError(
            f"{objective} got views {list(views.shape)} and targets {list(targets.shape)}: pass two views or more as "
            "[views, samples, dim], and targets of the same samples for all views or for the first ones"
        )


def check_positive(what: str, **values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise TwofoldError(f"{what}: {name}={value} must be positive")


def mean_over_pairs(loss_TVN: Tensor) -> Tensor:
    """The mean of loss[T, V, N] over samples and over pairs of a target t and a view v ≠ t."""
    T, V, N = loss_TVN.shape
    same = torch.eye(T, V, dtype=torch.bool, device=loss_TVN.device)[:, :, None]
    return loss_TVN.masked_fill(same, 0).sum() / (T * (V - 1) * N)
