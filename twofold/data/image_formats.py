"""Open image files with Pillow: which formats Twofold reads, and how many pixels an image may have.

`decode.py` decodes the opened images. The readers use `extensions` to find image files.
"""

import math
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from twofold.data import tiff
from twofold.data.decode_options import DecodeOptions, Unreadable
from twofold.data.limited_files import open_limited

# The image formats that Twofold reads. Pillow supports others (EPS, PDF, video) that run programs or contain no images.
PILLOW_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "DIB", "GIF", "TIFF", "PPM", "TGA", "JPEG2000", "AVIF", "MPO", "HEIF")
# The most pixels of formats whose decoders need 12 to 16 bytes for each.
MOST_PIXELS = {"JPEG2000": 2**25, "AVIF": 2**25}


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


@contextmanager
def silence_pillow() -> Iterator[None]:
    """Hide Pillow's warnings about files. They are harmless, or the file appears among the skipped images."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


def pixel_limit(image_format: str, options: DecodeOptions) -> float:
    """Return the most pixels of an image in this format."""
    if options.pixel_limit is not None:
        return options.pixel_limit
    return min(_pillow_limit.usual(), MOST_PIXELS.get(image_format, math.inf))


@contextmanager
def open_image(file: Path | bytes, options: DecodeOptions, page: int = 0) -> Iterator[Image.Image]:
    """Open an image. Pillow's many types of errors for damaged files all become Unreadable."""
    try:
        with (
            _pillow_limit.to(options.pixel_limit) if options.pixel_limit else nullcontext(),
            open_limited(file) as source,
            Image.open(source, formats=formats()) as image,
        ):
            if page:
                image.seek(page)
            limit = pixel_limit(image.format or "", options)
            if image.width * image.height > limit:
                raise Unreadable(
                    f"{image.width} x {image.height} pixels; the limit is {limit:.0f} pixels (key pixel_limit)"
                )
            tiff.refuse_for_pillow(image, options)
            yield image
    except (Unreadable, tiff.NotForPillow):
        raise
    except Image.DecompressionBombError as error:
        raise Unreadable(f"{error} (key pixel_limit)") from None
    except UnidentifiedImageError:
        if tiff.is_tiff(file):
            raise tiff.NotForPillow from None
        raise Unreadable("not an image that Pillow can read") from None
    except Exception as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Unreadable(" ".join(text.split()) or type(error).__name__) from error


class _LiftedLimit:
    """Lifts Pillow's own limit while images above it are read. `open_image` checks the size of each."""

    def __init__(self) -> None:
        self.lock, self.readers = threading.Lock(), 0
        self.limit: int | None = None  # of Pillow, while it is lifted

    def usual(self) -> float:
        """Return the limit of Pillow."""
        with self.lock:
            return (self.limit if self.readers else Image.MAX_IMAGE_PIXELS) or math.inf

    @contextmanager
    def to(self, pixels: float) -> Iterator[None]:
        if pixels <= self.usual():
            yield
            return
        with self.lock:
            if self.readers == 0:
                self.limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
            self.readers += 1
        try:
            yield
        finally:
            with self.lock:
                self.readers -= 1
                if self.readers == 0:
                    Image.MAX_IMAGE_PIXELS = self.limit


_pillow_limit = _LiftedLimit()
