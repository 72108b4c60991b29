"""The cache of decoded images on disk. `ItemSplit` and `search` read and write it; `twofold cache` lists and clears it.

The images of a set here have one size; `picture_cache.py` stores pictures of different sizes in the same kind of files.

A cached set consists of three files. `KEY.u8` contains the uint8 rows, `KEY.marks` a hash of each row's file, and
`KEY.json` the metadata. Each is written to a temporary file and renamed when complete, the JSON last, so a set that can
be read is complete.

The JSON contains a checksum of each block and its own. Twofold verifies all of them at each start, on all cores. A
damaged set is decoded again. If some images of a folder have changed, the unchanged
rows are copied from earlier sets. Least recently used sets are removed first to make room.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np

from twofold.checksums import block_checksums, seal
from twofold.errors import TwofoldError
from twofold.files import atomic, cache_folder, is_temporary, open_regular, read_regular, sync
from twofold.schema import anything, fields, items, read_json, text, whole
from twofold.text import bytes_in_words

if TYPE_CHECKING:
    from twofold.data.picture_cache import PictureArray

CACHE_FORMAT = 3  # increase this number if decoding changes, so that older files are not used
IN_USE_SECONDS = 60  # a process that decodes images writes more often
ABANDONED_SECONDS = 24 * 3600
CHECKSUM_BYTES = 2**22  # the size of a block, which has one checksum
ROW_HASH_BYTES = 16
ROW_HASHES = np.dtype(f"S{ROW_HASH_BYTES}")  # an array of these needs a tenth of the memory of a dict of bytes
SUFFIXES = (".json", ".marks", ".u8")  # the files of a set, in the order in which they are removed
INDEX_FOLDER = "index"  # contains the indexes that readers/file_index.py saves
DISK_SHARE = 0.5  # the share of the free disk space that all decoded images together may use

# What the JSON of a set contains. A skipped image is the number of its row and the reason.
METADATA = fields(
    {
        "shape": items(anything),
        "count": whole(),
        "skipped": items(lambda value: items(anything, 2)(value) or whole()(value[0]) or text(value[1])),
        "checksums": items(whole()),
    },
    {"bytes": whole(), "source": text},
)


@dataclass(frozen=True)
class Decoded:
    images: np.ndarray  # uint8 [n, C, H, W], often a read-only memory-mapped file
    skipped: dict[int, str]  # position among the requested rows → reason
    pictures: PictureArray | None = None  # n pictures, if they were requested
    slow: Mapping[int, float] = field(default_factory=dict)  # row of the source → seconds, if decoding it took long


def size_limit() -> float:
    """Return how many bytes the cache may use: TWOFOLD_CACHE_GB, or half of the disk space that is free without it."""
    asked = os.environ.get("TWOFOLD_CACHE_GB")
    if asked:
        try:
            return float(asked) * 1e9
        except ValueError:
            raise TwofoldError(
                f"TWOFOLD_CACHE_GB={asked} is not a number of gigabytes; change it or unset it"
            ) from None
    free = shutil.disk_usage(_nearest_existing(cache_folder())).free
    return DISK_SHARE * (free + sum(entry.bytes for entry in cached_sets()))


@dataclass(frozen=True)
class CachedSet:
    key: str
    bytes: int
    used: float  # the time of the last use, in seconds since 1970

    @property
    def source(self) -> str:
        """The folder or file that the images are from, or "" if it is not known."""
        try:
            return read_metadata(cache_folder() / f"{self.key}.json").get("source", "")
        except TwofoldError:
            return ""


def cached_sets() -> list[CachedSet]:
    """Return all cached sets, least recently used first."""
    found = []
    for sidecar in cache_folder().glob("*.json"):
        try:
            size = sidecar.with_suffix(".u8").stat().st_size + sidecar.stat().st_size  # the row hashes are negligible
            found.append(CachedSet(sidecar.stem, size, sidecar.stat().st_mtime))
        except OSError:
            continue  # another process has just removed it
    return sorted(found, key=lambda entry: entry.used)


def remove_set(entry: CachedSet) -> None:
    """Remove a set, the JSON first, so that no incomplete set looks complete.

    Another process that has mapped the set can still use it.
    """
    for ending in SUFFIXES:
        (cache_folder() / f"{entry.key}{ending}").unlink(missing_ok=True)


def folder_indexes() -> list[Path]:
    """Return the index files of folders and lists."""
    return sorted((cache_folder() / INDEX_FOLDER).glob("*.npz"))


def incomplete_files() -> dict[Path, int]:
    """Return the temporary files of the cache and their sizes. They belong to running processes, or to killed ones."""
    folders = (cache_folder(), cache_folder() / INDEX_FOLDER)
    paths = (path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir()))
    return {path: path.stat().st_size for path in paths if is_temporary(path)}


def remove_incomplete(files: dict[Path, int]) -> dict[Path, int]:
    """Remove these temporary files and return the removed ones. A file that was just written is still in use."""
    unused = {path: size for path, size in files.items() if path.stat().st_mtime < time.time() - IN_USE_SECONDS}
    for path in unused:
        path.unlink(missing_ok=True)
    return unused


def make_room(needed: int, family: str) -> None:
    """Remove least recently used sets until `needed` more bytes fit; raise an error if the disk has no room for them.

    Sets of the same `family` stay, so that a training set is not removed to make room for its test set.
    """
    over = sum(entry.bytes for entry in cached_sets()) + needed - size_limit()
    for entry in cached_sets():
        if over > 0 and not entry.key.startswith(f"{family}-"):
            remove_set(entry)
            over -= entry.bytes
    free = shutil.disk_usage(_nearest_existing(cache_folder())).free
    if needed > free:
        raise TwofoldError(
            f"the decoded images need {bytes_in_words(needed)} in {cache_folder()}, which has {bytes_in_words(free)} "
            "free; free some disk space, reduce image_size, or set TWOFOLD_CACHE to another folder"
        )


def read_set(key: str, row_shape: tuple[int, ...]) -> Decoded | None:
    """Return the set that `write_set` wrote under this key, or None if it is missing or damaged."""
    found = read_file(key, list(row_shape))
    if found is None:
        return None
    try:
        return Decoded(map_rows(found.pixels, found.metadata, row_shape), found.skipped)
    except (OSError, ValueError):
        return None


@dataclass(frozen=True)
class CachedFile:
    """An intact file of pixels, and what its JSON says."""

    pixels: Path
    metadata: dict[str, Any]
    skipped: dict[int, str]


def read_file(key: str, shape: list[Any]) -> CachedFile | None:
    """Return the file of a key if it has rows of this shape and is intact, and record its use."""
    pixels, sidecar = paths_of(key)
    try:
        metadata = read_metadata(sidecar)
        skipped = dict(metadata["skipped"])
        if metadata["shape"] != shape or max(skipped, default=-1) >= metadata["count"] + len(skipped):
            return None
        if "bytes" not in metadata and not all(isinstance(side, int) for side in shape):  # pictures need it
            return None
        expected = metadata["bytes"] if "bytes" in metadata else metadata["count"] * int(np.prod(shape))
        if pixels.stat().st_size != expected or not _checksums_match(pixels, metadata):
            return None
        with contextlib.suppress(OSError):  # a cache that belongs to another user can still be read
            os.utime(sidecar)  # records the time of the last use
    except (OSError, ValueError, TwofoldError):
        return None
    return CachedFile(pixels, metadata, skipped)


def read_metadata(sidecar: Path) -> dict[str, Any]:
    """Return the JSON of a set, or raise TwofoldError if it is damaged; the set is then decoded again."""
    return read_json(sidecar, METADATA, "remove it")


def map_rows(pixels: Path, metadata: dict[str, Any], row_shape: tuple[int, ...]) -> np.ndarray:
    return np.memmap(pixels, np.uint8, "r", shape=(metadata["count"], *row_shape))


class Rows(Protocol):
    """The rows of a set: an array, or pictures of different sizes."""

    def __getitem__(self, row: int, /) -> Any: ...


@dataclass(frozen=True)
class FoundRows:
    """Requested rows that some cached set contains."""

    sets: list[Rows]
    places: np.ndarray  # int64 [n, 2]: the number of the set and of the row in it; −1 if no set contains the row

    def __getitem__(self, number: int) -> Any:
        """Return the requested row of this number, or None if no set contains it."""
        at, row = self.places[number]
        return self.sets[at][row] if at >= 0 else None

    @property
    def missing(self) -> np.ndarray:
        """The positions of the requested rows that no set contains."""
        return np.flatnonzero(self.places[:, 0] < 0)


OpenRows = Callable[[Path, dict[str, Any]], Rows]  # (file, what its JSON says) → rows


def find_rows(
    shape: Sequence[Any], row_hashes: np.ndarray | Sequence[bytes], open_rows: OpenRows | None = None
) -> FoundRows:
    """Find the rows with these hashes in any set with rows of this shape. Recently used sets are searched first."""
    open_rows = open_rows or (lambda pixels, metadata: map_rows(pixels, metadata, tuple(shape)))
    wanted = np.asarray(row_hashes, ROW_HASHES)
    order = np.argsort(wanted)
    ascending = wanted[order]
    found = FoundRows([], np.full((len(row_hashes), 2), -1, np.int64))
    for entry in reversed(cached_sets()):
        if not len(found.missing):
            break
        sidecar, hashes_file, pixels = (cache_folder() / f"{entry.key}{ending}" for ending in SUFFIXES)
        try:
            metadata = read_metadata(sidecar)
            if metadata["shape"] != list(shape) or not entry.key.endswith(f"-{CACHE_FORMAT}"):
                continue
            blob = read_regular(hashes_file, ROW_HASH_BYTES * metadata["count"])
            if len(blob) != ROW_HASH_BYTES * metadata["count"]:
                continue
            here = np.frombuffer(blob, ROW_HASHES)
            place = np.searchsorted(ascending, here).clip(max=len(ascending) - 1)
            rows_here = np.flatnonzero(ascending[place] == here)
            numbers = order[place[rows_here]]
            is_missing = found.places[numbers, 0] < 0
            if not is_missing.any() or not _checksums_match(pixels, metadata):
                continue
            rows = open_rows(pixels, metadata)
        except (OSError, ValueError, TwofoldError):
            continue
        found.places[numbers[is_missing], 0] = len(found.sets)
        found.places[numbers[is_missing], 1] = rows_here[is_missing]
        found.sets.append(rows)
    return found


def _checksums_match(pixels: Path, metadata: dict[str, Any]) -> bool:
    """Whether all blocks have their checksums. A core verifies about 2 GB/s."""
    with open_regular(pixels) as file:
        size = os.fstat(file.fileno()).st_size
        if -(-size // CHECKSUM_BYTES) != len(metadata["checksums"]):
            return False
        return list(block_checksums(file.fileno(), size, CHECKSUM_BYTES)) == metadata["checksums"]


class ChecksumWriter:
    """Writes to a file and collects the checksum of each block."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.checksums, self.written = file, list[int](), 0

    def write(self, content: bytes) -> None:
        self.file.write(content)
        while content:
            room = CHECKSUM_BYTES - self.written % CHECKSUM_BYTES
            if room == CHECKSUM_BYTES:
                self.checksums.append(0)
            self.checksums[-1] = zlib.crc32(content[:room], self.checksums[-1])
            self.written += len(content[:room])
            content = content[room:]


