"""Classifier rows on disk return to a mark after a kill, a power loss or a full disk at any moment."""

import errno
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from twofold.checksums import seal
from twofold.errors import TwofoldError
from twofold.models import SampleHead
from twofold.models.sample_head import row_store

ROWS, DIM, BATCH = 12, 3, 4
SCHEDULE = [0.01] * 40


class Stopped(BaseException):
    """Stops all further work, like a kill."""


class Disk:
    """A disk that counts calls. It stops the process at a given call, or is full from a given call on.

    After a power loss, any writes that were not synced may be missing, in any order; `lose` undoes them. Creating and
    removing files always succeeds, because the folder is synced.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, stop_at: int | None = None, full_from: int | None = None):
        self.calls, self.stop_at, self.full_from = 0, stop_at, full_from
        self.unsynced: dict[str, list[tuple[int, int, bytes]]] = {}  # per file: offset, size, previous content
        self.real = {name: getattr(os, name) for name in ("pwrite", "write", "fdatasync")}
        for name in self.real:
            monkeypatch.setattr(row_store.os, name, getattr(self, name))

    def name(self, file: int) -> str:
        return os.readlink(f"/proc/self/fd/{file}")

    def call(self, half: Callable[[], object]) -> None:
        self.calls += 1
        if self.full_from is not None and self.calls >= self.full_from:
            half()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.calls == self.stop_at:
            half()
            raise Stopped

    def record_unsynced(self, file: int, offset: int, data: memoryview) -> None:
        before = os.pread(file, len(data), offset)
        self.unsynced.setdefault(self.name(file), []).append((offset, len(data), before))

    def pwrite(self, file: int, data: memoryview, offset: int) -> int:
        data = memoryview(data)
        self.record_unsynced(file, offset, data)
        self.call(lambda: self.real["pwrite"](file, data[: len(data) // 2], offset))
        return self.real["pwrite"](file, data, offset)

    def write(self, file: int, data: memoryview) -> int:
        data = memoryview(data)
        self.record_unsynced(file, os.fstat(file).st_size, data)
        self.call(lambda: self.real["write"](file, data[: len(data) // 2]))
        return self.real["write"](file, data)

    def fdatasync(self, file: int) -> None:
        self.call(lambda: None)
        self.unsynced.pop(self.name(file), None)

    def lose(self, chance: random.Random) -> None:
        for name, writes in self.unsynced.items():
            for offset, size, before in reversed(writes):
                if os.path.exists(name) and chance.random() < 0.5:
                    # Appended data is there in part, with zeros in place of missing pages.
                    kept = 0 if before else chance.randrange(size)
                    with open(name, "r+b") as file:
                        file.seek(offset + kept)
                        file.write(before or bytes(size - kept))


def open_head(path: Path, **options: object) -> SampleHead:
    return SampleHead(ROWS, DIM, path=path, schedule=SCHEDULE, dtype=torch.float64, **options)


def train(head: SampleHead, until: int, marks: tuple[int, ...]) -> None:
    """Take steps whose gradients depend only on the rows and the step, so that repeated steps are the same."""
    while head.steps < until:
        index = torch.randperm(ROWS, generator=torch.Generator().manual_seed(head.steps))[:BATCH]
        head.step(index, head.take(index) + head.steps)
        if head.steps in marks:
            head.mark()


def expected_rows(steps: int) -> Tensor:
    head = SampleHead(ROWS, DIM, schedule=SCHEDULE, dtype=torch.float64)
    train(head, steps, ())
    return head.dense()


@pytest.fixture(autouse=True)
def small_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "BUFFER_BYTES", 2 * BATCH * (8 + 3 * DIM * 8))


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power"])
def test_process_stopped_at_any_write_returns_to_a_mark(power: bool, tmp_path: Path) -> None:
    """The process stops in the middle of every write in turn. Then it can return to both marks, and continue to the
    same result.

    After a power loss, earlier writes may be missing, too.
    """
    started = tmp_path / "started"
    head = open_head(started)
    train(head, 8, marks=(3,))  # there are marks 0 and 3, and rows written after mark 3
    head.forget_older()
    head.mark()
    head.close()
    expected, finished = {step: expected_rows(step) for step in (8, 13)}, expected_rows(20)
    for call_number in itertools.count(1):
        path = tmp_path / str(call_number)
        shutil.copytree(started, path)
        head = open_head(path)
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, stop_at=call_number)
            try:
                train(head, 20, marks=(13,))
                done = True
            except Stopped:
                done = False
            head.close()
        if done:
            break
        if power:
            disk.lose(random.Random(call_number))
        copy = tmp_path / f"{call_number}-older"
        shutil.copytree(path, copy)
        again = open_head(path)
        assert again.steps in (8, 13)
        assert torch.equal(again.dense(), expected[again.steps]), call_number
        train(again, 20, marks=(13,))
        assert torch.equal(again.dense(), finished), call_number
        again.close()
        older = open_head(copy, step=8)  # the checkpoint of step 13 was never written
        assert torch.equal(older.dense(), expected[8]), call_number
        older.close()
    assert call_number > 40


@pytest.mark.parametrize("count", [1, 3])
def test_returning_to_a_mark_may_be_stopped_at_any_write(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_store, "PAGE", 8)
    heads = open_shares(tmp_path / "head", count)
    train_together(heads, 10, marks=(5,))
    close_all(heads)
    for call_number in itertools.count(1):
        path = tmp_path / str(call_number)
        shutil.copytree(tmp_path / "head", path)
        with pytest.MonkeyPatch.context() as patch:
            Disk(patch, stop_at=call_number)
            try:
                open_head(path, step=0).close()
                break
            except Stopped:
                pass
        assert torch.equal(open_head(path, step=0).dense(), expected_rows(0)), call_number
    assert call_number > 10


def open_shares(path: Path, count: int, step: int | None = 0) -> list[SampleHead]:
    """Open the shares of several processes in this process."""
    whole = open_head(path, step=step)
    whole.close()
    return [open_head(path, step=whole.steps, share=(number, count)) for number in range(count)]


def train_together(heads: list[SampleHead], until: int, marks: tuple[int, ...]) -> None:
    """Like `train`, but each head updates its own rows."""
    while heads[0].steps < until:
        index = torch.randperm(ROWS, generator=torch.Generator().manual_seed(heads[0].steps))[:BATCH]
        for head in heads:
            own = index[(index >= head.own.start) & (index < head.own.stop)]
            head.step(own, head.take(own) + head.steps)
        if heads[0].steps in marks:
            for head in heads:
                head.mark()


def close_all(heads: list[SampleHead]) -> None:
    for head in heads:
        head.close()


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power"])
def test_several_processes_stopped_at_any_write_return_to_a_mark(
    power: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A different number of processes then returns to the mark of the checkpoint, even if some made a later mark."""
    monkeypatch.setattr(row_store, "PAGE", 8)
    monkeypatch.setattr(row_store, "BUFFER_BYTES", 1)  # one batch
    started = tmp_path / "started"
    heads = open_shares(started, 3)
    assert [len(head.own) for head in heads] == [ROWS // 3] * 3
    train_together(heads, 8, marks=(3, 8))
    for head in heads[1:]:  # the first process was stopped before this
        head.forget_older()
    close_all(heads)
    expected, finished, partly_marked = {step: expected_rows(step) for step in (8, 13)}, expected_rows(16), 0
    for call_number in itertools.count(1):
        path = tmp_path / str(call_number)
        shutil.copytree(started, path)
        heads = open_shares(path, 2, step=8)
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, stop_at=call_number)
            try:
                train_together(heads, 16, marks=(13,))
                done = True
            except Stopped:
                done = False
            close_all(heads)
        if done:
            break
        if power:
            disk.lose(random.Random(call_number))
        marked = {path.name for path in path.glob("undo-13*.bin")}
        partly_marked += len(marked) == 1
        copy = tmp_path / f"{call_number}-older"
        shutil.copytree(path, copy)
        newest = open_head(path)
        assert newest.steps == (13 if len(marked) == 2 else 8)
        assert torch.equal(newest.dense(), expected[newest.steps]), call_number
        newest.close()
        heads = open_shares(copy, 3, step=8)  # the checkpoint of step 13 was never written
        assert torch.equal(torch.cat([head.dense() for head in heads]), expected[8]), call_number
        train_together(heads, 16, marks=())
        assert torch.equal(torch.cat([head.dense() for head in heads]), finished), call_number
        close_all(heads)
    assert call_number > 40
    assert partly_marked > 1


