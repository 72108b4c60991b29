"""Colour jitter for a CPU: the same pixels as `data/colour.py`, to the last bit, in a fraction of the time.

Samples with the same operation at the same position lie next to each other, so each operation changes a slice of the
batch in place. No operation chooses between two values for each pixel: `torch.where` is ten times as slow on a CPU as
arithmetic, because the processor cannot predict which value is chosen.

Images are float32 `[B, C, H, W]` from 0 to 1, and parameters are `[B]`.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from twofold.data.colour import LUMA


def jitter(images: Tensor, factors: Mapping[str, Tensor], order: Mapping[str, Tensor]) -> Tensor:
    """Return the same as `colour.jitter`, and compute for each sample only its own operations.

    Shapes depend on the data.
    """
    names = sorted(factors, key=lambda name: name != "hue")  # if two operations have the same value, hue comes first
    neutral = {name: 0.0 if name == "hue" else 1.0 for name in names}
    changes = torch.stack([factors[name] != neutral[name] for name in names])
    sequence = torch.stack([order[name] for name in names]).argsort(dim=0, stable=True)
    # The number of each sample's operation at each position. The last number is that of samples without a change.
    numbers = sequence.masked_fill_(~changes.gather(0, sequence), len(names))
    x, place = images, torch.arange(len(images))  # place: where each sample is in x
    for position, number in enumerate(numbers):
        sample = number.argsort(stable=True)
        x = x.index_select(0, place.index_select(0, sample))
        place = torch.empty_like(sample).index_copy_(0, sample, torch.arange(len(sample)))
        sizes = number.bincount(minlength=len(names) + 1).tolist()
        for name, part, samples in zip([*names, None], x.split(sizes), sample.split(sizes), strict=True):
            # As in `colour.jitter`, the first operation gets pixels that are not clamped, unless it is hue. The hue of
            # clamped pixels does not leave their range.
            if position == 0 and (name is None or name == "hue") and names != ["hue"]:
                part.clamp_(0, 1)
            if len(part) and name is not None:
                apply(name, part, factors[name].index_select(0, samples))
    return x.index_select(0, place)


def apply(name: str, part: Tensor, factor: Tensor) -> None:
    """Change images in place by one operation. Only hue does not clamp them."""
    if name == "hue":
        turn_hue_(part, factor)
    else:
        torch.lerp(blended_with(name, part), part, factor.view(-1, 1, 1, 1), out=part).clamp_(0, 1)


def blended_with(name: str, x: Tensor) -> Tensor:
    """Return what an operation blends with: black for brightness, the mean grey for contrast, or the grey image.

    The last two dimensions have all their values, because `torch.lerp` is slow if it repeats two of its arguments.
    """
    if name == "brightness":
        return x.new_zeros(1, 1, *x.shape[2:])
    grey = luma(x)
    return grey if name == "saturation" else grey.copy_(grey.mean(3, keepdim=True).mean(2, keepdim=True))


def luma(images: Tensor) -> Tensor:
    """Return the same as `colour.luma`."""
    if images.shape[1] != len(LUMA):
        return images.mean(1, keepdim=True)
    red, green, blue = images.split(1, dim=1)
    part = green * LUMA[1]
    grey = torch.mul(red, LUMA[0]).add_(part)
    return grey.add_(torch.mul(blue, LUMA[2], out=part))


def turn_hue_(images: Tensor, turn: Tensor) -> None:
    """Change images in place to `colour.turn_hue`.

    Masks are numbers, 0 or 1, and `torch.lerp` with such a weight returns one of its arguments exactly.
    """
    red, green, blue = images.split(1, dim=1)
    value = torch.maximum(red, green)
    torch.maximum(value, blue, out=value)
    chroma = torch.minimum(red, green)
    torch.minimum(chroma, blue, out=chroma)
    torch.sub(value, chroma, out=chroma)
    less_red, less_green = (value - red).sign_(), (value - green).sign_()  # 1 where the channel is not the maximum
    difference = torch.lerp(blue - red, red - green, less_green)
    hue = torch.lerp(green - blue, difference, less_red)
    # Where the chroma is 0, so is the difference. Other chromas are larger than this minimum.
    hue.div_(torch.clamp(chroma, min=torch.finfo(chroma.dtype).tiny, out=difference))
    corner = less_green.add_(1).mul_(less_red)  # half of 0, 2 or 4
    hue.add_(corner, alpha=2).add_(6 * turn.view(-1, 1, 1, 1))
    for channel, offset in zip((red, green, blue), (5, 3, 1), strict=True):
        # The remainder by 6: the product with 6 is exact, and the addition is that of torch.remainder.
        k = torch.add(hue, offset, out=less_red)
        k.add_(torch.div(k, 6, out=less_green).floor_(), alpha=-6)
        share = torch.minimum(k, torch.sub(4, k, out=less_green), out=k).clamp_(0, 1)
        torch.sub(value, share.mul_(chroma), out=channel)
