"""Decoded images on disk: `KEY.u8` holds uint8 rows one after the other, `KEY.marks` which file each of them is of, and
`KEY.json` says what they are.

All are written aside and renamed when complete, the JSON last: what can be read is whole. The JSON has a checksum of
every block. Some are compared at each start, all of them where the file's time is not the one it was written at; what
differs is decoded again. A set that has changed takes the rows that are as they were from what was kept. The longest
unused make room for new ones.
"""

import contextlib
import json
import os
import shutil
import time
import warnings
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from twofold.errors import TwofoldError
from twofold.files import atomic, cache_folder, is_temporary, sync
from twofold.text import bytes_in_words

FORMAT = 3  # a new number where decoding changes, so that older files are not taken for the same pixels
ABANDONED_SECONDS = 24 * 3600
BLOCK_BYTES = 2**22  # of one checksum
CHECKED_BLOCKS = 8  # at every start: about ten milliseconds
MARK_BYTES = 16
ENDINGS = (".json", ".marks", ".u8")
INDEXES = "index"  # the folder of those of `files`
DISK_SHARE = 0.5  # of what is free, for all decoded images together


@dataclass(frozen=True)
class Decoded:
    images: Tensor  # uint8 [n, C, H, W]
    skipped: dict[int, str]  # number among the rows that were asked for → reason


def limit() -> float:
    """Bytes that all decoded images may take: TWOFOLD_CACHE_GB, or half of the disk that is free without them."""
    asked = os.environ.get("TWOFOLD_CACHE_GB")
    if asked:
        try:
            return float(asked) * 1e9
        except ValueError:
            raise TwofoldError(f"TWOFOLD_CACHE_GB={asked} is not a number of gigabytes") from None
    return DISK_SHARE * (shutil.disk_usage(_existing(cache_folder())).free + sum(entry.bytes for entry in entries()))


@dataclass(frozen=True)
class Entry:
    key: str
    bytes: int
    used: float  # when it was last asked for, in seconds since 1970


def entries() -> list[Entry]:
    """All decoded sets, longest unused first."""
    found = []
    for sidecar in cache_folder().glob("*.json"):
        try:
            size = sidecar.with_suffix(".u8").stat().st_size + sidecar.stat().st_size  # marks are next to nothing
            found.append(Entry(sidecar.stem, size, sidecar.stat().st_mtime))
        except OSError:
            continue  # another process has just removed it
    return sorted(found, key=lambda entry: entry.used)


def remove(entry: Entry) -> None:
    """The JSON first, so that no half is taken for a whole. A process that has it mapped keeps it."""
    for ending in ENDINGS:
        (cache_folder() / f"{entry.key}{ending}").unlink(missing_ok=True)


def indexes() -> list[Path]:
    """What is known of folders and lists without decoding, a file for each."""
    return sorted((cache_folder() / INDEXES).glob("*.npz"))


def make_room(needed: int, family: str) -> None:
    """Remove what was longest unused until this much more is within the limit; refuse what the disk cannot hold.

    What belongs to the same images stays: a training set must not go to make room for its test set.
    """
    over = sum(entry.bytes for entry in entries()) + needed - limit()
    for entry in entries():
        if over > 0 and not entry.key.startswith(f"{family}-"):
            remove(entry)
            over -= entry.bytes
    free = shutil.disk_usage(_existing(cache_folder())).free
    if needed > free:
        raise TwofoldError(
            f"the decoded images need {bytes_in_words(needed)} in {cache_folder()}, where {bytes_in_words(free)} are "
            "free; make room, choose a smaller image_size, or set TWOFOLD_CACHE to another folder"
        )


def recall(key: str, row_shape: tuple[int, ...]) -> Decoded | None:
    """What `record` kept under this key; None where there is nothing, or not all of it as it was written."""
    pixels, sidecar = _paths(key)
    try:
        record = json.loads(sidecar.read_text())
        count, skipped = record["count"], {int(row): str(reason) for row, reason in record["skipped"]}
        if pixels.stat().st_size != count * int(np.prod(row_shape)):
            return None
        if not _sound(pixels, record):
            return None
        with contextlib.suppress(OSError):  # a cache that others keep can still be read
            os.utime(sidecar)  # it was used now
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Decoded(mapped(np.memmap(pixels, np.uint8, "r", shape=(count, *row_shape))), skipped)


@dataclass(frozen=True)
class Kept:
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


def kept(row_shape: tuple[int, ...], marks: Sequence[bytes]) -> Kept:
    """The rows with these marks, of any set; those that were used last come first."""
    wanted = {mark: number for number, mark in enumerate(marks)}
    found = Kept([], np.full((len(marks), 2), -1, np.int64))
    for entry in reversed(entries()):
        if not wanted:
            break
        sidecar, marked, pixels = (cache_folder() / f"{entry.key}{ending}" for ending in ENDINGS)
        try:
            record = json.loads(sidecar.read_text())
            if record["shape"] != list(row_shape) or not entry.key.endswith(f"-{FORMAT}"):
                continue
            blob = marked.read_bytes()
            here = [blob[at : at + MARK_BYTES] for at in range(0, len(blob), MARK_BYTES)]
            whole = len(blob) == MARK_BYTES * record["count"]
            if not whole or wanted.keys().isdisjoint(here) or not _sound(pixels, record):
                continue
            images = np.memmap(pixels, np.uint8, "r", shape=(len(here), *row_shape))
        except (OSError, ValueError, KeyError, TypeError):
            continue
        for row, mark in enumerate(here):
            number = wanted.pop(mark, None)
            if number is not None:
                found.places[number] = len(found.sets), row
        found.sets.append(images)
    return found