def test_processes_never_write_to_the_same_page() -> None:
    for rows, record, count in ((1_000_000, 6152, 8), (1438, 200, 3), (50_000, 4096, 7), (34, 104, 2), (1, 8, 4)):
        edges = row_store.edges(rows, record, count)
        assert (edges[0], edges[-1], len(edges)) == (0, rows, count + 1)
        assert edges == sorted(edges)
        assert all(edge == rows or edge * record % row_store.PAGE == 0 for edge in edges)
        shares = [end - start for start, end in itertools.pairwise(edges)]
        assert max(shares) - rows / count <= row_store.PAGE


def test_full_disk_raises_an_error_and_loses_no_rows(tmp_path: Path) -> None:
    for call_number in range(1, 40, 5):
        path = tmp_path / str(call_number)
        head = open_head(path)
        train(head, 5, marks=(5,))
        with pytest.MonkeyPatch.context() as patch:
            Disk(patch, full_from=call_number)
            with pytest.raises(TwofoldError, match=r"No space left on device.*free some disk space"):
                train(head, 40, marks=(13,))
        stopped_at = head.steps
        copy = tmp_path / f"{call_number}-copy"
        shutil.copytree(path, copy)
        train(head, 20, marks=())  # there is room again
        assert torch.equal(head.dense(), expected_rows(20))
        head.close()
        for left in (path, copy):  # like after a kill, with free disk space again and before
            again = open_head(left)
            assert again.steps in (5, 13)
            assert again.steps <= stopped_at
            assert torch.equal(again.dense(), expected_rows(again.steps))


