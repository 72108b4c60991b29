"""Decoded images on disk, so that no image file is decoded twice. `ItemSplit` and `search` read and write sets of them,
`twofold cache` lists and removes them.

A set is three files: `KEY.u8` holds uint8 rows one after the other, `KEY.marks` a hash of each row's file, and
`KEY.json` what they are. All are written aside and renamed when complete, the JSON last: what can be read
is complete. The JSON has a checksum of every block. Some are compared at each start, all of them where the file's time
is not the one it was written at; what differs is decoded again. A set that has changed takes the rows that are as they
were from earlier sets. The longest unused make room for new ones.
"""

import contextlib
import json
import os
import shutil
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from twofold.errors import TwofoldError
from twofold.files import atomic, cache_folder, is_temporary, sync
from twofold.text import bytes_in_words

CACHE_FORMAT = 3  # a new number where decoding changes, so that older files are not taken for the same pixels
ABANDONED_SECONDS = 24 * 3600
CHECKSUM_BYTES = 2**22  # of pixels, for which there is one checksum
CHECKED_BLOCKS = 8  # at every start: about ten milliseconds
ROW_HASH_BYTES = 16
SUFFIXES = (".json", ".marks", ".u8")  # of the files of a set; the first goes first when it is removed
INDEX_FOLDER = "index"  # where readers/file_index.py keeps what it knows of folders
DISK_SHARE = 0.5  # of what is free, for all decoded images together


@dataclass(frozen=True)
class Decoded:
    images: np.ndarray  # uint8 [n, C, H, W], often a read-only file that is mapped
    skipped: dict[int, str]  # number among the rows that were asked for → reason


def size_limit() -> float:
    """Bytes that all decoded images may take: TWOFOLD_CACHE_GB, or half of the disk that is free without them."""
    asked = os.environ.get("TWOFOLD_CACHE_GB")
    if asked:
        try:
            return float(asked) * 1e9
        except ValueError:
            raise TwofoldError(f"TWOFOLD_CACHE_GB={asked} is not a number of gigabytes") from None
    free = shutil.disk_usage(_nearest_existing(cache_folder())).free
    return DISK_SHARE * (free + sum(entry.bytes for entry in cached_sets()))


@dataclass(frozen=True)
class CachedSet:
    key: str
    bytes: int
    used: float  # when it was last asked for, in seconds since 1970


def cached_sets() -> list[CachedSet]:
    """All decoded sets, longest unused first."""
    found = []
    for sidecar in cache_folder().glob("*.json"):
        try:
            size = sidecar.with_suffix(".u8").stat().st_size + sidecar.stat().st_size  # row hashes are next to nothing
            found.append(CachedSet(sidecar.stem, size, sidecar.stat().st_mtime))
        except OSError:
            continue  # another process has just removed it
    return sorted(found, key=lambda entry: entry.used)


def remove_set(entry: CachedSet) -> None:
    """The JSON first, so that no half is taken for a whole. A process that has it mapped keeps it."""
    for ending in SUFFIXES:
        (cache_folder() / f"{entry.key}{ending}").unlink(missing_ok=True)


def folder_indexes() -> list[Path]:
    """What is known of folders and lists without decoding, a file for each."""
    return sorted((cache_folder() / INDEX_FOLDER).glob("*.npz"))


def make_room(needed: int, family: str) -> None:
    """Remove what was longest unused until this much more is within the limit; refuse what the disk cannot hold.

    What belongs to the same images stays: a training set must not go to make room for its test set.
    """
    over = sum(entry.bytes for entry in cached_sets()) + needed - size_limit()
    for entry in cached_sets():
        if over > 0 and not entry.key.startswith(f"{family}-"):
            remove_set(entry)
            over -= entry.bytes
    free = shutil.disk_usage(_nearest_existing(cache_folder())).free
    if needed > free:
        raise TwofoldError(
            f"the decoded images need {bytes_in_words(needed)} in {cache_folder()}, where {bytes_in_words(free)} are "
            "free; make room, choose a smaller image_size, or set TWOFOLD_CACHE to another folder"
        )


def read_set(key: str, row_shape: tuple[int, ...]) -> Decoded | None:
    """What `write_set` wrote under this key; None where there is nothing, or not all of it as it was written."""
    pixels, sidecar = _paths(key)
    try:
        metadata = json.loads(sidecar.read_text())
        count, skipped = metadata["count"], {int(row): str(reason) for row, reason in metadata["skipped"]}
        if pixels.stat().st_size != count * int(np.prod(row_shape)):
            return None
        if not _checksums_match(pixels, metadata):
            return None
        with contextlib.suppress(OSError):  # a cache that others keep can still be read
            os.utime(sidecar)  # it was used now
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Decoded(np.memmap(pixels, np.uint8, "r", shape=(count, *row_shape)), skipped)


@dataclass(frozen=True)
class FoundRows:
    """Rows that were asked for and are in some set."""

    sets: list[np.ndarray]
    places: np.ndarray  # int64 [n, 2]: number of the set and of its row; −1 where none has it

    def __getitem__(self, number: int) -> np.ndarray | None:
        at, row = self.places[number]
        return self.sets[at][row] if at >= 0 else None

    @property
    def missing(self) -> np.ndarray:
        """Numbers of the others."""
        return np.flatnonzero(self.places[:, 0] < 0)


