"""Optimizers for the rows of the per-image classifier, in the steps that use a row and in those that do not.

A row is caught up over the steps in between when it is next used. With `steps_per_epoch`, a row instead moves ahead by
one epoch with each use, without bias correction and at the current learning rate, as in S-DIET, listing 1.

Shapes: R rows, S tensors stored for each (weights, then moments), D dimensions. Step j = 1, 2, … has the learning rate
schedule[j−1].
"""

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from twofold.models.sample_head.multistep import (
    LazyAdamW,
    LazySGD,
    host_sqrt,
    multistep_adamw,
    multistep_sgd,
    row_blocks,
)


class RowOptimizer(Protocol):
    kept: int  # S

    def lag(self, since_R: Tensor, step: int) -> Tensor:
        """The coefficients that `catch_up` needs to bring rows from steps `since` to `step`: float64 [R, …], on CPU."""
        ...

    def catch_up(self, state_RSD: Tensor, lag: Tensor) -> None:
        """Catch rows up in place, without gradients in between; `lag` is on the same device."""
        ...

    def advance(self, state_RSD: Tensor, gradient_RD: Tensor, step: int) -> None:
        """Make step number `step` with rows, in place."""
        ...


class RowAdamW:
    """AdamW; stores θ, m and v of each row."""

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

    def lag(self, since_R: Tensor, step: int) -> Tensor:
        return torch.empty(len(since_R), 0) if self._lazy is None else self._lazy.lag(since_R, step)

    def catch_up(self, state_RSD: Tensor, lag: Tensor) -> None:
        if self._lazy is not None:
            theta, m, v = state_RSD.unbind(1)
            self._lazy.move(theta, m, v, lag)

    def advance(self, state_RSD: Tensor, gradient_RD: Tensor, step: int) -> None:
        lr, (weight_decay, (beta1, beta2), eps) = self.schedule[step - 1], self.settings
        unbiased, rate = (
            (math.sqrt(1 - beta2**step), lr / (1 - beta1**step)) if self.steps_per_epoch is None else (1.0, lr)
        )
        for block in row_blocks(gradient_RD):
            (theta, m, v), gradient = state_RSD[block].unbind(1), gradient_RD[block]
            m.mul_(beta1).add_(gradient, alpha=1 - beta1)
            v.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            scale = host_sqrt(v).div_(unbiased).add_(eps)
            theta.mul_(1 - lr * weight_decay).addcdiv_(m, scale, value=-rate)
            if self.steps_per_epoch is not None:
                ahead = multistep_adamw(theta, m, v, self.steps_per_epoch - 1, lr, *self.settings)
                state_RSD[block] = torch.stack(ahead, dim=1)


class RowSGD:
    """SGD with momentum and decoupled decay: m ← μm + g, θ ← (1−ηλ)θ − ηm (S-DIET eq 6)."""

    kept = 2

    def __init__(
        self, schedule: Sequence[float], weight_decay: float, momentum: float, steps_per_epoch: int | None = None
    ):
        self.schedule, self.settings, self.steps_per_epoch = schedule, (weight_decay, momentum), steps_per_epoch
        self._lazy = LazySGD(schedule, *self.settings) if steps_per_epoch is None else None

    def lag(self, since_R: Tensor, step: int) -> Tensor:
        return torch.empty(len(since_R), 0) if self._lazy is None else self._lazy.lag(since_R, step)

    def catch_up(self, state_RSD: Tensor, lag: Tensor) -> None:
        if self._lazy is not None:
            theta, m = state_RSD.unbind(1)
            self._lazy.move(theta, m, lag)

    def advance(self, state_RSD: Tensor, gradient_RD: Tensor, step: int) -> None:
        lr, (weight_decay, momentum) = self.schedule[step - 1], self.settings
        for block in row_blocks(gradient_RD):
            theta, m = state_RSD[block].unbind(1)
            m.mul_(momentum).add_(gradient_RD[block])
            theta.mul_(1 - lr * weight_decay).sub_(m, alpha=lr)
            if self.steps_per_epoch is not None:
                ahead = multistep_sgd(theta, m, self.steps_per_epoch - 1, lr, *self.settings)
                state_RSD[block] = torch.stack(ahead, dim=1)
