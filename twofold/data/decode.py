"""Decode one image, from a file or from bytes, into uint8 [C, size, size].

C is 1 (grey), 3 (RGB), or the number of channels of a TIFF file.

`ItemSplit`, the readers, `data/parallel.py` and encoders that receive a file use this module.

The shorter side is resized to `size`, and the middle of the longer side is kept. A run stores the resulting squares, in
the size `image_size`. With `picture_size`, it also stores larger pictures with their whole aspect ratio, from which it
takes random crops.
"""

import hashlib
import math
import os
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import ExifTags, Image, ImageOps

from twofold.data import tiff
from twofold.data.decode_options import USUAL, DecodeOptions, Unreadable
from twofold.data.image_formats import open_image, pixel_limit
from twofold.data.pixel_range import Extremes, extremes_of, extremes_of_strip, is_deep, limits_of, to_8_bit

GREY_MODES = ("1", "L", "LA", "La", "I", "F")
GREY, COLOUR = 1, 3  # numbers of channels, between which images are converted
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
MAX_RATIO = 2  # of the sides of a picture; of a longer image, the middle is kept

T = TypeVar("T")


_one_large_image = threading.Lock()


OneImage = Image.Image | np.ndarray  # an array is uint8 [H, W, C], where C is neither 1 nor 3


@dataclass(frozen=True)
class Header:
    side: int  # the shorter one, in pixels
    longer: int  # the other side
    channels: int = COLOUR
    bits: int = 8  # of each channel
    pages: int = 1  # of a TIFF file; 2 stands for any number above 1 unless all pages are read


@dataclass(frozen=True)
class Picture:
    """An image with its aspect ratio, up to MAX_RATIO. The lines follow the longer side, so a wide image is transposed.

    All pictures with the same shorter side then have lines of the same length, whether they are wide or tall.
    """

    lines: np.ndarray  # uint8 [longer side, C, shorter side]
    is_wide: bool  # the lines are columns of the image, not rows


def read_header(file: Path | bytes, options: DecodeOptions = USUAL) -> Header:
    """Return the facts of an image without decoding it. Palette images count as colour images."""
    try:
        with open_image(file, options) as image:
            channels = GREY if is_grey(image) else COLOUR
            return Header(min(image.size), max(image.size), channels, tiff.bits_of(image), _count_pages(image, options))
    except tiff.NotForPillow:
        found = tiff.read_tiff_header(file)
        tiff.refuse_many_pixels(found.width, found.height, found.channels, pixel_limit("TIFF", options))
        sides = min(found.width, found.height), max(found.width, found.height)
        return Header(*sides, found.channels, found.bits, found.pages)


def _count_pages(image: Image.Image, options: DecodeOptions) -> int:
    if image.format != "TIFF" or not getattr(image, "is_animated", False):
        return 1
    return min(image.n_frames, tiff.MOST_PAGES) if options.pages == "all" else 2  # type: ignore[attr-defined]


def is_grey(image: Image.Image) -> bool:
    return image.mode in GREY_MODES or image.mode.startswith("I;16")


def inspect_file(path: Path, options: DecodeOptions = USUAL) -> tuple[int, Header | str]:
    """Return `hash_of_ends` of a file, and its header or the reason why it cannot be read."""
    try:
        return hash_of_ends(path), read_header(path, options)
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


def decode_image(file: Path | bytes, size: int, channels: int, options: DecodeOptions = USUAL) -> np.ndarray:
    """Decode the first frame of a file, with the EXIF rotation applied, into uint8 [channels, size, size]."""
    return with_image(file, size, partial(crop_and_resize, size=size, channels=channels), options)


def with_image(
    file: Path | bytes,
    size: int,
    use: Callable[[OneImage], T],
    options: DecodeOptions = USUAL,
    *,
    page: int = 0,
    most_pixels: float = math.inf,
) -> T:
    """Open the first frame or the given page of a file and return `use(image)`.

    The image may be smaller than in the file, but at least REDUCING_GAP times `size`. JPEG files are decoded at reduced
    size. Of other large files, one is decoded at a time, and only a reduced copy is converted, so that the memory stays
    below that of two decoded files. An image with more than `most_pixels` when it is decoded raises `Unreadable`.
    """
    try:
        with open_image(file, options, page) as opened:
            image: Image.Image = opened
            whole = image.width * image.height
            image.draft(None, (REDUCING_GAP * size, REDUCING_GAP * size))
            pixels = image.width * image.height
            # The decoder of progressive JPEG files keeps the coefficients of the whole image.
            needed = whole if "progressive" in image.info else pixels
            if needed > most_pixels:
                raise Unreadable(TOO_LARGE)
            with _one_large_image if needed > LARGE_PIXELS else nullcontext():
                image.load()
                if pixels > LARGE_PIXELS and options.pixel_range is not None:
                    image = _reduced_in_strips(image, size, options)
            return use(with_8_bits(image, options))
    except tiff.NotForPillow:
        return use(_read_with_tifffile(file, size, options, page, most_pixels))


