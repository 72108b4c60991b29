"""What happens to all processes when something happens to one. torchrun, real processes, real kills."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_resume import assert_same_run

from running import small
from twofold.train import checkpoint

SETTINGS = small("byol", epochs=2, **{"checkpoint.seconds": 0.0})
LAST_STEP = 22


def torchrun(
    out: Path, *options: str, count: int = 2, words: tuple[str, ...] = (), **overrides: object
) -> subprocess.Popen[str]:
    settings = [f"{key}={value}" for key, value in (SETTINGS | overrides).items()]
    pretrain = ["pretrain", "digits", "--method", "byol", "--out", str(out), *settings]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    return subprocess.Popen(
        [*launcher, *options, "-m", "twofold", *(words or pretrain)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def workers(launcher: subprocess.Popen[str]) -> dict[int, int]:
    """Rank → process id."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    found = {}
    for child in children:
        variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        ranks = [variable.removeprefix(b"RANK=") for variable in variables if variable.startswith(b"RANK=")]
        found |= {int(rank): int(child) for rank in ranks}
    return found


def wait_for_step(out: Path, step: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        name = checkpoint.latest_name(out / "checkpoints")
        if name is not None and int(name.partition("-")[2]) >= step:
            return
        time.sleep(0.01)
    raise AssertionError(f"step {step} was not reached: {process.communicate(timeout=10)}")


def test_a_killed_process_ends_the_others_and_torchrun_brings_the_run_back(tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = torchrun(out, "--max-restarts", "1", epochs=1, test_fraction=0)
    wait_for_step(out, 2, process)
    os.kill(workers(process)[1], signal.SIGKILL)
    printed, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert "another is gone: it was killed" in errors
    assert f"twofold resume {out}" in errors
    assert f"resuming {out} at step" in printed
    steps = [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps))
    assert steps[-1] == 14
    assert json.loads((out / "results.json").read_text())["processes"] == 2


def uninterrupted(out: Path, count: int) -> Path:
    process = torchrun(out, count=count)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return out


@pytest.mark.full
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_run_that_was_killed_ends_as_one_that_was_not(rank: int, tmp_path: Path) -> None:
    whole, out = uninterrupted(tmp_path / "whole", 3), tmp_path / "killed"
    process = torchrun(out, "--max-restarts", "2", count=3)
    for step in (2, 9):
        wait_for_step(out, step, process)
        while rank not in workers(process):
            time.sleep(0.01)
        os.kill(workers(process)[rank], signal.SIGKILL)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert_same_run(whole, out)


@pytest.mark.full
def test_resumed_with_another_number_of_processes(tmp_path: Path) -> None:
    """The checkpoint is the same; what follows differs by rounding, which AdamW makes larger."""
    out = tmp_path / "run"
    process = torchrun(out, count=3)
    wait_for_step(out, 5, process)
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=60)
    process = torchrun(out, count=2, words=("resume", str(out)))
    printed, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert "resuming" in printed
    assert json.loads((out / "results.json").read_text())["processes"] == 2


def said(errors: str) -> list[str]:
    """What Twofold said, without torchrun's and gloo's own lines."""
    return [line for line in errors.splitlines() if line.startswith(("error: ", "stopped; "))]


@pytest.mark.full
@pytest.mark.parametrize("number, whom", [(signal.SIGINT, "all"), (signal.SIGTERM, "all"), (signal.SIGTERM, "one")])
def test_asked_to_stop_the_first_process_saves_and_speaks(number: signal.Signals, whom: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = torchrun(out, **{"checkpoint.seconds": 1000})
    while not (out / "metrics.jsonl").exists() and process.poll() is None:
        time.sleep(0.01)
    if whom == "all":
        os.killpg(process.pid, number)
    else:
        os.kill(workers(process)[1], number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    (line,) = said(errors)
    assert f"twofold resume {out}" in line
    step, _ = checkpoint.load_latest(out)
    assert 0 < step < LAST_STEP


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.full
def test_without_torchrun_processes_do_not_go_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = torchrun(out, epochs=500)
    wait_for_step(out, 3, process)
    started = workers(process).values()
    process.kill()
    deadline = time.monotonic() + 120
    while any(map(is_alive, started)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(is_alive, started))


@pytest.mark.full
def test_a_disk_that_cannot_be_written_stops_all(tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = torchrun(out)
    wait_for_step(out, 3, process)
    (out / "checkpoints").rename(tmp_path / "aside")
    (out / "checkpoints").write_text("no folder")
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    (line,) = said(errors)
    assert "could not be written" in line


@pytest.mark.full
@pytest.mark.parametrize(
    "overrides, message",
    [({"lr": 1e30}, "not finite"), ({"batch_size": 1439}, "larger than the 1438 images"), ({"lrr": 1}, "did you mean")],
)
def test_an_error_is_said_once(overrides: dict[str, object], message: str, tmp_path: Path) -> None:
    process = torchrun(tmp_path / "run", **overrides)
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    (line,) = said(errors)
    assert message in line