def find_rows(row_shape: tuple[int, ...], row_hashes: Sequence[bytes]) -> FoundRows:
    """The rows with these hashes, of any set; those that were used last come first."""
    wanted = {row_hash: number for number, row_hash in enumerate(row_hashes)}
    found = FoundRows([], np.full((len(row_hashes), 2), -1, np.int64))
    for entry in reversed(cached_sets()):
        if not wanted:
            break
        sidecar, hashes_file, pixels = (cache_folder() / f"{entry.key}{ending}" for ending in SUFFIXES)
        try:
            metadata = json.loads(sidecar.read_text())
            if metadata["shape"] != list(row_shape) or not entry.key.endswith(f"-{CACHE_FORMAT}"):
                continue
            blob = hashes_file.read_bytes()
            here = [blob[at : at + ROW_HASH_BYTES] for at in range(0, len(blob), ROW_HASH_BYTES)]
            is_complete = len(blob) == ROW_HASH_BYTES * metadata["count"]
            if not is_complete or wanted.keys().isdisjoint(here) or not _checksums_match(pixels, metadata):
                continue
            images = np.memmap(pixels, np.uint8, "r", shape=(len(here), *row_shape))
        except (OSError, ValueError, KeyError, TypeError):
            continue
        for row, row_hash in enumerate(here):
            number = wanted.pop(row_hash, None)
            if number is not None:
                found.places[number] = len(found.sets), row
        found.sets.append(images)
    return found


def _checksums_match(pixels: Path, metadata: dict[str, Any]) -> bool:
    """Whether blocks have their checksums: the first, the last and some between; all of them where the file's time is
    not the one it was written at."""
    status, checksums = pixels.stat(), metadata["checksums"]
    every = status.st_mtime_ns != metadata["written"]
    blocks = -(-status.st_size // CHECKSUM_BYTES)
    if len(checksums) != blocks:
        return False
    chosen = range(blocks) if every else np.unique(np.linspace(0, blocks - 1, CHECKED_BLOCKS, dtype=np.int64)).tolist()
    with pixels.open("rb") as file:
        for block in chosen:
            file.seek(block * CHECKSUM_BYTES)
            if zlib.crc32(file.read(CHECKSUM_BYTES)) != checksums[block]:
                return False
    return True


class _ChecksumWriter:
    """Writes to a file and gathers the checksum of every block."""

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
    row_hashes: Sequence[bytes] | None = None,
) -> Decoded:
    """Write the rows as they come, one at a time, and map the file; a text in place of a row says why it is missing.

    `expected` rows are made room for, at the cost of what was longest unused. By their `row_hashes`, one for each row,
    they can be found again when they belong to another set.
    """
    pixels, sidecar = _paths(key)
    try:
        pixels.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(pixels.parent)
        make_room((expected or 0) * int(np.prod(row_shape)), key.rpartition("-")[0] or key)
        try:
            count, skipped, metadata = _write_pixels(pixels, sidecar, rows)
        except _NoImages as none:
            return Decoded(np.empty((0, *row_shape), np.uint8), none.skipped)
        kept_hashes = b"".join(row_hash for number, row_hash in enumerate(row_hashes or ()) if number not in skipped)
        metadata = {"count": count, "shape": list(row_shape), "skipped": list(skipped.items()), **metadata}
        for path, content in ((sidecar.with_suffix(".marks"), kept_hashes), (sidecar, json.dumps(metadata).encode())):
            with atomic(path, durable=False, concurrent=True) as aside:
                aside.write_bytes(content)
        return Decoded(np.memmap(pixels, np.uint8, "r", shape=(count, *row_shape)), skipped)
    except OSError as error:
        raise TwofoldError(
            f"cannot write decoded images to {pixels.parent}: {error.strerror or error}; "
            "make room there, or set TWOFOLD_CACHE to another folder"
        ) from error


class _NoImages(Exception):
    """None of the rows is an image, so no file is written."""

    def __init__(self, skipped: dict[int, str]) -> None:
        super().__init__()
        self.skipped = skipped


def _write_pixels(
    pixels: Path, sidecar: Path, rows: Iterable[np.ndarray | str]
) -> tuple[int, dict[int, str], dict[str, Any]]:
    """How many rows were written, why others are missing, and time and checksums for the JSON."""
    skipped: dict[int, str] = {}
    count = 0
    with atomic(pixels, durable=False, concurrent=True) as aside:
        # Plain writes, not a mapping: a full disk is then an error, and not a signal that ends the process.
        with aside.open("wb") as file:
            checked = _ChecksumWriter(file)
            for number, row in enumerate(rows):
                if isinstance(row, str):
                    skipped[number] = row
                else:
                    checked.write(row.tobytes())
                    count += 1
        if not count:
            raise _NoImages(skipped)
        # The JSON says that the pixels are complete, so they must be on the disk before it. The rename need not be: a
        # set that is lost with the power is decoded again.
        sync(aside)
        written = aside.stat().st_mtime_ns
        sidecar.unlink(missing_ok=True)  # of a damaged file: it must not be taken for the new one's
    return count, skipped, {"written": written, "checksums": checked.checksums}


def collect_in_memory(row_shape: tuple[int, ...], rows: Iterable[np.ndarray | str]) -> Decoded:
    """The same without a file, for few rows."""
    everything = list(rows)
    skipped = {number: row for number, row in enumerate(everything) if isinstance(row, str)}
    images = [row for row in everything if not isinstance(row, str)]
    stacked = np.stack(images) if images else np.empty((0, *row_shape), np.uint8)
    return Decoded(stacked, skipped)


def _paths(key: str) -> tuple[Path, Path]:
    return cache_folder() / f"{key}-{CACHE_FORMAT}.u8", cache_folder() / f"{key}-{CACHE_FORMAT}.json"


def _nearest_existing(path: Path) -> Path:
    return next(parent for parent in (path, *path.absolute().parents) if parent.exists())


def _remove_abandoned(where: Path) -> None:
    """What a killed process left behind; one that still runs has written to its file within the day."""
    for path in filter(is_temporary, where.iterdir()):
        if path.stat().st_mtime < time.time() - ABANDONED_SECONDS:
            path.unlink(missing_ok=True)