def _read_with_tifffile(
    file: Path | bytes, size: int, options: DecodeOptions, page: int, most_pixels: float
) -> OneImage:
    if most_pixels < math.inf:  # a worker process leaves such files to its parent, which decodes one at a time
        raise Unreadable(TOO_LARGE)
    with _one_large_image:
        pixels = tiff.read_pixels(file, page, options, pixel_limit("TIFF", options), REDUCING_GAP * size)
    if options.pixel_range is not None and pixels.shape[2] in (GREY, COLOUR):
        return Image.fromarray(pixels.squeeze(2) if pixels.shape[2] == GREY else pixels)
    return pixels


def with_8_bits(image: Image.Image, options: DecodeOptions) -> Image.Image:
    """Convert an image of more than 8 bits, with the EXIF rotation applied, and return other images unchanged."""
    if options.pixel_range is None or not is_deep(image):
        return image
    return to_8_bit(_apply_exif_rotation(image), limits_of(image, tiff.bits_of(image), options.pixel_range))


def read_extremes(file: Path | bytes, page: int = 0) -> Extremes:
    """Return the smallest and the largest value of an image, to choose the range of a source."""

    def extremes(image: OneImage) -> Extremes:
        if isinstance(image, np.ndarray):
            return extremes_of_strip(image)
        if is_deep(image):
            return extremes_of(image)
        # Of 16-bit colours, Pillow reads the upper 8 bits.
        highest = max(image.convert("RGB").tobytes())
        return Extremes(0, highest * 256 + 255, is_float=False)

    return with_image(file, 1, extremes, replace(DecodeOptions(), pixel_range=None), page=page)


def _reduced_in_strips(image: Image.Image, size: int, options: DecodeOptions) -> Image.Image:
    """Return an image of mode L or RGB, reduced by a whole number, with the EXIF rotation applied."""
    factor = max(1, min(image.size) // (REDUCING_GAP * size))
    # Less than `factor` pixels at the borders are left out, so that the middle stays the middle.
    width, height = (side // factor for side in image.size)
    left, first = (image.width % factor) // 2, (image.height % factor) // 2
    rows = max(1, STRIP_PIXELS // image.width // factor)  # of the reduced image
    limits = limits_of(image, tiff.bits_of(image), options.pixel_range) if is_deep(image) else None
    reduced: Image.Image | None = None
    for top in range(0, height, rows):
        above, below = first + top * factor, first + min(top + rows, height) * factor
        strip = _to_8_bit(image.crop((left, above, left + width * factor, below)), limits).reduce(factor)
        if reduced is None:
            reduced = Image.new(strip.mode, (width, height))
        reduced.paste(strip, (0, top))
    assert reduced is not None
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # as in _apply_exif_rotation
        orientation = None
    return reduced if orientation not in ROTATIONS else reduced.transpose(ROTATIONS[orientation])


def crop_and_resize(image: OneImage, size: int, channels: int) -> np.ndarray:
    """Apply the EXIF rotation, crop the middle square and resize it, into uint8 [channels, size, size]."""
    if isinstance(image, np.ndarray):
        refuse_other_channels(image.shape[2], channels)
        return crop_and_resize_array(image, size, channels)
    return _middle_square(_with_channels(image, channels), size)


def square_and_picture(image: OneImage, size: int, channels: int, picture_size: int) -> tuple[np.ndarray, Picture]:
    """Return `crop_and_resize` of an image, and its `Picture`, whose shorter side is at most `picture_size`.

    `picture_size` is at most REDUCING_GAP times `size`, so that the image from `with_image` is large enough for both.
    """
    if isinstance(image, np.ndarray):
        return crop_and_resize(image, size, channels), picture_of_array(image, channels, picture_size)
    image = _with_channels(image, channels)
    return _middle_square(image, size), _whole_picture(image, picture_size)


def refuse_other_channels(has: int, channels: int) -> None:
    """Refuse an image unless it has this number of channels, or both are grey or colour."""
    if has != channels and not {has, channels} <= {GREY, COLOUR}:
        raise Unreadable(f"the image has {has} channels, but the others have {channels}")


def _with_channels(image: Image.Image, channels: int) -> Image.Image:
    refuse_other_channels(COLOUR, channels)
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
    # Pillow extracts a channel faster than numpy transposes the pixels. A bytearray makes the result writable.
    planes = bytearray().join([square.tobytes("raw", band) for band in square.getbands()])
    return np.frombuffer(planes, np.uint8).reshape(-1, size, size)


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


def _apply_exif_rotation(image: Image.Image) -> Image.Image:
    try:
        upright = image.getexif().get(ExifTags.Base.Orientation, 1) == 1
        return image if upright else ImageOps.exif_transpose(image)  # which would copy the image
    except Exception:  # damaged EXIF data raise many types of errors; the pixels are intact and stay unrotated
        return image


def _to_8_bit(image: Image.Image, limits: tuple[float, float] | None = None) -> Image.Image:
    """Convert to mode L or RGB. Transparent parts become white."""
    if is_deep(image):
        return to_8_bit(image, limits or limits_of(image, tiff.bits_of(image), "type"))
    if image.has_transparency_data:
        paper = Image.new("RGBA", image.size, "white")
        paper.alpha_composite(image.convert("RGBA"))
        return paper.convert("RGB")
    return image if image.mode in ("L", "RGB") else image.convert("RGB")
