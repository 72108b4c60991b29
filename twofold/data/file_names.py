"""`FileNames`: the file names of many images, in one array of bytes.

A list of strings needs about 60 bytes for each name in addition to its characters, and an array of bytes needs 9.
"""

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np

BLOCK = 4096  # names that are converted at a time
SEPARATOR = b"\0"  # no file name contains it


class FileNames(Sequence[str]):
    """File names as one text, separated by null characters. It is equal to any sequence of the same names.

    Parameters
    ----------
    joined
        The names as the file system spells them, with SEPARATOR between them.
    ends
        Where each name ends in `joined`, int64 [n]. Without it, `joined` is split at its separators.
    """

    def __init__(self, joined: bytes | bytearray, ends: np.ndarray | None = None):
        self.joined = joined
        characters = np.frombuffer(joined, np.uint8)
        self.ends = np.append(np.flatnonzero(characters == 0), len(joined)) if ends is None else ends

    @classmethod
    def of(cls, names: Iterable[str]) -> "FileNames":
        if isinstance(names, FileNames):
            return names
        return cls._of_bytes(map(os.fsencode, names))

    @classmethod
    def _of_bytes(cls, names: Iterable[bytes | bytearray]) -> "FileNames":
        joined, ends = bytearray(), array("q")
        for name in names:
            if ends:
                joined += SEPARATOR
            joined += name
            ends.append(len(joined))
        return cls(joined, np.array(ends, np.int64))

    def __len__(self) -> int:
        return len(self.ends)

    def _bounds(self, rows: np.ndarray) -> Iterator[tuple[int, int]]:
        """Yield where the names of these rows start and end."""
        for first in range(0, len(rows), BLOCK):
            some = rows[first : first + BLOCK]
            starts = np.where(some > 0, self.ends[some - 1] + len(SEPARATOR), 0)
            yield from zip(starts.tolist(), self.ends[some].tolist(), strict=True)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> "FileNames": ...
    def __getitem__(self, row: int | slice) -> "str | FileNames":
        if isinstance(row, slice):
            return self.take(np.arange(len(self))[row])
        ((start, end),) = self._bounds(np.array([range(len(self))[row]]))
        return os.fsdecode(bytes(self.joined[start:end]))

    def __iter__(self) -> Iterator[str]:
        for start, end in self._bounds(np.arange(len(self))):
            yield os.fsdecode(bytes(self.joined[start:end]))

    def index(self, name: str, start: int = 0, stop: int | None = None) -> int:
        """Return the row of a name, or raise ValueError."""
        key, rows = os.fsencode(name), range(len(self))[start:stop]
        at = 0 if self.joined.startswith(key) else -1
        while True:
            row = int(np.searchsorted(self.ends, at + len(key)))
            if at >= 0 and row in rows and self[row] == name:
                return row
            at = self.joined.find(SEPARATOR + key, max(at, 0)) + len(SEPARATOR)
            if at < len(SEPARATOR):
                raise ValueError(f"{name} is not among the names")

    def take(self, rows: np.ndarray) -> "FileNames":
        """Return the names of these rows, int64."""
        if len(rows) == len(self) and np.array_equal(rows, np.arange(len(self))):
            return self
        return self._of_bytes(self.joined[start:end] for start, end in self._bounds(rows))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FileNames):
            return self.joined == other.joined and np.array_equal(self.ends, other.ends)
        if isinstance(other, Sequence) and not isinstance(other, str):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"FileNames({list(self)})"
