"""Heads between the encoder and the objective."""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from twofold.linalg import full_precision, normalized
from twofold.models.norm import BatchNorm


def mlp(
    inputs: int,
    widths: tuple[int, ...],
    *,
    norm: bool = True,
    last_norm: bool = False,
    last_scale: bool = False,
    activation: Callable[[], nn.Module] | None = None,
) -> nn.Sequential:
    """Linear layers with BatchNorm (if `norm`) between, and ReLU or another activation.

    The last layer is plain, or has BatchNorm, with a scale if `last_scale`.
    """
    sizes = (inputs, *widths)
    layers: list[nn.Module] = []
    for number, (before, after) in enumerate(pairwise(sizes), start=1):
        last = number == len(widths)
        normed = last_norm if last else norm
        # A bias before BatchNorm is subtracted again by it.
        layers.append(nn.Linear(before, after, bias=not normed))
        if normed:
            layers.append(BatchNorm(after, affine=last_scale or not last, relu=not last and activation is None))
        if not last and (activation is not None or not normed):
            layers.append(activation() if activation is not None else nn.ReLU(inplace=True))
    return nn.Sequential(*layers)


def small_weights(layer: nn.Module) -> None:
    """For heads without BatchNorm (DINO): no bias at first, which would be the same for every image."""
    if isinstance(layer, nn.Linear):
        nn.init.trunc_normal_(layer.weight, std=0.02)
        nn.init.zeros_(layer.bias)


class Unit(nn.Module):
    """Rows of unit length, in float32 or better."""

    treats_samples_apart = True

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        return normalized(x)


class Prototypes(nn.Module):
    """Directions that embeddings are compared with: cosines [..., P] with each of them (SwAV, DINO)."""

    def __init__(self, dim: int, count: int):
        super().__init__()
        self.weight = nn.Parameter(normalized(torch.randn(count, dim)))

    @full_precision
    def forward(self, z: Tensor, frozen: Tensor | None = None) -> Tensor:
        """`frozen`, a bool [], sends the prototypes no gradient; their lengths, which decay changes, do not matter."""
        weight = self.weight if frozen is None else torch.where(frozen, self.weight.detach(), self.weight)
        return normalized(z) @ normalized(weight).T