def write_set(
    key: str,
    row_shape: tuple[int, ...],
    rows: Iterable[np.ndarray | str],
    *,
    expected: int | None = None,
    row_hashes: np.ndarray | Sequence[bytes] | None = None,
    source: str = "",
) -> Decoded:
    """Write a set row by row, and return it as a memory-mapped file.

    Parameters
    ----------
    key
        The name of the set.
    row_shape
        The shape [C, H, W] of each row.
    rows
        The uint8 rows, or the reason, as text, for a row that is missing.
    expected
        The number of rows to make room for. Least recently used sets are removed if necessary.
    row_hashes
        One hash of ROW_HASH_BYTES for each row. `find_rows` finds the rows by them.
    source
        The folder or file that the rows are from, for `twofold cache`.
    """
    skipped: dict[int, str] = {}
    count = 0
    metadata: dict[str, Any] = {"shape": list(row_shape), "source": source}
    try:
        with writing_set(key, (expected or 0) * int(np.prod(row_shape)), metadata, row_hashes) as file:
            for number, row in enumerate(rows):
                if isinstance(row, str):
                    skipped[number] = row
                else:
                    file.write(row.tobytes())
                    count += 1
            if not count:
                raise _NoImages
            metadata |= {"count": count, "skipped": list(skipped.items())}
    except _NoImages:
        return Decoded(np.empty((0, *row_shape), np.uint8), skipped)
    return Decoded(map_rows(paths_of(key)[0], metadata, row_shape), skipped)


