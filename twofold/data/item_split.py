"""`ItemSplit`: images that are read one at a time, such as files, members of archives, or items of a Dataset.

The readers make an `ItemSplit`. `data/load.py` decodes it and uses the cache of decoded images.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from twofold.data import cache, parallel
from twofold.data.decode import Unreadable, silence_pillow
from twofold.data.parallel import Progress, map_in_order, with_progress

UNKNOWN = -1  # the label or group of an image if it is not known

Fetch = Callable[[int, int, int], np.ndarray]  # (row, size, channels) → uint8 [channels, size, size], or Unreadable


@dataclass(frozen=True, eq=False)
class ItemSplit:
    fetch: Fetch
    count: int
    labels: np.ndarray | None  # int64 [n]; UNKNOWN where an image has none
    side: int  # median of the shorter sides
    grey: bool  # whether all images are greyscale
    facts: bytes  # a hash of what is known about the content
    files: tuple[str, ...] | None = None  # the names of the images
    unreadable: Mapping[str, str] = field(default_factory=dict)  # file or folder → reason, known before decoding
    groups: np.ndarray | None = None  # int64 [n]; UNKNOWN where an image has none
    threads: int | None = None  # how many threads may decode at the same time; None: one for each core
    path: Callable[[int], Path] | None = None  # the path of a row, if each row is a file
    # A hash for each row. Equal hashes mean equal names and, as far as is known without decoding, equal content.
    row_hashes: Callable[[np.ndarray], list[bytes]] | None = None
    remark: str = ""  # a note for the user about images that are not used

    def __len__(self) -> int:
        return self.count

    @property
    def channels(self) -> int:
        return 1 if self.grey else 3

    def readable(self) -> np.ndarray:
        """Return the rows that are not known to be unreadable, int64."""
        if self.files is None or not self.unreadable:
            return np.arange(self.count)
        return np.array([row for row, name in enumerate(self.files) if name not in self.unreadable], np.int64)

    def digest(self) -> bytes:
        """Hash content, names, labels and groups, but not the location, because a folder may be moved."""
        state = hashlib.blake2b(self.facts, digest_size=16)
        state.update(b"\0".join(os.fsencode(name) for name in self.files or ()))
        state.update(repr(sorted(self.unreadable)).encode())
        state.update(b"" if self.labels is None else self.labels.tobytes())
        state.update(b"" if self.groups is None else b"groups" + self.groups.tobytes())
        return state.digest()

    def names(self, rows: np.ndarray) -> tuple[str, ...] | None:
        return None if self.files is None else tuple(self.files[row] for row in rows)

    def decode(
        self, rows: np.ndarray, size: int, channels: int, key: str | None, progress: Progress | None
    ) -> cache.Decoded:
        """Return the pixels of the rows, decoded or from the cache. Without a key, the cache is not used."""
        shape = (channels, size, size)
        complete = None if key is None else cache.read_set(key, shape)
        if complete is not None and len(complete.images) + len(complete.skipped) == len(rows):
            return complete

        def attempt(row: int) -> np.ndarray | str:
            try:
                return self.fetch(row, size, channels)
            except Unreadable as error:
                return str(error)

        row_hashes = None if key is None or self.row_hashes is None else self.row_hashes(rows)
        cached = None if row_hashes is None else cache.find_rows(shape, row_hashes)
        new = (rows if cached is None else rows[cached.missing]).tolist()
        decoded: Iterator[np.ndarray | str]
        if self.path is not None and parallel.is_worthwhile(len(new), self.side):
            decoded = parallel.decode_files(map(self.path, new), size, channels)
        else:
            decoded = map_in_order(attempt, new, self.threads)

        # Rows that another cached set contains come from there, and the others are decoded, all in the order of `rows`.
        def all_rows() -> Iterator[np.ndarray | str]:
            for number in range(len(rows)):
                row = None if cached is None else cached[number]
                yield next(decoded) if row is None else row

        with silence_pillow():
            results = with_progress(all_rows(), len(rows), progress)
            if key is None:
                return cache.collect_in_memory(shape, results)
            return cache.write_set(key, shape, results, expected=len(rows), row_hashes=row_hashes)


ItemSplits = tuple[ItemSplit, ItemSplit | None, tuple[str, ...] | None]  # train, test, class names
