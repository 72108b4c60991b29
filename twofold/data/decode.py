"""One image, a file or its bytes → uint8 [C, size, size]: C is 1 (grey) or 3 (colour).

`ItemSplit`, the readers, `data/decode_processes.py` and encoders that are given a file call this.

The shorter side becomes `size`, the middle of the longer one is kept. What is stored is what the network sees:
the store's size is the run's image_size, and random crops are cut out of that square.
"""

import hashlib
import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

# Formats that people keep images in. Others that Pillow knows (EPS, PDF, video) would run programs or hold no image.
PILLOW_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "DIB", "GIF", "TIFF", "PPM", "TGA", "JPEG2000", "AVIF", "MPO")
GREY_MODES = ("1", "L", "LA", "La", "I", "F")
END_BYTES = 4096
REDUCING_GAP = 2  # quick integer reduction goes down to this many times the target only; antialiasing does the rest


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
    return tuple(name for name in PILLOW_FORMATS if name in Image.OPEN)


@cache
def extensions() -> frozenset[str]:
    """File name endings of those formats, in lower case, with the dot."""
    return frozenset(ending for ending, name in Image.registered_extensions().items() if name in formats())


def read_header(file: Path | bytes) -> Header:
    """Size and kind of an image, without decoding it. Palette images count as coloured."""
    with _open_image(file) as image:
        return Header(min(image.size), is_grey(image))


def is_grey(image: Image.Image) -> bool:
    return image.mode in GREY_MODES or image.mode.startswith("I;16")


def inspect_file(path: Path) -> tuple[int, Header | str]:
    """`hash_of_ends` of a file, and its header or why it has none."""
    try:
        return hash_of_ends(path), read_header(path)
    except OSError as error:
        return 0, str(error.strerror)
    except Unreadable as error:
        return hash_of_ends(path), str(error)


def hash_of_ends(path: Path) -> int:
    """A hash of a file's first and last bytes: archives may give different files one name, size and time."""
    with path.open("rb") as file:
        first = file.read(END_BYTES)
        file.seek(max(os.fstat(file.fileno()).st_size - END_BYTES, 0))
        return int.from_bytes(hashlib.blake2b(first + file.read(END_BYTES), digest_size=8).digest(), "little")


def decode_image(file: Path | bytes, size: int, channels: int) -> np.ndarray:
    """The first frame of a file, upright, as uint8 [channels, size, size]."""
    with _open_image(file) as image:
        image.draft(None, (REDUCING_GAP * size, REDUCING_GAP * size))
        image.load()
        return crop_and_resize(image, size, channels)


def crop_and_resize(image: Image.Image, size: int, channels: int) -> np.ndarray:
    """The middle square of an image of any mode, upright and resized, as uint8 [channels, size, size]."""
    image = to_grey_or_rgb(image)
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    square = image.convert("L" if channels == 1 else "RGB").resize(
        (size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side), reducing_gap=REDUCING_GAP
    )
    return np.ascontiguousarray(np.asarray(square).reshape(size, size, channels).transpose(2, 0, 1))


def to_grey_or_rgb(image: Image.Image) -> Image.Image:
    """Upright, mode L or RGB; transparent parts show white."""
    return _to_8_bit(_apply_exif_rotation(image))


def crop_and_resize_array(pixels: np.ndarray, size: int, channels: int) -> np.ndarray:
    """The same of uint8 pixels [H, W, C]; where C is neither 1 nor 3, `channels` is C."""
    if pixels.shape[2] in (1, 3):
        return crop_and_resize(Image.fromarray(pixels.squeeze(2) if pixels.shape[2] == 1 else pixels), size, channels)
    planes = (Image.fromarray(np.ascontiguousarray(plane)) for plane in pixels.transpose(2, 0, 1))
    return np.concatenate([crop_and_resize(plane, size, 1) for plane in planes])


@contextmanager
def silence_pillow() -> Iterator[None]:
    """What Pillow warns of in a file (size, EXIF, palette) is either harmless or in the list of skipped files."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


@contextmanager
def _open_image(file: Path | bytes) -> Iterator[Image.Image]:
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


def _apply_exif_rotation(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # damaged EXIF raises errors of many types; the pixels are whole, and may lie as they do
        return image


def _to_8_bit(image: Image.Image) -> Image.Image:
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
