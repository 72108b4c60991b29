"""TIFF files with channels or pixel types that Pillow does not read: tifffile decodes them (extra `tiff`).

`decode.py` calls this module if `refuse_for_pillow` raises `NotForPillow`, or if Pillow does not know a TIFF file.
"""

import io
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from twofold.data.decode_options import DecodeOptions, PixelRange, Unreadable
from twofold.data.pixel_range import (
    SAMPLED_PIXELS,
    extremes_of_strip,
    limits_of_type,
    percentiles_of,
    scale_to_8_bit,
)
from twofold.errors import how_to_install

SIGNATURES = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
BITS, PHOTOMETRIC, CHANNELS, EXTRA, ORIENTATION = 258, 262, 277, 338, 274  # numbers of tags
GREY, RGB = (0, 1), (2,)  # values of PHOTOMETRIC
ALPHA = (1, 2)  # values of EXTRA
MOST_PAGES = 100_000
LARGE_VALUES = 2**24  # an image with more pixels times channels is reduced
COUNTED_CHANNELS = 4  # an image with more channels has a lower limit of pixels


class NotForPillow(Exception):
    """Pillow would not read all channels or all bits of this TIFF file."""


@dataclass(frozen=True)
class TiffHeader:
    width: int
    height: int
    channels: int
    bits: int
    pages: int


def is_tiff(file: Path | bytes) -> bool:
    """Whether the file starts as a TIFF file does."""
    if isinstance(file, bytes):
        return file.startswith(SIGNATURES)
    with file.open("rb") as opened:
        return opened.read(4) in SIGNATURES


def bits_of(image: Image.Image) -> int:
    """Return the number of bits of a channel."""
    if image.format == "TIFF":
        found = image.tag_v2.get(BITS, (1,))  # type: ignore[attr-defined]
        return int(max(found))
    return {"1": 1, "I": 16, "F": 32}.get(image.mode.partition(";")[0], 8)


def refuse_for_pillow(image: Image.Image, options: DecodeOptions) -> None:
    """Raise `NotForPillow` if the image has other channels than grey or RGB, or colours whose low bits matter.

    Pillow reads the upper 8 bits of 16-bit colours, which is exact for the range of the type.
    """
    if image.format != "TIFF":
        return
    tags = image.tag_v2  # type: ignore[attr-defined]
    kind = tags.get(PHOTOMETRIC)
    if kind not in (*GREY, *RGB):
        return
    colours = int(tags.get(CHANNELS, 1)) - sum(extra in ALPHA for extra in tags.get(EXTRA, ()))
    is_usual = colours == (1 if kind in GREY else 3)
    needs_bits = kind in RGB and bits_of(image) > 8 and options.pixel_range not in ("type", "auto", None)
    if not is_usual or needs_bits:
        raise NotForPillow


def read_tiff_header(file: Path | bytes) -> TiffHeader:
    """Return the facts of the first page."""
    with _opened(file) as tiff:
        page = tiff.pages[0]
        height, width, channels = _shape_of(page)
        return TiffHeader(width, height, channels, 8 * page.dtype.itemsize, len(tiff.pages))


def read_pixels(file: Path | bytes, page: int, options: DecodeOptions, limit: float, reduce_to: int) -> np.ndarray:
    """Decode a page into uint8 [H, W, C], without its alpha channels and upright.

    An image whose shorter side is more than `reduce_to` may be reduced by a whole number. If `options.pixel_range` is
    None, the pixels are not converted or reduced.
    """
    with _opened(file) as tiff:
        if page >= len(tiff.pages):
            raise Unreadable(f"the file has no page {page + 1}")
        found = tiff.pages[page]
        height, width, channels = _shape_of(found)
        refuse_many_pixels(width, height, channels, limit)
        values = found.asarray(maxworkers=1)
        values = np.moveaxis(values, 0, 2) if found.axes == "SYX" else values.reshape(height, width, -1)
        values = values[:, :, :channels]
        if options.pixel_range is None:
            return np.ascontiguousarray(values)
        return _upright(_as_uint8(values, options.pixel_range, reduce_to), found)


def refuse_many_pixels(width: int, height: int, channels: int, limit: float) -> None:
    """Refuse an image with too many pixels. The limit is lower for images of more than COUNTED_CHANNELS channels."""
    allowed = limit * min(1.0, COUNTED_CHANNELS / max(1, channels))
    if width * height > allowed:
        of = f" of {channels} channels" if channels > COUNTED_CHANNELS else ""
        raise Unreadable(f"{width} x {height} pixels{of}; the limit is {math.floor(allowed)} pixels (key pixel_limit)")