def test_killed_process_returns_to_the_last_flush(tmp_path: Path) -> None:
    head = open_head(tmp_path / "head")
    train(head, 6, ())
    head.flush()
    train(head, 11, ())
    del head  # without closing it, like a kill
    again = open_head(tmp_path / "head")
    assert again.steps == 6
    assert torch.equal(again.dense(), expected_rows(6))
    again.close()
    with pytest.raises(TwofoldError, match="cannot return to step 3"):
        open_head(tmp_path / "head", step=3)
    with pytest.raises(TwofoldError, match="has no classifier rows"):
        open_head(tmp_path / "moved away", step=6)
    assert not (tmp_path / "moved away").exists()


def test_undo_file_has_rows_once_and_only_numbers_of_unused_rows(tmp_path: Path) -> None:
    head = open_head(tmp_path / "head")
    record = 8 + 3 * DIM * 8
    train(head, 30, ())
    assert (tmp_path / "head" / "undo-0.bin").stat().st_size < ROWS * (8 + 32)
    head.flush()
    train(head, 40, ())
    assert ROWS * record <= (tmp_path / "head" / "undo-30.bin").stat().st_size <= ROWS * (record + 8 + 32)
    assert sorted(path.name for path in (tmp_path / "head").iterdir()) == [
        "head.json", "rows.bin", "schedule.bin", "undo-30.bin",
    ]  # fmt: skip


