"""Storage for the rows of a per-image classifier: in memory, or in a folder that survives a kill or power failure.

    head.json        description of the classifier; written last when the folder is created
    rows.bin         one record for each row, by position; a hole in the file until the row is first written
    undo-STEP.bin    the values after STEP of rows that were written since then
    undo-STEP-P.bin  the same for process P = 1, 2, …, if several processes share the classifier
    schedule.bin     learning rates, float64, and their checksum as uint64

A mark is a saved state of all rows, identified by its step. If the process is killed or power fails, the rows return to
a mark: the values in the undo file are written back. A row is in the undo file before it is overwritten. To ensure
this, changed rows wait in memory (BUFFER_BYTES); they are written to rows.bin only after the undo file is synced. So
one sync serves many steps, and rows.bin itself is synced once for each mark. If all rows were used since the last mark,
the undo file is as large as rows.bin. A disk that loses synced data or returns wrong data is not covered.

A mark is kept until `forget_older`, because writing the checkpoint may fail after the next mark.

Several processes share one rows.bin. Each reads, writes and locks its own range of rows and has its own undo files.
Ranges begin at multiples of PAGE bytes, so that no two processes write to the same page; network file systems would not
keep their writes apart. The content of rows.bin does not depend on the number of processes. The procedure:
1. One process opens and locks all rows, writes back the undo files of all former processes, and closes the folder. The
   others wait for this. Then each process opens its range, which writes nothing back.
2. To save: every process sets a mark; all wait; the first process writes the checkpoint; all wait; every process
   forgets its older marks.
If any process is killed, all end, and the next run starts with 1. Let c be the step of the checkpoint then.
- Killed during 1: undo files are removed newest first, and each only after its content is safe in rows.bin. The
  remaining ones still lead to c.
- Killed before all processes set the mark s > c: some have undo files of s and of c, the others only of c. Both lead to
  c.
- Killed after that, before the checkpoint of s: all have undo files of s and of c.
- Killed after the checkpoint, so c = s: all have undo files of s; the remaining undo files of older marks are removed.
If a process is still alive when a new run starts, its range is still locked, and the new run is refused.

A record begins with the step of the row's last use and a checksum, both as uint32. 0 means never used; the rest of the
record is then meaningless. When a run opens the rows, all checksums are verified before anything is undone, and no row
may be from after the mark. `read` verifies each row again.
"""

import json
import math
import os
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from twofold.checksums import seal, unseal
from twofold.errors import TwofoldError, other_format
from twofold.files import is_temporary, make_folder, read_regular, refuse_links, refuse_special, sync, write_atomically
from twofold.models.sample_head.row_checks import (
    find_damaged,
    find_damaged_rows,
    last_use,
    set_checksums,
    undo_block,
    undo_blocks,
)

FORMAT = 2
BUFFER_BYTES = 2**25
PAGE = 4096
HEADER, ROWS, SCHEDULE = "head.json", "rows.bin", "schedule.bin"
CHECKSUM_BYTES = 8  # at the end of schedule.bin
MOST_NAMED = 5  # damaged rows in a message

_claimed: set[tuple[str, int, int]] = set()  # ranges of rows that are open in this process
_one_at_a_time = threading.Lock()


def edges(rows: int, record_bytes: int, count: int) -> list[int]:
    """The first row of each of `count` processes, and the end of the last: about equal ranges of whole pages.

    If there are few rows, some processes have none.
    """
    unit = PAGE // math.gcd(PAGE, record_bytes)  # rows
    return [min(rows, unit * round(rows * number / count / unit)) for number in range(count)] + [rows]


class MemoryRows:
    """Rows in memory. The system provides memory page by page when rows are written; a page may be 2 MiB."""

    def __init__(self, rows: int, record_bytes: int):
        # NumPy, because np.zeros does not touch the memory, unlike torch.zeros, and copies rows in this thread only.
        self.table = np.zeros((rows, record_bytes), dtype=np.uint8)

    def read(self, index_R: np.ndarray) -> np.ndarray:
        return self.table[index_R]

    def write(self, index_R: np.ndarray, records: np.ndarray, before: np.ndarray) -> None:  # noqa: ARG002
        self.table[index_R] = records

    def mark(self, step: int) -> None:
        pass

    def forget_older(self) -> None:
        pass

    def close(self) -> None:
        pass


