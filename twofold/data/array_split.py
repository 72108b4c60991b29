"""`ArraySplit`: images in one array. The readers of arrays and of datasets such as MNIST and CIFAR make it.

In shapes, n is the number of images, H the height, W the width and C the number of channels.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from twofold.data.cache import Decoded
from twofold.data.decode import Picture, crop_and_resize_array, picture_of_array
from twofold.data.parallel import Progress
from twofold.data.picture_cache import collect_pictures

HASHED_BYTES = 2**26  # a mapped file is hashed and checked in blocks, because it may not fit into memory
ROUNDING_ERROR = 1 / 510  # half a grey level: how far rounding may move a float below 0 or above 1


@dataclass(frozen=True, eq=False)
class ArraySplit:
    images: np.ndarray  # [n, H, W, C], uint8 or float from 0 to 1; often a view of an array in another layout
    labels: np.ndarray | None  # int64 [n]

    def __len__(self) -> int:
        return len(self.images)

    @property
    def sides(self) -> np.ndarray:
        """Shorter and longer side of the images, int64 [1, 2]."""
        return np.sort(np.array([self.images.shape[1:3]]))

    @property
    def side(self) -> int:
        return min(self.images.shape[1:3])

    @property
    def channels(self) -> int:
        return self.images.shape[3]

    @property
    def unreadable(self) -> Mapping[str, str]:
        return {}

    @property
    def groups(self) -> None:
        return None

    @property
    def objects(self) -> None:
        return None

    def readable(self) -> np.ndarray:
        return np.arange(len(self))

    def digest(self) -> bytes:
        """Hash shape, type and every byte of the images, and the labels. The origin of the array does not matter."""
        state = hashlib.blake2b(repr((self.images.shape, self.images.dtype.str)).encode(), digest_size=16)
        for block in blocks_of(self.images):
            state.update(block.tobytes())
        state.update(b"" if self.labels is None else self.labels.tobytes())
        return state.digest()

    def names(self, rows: np.ndarray) -> None:  # noqa: ARG002 - an ItemSplit uses it
        return None

    def decode(
        self,
        rows: np.ndarray,
        size: int,
        channels: int,
        key: str | None,  # noqa: ARG002 - only an ItemSplit uses the cache
        progress: Progress | None,
        picture_size: int = 0,
    ) -> Decoded:
        """Return the pixels of the rows and, with a `picture_size`, pictures."""
        if not picture_size and self.images.dtype == np.uint8 and self.images.shape[1:] == (size, size, channels):
            planar = self.images.transpose(0, 3, 1, 2)
            is_mapped = isinstance(planar, np.memmap) and planar.flags.c_contiguous
            # A mapped file is used directly; an array in memory is copied, because its owner may write to it.
            images = planar if is_mapped and len(rows) == len(self) else np.ascontiguousarray(planar[rows])
            if progress is not None:
                progress(len(rows), len(rows))
            return Decoded(images, {})
        images = np.empty((len(rows), channels, size, size), np.uint8)
        pictures: list[Picture] = []
        for done, row in enumerate(rows):
            pixels = to_uint8(self.images[row])
            images[done] = crop_and_resize_array(pixels, size, channels)
            if picture_size:
                pictures.append(picture_of_array(pixels, channels, picture_size))
            if progress is not None:
                progress(done + 1, len(rows))
        return Decoded(images, {}, collect_pictures(pictures, channels, picture_size) if picture_size else None)


ArraySplits = tuple[ArraySplit, ArraySplit | None, tuple[str, ...] | None]  # train, test, class names


def to_uint8(pixels: np.ndarray) -> np.ndarray:
    """Return uint8 pixels from uint8, or from float between 0 and 1 (up to ROUNDING_ERROR)."""
    return (
        np.ascontiguousarray(pixels)
        if pixels.dtype == np.uint8
        else np.rint(pixels.astype(np.float64) * 255).clip(0, 255).astype(np.uint8)
    )


def blocks_of(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield slices of about HASHED_BYTES along the first axis."""
    rows = max(1, HASHED_BYTES * len(array) // max(1, array.nbytes))
    return (array[start : start + rows] for start in range(0, len(array), rows))
