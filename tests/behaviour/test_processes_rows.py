"""A per-image classifier shared by processes: same rows for any number of processes, and after failures."""

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


def resume_until(out: Path, until: int, to_save: str = "checkpoint") -> dict[str, Tensor]:
    """Resume from the last checkpoint and train until a step. Return the state and the rows of this process."""
    with comparable():
        made = in_precision(torch.float64, trainer("s-diet", epochs=4))
        made.folder = RunFolder.open(out) if dist.is_first() else ReadOnlyRunFolder(out)
        made.restore(made.folder)
        with made.rows.opened(out):
            while made.step < until:
                made.take_step(made.step)
                made.step += 1
            if to_save == "checkpoint":
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
        # "rows only": the first process was killed before it wrote the checkpoint.
        pytest.param(
            [
                (2, 4, "rows only"),
                (3, 3, "checkpoint"),
                (2, 5, "rows only"),
                (2, 4, "checkpoint"),
                (1, 5, "checkpoint"),
                (3, 6, "checkpoint"),
            ],
            marks=pytest.mark.full,
        ),
    ],
    ids=["once", "often"],
)
def test_number_of_processes_may_change_at_every_resume(plan: list[tuple[int, int, str]], tmp_path: Path) -> None:
    """Rows move from the memory of one process to a shared file, and back to one process."""
    expected = resume_until(new_run(tmp_path / "whole"), STEPS)
    out = new_run(tmp_path / "out")
    resume_until(out, 2)
    assert not (out / "head").exists()
    for count, until, to_save in plan:
        if count == 1:
            resume_until(out, until, to_save)
        else:
            in_processes(count, resume_until, out, until, to_save, folder=tmp_path)
    logs = [f"undo-{until}-1.bin", f"undo-{until}-2.bin", f"undo-{until}.bin"]
    assert sorted(path.name for path in (out / "head").iterdir()) == ["head.json", "rows.bin", "schedule.bin", *logs]
    found = resume_until(out, STEPS)
    assert found.keys() == expected.keys()
    for name, right in expected.items():
        assert (found[name].double() - right.double()).norm() <= EXACT * right.double().norm().clamp_min(1e-2), name


def failing_writes(rank: int) -> Any:
    tempfile.gettempdir()  # tempfile writes a file to find its folder; let it do so before writes fail
    real = os.write

    def write(file: int, data: Any) -> int:
        if dist.rank() == rank:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, data)

    return mock.patch.object(row_store.os, "write", write)


def resume_with_a_full_disk(out: Path) -> None:
    """Each process writes its error to a file, because it is random which process ends first."""
    try:
        with failing_writes(1):
            resume_until(out, 3)
    except Exception as error:
        (out / f"error-{dist.rank()}").write_text(str(error))
        raise


@pytest.mark.full
def test_full_disk_in_one_process_stops_all_processes(tmp_path: Path) -> None:
    out = new_run(tmp_path / "out")
    in_processes(2, resume_until, out, 2, folder=tmp_path)
    with pytest.raises(torch.multiprocessing.ProcessRaisedException):
        in_processes(2, resume_with_a_full_disk, out, folder=tmp_path)
    assert "No space left on device" in (out / "error-1").read_text()
    found = resume_until(out, 3)
    expected = resume_until(new_run(tmp_path / "whole"), 3)
    assert (found["rows"] - expected["rows"]).norm() <= EXACT * expected["rows"].norm()


def saving_steps(out: Path, requests: list[tuple[int, int]]) -> list[int]:
    """Steps after which this process saves. `requests` are pairs (rank, step) at which a process asks for it."""
    made: Trainer = trainer("s-diet", epochs=10)
    saved = []
    with made.rows.opened(out):
        for step in range(20):
            made.take_step(step)
            if made.rows.all_save(step + 1, (dist.rank(), step + 1) in requests):
                made.rows.save()
                made.rows.saved()
                saved.append(step + 1)
    return saved


def test_all_processes_save_when_the_first_one_asks(tmp_path: Path) -> None:
    requests = [(0, 2), (1, 6), (0, 9), (0, 10), (0, 11), (1, 11), (0, 16)]
    assert in_processes(2, saving_steps, tmp_path, requests, folder=tmp_path) == [[5, 12, 19]] * 2