class DiskRows:
    """Rows in a folder. Files are read and written by position: with a memory map, a full disk kills the process."""

    _file = _undo = -1
    _claim: tuple[str, int, int] | None = None

    def __init__(
        self,
        path: Path,
        rows: int,
        record_bytes: int,
        header: Mapping[str, Any],
        step: int | None,
        share: tuple[int, int] = (0, 1),
    ):
        """Open or create the folder.

        `header` describes the classifier and must agree with head.json. `step` is the mark to return to. `share` is
        (number, count) of this process, if several share the folder; one process must have opened all rows before.
        """
        self.path, self.rows, self.record_bytes = path, rows, record_bytes
        self._number, count = share
        self._first, self._end = edges(rows, record_bytes, count)[self._number : self._number + 2]
        self._waiting: dict[int, int] = {}  # rows not yet written to rows.bin, with their positions in the buffer
        self._buffer = np.empty((max(1, BUFFER_BYTES // record_bytes), record_bytes), dtype=np.uint8)
        self._refuse_claimed()
        try:
            with self._errors("opened"):
                refuse_links(path.glob("*"))  # `path` itself may be one, to another disk
                refuse_special(path.glob("*"))
                if not (path / HEADER).exists():
                    if count > 1:
                        raise TwofoldError(
                            f"{path} has no classifier rows on this machine: use a disk that all processes see"
                        )
                    if step:
                        raise TwofoldError(
                            f"{path} has no classifier rows, but the checkpoint is from step {step}: restore the folder"
                        )
                    self._create(header)
                self._refuse_other(header)
                self._file = os.open(path / ROWS, os.O_RDWR)
            self._lock()
            with self._errors("read"):
                self.base = self._known(step)  # the mark
                if count == 1:
                    self._refuse_damaged(self.base)
                    self._return_to(self.base)
                self._undo = self._open_undo(self.base)
                sync(path)
                if count == 1:
                    self._remove_undo(lambda _, number: number > 0)  # their content was written back
        except BaseException:
            self.close()
            raise
        self._unsynced = False

    def read(self, index_R: np.ndarray) -> np.ndarray:
        records = np.empty((len(index_R), self.record_bytes), dtype=np.uint8)
        with self._errors("read"):
            waiting_R = np.array([self._waiting.get(row, -1) for row in index_R.tolist()], dtype=np.int64)
            records[waiting_R >= 0] = self._buffer[waiting_R[waiting_R >= 0]]
            missing = [(place, int(index_R[place]) * self.record_bytes) for place in np.flatnonzero(waiting_R < 0)]
            if hasattr(os, "posix_fadvise"):  # lets the disk read all of them at once
                for _, offset in missing:
                    os.posix_fadvise(self._file, offset, self.record_bytes, os.POSIX_FADV_WILLNEED)
            for place, offset in missing:
                if os.preadv(self._file, [records[place]], offset) != self.record_bytes:
                    raise TwofoldError(f"{self.path / ROWS} is too short: it is damaged")
            places = np.flatnonzero(waiting_R < 0)
            self._refuse_rows(index_R[places][find_damaged(index_R[places], records[places])].tolist())
        return records

    def write(self, index_R: np.ndarray, records: np.ndarray, before: np.ndarray) -> None:
        """Replace the records `before`, as `read` returned them, by `records`. After an error nothing is replaced."""
        set_checksums(index_R, records)
        with self._errors("written"):
            if len(self._waiting) + len(index_R) > len(self._buffer):
                self._write_back()
            self._keep(index_R, before)
        if len(index_R) > len(self._buffer):
            self._buffer = np.empty_like(records)
        self._buffer[[self._waiting.setdefault(row, len(self._waiting)) for row in index_R.tolist()]] = records

    def mark(self, step: int) -> None:
        """Set a mark: save the current rows as those of this step. Older marks stay until `forget_older`."""
        if step == self.base:
            return
        with self._errors("written"):
            self._write_back()
            os.fdatasync(self._file)
            following = self._open_undo(step)
            try:
                sync(self.path)
            except OSError:
                os.close(following)
                self._undo_path(step, self._number).unlink()  # otherwise this would count as a mark
                raise
        os.close(self._undo)
        self._undo, self.base, self._unsynced = following, step, False

    def forget_older(self) -> None:
        self._remove_undo(lambda mark, number: number == self._number and mark < self.base)

    def close(self) -> None:
        """Close the files. Changes since the last mark are undone when the folder is opened again."""
        files, self._file, self._undo = (self._file, self._undo), -1, -1
        for file in files:
            if file >= 0:
                os.close(file)
        if self._claim is not None:
            _claimed.discard(self._claim)
            self._claim = None

    def __del__(self) -> None:
        self.close()

    def schedule(self) -> np.ndarray:
        content = (self.path / SCHEDULE).read_bytes()
        if not content:  # there is no schedule yet
            return np.empty(0)
        rates = content[:-CHECKSUM_BYTES]
        if len(rates) % 8 or zlib.crc32(rates) != int.from_bytes(content[-CHECKSUM_BYTES:], "little"):
            raise TwofoldError(f"{self.path / SCHEDULE} is damaged: restore the file from a copy")
        return np.frombuffer(rates, dtype="<f8")

    def set_schedule(self, schedule: np.ndarray) -> None:
        rates = schedule.astype("<f8").tobytes()
        with self._errors("written"):
            write_atomically(self.path / SCHEDULE, rates + zlib.crc32(rates).to_bytes(CHECKSUM_BYTES, "little"))

    def _create(self, header: Mapping[str, Any]) -> None:
        make_folder(self.path)
        ours = {ROWS, SCHEDULE, self._undo_path(0, 0).name}
        if any(entry.name not in ours and not is_temporary(entry) for entry in self.path.iterdir()):
            raise TwofoldError(f"{self.path} contains other files: choose an empty folder or a new one")
        for name in (ROWS, self._undo_path(0, 0).name, SCHEDULE):
            (self.path / name).write_bytes(b"")
        os.truncate(self.path / ROWS, self.rows * self.record_bytes)
        sync(self.path / ROWS)  # its size
        write_atomically(self.path / HEADER, (json.dumps(seal(header), indent=1) + "\n").encode())

    def _refuse_other(self, header: Mapping[str, Any]) -> None:
        try:
            found = unseal(json.loads(read_regular(self.path / HEADER, 2**24)), self.path / HEADER)
            size = (self.path / ROWS).stat().st_size
        except (ValueError, OSError, RecursionError) as error:
            raise TwofoldError(f"cannot read the classifier rows in {self.path}: {error}") from None
        if not isinstance(found, dict):
            raise TwofoldError(f"{self.path} has no classifier rows: choose another folder")
        if found.get("format") != FORMAT:
            raise other_format(f"the folder of classifier rows {self.path}", found.get("format"), None, (FORMAT,))
        for name, value in header.items():
            if value is not None and found.get(name) != value:
                what = "of another run" if name == "run" else f"with {name}={found.get(name)}, not {value}"
                raise TwofoldError(f"{self.path} has classifier rows {what}: choose another folder")
        if size != self.rows * self.record_bytes:
            raise TwofoldError(
                f"{self.path / ROWS} has {size} bytes, not {self.rows * self.record_bytes}: it is damaged"
            )

    def _refuse_damaged(self, mark: int) -> None:
        """Raise if rows would be damaged after returning to this mark. Nothing is written before this is known."""
        undo = [self._undo_path(*file) for file in self._undo_files() if file[0] >= mark]
        self._refuse_rows(find_damaged_rows(self._file, self.record_bytes, undo, mark))

    def _refuse_rows(self, damaged: list[int]) -> None:
        if damaged:
            named = ", ".join(map(str, damaged[:MOST_NAMED])) + (", …" if len(damaged) > MOST_NAMED else "")
            raise TwofoldError(
                f"{self.path / ROWS} is damaged in the rows {named} ({len(damaged):,} in all): restore {self.path} and "
                "the checkpoints from a copy of the same time"
            )

    def _refuse_claimed(self) -> None:
        """Raise if another object of this process uses these rows.

        A file lock cannot tell: it belongs to the process, so a second object gets it too, and it ends when either
        closes the file.
        """
        place = os.path.realpath(self.path)
        with _one_at_a_time:
            for other, first, end in tuple(_claimed):
                if other == place and max(first, self._first) < min(end, self._end):
                    raise TwofoldError(f"{self.path} is already in use in this process: close() that SampleHead first")
            self._claim = (place, self._first, self._end)
            _claimed.add(self._claim)

    def _lock(self) -> None:
        import fcntl  # here, because Windows does not have it, and only rows on disk need it

        if self._first == self._end:
            return  # a length of 0 would lock the whole file
        start, length = self._first * self.record_bytes, (self._end - self._first) * self.record_bytes
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
        except OSError:
            raise TwofoldError(f"{self.path} is in use by another process") from None

    def _undo_path(self, step: int, number: int) -> Path:
        return self.path / (f"undo-{step}-{number}.bin" if number else f"undo-{step}.bin")

    def _open_undo(self, step: int) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
        return os.open(self._undo_path(step, self._number), flags, 0o644)

    def _undo_files(self) -> list[tuple[int, int]]:
        """(step of the mark, number of the process) of each undo file, sorted."""
        names = [path.stem.split("-")[1:] for path in self.path.glob("undo-*.bin")]
        return sorted((int(step), int(number[0]) if number else 0) for step, *number in names)

    def _remove_undo(self, unwanted: Callable[[int, int], bool]) -> None:
        for mark, number in self._undo_files():
            if unwanted(mark, number):
                self._undo_path(mark, number).unlink(missing_ok=True)

    def _known(self, step: int | None) -> int:
        """The mark of this step, or the newest mark that all processes have."""
        files = self._undo_files()
        marks = sorted({mark for mark, _ in files})
        if step is None:
            everyone = {number for _, number in files}
            step = max((at for at in marks if {number for mark, number in files if mark == at} == everyone), default=0)
        if step not in marks:
            raise TwofoldError(
                f"{self.path} cannot return to step {step}, only to {', '.join(map(str, marks)) or 'none'}: "
                "it and the checkpoint are from different runs"
            )
        return step

    def _return_to(self, step: int) -> None:
        """Undo everything written after the mark, newest first. If interrupted, this can be repeated."""
        for mark, number in reversed(self._undo_files()):
            if mark >= step:
                self._put_back(self._undo_path(mark, number))
                os.fdatasync(self._file)
            if mark != step:
                self._undo_path(mark, number).unlink()
        sync(self.path)  # removed undo files must not reappear after those of this mark are emptied

    def _put_back(self, undo: Path) -> None:
        for fresh, used, records in undo_blocks(undo, self.record_bytes):
            for row in fresh.tolist():
                offset = row * self.record_bytes
                # If the row never reached the file, it is a hole; writing to it would need space on a full disk.
                if os.pread(self._file, 8, offset) != bytes(8):
                    _write_at(self._file, bytes(8), offset)
            for row, record in zip(used.tolist(), records, strict=True):
                _write_at(self._file, record, row * self.record_bytes)

    def _keep(self, index_R: np.ndarray, before: np.ndarray) -> None:
        """Append to the undo file those rows that were not written since the mark."""
        since_R = last_use(before)
        fresh_R, used_R = since_R == 0, (since_R > 0) & (since_R <= self.base)
        if not (fresh_R.any() or used_R.any()):
            return
        length = os.fstat(self._undo).st_size
        try:
            _write_all(self._undo, undo_block(index_R[fresh_R], index_R[used_R], before[used_R]))
        except OSError:
            os.truncate(self._undo, length)  # blocks after an incomplete one could not be read
            raise
        self._unsynced = True

    def _write_back(self) -> None:
        if self._unsynced:
            os.fdatasync(self._undo)
            self._unsynced = False
        for row in sorted(self._waiting):
            _write_at(self._file, self._buffer[self._waiting[row]], row * self.record_bytes)
        self._waiting.clear()

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TwofoldError(
                f"the classifier rows in {self.path} could not be {what} ({error.strerror}): free some disk space, "
                "then resume; the run continues from the last checkpoint"
            ) from None


def _write_at(file: int, data: Any, offset: int) -> None:
    view = memoryview(data)
    while len(view):
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while len(view):
        view = view[os.write(file, view) :]
