"""Checksums of classifier rows and of undo files, and the search for damaged rows. `row_store.py` has the format.

A record begins with the step of the row's last use and a checksum, both uint32. Both are 0 if the row was never used.
"""

import json
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from twofold.checksums import unseal

HEAD_BYTES = 8  # step and checksum at the start of a record
BLOCK = struct.Struct("<8sQQQ")  # name, number of rows never used, number of rows used, checksum of these and the body
BLOCK_NAME = b"2fold-02"
ROW_FACTOR = 2_654_435_761  # odd, so that different rows begin with different values
SCAN_BYTES = 2**24  # of rows.bin that are read at a time


def last_use(records: np.ndarray) -> np.ndarray:
    """Return the step of the last use of each record, int64 [R]."""
    return records[:, :4].view(np.uint32)[:, 0].astype(np.int64)


def set_checksums(index_R: np.ndarray, records: np.ndarray) -> None:
    """Write the checksum of each record, which depends on the number of the row, the step and the values."""
    records[:, 4:HEAD_BYTES].view(np.uint32)[:, 0] = _checksums(index_R, records)


def find_damaged(index_R: np.ndarray, records: np.ndarray, step: int | None = None) -> np.ndarray:
    """Return whether each record is damaged, bool [R]: its checksum is wrong, or it is from after `step`."""
    written = np.flatnonzero(records[:, :HEAD_BYTES].any(axis=1))  # the others were never used
    damaged_R = np.zeros(len(records), dtype=bool)
    found = records[written, 4:HEAD_BYTES].copy().view(np.uint32)[:, 0]
    damaged_R[written] = found != _checksums(index_R[written], records[written])
    since_R = last_use(records)
    damaged_R[written] |= since_R[written] == 0
    return damaged_R if step is None else damaged_R | (since_R > step)


def _checksums(index_R: np.ndarray, records: np.ndarray) -> list[int]:
    # The checksum of the values continues from a value that is different for each row and step, so that a record with a
    # flipped bit in its step, or in the place of another one, has another checksum.
    starts = [
        (row * ROW_FACTOR ^ step) & 0xFFFFFFFF for row, step in zip(index_R.tolist(), last_use(records), strict=True)
    ]
    content = np.ascontiguousarray(records).reshape(-1).data
    size = records.shape[1]
    return [zlib.crc32(content[at * size + HEAD_BYTES : (at + 1) * size], start) for at, start in enumerate(starts)]


def undo_block(fresh_R: np.ndarray, used_R: np.ndarray, records: np.ndarray) -> bytes:
    """Return a block of an undo file: rows never used, rows used, and the records of the latter."""
    body = b"".join(part.tobytes() for part in (fresh_R.astype("<i8"), used_R.astype("<i8"), records))
    sizes = len(fresh_R), len(used_R)
    return BLOCK.pack(BLOCK_NAME, *sizes, _block_checksum(*sizes, body)) + body


def _block_checksum(fresh: int, used: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(BLOCK.pack(BLOCK_NAME, fresh, used, 0)))


def undo_blocks(undo: Path, record_bytes: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Read an undo file: rows never used, rows used, and the records of the latter.

    It ends where a kill or a power failure cut the file off. Rows of that last block were not written to rows.bin. If
    the file is damaged there instead, `find_damaged_rows` finds rows in rows.bin that should have been undone.
    """
    size_left = undo.stat().st_size
    with undo.open("rb") as file:
        while len(head := file.read(BLOCK.size)) == BLOCK.size:
            name, fresh, used, checksum = BLOCK.unpack(head)
            size, size_left = 8 * (fresh + used) + used * record_bytes, size_left - BLOCK.size
            if name != BLOCK_NAME or size > size_left:
                return
            body, size_left = file.read(size), size_left - size
            if len(body) != size or _block_checksum(fresh, used, body) != checksum:
                return
            index = np.frombuffer(body, dtype="<i8", count=fresh + used)
            records = np.frombuffer(body, dtype=np.uint8, offset=8 * (fresh + used)).reshape(used, record_bytes)
            yield index[:fresh], index[fresh:], records


def find_damaged_rows(file: int, record_bytes: int, undo: Sequence[Path], step: int) -> list[int]:
    """Return the rows that would be damaged after returning to the mark of `step`. This writes nothing.

    `file` is the open rows.bin: opening and closing it here would end this process's lock. `undo` has the undo files of
    this mark and of later ones, oldest first. If a row is in several, the oldest has its value at the mark.
    """
    rows = os.fstat(file).st_size // record_bytes
    is_restored, damaged = np.zeros(rows, dtype=bool), list[int]()
    for path in undo:
        for fresh_R, used_R, records in undo_blocks(path, record_bytes):
            is_damaged = find_damaged(used_R, records, step) & ~is_restored[used_R]
            damaged += used_R[is_damaged].tolist()
            is_restored[fresh_R] = is_restored[used_R] = True
    count = max(1, SCAN_BYTES // record_bytes)
    start = 0
    while (start := _skip_hole(file, start, record_bytes)) < rows:
        content = os.pread(file, min(count, rows - start) * record_bytes, start * record_bytes)
        records = np.frombuffer(content, dtype=np.uint8).reshape(-1, record_bytes)
        index_R = np.flatnonzero(~is_restored[start : start + len(records)])
        is_damaged = find_damaged(index_R + start, records[index_R], step)
        damaged += (index_R[is_damaged] + start).tolist()
        start += len(records)
    return sorted(damaged)


def _skip_hole(file: int, row: int, record_bytes: int) -> int:
    """Return the first row from this one on that was ever written. A classifier can have many rows that never were."""
    if not hasattr(os, "SEEK_DATA"):
        return row
    try:
        return max(row, os.lseek(file, row * record_bytes, os.SEEK_DATA) // record_bytes)
    except OSError:  # there is only a hole until the end
        return os.fstat(file).st_size // record_bytes


def find_damaged_in(folder: Path, step: int) -> list[int]:
    """Return the damaged rows in a folder that no run uses now, if it returned to the mark of `step`."""
    description = folder / "head.json"
    rows = int(unseal(json.loads(description.read_text()), description)["rows"])
    undo = [(int(path.stem.split("-")[1]), path) for path in folder.glob("undo-*.bin")]
    with (folder / "rows.bin").open("rb") as file:
        record_bytes = os.fstat(file.fileno()).st_size // rows
        later = [path for mark, path in sorted(undo) if mark >= step]
        return find_damaged_rows(file.fileno(), record_bytes, later, step)
