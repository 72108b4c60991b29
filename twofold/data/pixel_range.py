"""Convert images of more than 8 bits for each pixel to 8 bits.

`decode.py` and `tiff.py` convert each image with these functions, and the readers choose the range of all images of a
source from a sample of them (`choose_range`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from PIL import Image

from twofold.data.decode_options import PixelRange, Unreadable

PERCENTILES = (0.1, 99.9)  # of the pixels of an image become black and white with pixel_range=image
SAMPLED_PIXELS = 2**20  # of one image, for its percentiles
COMMON_BITS = (8, 10, 12, 14)  # of cameras whose files have 16 bits
HINT = "set pixel_range=LOW,HIGH to the values of black and white"


@dataclass(frozen=True)
class Extremes:
    """The smallest and the largest value of an image."""

    low: float
    high: float
    is_float: bool


def is_deep(image: Image.Image) -> bool:
    """Whether an image has one channel of more than 8 bits."""
    return image.mode.startswith("I") or image.mode == "F"


def to_8_bit(image: Image.Image, limits: tuple[float, float]) -> Image.Image:
    """Convert an image for which `is_deep` is true to mode L."""
    return Image.fromarray(scale_to_8_bit(np.asarray(image), limits))


def scale_to_8_bit(values: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    """Map the limits to 0 and 255, and values outside them to the nearer one. NaN becomes 0."""
    low, high = limits
    # float64 is exact for 32-bit integers, and float32 for smaller ones.
    wide: np.ndarray = values.astype("f8" if values.dtype.itemsize > 2 else "f4")
    return np.nan_to_num(np.rint(((wide - low) * (255 / (high - low))).clip(0, 255)), nan=0).astype(np.uint8)


def limits_of(image: Image.Image, bits: int, pixel_range: PixelRange) -> tuple[float, float]:
    """Return the values of an image that become 0 and 255."""
    if pixel_range == "image":
        step = max(1, round((image.width * image.height / SAMPLED_PIXELS) ** 0.5))
        small = (max(1, image.width // step), max(1, image.height // step))
        return percentiles_of(np.asarray(image if step == 1 else image.resize(small, Image.Resampling.NEAREST)))
    return limits_of_type(extremes_of(image), bits, pixel_range)


def percentiles_of(values: np.ndarray) -> tuple[float, float]:
    """Return PERCENTILES of the values, at least 1e-6 apart."""
    finite = values[np.isfinite(values)]
    low, high = np.percentile(finite, PERCENTILES).tolist() if finite.size else (0.0, 1.0)
    return low, max(high, low + 1e-6)


def extremes_of(image: Image.Image) -> Extremes:
    """Return the extremes of an image. Of a large image, Pillow computes them without a copy."""
    if image.mode == "F":
        values = np.asarray(image)  # Pillow's getextrema ignores NaN
        return Extremes(float(values.min()), float(values.max()), is_float=True)
    found = [extremes_of_strip(np.asarray(strip)) for strip in _strips(image)]
    return Extremes(min(each.low for each in found), max(each.high for each in found), is_float=False)


def extremes_of_strip(values: np.ndarray) -> Extremes:
    return Extremes(float(values.min()), float(values.max()), values.dtype.kind == "f")


def _strips(image: Image.Image) -> Iterable[Image.Image]:
    rows = max(1, SAMPLED_PIXELS // image.width)
    for top in range(0, image.height, rows):
        yield image.crop((0, top, image.width, min(top + rows, image.height)))


def limits_of_type(found: Extremes, bits: int, pixel_range: PixelRange) -> tuple[float, float]:
    """Return the given limits, or those of the type: 0 to 1 for floats, 0 to 65535 for integers of 16 or more bits."""
    if isinstance(pixel_range, tuple):
        return pixel_range
    high = 1.0 if found.is_float else 2.0 ** min(bits, 16) - 1
    if not (found.low >= 0 and found.high <= high):  # also true for NaN
        kind = "float" if found.is_float else "integer"
        raise Unreadable(
            f"{kind} pixels from {found.low:g} to {found.high:g}, but only 0 to {high:g} is supported; {HINT}"
        )
    return 0.0, high


def choose_range(found: Iterable[Extremes]) -> PixelRange:
    """Return the range of a camera of fewer than 16 bits if all images are within it, otherwise `type`."""
    every = list(found)
    if not every or any(each.is_float or each.low < 0 for each in every):
        return "type"
    highest = max(each.high for each in every)
    return next(((0.0, 2.0**bits - 1) for bits in COMMON_BITS if highest < 2**bits), "type")
