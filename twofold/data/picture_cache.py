"""Decoded pictures of different sizes, as one array of lines, in memory or in the cache of decoded images.

`ItemSplit` and `ArraySplit` make a `PictureArray`, and `data/pictures.py` takes batches from it. In a cached set,
`KEY.u8` contains all lines, and at its end height and width of each picture, int32.

In shapes, n is the number of pictures, l that of all lines, C the number of channels and W the length of a line.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from twofold.data import cache
from twofold.data.decode import MAX_RATIO, Picture

SIZE_DTYPE = np.dtype("<i4")
AddPicture = Callable[[Picture | str], None]  # a picture, or the reason why it is missing


@dataclass(frozen=True, eq=False)
class PictureArray:
    lines: np.ndarray  # uint8 [l, C, W]; a shorter line ends in zeros
    sizes: np.ndarray  # int [n, 2]: height and width of each picture

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def ends(self) -> np.ndarray:
        """The number of lines of all pictures up to this one, int64 [n]."""
        return self.sizes.max(axis=1).cumsum(dtype=np.int64)

    def __getitem__(self, row: int) -> Picture:
        height, width = self.sizes[row].tolist()
        end = int(self.ends[row])
        return Picture(self.lines[end - max(height, width) : end, :, : min(height, width)], width > height)


def size_of(picture: Picture) -> tuple[int, int]:
    """Return height and width."""
    longer, _, shorter = picture.lines.shape
    return (shorter, longer) if picture.is_wide else (longer, shorter)


def padded(picture: Picture, width: int) -> np.ndarray:
    """Return the lines of a picture with zeros at their ends, uint8 [longer side, C, width]."""
    return np.pad(picture.lines, ((0, 0), (0, 0), (0, width - picture.lines.shape[2])))


def count_lines(sides: np.ndarray, picture_size: int) -> float:
    """Return the mean number of lines of pictures, for images with these shorter and longer sides, [m, 2]."""
    shorter, longer = sides[:, 0], sides[:, 1]
    return float((np.minimum(longer, MAX_RATIO * shorter) * np.minimum(1, picture_size / shorter)).mean())


def collect_pictures(pictures: Sequence[Picture], channels: int, width: int) -> PictureArray:
    """Collect pictures in memory."""
    sizes = np.array([size_of(picture) for picture in pictures], SIZE_DTYPE).reshape(-1, 2)
    lines = np.zeros((int(sizes.max(axis=1, initial=0).sum()), channels, width), np.uint8)
    start = 0
    for picture in pictures:
        longer, _, shorter = picture.lines.shape
        lines[start : start + longer, :, :shorter] = picture.lines
        start += longer
    return PictureArray(lines, sizes)


@dataclass(frozen=True)
class PictureSet:
    """A set of pictures in the cache."""

    key: str
    channels: int
    width: int  # of a line: the largest shorter side of a picture
    image_size: int  # a JPEG file is decoded at at least twice this size, so it can change the pixels
    source: str = ""  # the folder or file that the pictures are from

    @property
    def shape(self) -> list[Any]:
        return ["pictures", self.channels, self.width, self.image_size]

    def read(self) -> tuple[PictureArray, dict[int, str]] | None:
        """Return the pictures and the reasons for missing ones, or None if the set is missing or damaged."""
        found = cache.read_file(self.key, self.shape)
        if found is None or found.metadata["count"] == 0:
            return None
        try:
            return self._map(found.pixels, found.metadata), found.skipped
        except (OSError, ValueError):
            return None

    def find(self, row_hashes: np.ndarray | Sequence[bytes]) -> cache.FoundRows:
        """Find the pictures with these hashes in any set."""
        return cache.find_rows(self.shape, row_hashes, self._map)

    @contextmanager
    def writing(self, expected_bytes: int, row_hashes: np.ndarray | Sequence[bytes] | None) -> Iterator[AddPicture]:
        """Yield a function that adds the next picture. The set is complete when the block ends without an error."""
        sizes: list[tuple[int, int]] = []
        skipped: list[tuple[int, str]] = []
        metadata: dict[str, Any] = {"shape": self.shape, "source": self.source}
        with cache.writing_set(self.key, expected_bytes, metadata, row_hashes) as file:

            def add(picture: Picture | str) -> None:
                if isinstance(picture, str):
                    skipped.append((len(sizes) + len(skipped), picture))
                else:
                    file.write(padded(picture, self.width).tobytes())
                    sizes.append(size_of(picture))

            yield add
            file.write(np.array(sizes, SIZE_DTYPE).tobytes())
            metadata |= {"count": len(sizes), "bytes": file.written, "skipped": skipped}

    def _map(self, pixels: Path, metadata: dict[str, Any]) -> PictureArray:
        """Return the pictures of a file. If its sizes do not fit its lines, this raises ValueError."""
        count, line_bytes = metadata["count"], self.channels * self.width
        lines = (metadata.get("bytes", 0) - count * 2 * SIZE_DTYPE.itemsize) // line_bytes
        if lines < 1:
            raise ValueError("the file has no lines")
        sizes = np.fromfile(pixels, SIZE_DTYPE, 2 * count, offset=lines * line_bytes).reshape(count, 2)
        if sizes.min(initial=1) < 1 or sizes.min(axis=1).max() > self.width or sizes.max(axis=1).sum() != lines:
            raise ValueError("the sizes of the pictures do not fit the lines")
        return PictureArray(np.memmap(pixels, np.uint8, "r", shape=(lines, self.channels, self.width)), sizes)
