"""`ItemSplit`: images that are read one at a time, such as files, members of archives, or items of a Dataset.

The readers make an `ItemSplit`. `data/load.py` decodes it and uses the cache of decoded images.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from twofold.data import cache, parallel
from twofold.data.decode import TOO_LARGE, OneImage, Picture, crop_and_resize, square_and_picture
from twofold.data.decode_options import USUAL, DecodeOptions, Unreadable
from twofold.data.file_names import FileNames
from twofold.data.image_formats import silence_pillow
from twofold.data.parallel import Progress, map_in_order, with_progress
from twofold.data.picture_cache import AddPicture, PictureSet, collect_pictures, count_lines

UNKNOWN = -1  # the label or group of an image if it is not known

SLOW_SECONDS = 2.0  # of processor time, to decode one image

# (row, size, use) → use(image). The image may be opened at reduced size, but at least twice `size`. Raises Unreadable.
Fetch = Callable[[int, int, Callable[[OneImage], Any]], Any]


@dataclass(frozen=True, eq=False)
class ItemSplit:
    fetch: Fetch
    count: int
    labels: np.ndarray | None  # int64 [n]; UNKNOWN where an image has none
    sides: np.ndarray  # int64 [m, 2]: shorter and longer side of the images, or of an even sample of them
    channels: int  # 1 (all images are grey), 3 (some are in colour), or the number of channels of all
    facts: bytes  # a hash of what is known about the content
    files: Sequence[str] | None = None  # the names of the images
    unreadable: Mapping[str, str] = field(default_factory=dict)  # file or folder → reason, known before decoding
    groups: np.ndarray | None = None  # int64 [n]; UNKNOWN where an image has none
    threads: int | None = None  # how many threads may decode at the same time; None: one for each core
    path: Callable[[int], Path] | None = None  # the path of a row, if each row is a file
    # A hash for each row. Equal hashes mean equal names and, as far as is known without decoding, equal content.
    row_hashes: Callable[[np.ndarray], np.ndarray] | None = None
    source: str = ""  # the folder or file that the images are from, for `twofold cache`
    remark: str = ""  # a note for the user about images that are not used
    options: DecodeOptions = USUAL
    objects: np.ndarray | None = None  # int64 [n], the object that each image shows; UNKNOWN: an object of its own

    def __len__(self) -> int:
        return self.count

    @property
    def side(self) -> int:
        """The median of the shorter sides."""
        return int(np.median(self.sides[:, 0]))

    def readable(self) -> np.ndarray:
        """Return the rows that are not known to be unreadable, int64."""
        if self.files is None or not self.unreadable:
            return np.arange(self.count)
        named = (row for row, name in enumerate(self.files) if name not in self.unreadable)
        return np.fromiter(named, np.int64)

    def digest(self) -> bytes:
        """Hash content, names, labels and groups, but not the location, because a folder may be moved."""
        state = hashlib.blake2b(self.facts, digest_size=16)
        state.update(FileNames.of(self.files or ()).joined)
        state.update(repr(sorted(self.unreadable)).encode())
        state.update(b"" if self.labels is None else self.labels.tobytes())
        state.update(b"" if self.groups is None else b"groups" + self.groups.tobytes())
        state.update(b"" if self.objects is None else b"objects" + self.objects.tobytes())
        return state.digest()

    def names(self, rows: np.ndarray) -> FileNames | None:
        return None if self.files is None else FileNames.of(self.files).take(rows)

    def decode(
        self,
        rows: np.ndarray,
        size: int,
        channels: int,
        key: str | None,
        progress: Progress | None,
        picture_size: int = 0,
    ) -> cache.Decoded:
        """Return the pixels of the rows, decoded or from the cache. Without a key, the cache is not used.

        With a `picture_size`, the result has pictures, too. One pass over the images makes both.
        """
        shape = (channels, size, size)
        pictures = None
        if picture_size:
            pictures = PictureSet(f"{key}.{picture_size}", channels, picture_size, size, self.source)
        complete = None if key is None else _read_sets(key, shape, pictures, len(rows))
        if complete is not None:
            return complete

        new_set = partial(cache.write_set, expected=len(rows), source=self.source)
        row_hashes = None if key is None or self.row_hashes is None else self.row_hashes(rows)
        cached: list[cache.FoundRows] = []
        if row_hashes is not None:
            cached = [cache.find_rows(shape, row_hashes)] + ([pictures.find(row_hashes)] if pictures else [])
        is_new = np.full(len(rows), not cached)
        for found in cached:
            is_new[found.missing] = True
        slow: dict[int, float] = {}
        decoded = self._decoded(rows[is_new], size, channels, picture_size, slow)

        # Rows that other cached sets contain come from there, and the others are decoded, all in the order of `rows`.
        def all_rows() -> Iterator[Row]:
            for number in range(len(rows)):
                square, picture = (*(found[number] for found in cached), None, None)[:2]
                yield next(decoded) if is_new[number] else (square, picture)

        with silence_pillow():
            results = with_progress(all_rows(), len(rows), progress)
            if key is None:
                return replace(_collect(shape, list(results), pictures), slow=slow)
            if pictures is None:
                return replace(new_set(key, shape, map(_square, results), row_hashes=row_hashes), slow=slow)
            lines = count_lines(self.sides, picture_size) * len(rows)
            with pictures.writing(int(lines * channels * picture_size), row_hashes) as add:
                squares = map(_square, _passed_on(results, add))
                written = new_set(key, shape, squares, row_hashes=row_hashes)
            found_pictures = pictures.read()
            return replace(written, slow=slow, pictures=None if found_pictures is None else found_pictures[0])

    def _decoded(
        self, rows: np.ndarray, size: int, channels: int, picture_size: int, slow: dict[int, float]
    ) -> Iterator["Row"]:
        """Decode rows in threads or processes. `slow` receives rows that take long, and their processor time."""

        def use(image: OneImage) -> Row:
            if picture_size:
                return square_and_picture(image, size, channels, picture_size)
            return crop_and_resize(image, size, channels), None

        def attempt(row: int) -> Row:
            since = time.thread_time()
            try:
                return self.fetch(row, size, use)
            except Unreadable as error:
                return str(error)
            finally:
                seconds = time.thread_time() - since
                if seconds > SLOW_SECONDS:
                    slow[row] = seconds

        if self.path is None or not parallel.is_worthwhile(len(rows), self.side):
            return map_in_order(attempt, map(int, rows), self.threads)
        paths = map(self.path, map(int, rows))
        found: Iterator[Row]
        if picture_size:
            found = parallel.decode_with_pictures(paths, size, channels, picture_size, self.options)
        else:
            squares = parallel.decode_files(paths, size, channels, self.options)
            found = (square if isinstance(square, str) else (square, None) for square in squares)
        return (attempt(row) if one == TOO_LARGE else one for row, one in zip(map(int, rows), found, strict=True))


Row = tuple[np.ndarray, Picture | None] | str  # the square and the picture of an image, or why it cannot be read


def _square(row: Row) -> np.ndarray | str:
    return row if isinstance(row, str) else row[0]


def _picture(row: Row) -> Picture | str:
    if isinstance(row, str):
        return row
    assert row[1] is not None
    return row[1]


def _passed_on(rows: Iterable[Row], add: AddPicture) -> Iterator[Row]:
    """Yield the rows, after adding their pictures to a set."""
    for row in rows:
        add(_picture(row))
        yield row


def _read_sets(key: str, shape: tuple[int, ...], pictures: PictureSet | None, count: int) -> cache.Decoded | None:
    """Return the sets of squares and pictures of these images from the cache, or None if they are not complete."""
    squares = cache.read_set(key, shape)
    if squares is None or len(squares.images) + len(squares.skipped) != count:
        return None
    if pictures is None:
        return squares
    found = pictures.read()
    if found is None or found[1] != squares.skipped:
        return None
    return replace(squares, pictures=found[0])


def _collect(shape: tuple[int, ...], rows: list[Row], pictures: PictureSet | None) -> cache.Decoded:
    squares = cache.collect_in_memory(shape, map(_square, rows))
    if pictures is None:
        return squares
    found = [row[1] for row in rows if not isinstance(row, str) and row[1] is not None]
    return replace(squares, pictures=collect_pictures(found, shape[0], pictures.width))


ItemSplits = tuple[ItemSplit, ItemSplit | None, tuple[str, ...] | None]  # train, test, class names
