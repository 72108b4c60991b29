"""A head with a row for each image, shared out: the same rows whatever the number of processes, and whoever fails."""

import errno
import os
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from test_processes_exact import comparable, in_precision, trainer
from torch import Tensor

from launch import in_processes
from twofold import dist
from twofold.models.sample_head import row_store
from twofold.runs.folder import ReadOnlyRunFolder, RunFolder
from twofold.train.trainer import Trainer

STEPS = 8  # four epochs
EXACT = 1e-10


def go_on(out: Path, until: int, last_word: str = "checkpoint") -> dict[str, Tensor]:
    """From the last checkpoint to this step; what the method holds then, and this process's rows."""
    with comparable():
        made = in_precision(torch.float64, trainer("s-diet", epochs=4))
        made.folder = RunFolder.open(out) if dist.is_first() else ReadOnlyRunFolder(out)
        made.restore(made.folder)
        with made.rows.opened(out):
            while made.step < until:
                made.take_step(made.step)
                made.step += 1
            if last_word == "checkpoint":
                made.save()
            else:
                made.rows.save()
            return {"rows": made.rows.head.dense(), **made.method.state_dict()}


def new_run(path: Path) -> Path:
    return RunFolder.create(path, "{}").path


@pytest.mark.parametrize(
    "plan",
    [
        [(3, 4, "checkpoint")],
        # Killed before the first wrote a checkpoint, in the first steps on disk and later.
        pytest.param(
            [
                (2, 4, "marks alone"),
                (3, 3, "checkpoint"),
                (2, 5, "marks alone"),
                (2, 4, "checkpoint"),
                (1, 5, "checkpoint"),
                (3, 6, "checkpoint"),
            ],
            marks=pytest.mark.full,
        ),
    ],
    ids=["once", "often"],
)
def test_the_number_of_processes_may_change_between_any_two_steps(
    plan: list[tuple[int, int, str]], tmp_path: Path
) -> None:
    """From memory in one process to a file that others share, and back to one."""
    expected = go_on(new_run(tmp_path / "whole"), STEPS)
    out = new_run(tmp_path / "out")
    go_on(out, 2)
    assert not (out / "head").exists()
    for count, until, last_word in plan:
        if count == 1:
            go_on(out, until, last_word)
        else:
            in_processes(count, go_on, out, until, last_word, folder=tmp_path)
    logs = [f"undo-{until}-1.bin", f"undo-{until}-2.bin", f"undo-{until}.bin"]
    assert sorted(path.name for path in (out / "head").iterdir()) == ["head.json", "rows.bin", "schedule.bin", *logs]
    found = go_on(out, STEPS)
    assert found.keys() == expected.keys()
    for name, right in expected.items():
        assert (found[name].double() - right.double()).norm() <= EXACT * right.double().norm().clamp_min(1e-2), name


def fails_to_write(rank: int) -> Any:
    tempfile.gettempdir()  # found by writing, once: by whoever asks first, which may be a library while this fails
    real = os.write

    def write(file: int, data: Any) -> int:
        if dist.rank() == rank:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, data)

    return mock.patch.object(row_store.os, "write", write)


def go_on_with_a_full_disk(out: Path) -> None:
    """Each process leaves its own error: which of them is seen to end first is chance."""
    try:
        with fails_to_write(1):
            go_on(out, 3)
    except Exception as error:
        (out / f"error-{dist.rank()}").write_text(str(error))
        raise


@pytest.mark.full
def test_a_full_disk_in_one_process_stops_all(tmp_path: Path) -> None:
    out = new_run(tmp_path / "out")
    in_processes(2, go_on, out, 2, folder=tmp_path)
    with pytest.raises(torch.multiprocessing.ProcessRaisedException):
        in_processes(2, go_on_with_a_full_disk, out, folder=tmp_path)
    assert "No space left on device" in (out / "error-1").read_text()
    found = go_on(out, 3)
    expected = go_on(new_run(tmp_path / "whole"), 3)
    assert (found["rows"] - expected["rows"]).norm() <= EXACT * expected["rows"].norm()


def savings(out: Path, wishes: list[tuple[int, int]]) -> list[int]:
    """Steps after which this process saves; process `rank` wishes to when it has done `step` steps."""
    made: Trainer = trainer("s-diet", epochs=10)
    saved = []
    with made.rows.opened(out):
        for step in range(20):
            made.take_step(step)
            if made.rows.all_save(step + 1, (dist.rank(), step + 1) in wishes):
                made.rows.save()
                made.rows.saved()
                saved.append(step + 1)
    return saved


def test_all_save_when_the_first_wishes(tmp_path: Path) -> None:
    wishes = [(0, 2), (1, 6), (0, 9), (0, 10), (0, 11), (1, 11), (0, 16)]
    assert in_processes(2, savings, tmp_path, wishes, folder=tmp_path) == [[5, 12, 19]] * 2