def test_rows_with_other_settings_or_damage_raise_an_error(tmp_path: Path) -> None:
    path = tmp_path / "head"
    open_head(path, run="mine").close()
    for options, message in (
        ({"run": "yours"}, "of another run"),
        ({"seed": 3}, "seed=0, not 3"),
        ({"optimizer": "sgd"}, "optimizer=adamw"),
        ({"weight_decay": 0.1}, "settings="),
    ):
        with pytest.raises(TwofoldError, match=message):
            open_head(path, **options)
    for rows, dim in ((ROWS + 1, DIM), (ROWS, DIM + 1)):
        with pytest.raises(TwofoldError, match="choose another folder"):
            SampleHead(rows, dim, path=path, schedule=SCHEDULE, dtype=torch.float64)
    header = json.loads((path / "head.json").read_text())
    (path / "head.json").write_text(json.dumps(header | {"seed": 3}))
    with pytest.raises(TwofoldError, match=r"head\.json is damaged"):
        open_head(path)
    for version, advice in ((1, "use the version of Twofold that wrote it"), (99, "use a newer version")):
        (path / "head.json").write_text(json.dumps(seal({"format": version})))
        with pytest.raises(TwofoldError, match=f"format {version}, but Twofold .* reads format 2: {advice}"):
            open_head(path)
    (path / "head.json").write_text("{")
    with pytest.raises(TwofoldError, match="cannot read the classifier rows"):
        open_head(path)
    (path / "head.json").write_text(json.dumps(header))
    os.truncate(path / "rows.bin", 100)
    with pytest.raises(TwofoldError, match="damaged"):
        open_head(path)


@pytest.mark.parametrize("every", [307, pytest.param(1, marks=pytest.mark.full)])
def test_a_flipped_bit_never_changes_rows_silently(every: int, tmp_path: Path) -> None:
    """Either opening the rows raises an error, or they continue to the same result."""
    path, copy = tmp_path / "head", tmp_path / "copy"
    head = open_head(path)
    train(head, 9, marks=(5,))
    head.forget_older()  # rows of the steps 6 to 9 are in rows.bin or lost, and those of step 5 in the undo file
    head.close()
    expected, noticed, total = expected_rows(12), 0, 0
    for file in sorted(path.iterdir()):
        for bit in range(0, 8 * file.stat().st_size, every):
            shutil.copytree(path, copy)
            content = bytearray(file.read_bytes())
            content[bit // 8] ^= 1 << bit % 8
            (copy / file.name).write_bytes(content)
            before = {entry.name: entry.read_bytes() for entry in copy.iterdir()}
            total += 1
            try:
                again = open_head(copy, step=5)
            except TwofoldError:
                noticed += 1
                if file.name != "schedule.bin":  # it is read when the rows have returned to the mark
                    assert {entry.name: entry.read_bytes() for entry in copy.iterdir()} == before
            else:
                train(again, 12, ())
                assert torch.equal(again.dense(), expected), (file.name, bit)
                again.close()
            shutil.rmtree(copy)
    assert noticed > 0.5 * total  # other bits are in rows that are undone or were never used


def test_a_row_that_is_damaged_during_training_raises_an_error(tmp_path: Path) -> None:
    head = open_head(tmp_path / "head")
    train(head, 30, marks=(30,))
    with (tmp_path / "head" / "rows.bin").open("r+b") as file:
        file.seek(3 * (8 + 3 * DIM * 8) + 20)
        value = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([value[0] ^ 4]))
    with pytest.raises(TwofoldError, match=r"rows\.bin is damaged in the rows 3 \(1 in all\): restore"):
        head.take([2, 3])


