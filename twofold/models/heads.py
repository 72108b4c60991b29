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
    """A multilayer perceptron: linear layers with an activation and, optionally, BatchNorm between them.

    Parameters
    ----------
    inputs : int
        Dimension of the input.
    widths : tuple of int
        Output dimension of each linear layer.
    norm : bool
        Whether BatchNorm follows every layer except the last.
    last_norm : bool
        Whether BatchNorm follows the last layer.
    last_scale : bool
        Whether the last BatchNorm has a trained scale and shift.
    activation : callable, optional
        Returns the activation module between layers. Default: ReLU.

    Returns
    -------
    nn.Sequential
        Maps [N, inputs] to [N, widths[-1]].
    """
    sizes = (inputs, *widths)
    layers: list[nn.Module] = []
    for number, (before, after) in enumerate(pairwise(sizes), start=1):
        last = number == len(widths)
        normed = last_norm if last else norm
        # BatchNorm would subtract a bias before it.
        layers.append(nn.Linear(before, after, bias=not normed))
        if normed:
            layers.append(BatchNorm(after, affine=last_scale or not last, relu=not last and activation is None))
        if not last and (activation is not None or not normed):
            layers.append(activation() if activation is not None else nn.ReLU(inplace=True))
    return nn.Sequential(*layers)


def small_weights(layer: nn.Module) -> None:
    """Initialise a linear layer of a head without BatchNorm (DINO): small weights and no bias.

    An initial bias would add the same vector to the embedding of every image.
    """
    if isinstance(layer, nn.Linear):
        nn.init.trunc_normal_(layer.weight, std=0.02)
        nn.init.zeros_(layer.bias)


class Unit(nn.Module):
    """Scale rows to unit length, in float32 or better."""

    treats_samples_apart = True

    @full_precision
    def forward(self, x: Tensor) -> Tensor:
        return normalized(x)


class Prototypes(nn.Module):
    """P trained directions, the prototypes of SwAV and DINO. Maps embeddings z[..., D] to their cosines [..., P]."""

    def __init__(self, dim: int, count: int):
        super().__init__()
        self.weight = nn.Parameter(normalized(torch.randn(count, dim)))

    @full_precision
    def forward(self, z: Tensor, frozen: Tensor | None = None) -> Tensor:
        """Return the cosines [..., P]. If `frozen` (a bool tensor []) is true, the prototypes get no gradient.

        Weight decay may change the lengths of the prototypes, but the cosines do not depend on these lengths.
        """
        weight = self.weight if frozen is None else torch.where(frozen, self.weight.detach(), self.weight)
        return normalized(z) @ normalized(weight).T
