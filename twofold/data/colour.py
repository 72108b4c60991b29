"""Colour of a batch in which every sample has parameters of its own: what `data/augment.py` does to colours.

Images are float32 `[B, C, H, W]` from 0 to 1, parameters `[B]`. Saturation, hue and dropping colour need red, green and
blue; with another number of channels there are only brightness and contrast, and grey is the mean over channels.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)


def luma(images: Tensor) -> Tensor:
    """Grey `[B, 1, H, W]`; of colour images as Pillow's "L"."""
    if images.shape[1] != len(LUMA):
        return images.mean(1, keepdim=True)
    red, green, blue = images.split(1, dim=1)
    return LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue


def turn_hue(images: Tensor, turn: Tensor) -> Tensor:
    """Turn the hue of HSV by `turn` of a full circle; value and saturation stay."""
    red, green, blue = images.split(1, dim=1)
    value = images.amax(1, keepdim=True)
    chroma = value - images.amin(1, keepdim=True)
    most_red, most_green = value == red, value == green
    difference = torch.where(most_red, green - blue, torch.where(most_green, blue - red, red - green))
    corner = torch.where(most_red, 0.0, torch.where(most_green, 2.0, 4.0))
    hue = corner + difference / torch.where(chroma > 0, chroma, 1.0) + 6 * turn.view(-1, 1, 1, 1)
    # A channel is at its top within 1/6 of a circle of its own hue, and 5, 3, 1 bring red, green, blue to that place.
    channel = torch.arange(5, 0, -2, device=images.device).view(1, 3, 1, 1)
    k = torch.remainder(channel + hue, 6)
    return value - chroma * torch.minimum(k, 4 - k).clamp(0, 1)


def jitter(images: Tensor, factors: Mapping[str, Tensor], order: Mapping[str, Tensor]) -> Tensor:
    """Change brightness, contrast, saturation (factors; 1: no change) and hue (part of a circle; 0: no change).

    Only what `factors` names is done, for each sample from the least to the largest value of `order`.
    """
    blends = {name: factor for name, factor in factors.items() if name != "hue"}
    if "hue" not in factors:
        return _blend_all(images, blends, order)
    # Hue takes the most time, and its place among the rest differs by sample. It is computed once: first what comes
    # before it in each sample, then hue, then the others.
    early = {name: order[name] < order["hue"] for name in blends}
    before = {name: torch.where(early[name], factor, 1.0) for name, factor in blends.items()}
    after = {name: torch.where(early[name], 1.0, factor) for name, factor in blends.items()}
    x = _blend_all(images, before, order)
    x = torch.where((factors["hue"] != 0).view(-1, 1, 1, 1), turn_hue(x, factors["hue"]), x)
    return _blend_all(x, after, order)


def _blend_all(images: Tensor, factors: Mapping[str, Tensor], order: Mapping[str, Tensor]) -> Tensor:
    x = images
    rank = _ranks({name: order[name] for name in factors})
    for slot in range(len(factors)):
        here = {name: (rank[name] == slot).view(-1, 1, 1, 1) for name in factors}
        x = _blend(x, {name: factor.view(-1, 1, 1, 1) for name, factor in factors.items()}, here)
    return x


def _blend(x: Tensor, factors: Mapping[str, Tensor], here: Mapping[str, Tensor]) -> Tensor:
    """clamp(f·x + (1-f)·other), `other` black, the mean grey, or the grey image, as `here` says for each sample."""
    factor = torch.ones_like(next(iter(factors.values())))
    for name, value in factors.items():
        factor = torch.where(here[name], value, factor)
    other = torch.zeros_like(factor)
    if "contrast" in factors or "saturation" in factors:
        grey = luma(x)
        if "contrast" in factors:
            # Rows first: a sum over one whole image may be split between threads when the batch is that image alone.
            other = torch.where(here["contrast"], grey.mean(3, keepdim=True).mean(2, keepdim=True), other)
        if "saturation" in factors:
            other = torch.where(here["saturation"], grey, other)
    # lerp, since it leaves x as it is, to the last bit, where the factor is 1.
    return torch.lerp(other, x, factor).clamp(0, 1)


def _ranks(order: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """How many come before each; of two equal values the first named comes first."""
    names = list(order)
    return {
        name: sum(
            (
                (order[other] <= order[name] if j < i else order[other] < order[name]).to(torch.int32)
                for j, other in enumerate(names)
            ),
            start=torch.zeros((), dtype=torch.int32, device=order[name].device),
        )
        for i, name in enumerate(names)
    }


def grayscale(images: Tensor, apply: Tensor) -> Tensor:
    """Colour images where `apply` `[B]`, as three equal channels."""
    return torch.where(apply.view(-1, 1, 1, 1), luma(images), images)


def solarize(images: Tensor, apply: Tensor) -> Tensor:
    """Invert the pixels of one half and brighter, where `apply` `[B]`."""
    return torch.where(apply.view(-1, 1, 1, 1) & (images >= 0.5), 1 - images, images)
