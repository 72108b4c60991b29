"""Decode one image, from a file or from bytes, into uint8 [C, size, size], where C is 1 (grey) or 3 (RGB).

`ItemSplit`, the readers, `data/parallel.py` and encoders that receive a file use this module.

The shorter side is resized to `size`, and the middle of the longer side is kept. A run stores the resulting squares, in
the size `image_size`, and takes random crops from them.
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

# The image formats that Twofold reads. Pillow supports others (EPS, PDF, video) that run programs or contain no images.
PILLOW_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "DIB", "GIF", "TIFF", "PPM", "TGA", "JPEG2000", "AVIF", "MPO")
GREY_MODES = ("1", "L", "LA", "La", "I", "F")
END_BYTES = 4096
REDUCING_GAP = 2  # a fast integer reduction goes down to 2 times the target size; antialiased resizing does the rest


class Unreadable(Exception):
    """The reason why a file cannot be read as an image, in one line and without the name of the file."""


@dataclass(frozen=True)
class Header:
    side: int  # the shorter one, in pixels
    grey: bool


@cache
def formats() -> tuple[str, ...]:
    """Return the formats that the installed Pillow can open."""
    Image.init()
    return tuple(name for name in PILLOW_FORMATS if name in Image.OPEN)


@cache
def extensions() -> frozenset[str]:
    """Return the file extensions of those formats, in lower case, with the dot."""
    return frozenset(ending for ending, name in Image.registered_extensions().items() if name in formats())


def read_header(file: Path | bytes) -> Header:
    """Return size and kind of an image without decoding it. Palette images count as colour images."""
    with _open_image(file) as image:
        return Header(min(image.size), is_grey(image))


def is_grey(image: Image.Image) -> bool:
    return image.mode in GREY_MODES or image.mode.startswith("I;16")


def inspect_file(path: Path) -> tuple[int, Header | str]:
    """Return `hash_of_ends` of a file, and its header or the reason why it cannot be read."""
    try:
        return hash_of_ends(path), read_header(path)
    except OSError as error:
        return 0, str(error.strerror)
    except Unreadable as error:
        return hash_of_ends(path), str(error)


def hash_of_ends(path: Path) -> int:
    """Hash the first and last bytes of a file, because different files can have the same name, size and time."""
    with path.open("rb") as file:
        first = file.read(END_BYTES)
        file.seek(max(os.fstat(file.fileno()).st_size - END_BYTES, 0))
        return int.from_bytes(hashlib.blake2b(first + file.read(END_BYTES), digest_size=8).digest(), "little")


def decode_image(file: Path | bytes, size: int, channels: int) -> np.ndarray:
    """Decode the first frame of a file, with the EXIF rotation applied, into uint8 [channels, size, size]."""
    with _open_image(file) as image:
        image.draft(None, (REDUCING_GAP * size, REDUCING_GAP * size))
        image.load()
        return crop_and_resize(image, size, channels)


def crop_and_resize(image: Image.Image, size: int, channels: int) -> np.ndarray:
    """Apply the EXIF rotation, crop the middle square and resize it, into uint8 [channels, size, size]."""
    image = to_grey_or_rgb(image)
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    square = image.convert("L" if channels == 1 else "RGB").resize(
        (size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side), reducing_gap=REDUCING_GAP
    )
    return np.ascontiguousarray(np.asarray(square).reshape(size, size, channels).transpose(2, 0, 1))


def to_grey_or_rgb(image: Image.Image) -> Image.Image:
    """Apply the EXIF rotation and convert to mode L or RGB. Transparent parts become white."""
    return _to_8_bit(_apply_exif_rotation(image))


def crop_and_resize_array(pixels: np.ndarray, size: int, channels: int) -> np.ndarray:
    """Crop and resize uint8 pixels [H, W, C]. If C is neither 1 nor 3, `channels` must be C."""
    if pixels.shape[2] in (1, 3):
        return crop_and_resize(Image.fromarray(pixels.squeeze(2) if pixels.shape[2] == 1 else pixels), size, channels)
    planes = (Image.fromarray(np.ascontiguousarray(plane)) for plane in pixels.transpose(2, 0, 1))
    return np.concatenate([crop_and_resize(plane, size, 1) for plane in planes])


@contextmanager
def silence_pillow() -> Iterator[None]:
    """Hide Pillow's warnings about files. They are harmless, or the file appears among the skipped images."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


@contextmanager
def _open_image(file: Path | bytes) -> Iterator[Image.Image]:
    """Open an image. Pillow's many types of errors for damaged files all become Unreadable."""
    try:
        if (len(file) if isinstance(file, bytes) else file.stat().st_size) == 0:
            raise Unreadable("empty file")
        with Image.open(io.BytesIO(file) if isinstance(file, bytes) else file, formats=formats()) as image:
            limit = Image.MAX_IMAGE_PIXELS
            if limit is not None and image.width * image.height > limit:
                raise Unreadable(f"{image.width} x {image.height} pixels; the limit is {limit} pixels")
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
    except Exception:  # damaged EXIF data raise many types of errors; the pixels are intact and stay unrotated
        return image


def _to_8_bit(image: Image.Image) -> Image.Image:
    """Convert to mode L or RGB. Transparent parts become white."""
    if image.mode.startswith("I"):
        wide = np.asarray(image).astype(np.int32)
        if not (wide.min() >= 0 and wide.max() <= 65535):
            raise Unreadable(f"integer pixels from {wide.min()} to {wide.max()}, but only 0 to 65535 is supported")
        return Image.fromarray(((wide + 128) // 257).astype(np.uint8))
    if image.mode == "F":
        unit = np.asarray(image)
        if not (unit.min() >= 0 and unit.max() <= 1):  # also false for NaN
            raise Unreadable(f"float pixels from {unit.min():g} to {unit.max():g}, but only 0 to 1 is supported")
        return Image.fromarray(np.rint(unit * 255).astype(np.uint8))
    if image.has_transparency_data:
        paper = Image.new("RGBA", image.size, "white")
        paper.alpha_composite(image.convert("RGBA"))
        return paper.convert("RGB")
    return image if image.mode in ("L", "RGB") else image.convert("RGB")