def test_folder_with_other_files_raises_an_error_and_is_unchanged(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("long")
    with pytest.raises(TwofoldError, match="contains other files"):
        open_head(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_links_in_the_folder_raise_an_error(tmp_path: Path) -> None:
    open_head(tmp_path / "head").close()
    (tmp_path / "head").rename(tmp_path / "elsewhere")
    (tmp_path / "head").symlink_to(tmp_path / "elsewhere")
    open_head(tmp_path / "head").close()  # the folder may be on another disk
    (tmp_path / "elsewhere" / "rows.bin").rename(tmp_path / "rows")
    (tmp_path / "elsewhere" / "rows.bin").symlink_to(tmp_path / "rows")
    with pytest.raises(TwofoldError, match=r"rows\.bin is a link"):
        open_head(tmp_path / "head")


def test_rows_in_use_by_another_process_raise_an_error(tmp_path: Path) -> None:
    open_head(tmp_path / "head").close()
    hold = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True)"
    hold += "; input()"
    command = [sys.executable, "-c", hold, str(tmp_path / "head" / "rows.bin")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(TwofoldError, match="in use by another process"):
            open_head(tmp_path / "head")
        holder.communicate("\n")
    open_head(tmp_path / "head")


def is_locked(path: Path) -> bool:
    """Whether another process would find the rows locked."""
    ask = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    command = [sys.executable, "-c", ask, str(path / "rows.bin")]
    return subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_rows_in_use_in_this_process_raise_an_error_and_stay_locked(tmp_path: Path) -> None:
    path, link = tmp_path / "head", tmp_path / "link"
    link.symlink_to(path)
    head = open_head(path)
    for same in (path, link):
        with pytest.raises(TwofoldError, match=r"is already in use in this process: close\(\) that SampleHead first"):
            open_head(same)
    assert is_locked(path)
    head.close()
    again = open_head(link)
    del head  # it is closed already and must not unlock the file of `again`
    with pytest.raises(TwofoldError, match="in this process"):
        open_head(path)
    del again  # without closing it
    open_head(path).close()
    assert not is_locked(path)


def test_failed_opening_does_not_keep_the_rows_in_use(tmp_path: Path) -> None:
    path = tmp_path / "head"
    open_head(path).close()
    with pytest.raises(TwofoldError, match="seed=0") as refused:
        open_head(path, seed=3)
    (path / "undo-0.bin").rename(path / "undo-5.bin")
    (path / "schedule.bin").write_bytes(b"")
    with pytest.raises(TwofoldError, match="5 steps are done, but only 0 learning rates are stored") as unknown:
        open_head(path, step=5)
    (path / "undo-5.bin").rename(path / "undo-0.bin")
    open_head(path).close()
    assert refused.tb  # the traceback keeps the failed object alive
    assert unknown.tb


def test_each_range_of_rows_is_locked_separately(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of one run share the file. Another run cannot open it while any of them is alive."""
    monkeypatch.setattr(row_store, "PAGE", 8)
    path = tmp_path / "head"
    open_head(path).close()
    hold = "import sys, test_row_store as t; t.row_store.PAGE = 8; h = t.open_head(t.Path(sys.argv[1]), share=(1, 2))"
    command = [sys.executable, "-c", f"{hold}; print('held', flush=True); input()", str(path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as holder:
        assert holder.stdout.readline() == "held\n"
        for share in ((0, 1), (1, 2), (2, 3)):
            with pytest.raises(TwofoldError, match="in use by another process"):
                open_head(path, share=share)
        open_head(path, share=(0, 2)).close()
        holder.communicate("\n")
    open_head(path).close()


def test_processes_without_a_shared_disk_raise_an_error(tmp_path: Path) -> None:
    with pytest.raises(TwofoldError, match="a disk that all processes see"):
        open_head(tmp_path / "head", step=0, share=(1, 2))
    assert not (tmp_path / "head").exists()


@pytest.mark.parametrize("has_mark", [False, True], ids=["stopped", "marked"])
def test_rows_move_from_memory_to_disk(has_mark: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The move is repeated if no checkpoint followed."""
    monkeypatch.setattr(row_store, "PAGE", 8)
    memory = SampleHead(ROWS, DIM, schedule=SCHEDULE, dtype=torch.float64)
    train(memory, 4, ())
    for attempt in range(3):
        whole = open_head(tmp_path / "head", step=0)
        whole.load_state_dict(memory.state_dict())
        assert torch.equal(whole.dense(), expected_rows(4))
        whole.close()
        heads = [open_head(tmp_path / "head", step=4, share=(number, 3)) for number in range(3)]
        train_together(heads, 9 + attempt, marks=(7,) if has_mark else ())
        assert torch.equal(torch.cat([head.dense() for head in heads]), expected_rows(9 + attempt))
        close_all(heads)
    assert torch.equal(open_head(tmp_path / "head", step=4).dense(), expected_rows(4))
