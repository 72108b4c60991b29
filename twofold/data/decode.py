"""Decode one image, from a file or from bytes, into uint8 [C, size, size], where C is 1 (grey) or 3 (RGB).

`ItemSplit`, the readers, `data/parallel.py` and encoders that receive a file use this module.

The shorter side is resized to `size`, and the middle of the longer side is kept. A run stores the resulting squares, in
the size `image_size`. With `picture_size`, it also stores larger pictures with their whole aspect ratio, from which it
takes random crops.
"""

import hashlib
import io
import math
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

# The image formats that Twofold reads. Pillow supports others (EPS, PDF, video) that run programs or contain no images.
PILLOW_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "DIB", "GIF", "TIFF", "PPM", "TGA", "JPEG2000", "AVIF", "MPO", "HEIF")
GREY_MODES = ("1", "L", "LA", "La", "I", "F")
END_BYTES = 4096
TOO_LARGE = "the image has too many pixels"
ROTATIONS = {  # by the orientation in the EXIF data
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
REDUCING_GAP = 2  # a fast integer reduction goes down to 2 times the target size; antialiased resizing does the rest
LARGE_PIXELS = 2**24  # an image with more pixels is decoded alone, and converted in strips
STRIP_PIXELS = 2**22
# The most pixels of formats whose decoders need 12 to 16 bytes for each.
MOST_PIXELS = {"JPEG2000": 2**25, "AVIF": 2**25}
MAX_RATIO = 2  # of the sides of a picture; of a longer image, the middle is kept

T = TypeVar("T")


_one_large_image = threading.Lock()


class Unreadable(Exception):
    """The reason why a file cannot be read as an image, in one line and without the name of the file."""


@dataclass(frozen=True)
class Header:
    side: int  # the shorter one, in pixels
    grey: bool
    longer: int  # the other side


@dataclass(frozen=True)
class Picture:
    """An image with its aspect ratio, up to MAX_RATIO. The lines follow the longer side, so a wide image is transposed.

    All pictures with the same shorter side then have lines of the same length, whether they are wide or tall.
    """

    lines: np.ndarray  # uint8 [longer side, C, shorter side]
    is_wide: bool  # the lines are columns of the image, not rows


@cache
def formats() -> tuple[str, ...]:
    """Return the formats that the installed Pillow can open, with those of pillow-heif if it is installed."""
    Image.init()
    try:
        import pillow_heif
    except ImportError:
        pass
    else:
        pillow_heif.register_heif_opener()
    return tuple(name for name in PILLOW_FORMATS if name in Image.OPEN)


@cache
def extensions() -> frozenset[str]:
    """Return the file extensions of those formats, in lower case, with the dot."""
    known = formats()  # first, because it may register extensions
    return frozenset(ending for ending, name in Image.registered_extensions().items() if name in known)


def read_header(file: Path | bytes) -> Header:
    """Return size and kind of an image without decoding it. Palette images count as colour images."""
    with _open_image(file) as image:
        return Header(min(image.size), is_grey(image), max(image.size))


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
    return with_image(file, size, partial(crop_and_resize, size=size, channels=channels))


def with_image(file: Path | bytes, size: int, use: Callable[[Image.Image], T], *, most_pixels: float = math.inf) -> T:
    """Open the first frame of a file and return `use(image)`.

    The image may be smaller than in the file, but at least REDUCING_GAP times `size`. JPEG files are decoded at reduced
    size. Of other large files, one is decoded at a time, and only a reduced copy is converted, so that the memory stays
    below that of two decoded files. An image with more than `most_pixels` when it is decoded raises `Unreadable`.
    """
    with _open_image(file) as image:
        image.draft(None, (REDUCING_GAP * size, REDUCING_GAP * size))
        pixels = image.width * image.height
        if pixels > most_pixels:
            raise Unreadable(TOO_LARGE)
        if pixels <= LARGE_PIXELS:
            image.load()
            return use(image)
        with _one_large_image:
            image.load()
            reduced = _reduced_in_strips(image, size)
    return use(reduced)


def _reduced_in_strips(image: Image.Image, size: int) -> Image.Image:
    """Return an image of mode L or RGB, reduced by a whole number, with the EXIF rotation applied."""
    factor = max(1, min(image.size) // (REDUCING_GAP * size))
    # Less than `factor` pixels at the borders are left out, so that the middle stays the middle.
    width, height = (side // factor for side in image.size)
    left, first = (image.width % factor) // 2, (image.height % factor) // 2
    rows = max(1, STRIP_PIXELS // image.width // factor)  # of the reduced image
    reduced: Image.Image | None = None
    for top in range(0, height, rows):
        above, below = first + top * factor, first + min(top + rows, height) * factor
        strip = _to_8_bit(image.crop((left, above, left + width * factor, below))).reduce(factor)
        if reduced is None:
            reduced = Image.new(strip.mode, (width, height))
        reduced.paste(strip, (0, top))
    assert reduced is not None
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # as in _apply_exif_rotation
        orientation = None
    return reduced if orientation not in ROTATIONS else reduced.transpose(ROTATIONS[orientation])


def crop_and_resize(image: Image.Image, size: int, channels: int) -> np.ndarray:
    """Apply the EXIF rotation, crop the middle square and resize it, into uint8 [channels, size, size]."""
    return _middle_square(_with_channels(image, channels), size)


def square_and_picture(image: Image.Image, size: int, channels: int, picture_size: int) -> tuple[np.ndarray, Picture]:
    """Return `crop_and_resize` of an image, and its `Picture`, whose shorter side is at most `picture_size`.

    `picture_size` is at most REDUCING_GAP times `size`, so that the image from `with_image` is large enough for both.
    """
    image = _with_channels(image, channels)
    return _middle_square(image, size), _whole_picture(image, picture_size)


def _with_channels(image: Image.Image, channels: int) -> Image.Image:
    mode = "L" if channels == 1 else "RGB"
    image = to_grey_or_rgb(image)
    return image if image.mode == mode else image.convert(mode)


def _middle_square(image: Image.Image, size: int) -> np.ndarray:
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    square = image.resize(
        (size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side), reducing_gap=REDUCING_GAP
    )
    return np.ascontiguousarray(np.asarray(square).reshape(size, size, -1).transpose(2, 0, 1))


def _whole_picture(image: Image.Image, picture_size: int) -> Picture:
    """Keep the middle of an image that is longer than MAX_RATIO, and resize it unless it is small enough."""
    longest = MAX_RATIO * min(image.size)
    width, height = (min(side, longest) for side in image.size)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    scale = min(1.0, picture_size / min(width, height))
    resized = image.resize(
        (round(width * scale), round(height * scale)),
        Image.Resampling.BILINEAR,
        box=(left, top, left + width, top + height),
        reducing_gap=REDUCING_GAP,
    )
    pixels = np.asarray(resized).reshape(resized.height, resized.width, -1)
    is_wide = resized.width > resized.height
    return Picture(np.ascontiguousarray(pixels.transpose((1, 2, 0) if is_wide else (0, 2, 1))), is_wide)


def to_grey_or_rgb(image: Image.Image) -> Image.Image:
    """Apply the EXIF rotation and convert to mode L or RGB. Transparent parts become white."""
    return _to_8_bit(_apply_exif_rotation(image))


def crop_and_resize_array(pixels: np.ndarray, size: int, channels: int) -> np.ndarray:
    """Crop and resize uint8 pixels [H, W, C]. If C is neither 1 nor 3, `channels` must be C."""
    return np.concatenate([crop_and_resize(plane, size, kind) for plane, kind in _planes(pixels, channels)])


def picture_of_array(pixels: np.ndarray, channels: int, picture_size: int) -> Picture:
    """Return the `Picture` of uint8 pixels [H, W, C]. If C is neither 1 nor 3, `channels` must be C."""
    parts = [_whole_picture(_with_channels(plane, kind), picture_size) for plane, kind in _planes(pixels, channels)]
    return Picture(np.concatenate([part.lines for part in parts], axis=1), parts[0].is_wide)


def _planes(pixels: np.ndarray, channels: int) -> list[tuple[Image.Image, int]]:
    """Return an image and its number of channels; if C is neither 1 nor 3, one grey image for each channel."""
    if pixels.shape[2] in (1, 3):
        return [(Image.fromarray(pixels.squeeze(2) if pixels.shape[2] == 1 else pixels), channels)]
    return [(Image.fromarray(np.ascontiguousarray(plane)), 1) for plane in pixels.transpose(2, 0, 1)]


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
            limit = min(Image.MAX_IMAGE_PIXELS or math.inf, MOST_PIXELS.get(image.format or "", math.inf))
            if image.width * image.height > limit:
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
        upright = image.getexif().get(ExifTags.Base.Orientation, 1) == 1
        return image if upright else ImageOps.exif_transpose(image)  # which would copy the image
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
