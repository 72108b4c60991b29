"""Ordered pairs of different views, where the targets have a number of views of their own.

V views, the first T of which have a target, N samples. A target of a view meets all views but its own.
"""

import torch
from torch import Tensor

from twofold.errors import TwofoldError


def check_targets(objective: str, views: Tensor, targets: Tensor) -> None:
    """views[V, N, ·] and targets[T, N, ·] belong together, and every target has another view to meet."""
    fits = views.ndim == 3 and views.shape[1:] == targets.shape[1:] and views.numel() > 0
    if not fits or len(views) < 2 or not 1 <= len(targets) <= len(views):
        raise TwofoldError(
            f"{objective} got views {list(views.shape)} and targets {list(targets.shape)}: give two views or more, "
            "[views, samples, dim], and targets of the same samples for all or the first of them"
        )


def check_positive(what: str, **values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise TwofoldError(f"{what}: {name}={value} has to be positive")


def mean_over_pairs(loss_TVN: Tensor) -> Tensor:
    """The mean over samples and over pairs (target t, view v ≠ t)."""
    T, V, N = loss_TVN.shape
    same = torch.eye(T, V, dtype=torch.bool, device=loss_TVN.device)[:, :, None]
    return loss_TVN.masked_fill(same, 0).sum() / (T * (V - 1) * N)