class _NoImages(Exception):
    """None of the rows is an image, so that no file is written."""


@contextlib.contextmanager
def writing_set(
    key: str,
    expected_bytes: int,
    metadata: dict[str, Any],
    row_hashes: np.ndarray | Sequence[bytes] | None = None,
) -> Iterator[ChecksumWriter]:
    """Make room, yield the file of a set, and add its hashes and its JSON at the end; after an error, write nothing.

    The caller adds `count` and `skipped` to the metadata before the block ends.
    """
    pixels, sidecar = paths_of(key)
    with _disk_errors(pixels.parent):
        pixels.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(pixels.parent)
        make_room(expected_bytes, key.rpartition("-")[0] or key)
        with atomic(pixels, durable=False, concurrent=True) as aside:
            # Plain writes instead of a memory map: a full disk then raises an error and does not kill the process.
            with aside.open("wb") as file:
                checked = ChecksumWriter(file)
                yield checked
            # The JSON states that the pixels are complete, so they must reach the disk before it. The rename is not
            # synced: a set that is lost in a power failure is decoded again.
            sync(aside)
            metadata |= {"checksums": checked.checksums}
            sidecar.unlink(missing_ok=True)  # the JSON of a damaged set must not describe the new one
        hashes = np.asarray(() if row_hashes is None else row_hashes, ROW_HASHES)
        skipped = [number for number, _ in metadata["skipped"] if number < len(hashes)]
        kept_hashes = np.delete(hashes, skipped).tobytes()
        for path, content in (
            (sidecar.with_suffix(".marks"), kept_hashes),
            (sidecar, json.dumps(seal(metadata)).encode()),
        ):
            with atomic(path, durable=False, concurrent=True) as aside:
                aside.write_bytes(content)