def _sound(pixels: Path, record: dict[str, Any]) -> bool:
    """Whether blocks have their checksums: the first, the last and some between; all of them where the file's time is
    not the one it was written at."""
    status, checksums = pixels.stat(), record["checksums"]
    every = status.st_mtime_ns != record["written"]
    blocks = -(-status.st_size // BLOCK_BYTES)
    if len(checksums) != blocks:
        return False
    chosen = range(blocks) if every else np.unique(np.linspace(0, blocks - 1, CHECKED_BLOCKS, dtype=np.int64)).tolist()
    with pixels.open("rb") as file:
        for block in chosen:
            file.seek(block * BLOCK_BYTES)
            if zlib.crc32(file.read(BLOCK_BYTES)) != checksums[block]:
                return False
    return True


class _Checked:
    """Writes to a file and gathers the checksum of every block."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.checksums, self.written = file, list[int](), 0

    def write(self, content: bytes) -> None:
        self.file.write(content)
        while content:
            room = BLOCK_BYTES - self.written % BLOCK_BYTES
            if room == BLOCK_BYTES:
                self.checksums.append(0)
            self.checksums[-1] = zlib.crc32(content[:room], self.checksums[-1])
            self.written += len(content[:room])
            content = content[room:]


class _NoImages(Exception):
    """None of the rows is an image, so that no file is kept."""


def record(
    key: str,
    row_shape: tuple[int, ...],
    rows: Iterable[np.ndarray | str],
    *,
    expected: int | None = None,
    marks: Sequence[bytes] | None = None,
) -> Decoded:
    """Write the rows as they come, one at a time, and map the file; a text in place of a row says why it is missing.

    `expected` rows are made room for, at the cost of what was longest unused. By their `marks`, one for each row, they
    can be found again when they belong to another set.
    """
    pixels, sidecar = _paths(key)
    skipped: dict[int, str] = {}
    count = 0
    try:
        pixels.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(pixels.parent)
        make_room((expected or 0) * int(np.prod(row_shape)), key.rpartition("-")[0] or key)
        # Plain writes, not a mapping: a full disk is then an error, and not a signal that ends the process.
        with atomic(pixels, durable=False, concurrent=True) as aside:
            with aside.open("wb") as file:
                checked = _Checked(file)
                for number, row in enumerate(rows):
                    if isinstance(row, str):
                        skipped[number] = row
                    else:
                        checked.write(row.tobytes())
                        count += 1
            if not count:
                raise _NoImages
            # The JSON vouches for the content, which must be on the disk before it. Files that a loss of power takes
            # are decoded again.
            sync(aside)
            written = aside.stat().st_mtime_ns
            sidecar.unlink(missing_ok=True)  # of a damaged file: it must not be taken for the new one's
        marks_there = b"".join(mark for number, mark in enumerate(marks or ()) if number not in skipped)
        about = {
            "count": count,
            "shape": list(row_shape),
            "skipped": list(skipped.items()),
            "written": written,
            "checksums": checked.checksums,
        }
        for path, content in ((sidecar.with_suffix(".marks"), marks_there), (sidecar, json.dumps(about).encode())):
            with atomic(path, durable=False, concurrent=True) as aside:
                aside.write_bytes(content)
        return Decoded(mapped(np.memmap(pixels, np.uint8, "r", shape=(count, *row_shape))), skipped)
    except _NoImages:
        return Decoded(torch.empty((0, *row_shape), dtype=torch.uint8), skipped)
    except OSError as error:
        raise TwofoldError(
            f"cannot write decoded images to {pixels.parent}: {error.strerror or error}; "
            "make room there, or set TWOFOLD_CACHE to another folder"
        ) from error


def in_memory(row_shape: tuple[int, ...], rows: Iterable[np.ndarray | str]) -> Decoded:
    """The same without a file, for few rows."""
    kept = list(rows)
    skipped = {number: row for number, row in enumerate(kept) if isinstance(row, str)}
    images = [row for row in kept if not isinstance(row, str)]
    stacked = np.stack(images) if images else np.empty((0, *row_shape), np.uint8)
    return Decoded(torch.from_numpy(stacked), skipped)


def mapped(array: np.ndarray) -> Tensor:
    """A tensor over a read-only array, without a copy. Nothing writes into a store's images."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def _paths(key: str) -> tuple[Path, Path]:
    return cache_folder() / f"{key}-{FORMAT}.u8", cache_folder() / f"{key}-{FORMAT}.json"


def _existing(path: Path) -> Path:
    return next(parent for parent in (path, *path.absolute().parents) if parent.exists())


def _remove_abandoned(where: Path) -> None:
    """What a killed process left behind; one that still runs has written to its file within the day."""
    for path in filter(is_temporary, where.iterdir()):
        if path.stat().st_mtime < time.time() - ABANDONED_SECONDS:
            path.unlink(missing_ok=True)
