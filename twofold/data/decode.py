"""One image, a file or its bytes → uint8 [C, size, size]: C is 1 (grey) or 3 (colour).

The shorter side becomes `size`, the middle of the longer one is kept. What is stored is what the network sees:
the store's size is the run's image_size, and random crops are cut out of that square.
"""

import hashlib
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

# Formats that people keep images in. Others that Pillow knows (EPS, PDF, video) would run programs or hold no image.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "DIB", "GIF", "TIFF", "PPM", "TGA", "JPEG2000", "AVIF", "MPO")
GREY_MODES = ("1", "L", "LA", "La", "I", "F")
ENDS = 4096
GAP = 2  # quick integer reduction goes down to GAP times the target only; the rest is resampled with antialiasing


class Unreadable(Exception):
    """Why a file gives no image, in one line and without its name."""


@dataclass(frozen=True)
class Header:
    side: int  # the shorter one, in pixels
    grey: bool


@cache
def formats() -> tuple[str, ...]:
    """The formats that this build of Pillow can open."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


@cache
def extensions() -> frozenset[str]:
    """File name endings of those formats, in lower case, with the dot."""
    return frozenset(ending for ending, name in Image.registered_extensions().items() if name in formats())


def read_header(file: Path | bytes) -> Header:
    """Size and kind of an image, without decoding it. Palette images count as coloured."""
    with _opened(file) as image:
        return Header(min(image.size), image.mode in GREY_MODES or image.mode.startswith("I;16"))


def look(path: Path) -> tuple[int, Header | str]:
    """`ends_of` a file, and its header, or why it has none."""
    try:
        return ends_of(path), read_header(path)
    except OSError as error:
        return 0, str(error.strerror)
    except Unreadable as error:
        return ends_of(path), str(error)


def ends_of(path: Path) -> int:
    """A hash of a file's first and last bytes: archives may give different files one name, size and time."""
    with path.open("rb") as file:
        first = file.read(ENDS)
        file.seek(max(os.fstat(file.fileno()).st_size - ENDS, 0))
        return int.from_bytes(hashlib.blake2b(first + file.read(ENDS), digest_size=8).digest(), "little")


def decode(file: Path | bytes, size: int, channels: int) -> np.ndarray:
    """The first frame of a file, upright, as uint8 [channels, size, size]."""
    with _opened(file) as image:
        image.draft(None, (GAP * size, GAP * size))
        image.load()
        return fit(image, size, channels)


def fit(image: Image.Image, size: int, channels: int) -> np.ndarray:
    """The middle square of an image of any mode, upright, as uint8 [channels, size, size]."""
    image = plain(image)
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    square = image.convert("L" if channels == 1 else "RGB").resize(
        (size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side), reducing_gap=GAP
    )
    return np.ascontiguousarray(np.asarray(square).reshape(size, size, channels).transpose(2, 0, 1))


def plain(image: Image.Image) -> Image.Image:
    """Upright, mode L or RGB; transparent parts show white."""
    return _eight_bit(_upright(image))


def fit_array(pixels: np.ndarray, size: int, channels: int) -> np.ndarray:
    """The same of uint8 pixels [H, W, C]; where C is neither 1 nor 3, `channels` is C."""
    if pixels.shape[2] in (1, 3):
        return fit(Image.fromarray(pixels.squeeze(2) if pixels.shape[2] == 1 else pixels), size, channels)
    planes = (Image.fromarray(np.ascontiguousarray(plane)) for plane in pixels.transpose(2, 0, 1))
    return np.concatenate([fit(plane, size, 1) for plane in planes])


@contextmanager
def _opened(file: Path | bytes) -> Iterator[Image.Image]:
    """Pillow reports broken files with errors of many types; a file either works or is Unreadable."""
    try:
        if (len(file) if isinstance(file, bytes) else file.stat().st_size) == 0:
            raise Unreadable("empty file")
        with Image.open(io.BytesIO(file) if isinstance(file, bytes) else file, formats=formats()) as image:
            limit = Image.MAX_IMAGE_PIXELS
            if limit is not None and image.width * image.height > limit:
                raise Unreadable(f"{image.width} x {image.height} pixels are more than the {limit} allowed")
            yield image
    except Unreadable:
        raise
    except UnidentifiedImageError:
        raise Unreadable("not an image that Pillow can read") from None
    except Exception as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Unreadable(" ".join(text.split()) or type(error).__name__) from error


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # damaged EXIF raises errors of many types; the pixels are whole, and may lie as they do
        return image


def _eight_bit(image: Image.Image) -> Image.Image:
    """Mode L or RGB; transparent parts show white."""
    if image.mode.startswith("I"):
        wide = np.asarray(image).astype(np.int32)
        if not (wide.min() >= 0 and wide.max() <= 65535):
            raise Unreadable(f"whole numbers from {wide.min()} to {wide.max()}, and only 0 to 65535 is understood")
        return Image.fromarray(((wide + 128) // 257).astype(np.uint8))
    if image.mode == "F":
        unit = np.asarray(image)
        if not (unit.min() >= 0 and unit.max() <= 1):  # also false for NaN
            raise Unreadable(f"float pixels from {unit.min():g} to {unit.max():g}, and only 0 to 1 is understood")
        return Image.fromarray(np.rint(unit * 255).astype(np.uint8))
    if image.has_transparency_data:
        paper = Image.new("RGBA", image.size, "white")
        paper.alpha_composite(image.convert("RGBA"))
        return paper.convert("RGB")
    return image if image.mode in ("L", "RGB") else image.convert("RGB")
