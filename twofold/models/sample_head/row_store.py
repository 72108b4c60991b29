"""Where the records of a sample head lie: in memory, or in a folder that survives a kill and a loss of power.

    head.json        what the head is; written last when it is made
    rows.bin         one record for each row, by position; a hole until the row is first written
    undo-STEP.bin    rows as they were after STEP, each as it is first written to thereafter
    undo-STEP-P.bin  the same, of process P = 1, 2, …, where several share the head
    schedule.bin     learning rates, float64

Faults: the process may be killed, and power may be lost, at any moment. The rows then return to a mark, by putting back
what the undo file holds. It holds a row before that row is overwritten: written rows wait in memory (BUFFER_BYTES), the
undo file is synced, and only then do they go to rows.bin. So there is one sync for many steps, and one of rows.bin at
each mark. On disk there may be the head twice, when all of it was used since the last mark. Not covered: a disk that
says it has what it does not have, or that returns what was never written.

A mark is kept until the next one is known to be good (`forget_older`), since a checkpoint may fail after it.

Several processes share one rows.bin: each reads, writes and locks a range of rows of its own, and has undo files of its
own. Ranges begin at a multiple of PAGE bytes, so that no two processes write to one page, which file systems between
machines would not keep apart. The file is the same whatever their number. In order:
1. One process opens the whole head: it locks all of it, puts back the undo files of all processes, however many there
   were, and closes it. The others wait for that. Then each opens its range, which puts nothing back.
2. To save: all mark; all wait; the first writes the checkpoint; all wait; each forgets its older marks.
A kill of any process at any moment ends all of them, and the next begins at 1. The checkpoint is then of step c, and
- in 1, undo files are removed newest first, each after what it holds is in rows.bin for certain: those that are left
  still lead to c;
- before all have marked s > c: those that did have undo files of s and of c, the others of c alone. Both lead to c;
- between that and the checkpoint of s: all have both;
- after the checkpoint, which makes c = s: all have undo files of s, and those of older marks that are left are removed.
A process that is not dead yet, when others begin again, still has its range locked: they are refused.

Records begin with the step of their row's last use, int64; 0: never, and the rest means nothing.
"""

import json
import math
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from twofold.errors import TwofoldError
from twofold.files import is_temporary, sync, write_atomically

FORMAT = 1
BUFFER_BYTES = 2**25
PAGE = 4096
HEADER, ROWS, SCHEDULE = "head.json", "rows.bin", "schedule.bin"
BLOCK = struct.Struct("<8sQQQ")  # name, rows that were never used, rows that were, checksum of what follows
BLOCK_NAME = b"2fold-01"

_claimed: set[tuple[str, int, int]] = set()  # ranges of rows that are open in this process
_one_at_a_time = threading.Lock()


def edges(rows: int, record_bytes: int, count: int) -> list[int]:
    """Where the ranges of `count` processes begin, and where the last one ends: about equal, in whole pages.

    Where there are few rows, some processes have none.
    """
    unit = PAGE // math.gcd(PAGE, record_bytes)  # rows
    return [min(rows, unit * round(rows * number / count / unit)) for number in range(count)] + [rows]