def _as_uint8(values: np.ndarray, pixel_range: PixelRange, reduce_to: int) -> np.ndarray:
    """Convert and reduce values [H, W, C] in strips."""
    height, width, channels = values.shape
    factor = max(1, min(height, width) // reduce_to) if height * width * channels > LARGE_VALUES else 1
    limits = [(0.0, 255.0)] * channels if values.dtype == np.uint8 else _limits(values, pixel_range)
    reduced = np.empty((height // factor, width // factor, channels), np.uint8)
    first, left = (height % factor) // 2, (width % factor) // 2
    rows = max(1, SAMPLED_PIXELS // (width * factor))
    for top in range(0, len(reduced), rows):
        below = min(top + rows, len(reduced))
        strip = values[first + top * factor : first + below * factor, left : left + reduced.shape[1] * factor]
        for channel in range(channels):
            plane = Image.fromarray(scale_to_8_bit(np.ascontiguousarray(strip[:, :, channel]), limits[channel]))
            reduced[top:below, :, channel] = np.asarray(plane.reduce(factor))
    return reduced


def _limits(values: np.ndarray, pixel_range: PixelRange) -> list[tuple[float, float]]:
    """Return the values of each channel that become 0 and 255. The three channels of a colour image have the same."""
    channels = values.shape[2]
    if pixel_range == "image":
        step = max(1, round((values.shape[0] * values.shape[1] / SAMPLED_PIXELS) ** 0.5))
        some = values[::step, ::step]
        if channels == 3:
            return [percentiles_of(some)] * 3
        return [percentiles_of(some[:, :, channel]) for channel in range(channels)]
    return [limits_of_type(extremes_of_strip(values), 8 * values.dtype.itemsize, pixel_range)] * channels


def _upright(pixels: np.ndarray, page: Any) -> np.ndarray:
    orientation = page.tags.valueof(ORIENTATION, 1)
    turned = {
        2: lambda: pixels[:, ::-1],
        3: lambda: pixels[::-1, ::-1],
        4: lambda: pixels[::-1],
        5: lambda: pixels.swapaxes(0, 1),
        6: lambda: np.rot90(pixels, -1),
        7: lambda: pixels[::-1, ::-1].swapaxes(0, 1),
        8: lambda: np.rot90(pixels),
    }
    return np.ascontiguousarray(turned[orientation]() if orientation in turned else pixels)


def _shape_of(page: Any) -> tuple[int, int, int]:
    """Return height, width and the number of channels without alpha."""
    if page.axes not in ("YX", "YXS", "SYX") or page.dtype is None or page.dtype.kind not in "uif":
        raise Unreadable(f"a TIFF page with the axes {page.axes} and the type {page.dtype} is not an image")
    if len(page.shape) != len(page.axes) or min(page.shape) < 1:
        raise Unreadable(f"a TIFF page of shape {page.shape} is not an image")
    sizes = dict(zip(page.axes, map(int, page.shape), strict=True))
    alphas = sum(int(extra) in ALPHA for extra in page.extrasamples or ())
    return sizes["Y"], sizes["X"], max(1, sizes.get("S", 1) - alphas)


@contextmanager
def _opened(file: Path | bytes) -> Iterator[Any]:
    """Open a file with tifffile. Its many types of errors for damaged files become Unreadable."""
    if not _is_installed():
        raise Unreadable(f"a TIFF file of several channels or of unusual pixels; to read it: {how_to_install('tiff')}")
    import tifffile

    try:
        with tifffile.TiffFile(io.BytesIO(file) if isinstance(file, bytes) else file) as tiff:
            if len(tiff.pages) > MOST_PAGES:
                raise Unreadable(f"{len(tiff.pages)} pages; the limit is {MOST_PAGES}")
            yield tiff
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(" ".join(str(error).split()) or type(error).__name__) from error


@cache
def _is_installed() -> bool:
    """Whether tifffile and imagecodecs are installed. Without imagecodecs, tifffile reads few compressed files."""
    try:
        import imagecodecs  # noqa: F401
        import tifffile
    except ImportError:
        return False
    logging.getLogger(tifffile.__name__).setLevel(logging.CRITICAL)  # a damaged file is among the skipped images
    return True
