"""Colour operations of `data/augment.py` on a batch, with separate parameters for each sample.

Images are float32 `[B, C, H, W]` from 0 to 1, and parameters are `[B]`. Saturation, hue and grayscale need red, green
and blue channels. For another number of channels, only brightness and contrast exist, and grey is the mean over the
channels.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)


def luma(images: Tensor) -> Tensor:
    """Return the grey image `[B, 1, H, W]`. RGB images are weighted as in Pillow's mode "L"."""
    if images.shape[1] != len(LUMA):
        return images.mean(1, keepdim=True)
    red, green, blue = images.split(1, dim=1)
    return LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue


def turn_hue(images: Tensor, turn: Tensor) -> Tensor:
    """Rotate the hue of HSV by `turn`, in units of a full circle. Value and saturation do not change."""
    red, green, blue = images.split(1, dim=1)
    value = images.amax(1, keepdim=True)
    chroma = value - images.amin(1, keepdim=True)
    most_red, most_green = value == red, value == green
    difference = torch.where(most_red, green - blue, torch.where(most_green, blue - red, red - green))
    corner = torch.where(most_red, 0.0, torch.where(most_green, 2.0, 4.0))
    hue = corner + difference / torch.where(chroma > 0, chroma, 1.0) + 6 * turn.view(-1, 1, 1, 1)
    # A channel is at its maximum within 1/6 of a circle around its own hue. The offsets 5, 3, 1 of red, green and blue
    # align these maxima.
    channel = torch.arange(5, 0, -2, device=images.device).view(1, 3, 1, 1)
    k = torch.remainder(channel + hue, 6)
    return value - chroma * torch.minimum(k, 4 - k).clamp(0, 1)


def jitter(images: Tensor, factors: Mapping[str, Tensor], order: Mapping[str, Tensor]) -> Tensor:
    """Change brightness, contrast, saturation and hue, in a separate order for each sample.

    Parameters
    ----------
    images
        float32 `[B, 3, H, W]`, or any number of channels if `factors` contains only brightness and contrast.
    factors
        The factor `[B]` of each operation by its name; 1 changes nothing. For hue, it is a rotation in units of a full
        circle; 0 changes nothing. Operations that are missing here are skipped.
    order
        A value `[B]` for each operation. In each sample, the operation with the smallest value comes first.
    """
    blends = {name: factor for name, factor in factors.items() if name != "hue"}
    if "hue" not in factors:
        return _blend_all(images, blends, order)
    # Hue is the slowest operation, and its rank differs between samples. To compute it once, first apply the operations
    # that precede it in each sample, then hue, then the others.
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
    """Return clamp(f·x + (1-f)·other). For each sample, `here` selects the operation, and with it `other`.

    `other` is black for brightness, the mean grey for contrast, and the grey image for saturation.
    """
    factor = torch.ones_like(next(iter(factors.values())))
    for name, value in factors.items():
        factor = torch.where(here[name], value, factor)
    other = torch.zeros_like(factor)
    if "contrast" in factors or "saturation" in factors:
        grey = luma(x)
        if "contrast" in factors:
            # Sum over rows first: if the batch is a single image, torch may split one sum over all pixels between
            # threads, and the result would depend on the batch size.
            other = torch.where(here["contrast"], grey.mean(3, keepdim=True).mean(2, keepdim=True), other)
        if "saturation" in factors:
            other = torch.where(here["saturation"], grey, other)
    # lerp returns x exactly, to the last bit, where the factor is 1.
    return torch.lerp(other, x, factor).clamp(0, 1)


def _ranks(order: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the rank of each operation in its sample. For equal values, the operation that is named first wins."""
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


def grayscale(images: Tensor) -> Tensor:
    """Return the grey images, with three equal channels."""
    return luma(images).expand_as(images)


def solarize(images: Tensor, apply: Tensor) -> Tensor:
    """Invert all pixels of at least 0.5 in the images where `apply` `[B]` is true."""
    return torch.where(apply.view(-1, 1, 1, 1) & (images >= 0.5), 1 - images, images)
