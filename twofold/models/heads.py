"""Heads between the encoder and the objective."""

from itertools import pairwise

from torch import nn

from twofold.models.norm import BatchNorm


def mlp(inputs: int, widths: tuple[int, ...], *, last_norm: bool = False) -> nn.Sequential:
    """Linear layers with BatchNorm and ReLU between them; the last is plain, or followed by BatchNorm without scale."""
    sizes = (inputs, *widths)
    layers: list[nn.Module] = []
    for number, (before, after) in enumerate(pairwise(sizes), start=1):
        last = number == len(widths)
        # A bias before BatchNorm is subtracted again by it.
        layers.append(nn.Linear(before, after, bias=last and not last_norm))
        if not last:
            layers.append(BatchNorm(after, relu=True))
        elif last_norm:
            layers.append(BatchNorm(after, affine=False))
    return nn.Sequential(*layers)
