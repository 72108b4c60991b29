"""How rows of a sample head move: in the step that uses them, and in all those that do not.

R rows, S tensors kept of each (weights, then moments), D dimension. Step j = 1, 2, … is at schedule[j−1].
Rows stand where their last step left them, and are caught up when they are next used. With `steps_per_epoch` they are
moved as the paper does it (S-DIET, listing 1): ahead by an epoch, without bias correction, at the rate of that moment.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from twofold.models.multistep import LazyAdamW, LazySGD, multistep_adamw, multistep_sgd


class RowOptimizer(Protocol):
    kept: int  # S

    def catch_up(self, state_RSD: Tensor, since_R: Tensor, step: int) -> Tensor:
        """Rows as they stood after the steps `since`, as they stand after `step`, without gradients in between."""
        ...

    def advance(self, state_RSD: Tensor, gradient_RD: Tensor, step: int) -> Tensor:
        """Rows as they stood before `step`, as they stand after it."""
        ...


class RowAdamW:
    kept = 3

    def __init__(
        self,
        schedule: Sequence[float],
        weight_decay: float,
        betas: tuple[float, float],
        eps: float,
        steps_per_epoch: int | None = None,
    ):
        self.schedule, self.settings, self.steps_per_epoch = schedule, (weight_decay, betas, eps), steps_per_epoch
        self._lazy = LazyAdamW(schedule, *self.settings) if steps_per_epoch is None else None

    def catch_up(self, state_RSD: Tensor, since_R: Tensor, step: int) -> Tensor:
        if self._lazy is None:
            return state_RSD
        theta, m, v = state_RSD.unbind(1)
        return torch.stack(self._lazy.catch_up(theta, m, v, since_R, step), dim=1)

    def advance(self, state_RSD: Tensor, gradient_RD: Tensor, step: int) -> Tensor:
        theta, m, v = state_RSD.unbind(1)
        lr, (weight_decay, (beta1, beta2), eps) = self.schedule[step - 1], self.settings
        m = beta1 * m + (1 - beta1) * gradient_RD
        v = beta2 * v + (1 - beta2) * gradient_RD.square()
        if self.steps_per_epoch is None:
            scale = v.sqrt() / math.sqrt(1 - beta2**step) + eps
            theta = (1 - lr * weight_decay) * theta - lr / (1 - beta1**step) * (m / scale)
        else:
            theta = (1 - lr * weight_decay) * theta - lr * m / (v.sqrt() + eps)
            theta, m, v = multistep_adamw(theta, m, v, self.steps_per_epoch - 1, lr, *self.settings)
        return torch.stack((theta, m, v), dim=1)


class RowSGD:
    """With momentum and decoupled decay: m ← μm + g, θ ← (1−ηλ)θ − ηm (eq 6)."""

    kept = 2

    def __init__(
        self, schedule: Sequence[float], weight_decay: float, momentum: float, steps_per_epoch: int | None = None
    ):
        self.schedule, self.settings, self.steps_per_epoch = schedule, (weight_decay, momentum), steps_per_epoch
        self._lazy = LazySGD(schedule, *self.settings) if steps_per_epoch is None else None

    def catch_up(self, state_RSD: Tensor, since_R: Tensor, step: int) -> Tensor:
        if self._lazy is None:
            return state_RSD
        theta, m = state_RSD.unbind(1)
        return torch.stack(self._lazy.catch_up(theta, m, since_R, step), dim=1)

    def advance(self, state_RSD: Tensor, gradient_RD: Tensor, step: int) -> Tensor:
        theta, m = state_RSD.unbind(1)
        lr, (weight_decay, momentum) = self.schedule[step - 1], self.settings
        m = momentum * m + gradient_RD
        theta = (1 - lr * weight_decay) * theta - lr * m
        if self.steps_per_epoch is not None:
            theta, m = multistep_sgd(theta, m, self.steps_per_epoch - 1, lr, *self.settings)
        return torch.stack((theta, m), dim=1)
