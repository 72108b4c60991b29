"""State that outlives a step and is moved only by its `update`."""

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn


class Teacher(nn.Module):
    """An exponential moving average of a network (BYOL, MoCo, DINO): θ̄ ← τ θ̄ + (1−τ) θ.

    It has BatchNorm statistics of its own, from its own forward passes, and is never trained by gradients.
    """

    treats_samples_apart = True  # if its network does

    def __init__(self, student: nn.Module):
        super().__init__()
        self.network = copy.deepcopy(student).requires_grad_(False)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)

    @torch.no_grad()
    def update(self, student: Iterable[Tensor], momentum: Tensor) -> None:
        """`student` are the parameters of the network that was copied, in its order."""
        mine: list[Tensor] = list(self.network.parameters())
        steps = list(torch._foreach_sub(list(student), mine))
        torch._foreach_mul_(steps, 1 - momentum)
        torch._foreach_add_(mine, steps)