class MemoryRows:
    """Memory is taken as rows are written to, in pages of the system's size, which may be 2 MiB."""

    def __init__(self, rows: int, record_bytes: int):
        # numpy's zeros are the system's, which torch's are not; and it copies rows in one thread, this one.
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
    """Files are read and written by position: a memory map would end the process where the disk is full."""

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
        """`header` says what the head is, and must be what the folder says; `step` is the mark to return to.

        `share` is (number, count): the range of one of several processes. The whole is opened before, at this mark.
        """
        self.path, self.rows, self.record_bytes = path, rows, record_bytes
        self._number, count = share
        self._first, self._end = edges(rows, record_bytes, count)[self._number : self._number + 2]
        self._waiting: dict[int, int] = {}  # rows that are newer than those of the file, and their place in the buffer
        self._buffer = np.empty((max(1, BUFFER_BYTES // record_bytes), record_bytes), dtype=np.uint8)
        self._refuse_claimed()
        try:
            with self._errors("opened"):
                if not (path / HEADER).exists():
                    if count > 1:
                        raise TwofoldError(f"{path} has no rows here: it must be on a disk that all processes see")
                    if step:
                        raise TwofoldError(
                            f"{path} has no rows, and the checkpoint is of step {step}: put them back there"
                        )
                    self._create(header)
                self._refuse_other(header)
                self._file = os.open(path / ROWS, os.O_RDWR)
            self._lock()
            with self._errors("read"):
                self.base = self._known(step)  # the mark
                if count == 1:
                    self._return_to(self.base)
                self._undo = self._open_undo(self.base)
                sync(path)
                if count == 1:
                    self._remove_undo(lambda _, number: number > 0)  # all of it is put back
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
            if hasattr(os, "posix_fadvise"):  # so that the disk sees all of them at once
                for _, offset in missing:
                    os.posix_fadvise(self._file, offset, self.record_bytes, os.POSIX_FADV_WILLNEED)
            for place, offset in missing:
                if os.preadv(self._file, [records[place]], offset) != self.record_bytes:
                    raise TwofoldError(f"{self.path / ROWS} is shorter than it was made: it cannot be used")
        return records

    def write(self, index_R: np.ndarray, records: np.ndarray, before: np.ndarray) -> None:
        """`before` are the records that these take the place of, as `read` gave them. After an error nothing is."""
        with self._errors("written"):
            if len(self._waiting) + len(index_R) > len(self._buffer):
                self._write_back()
            self._keep(index_R, before)
        if len(index_R) > len(self._buffer):
            self._buffer = np.empty_like(records)
        self._buffer[[self._waiting.setdefault(row, len(self._waiting)) for row in index_R.tolist()]] = records

    def mark(self, step: int) -> None:
        """Make the rows safe as they are, as those of this step. The marks before it stay until `forget_older`."""
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
                self._undo_path(step, self._number).unlink()  # else later rows would be taken for those of this mark
                raise
        os.close(self._undo)
        self._undo, self.base, self._unsynced = following, step, False

    def forget_older(self) -> None:
        self._remove_undo(lambda mark, number: number == self._number and mark < self.base)

    def close(self) -> None:
        """What was written since the last mark is left to be undone."""
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
        return np.fromfile(self.path / SCHEDULE, dtype="<f8")

    def set_schedule(self, schedule: np.ndarray) -> None:
        with self._errors("written"):
            write_atomically(self.path / SCHEDULE, schedule.astype("<f8").tobytes())

    def _create(self, header: Mapping[str, Any]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        ours = {ROWS, SCHEDULE, self._undo_path(0, 0).name}
        if any(entry.name not in ours and not is_temporary(entry) for entry in self.path.iterdir()):
            raise TwofoldError(f"{self.path} is a folder with other files in it: choose an empty or a new one")
        for name in (ROWS, self._undo_path(0, 0).name, SCHEDULE):
            (self.path / name).write_bytes(b"")
        os.truncate(self.path / ROWS, self.rows * self.record_bytes)
        write_atomically(self.path / HEADER, (json.dumps(dict(header), indent=1) + "\n").encode())
        sync(self.path.resolve().parent)

    def _refuse_other(self, header: Mapping[str, Any]) -> None:
        try:
            found = json.loads((self.path / HEADER).read_text())
            size = (self.path / ROWS).stat().st_size
        except (ValueError, OSError) as error:
            raise TwofoldError(f"{self.path} is not a sample head that can be used: {error}") from None
        if not isinstance(found, dict) or found.get("format") != header["format"]:
            raise TwofoldError(f"{self.path} is not a sample head of format {header['format']}: choose another folder")
        for name, value in header.items():
            if value is not None and found.get(name) != value:
                what = "of another run" if name == "run" else f"with {name}={found.get(name)}, not {value}"
                raise TwofoldError(f"{self.path} is a sample head {what}: choose another folder")
        if size != self.rows * self.record_bytes:
            raise TwofoldError(
                f"{self.path / ROWS} has {size} bytes, not {self.rows * self.record_bytes}: it is damaged"
            )

    def _refuse_claimed(self) -> None:
        """The system's lock is the process's: it lets a second object in, and goes when either closes the file."""
        place = os.path.realpath(self.path)
        with _one_at_a_time:
            for other, first, end in tuple(_claimed):
                if other == place and max(first, self._first) < min(end, self._end):
                    raise TwofoldError(f"{self.path} is in use in this process already: close() that head first")
            self._claim = (place, self._first, self._end)
            _claimed.add(self._claim)

    def _lock(self) -> None:
        import fcntl  # not everywhere, and only a head on disk needs it

        if self._first == self._end:
            return  # a length of 0 would mean all
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
        """Their marks and processes."""
        names = [path.stem.split("-")[1:] for path in self.path.glob("undo-*.bin")]
        return sorted((int(step), int(number[0]) if number else 0) for step, *number in names)

    def _remove_undo(self, unwanted: Callable[[int, int], bool]) -> None:
        for mark, number in self._undo_files():
            if unwanted(mark, number):
                self._undo_path(mark, number).unlink(missing_ok=True)

    def _known(self, step: int | None) -> int:
        """The mark of this step, or the newest that all processes have made."""
        files = self._undo_files()
        marks = sorted({mark for mark, _ in files})
        if step is None:
            everyone = {number for _, number in files}
            step = max((at for at in marks if {number for mark, number in files if mark == at} == everyone), default=0)
        if step not in marks:
            raise TwofoldError(
                f"{self.path} cannot return to step {step}, only to {', '.join(map(str, marks)) or 'none'}: "
                "it and the checkpoint are not of one run"
            )
        return step

    def _return_to(self, step: int) -> None:
        """Undo what was written after the mark, newest first; again from the start if that is cut short."""
        for mark, number in reversed(self._undo_files()):
            if mark >= step:
                self._put_back(self._undo_path(mark, number))
                os.fdatasync(self._file)
            if mark != step:
                self._undo_path(mark, number).unlink()
        sync(self.path)  # no newer one may come back when those of this mark are empty

    def _put_back(self, undo: Path) -> None:
        for fresh, used, records in _blocks(undo, self.record_bytes):
            for row in fresh.tolist():
                offset = row * self.record_bytes
                # A row that never reached the file is a hole, and to write there could need room on a full disk.
                if os.pread(self._file, 8, offset) != bytes(8):
                    _write_at(self._file, bytes(8), offset)
            for row, record in zip(used.tolist(), records, strict=True):
                _write_at(self._file, record, row * self.record_bytes)

    def _keep(self, index_R: np.ndarray, before: np.ndarray) -> None:
        """Append to the undo file the rows that were not written to since the mark."""
        since_R = before[:, :8].view(np.int64)[:, 0]
        fresh_R, used_R = since_R == 0, (since_R > 0) & (since_R <= self.base)
        fresh, used = int(fresh_R.sum()), int(used_R.sum())
        if fresh + used == 0:
            return
        parts = index_R[fresh_R].astype("<i8"), index_R[used_R].astype("<i8"), before[used_R]
        body = b"".join(part.tobytes() for part in parts)
        length = os.fstat(self._undo).st_size
        try:
            _write_all(self._undo, BLOCK.pack(BLOCK_NAME, fresh, used, zlib.crc32(body)) + body)
        except OSError:
            os.truncate(self._undo, length)  # nothing behind half a block could be read
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
                f"the rows in {self.path} could not be {what} ({error.strerror}); "
                "they can still return to the last checkpoint: make room, then resume"
            ) from None


def _blocks(undo: Path, record_bytes: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Rows never used, rows used, and records of the latter; up to where a kill or a loss of power cut the file."""
    with undo.open("rb") as file:
        while len(head := file.read(BLOCK.size)) == BLOCK.size:
            name, fresh, used, checksum = BLOCK.unpack(head)
            if name != BLOCK_NAME:
                return
            size = 8 * (fresh + used) + used * record_bytes
            body = file.read(size)
            if len(body) != size or zlib.crc32(body) != checksum:
                return
            index = np.frombuffer(body, dtype="<i8", count=fresh + used)
            records = np.frombuffer(body, dtype=np.uint8, offset=8 * (fresh + used)).reshape(used, record_bytes)
            yield index[:fresh], index[fresh:], records


def _write_at(file: int, data: Any, offset: int) -> None:
    view = memoryview(data)
    while len(view):
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while len(view):
        view = view[os.write(file, view) :]
