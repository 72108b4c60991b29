"""What happens to all processes when something happens to one. torchrun, real processes, real kills."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from test_resume import assert_same_run
from test_sample_rows import rows_of

from running import run, small
from twofold.runs import checkpoint

OFTEN = {"epochs": 2, "checkpoint.seconds": 0.0}
LAST_STEP = 22
METHODS = ["byol", "s-diet"]  # the latter has a head that all processes write to


def torchrun(
    out: Path,
    *options: str,
    count: int = 2,
    words: tuple[str, ...] = (),
    method: str = "byol",
    **overrides: object,
) -> subprocess.Popen[str]:
    settings = [f"{key}={value}" for key, value in small(method, **OFTEN | overrides).items()]
    pretrain = ["pretrain", "digits", "--method", method, "--out", str(out), *settings]
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
        with suppress(OSError):  # it may end meanwhile
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
    process = torchrun(out, "--max-restarts", "1", method="s-diet", epochs=1, test_fraction=0)
    wait_for_step(out, 2, process)
    os.kill(workers(process)[1], signal.SIGKILL)
    printed, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert "another has ended: it or its machine was stopped" in errors
    assert f"twofold resume {out}" in errors
    assert f"resuming {out} at step" in printed
    steps = [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps))
    assert steps[-1] == 14
    assert json.loads((out / "results.json").read_text())["processes"] == 2


def uninterrupted(out: Path, count: int, method: str) -> Path:
    process = torchrun(out, count=count, method=method)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return out


@pytest.mark.full
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_run_that_was_killed_ends_as_one_that_was_not(rank: int, method: str, tmp_path: Path) -> None:
    whole, out = uninterrupted(tmp_path / "whole", 3, method), tmp_path / "killed"
    process = torchrun(out, "--max-restarts", "2", count=3, method=method)
    for step in (2, 9):
        wait_for_step(out, step, process)
        while rank not in workers(process):
            time.sleep(0.01)
        os.kill(workers(process)[rank], signal.SIGKILL)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert_same_run(whole, out)
    if method == "s-diet":
        assert torch.equal(rows_of(whole), rows_of(out))


@pytest.fixture(scope="module")
def whole_head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return uninterrupted(tmp_path_factory.mktemp("whole") / "run", 3, "s-diet")


@pytest.mark.full
@pytest.mark.parametrize("seed", range(5))
def test_a_head_is_whole_whichever_process_is_killed_whenever(seed: int, whole_head: Path, tmp_path: Path) -> None:
    """Also while the head is made, opened, marked, or returns to a mark."""
    chance, out, hits = random.Random(seed), tmp_path / "killed", 0
    seconds = 0.3 * (seed % 2)  # 0: after every step; else when the first process finds it is time
    process = torchrun(out, "--max-restarts", "8", count=3, method="s-diet", **{"checkpoint.seconds": seconds})
    while not (out / "config.json").exists() and process.poll() is None:
        time.sleep(0.005)
    for longest in (2, 12, 12):  # seconds; processes need some to start again
        time.sleep(chance.uniform(0, longest))
        started = list(workers(process).values()) if process.poll() is None else []
        with suppress(ProcessLookupError, IndexError):
            os.kill(chance.choice(started), signal.SIGKILL)
            hits += 1
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert hits
    assert_same_run(whole_head, out)
    assert torch.equal(rows_of(whole_head), rows_of(out))


@pytest.mark.full
def test_a_head_that_processes_share_is_refused_to_others(tmp_path: Path) -> None:
    out, rows = tmp_path / "run", tmp_path / "rows"
    process = torchrun(out, method="s-diet", epochs=500, **{"head.path": rows})
    wait_for_step(out, 3, process)
    other = run("pretrain", "digits", "--method", "s-diet", "--out", str(tmp_path / "other"), f"head.path={rows}")
    assert "has the rows of another run" in other.stderr
    again = run("resume", str(out))
    assert "in use by another process" in again.stderr
    assert 0 not in (again.returncode, other.returncode)
    name = checkpoint.latest_name(out / "checkpoints")
    wait_for_step(out, int(name.partition("-")[2]) + 5, process)  # it goes on
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=60)
    assert torch.isfinite(rows_of(out)).all()


@pytest.mark.full
@pytest.mark.parametrize("method", METHODS)
def test_resumed_with_another_number_of_processes(method: str, tmp_path: Path) -> None:
    """The checkpoint is the same; what follows differs by rounding, which AdamW makes larger."""
    out = tmp_path / "run"
    process = torchrun(out, count=3, method=method)
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
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("number, whom", [(signal.SIGINT, "all"), (signal.SIGTERM, "all"), (signal.SIGTERM, "one")])
def test_asked_to_stop_the_first_process_saves_and_speaks(
    number: signal.Signals, whom: str, method: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    process = torchrun(out, method=method, **{"checkpoint.seconds": 1000})
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