@contextlib.contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TwofoldError(
            f"cannot write decoded images to {folder}: {error.strerror or error}; "
            "free some disk space, or set TWOFOLD_CACHE to another folder"
        ) from error


def collect_in_memory(row_shape: tuple[int, ...], rows: Iterable[np.ndarray | str]) -> Decoded:
    """Collect a few rows in memory, without a file."""
    everything = list(rows)
    skipped = {number: row for number, row in enumerate(everything) if isinstance(row, str)}
    images = [row for row in everything if not isinstance(row, str)]
    stacked = np.stack(images) if images else np.empty((0, *row_shape), np.uint8)
    return Decoded(stacked, skipped)


def paths_of(key: str) -> tuple[Path, Path]:
    return cache_folder() / f"{key}-{CACHE_FORMAT}.u8", cache_folder() / f"{key}-{CACHE_FORMAT}.json"


def _nearest_existing(path: Path) -> Path:
    return next(parent for parent in (path, *path.absolute().parents) if parent.exists())


def _remove_abandoned(where: Path) -> None:
    """Remove temporary files of killed processes. A running process has written to its file within the last day."""
    for path in filter(is_temporary, where.iterdir()):
        if path.stat().st_mtime < time.time() - ABANDONED_SECONDS:
            path.unlink(missing_ok=True)
