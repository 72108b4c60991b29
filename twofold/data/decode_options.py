"""`DecodeOptions`: what a user can choose about reading image files, and `Unreadable`, the error of a file.

The readers pass them on to `decode.py` and to the worker processes of `parallel.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

# The pixel values that become black and white in images with more than 8 bits, see the key `pixel_range`.
# "auto": chosen from a sample of the images when a source is opened; None: pixels are not converted.
PixelRange = tuple[float, float] | Literal["type", "image", "auto"] | None


class Unreadable(Exception):
    """The reason why a file cannot be read as an image, in one line and without the name of the file."""


@dataclass(frozen=True)
class DecodeOptions:
    """The options of `open_source` that apply to image files. Those of a run are its keys of the same names."""

    pages: Literal["first", "all"] = "first"
    pixel_limit: int | None = None
    pixel_range: PixelRange = "auto"

    @staticmethod
    def of(keys: Any) -> "DecodeOptions":
        """Return the options of a configuration, or of its keys as a mapping. A run is never `auto`."""
        values = keys if isinstance(keys, Mapping) else vars(keys)
        pixel_range = values.get("pixel_range", "type")
        pixel_range = tuple(pixel_range) if isinstance(pixel_range, list) else pixel_range
        return DecodeOptions(values.get("pages", "first"), values.get("pixel_limit"), pixel_range)

    @property
    def changes_pixels(self) -> bytes:
        """What must be part of the hash of decoded images; empty for the options of earlier versions."""
        is_usual = self.pages == "first" and self.pixel_range in ("type", "auto")
        return b"" if is_usual else repr((self.pages, self.pixel_range)).encode()


USUAL = DecodeOptions()
