"""What all processes do when one of them fails. Uses torchrun and real signals."""

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

TWO_EPOCHS = {"epochs": 2, "checkpoint.seconds": 0.0}
LAST_STEP = 22
METHODS = ["byol", "s-diet"]  # s-diet has a per-image classifier in a file that all processes write


def torchrun(
    out: Path,
    *options: str,
    count: int = 2,
    words: tuple[str, ...] = (),
    method: str = "byol",
    **overrides: object,
) -> subprocess.Popen[str]:
    settings = [f"{key}={value}" for key, value in small(method, **TWO_EPOCHS | overrides).items()]
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
        with suppress(OSError):  # the process may end meanwhile
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


def test_torchrun_resumes_the_run_after_a_killed_process(tmp_path: Path) -> None:
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
def test_killed_run_resumes_bit_identically(rank: int, method: str, tmp_path: Path) -> None:
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
def uninterrupted_s_diet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return uninterrupted(tmp_path_factory.mktemp("whole") / "run", 3, "s-diet")


@pytest.mark.full
@pytest.mark.parametrize("seed", range(5))
def test_classifier_rows_survive_kills_of_any_process_at_any_time(
    seed: int, uninterrupted_s_diet: Path, tmp_path: Path
) -> None:
    """Kills also hit while the per-image classifier is created, opened, checkpointed or rolled back."""
    chance, out, hits = random.Random(seed), tmp_path / "killed", 0
    seconds = 0.3 * (seed % 2)  # 0: checkpoint after every step
    process = torchrun(out, "--max-restarts", "8", count=3, method="s-diet", **{"checkpoint.seconds": seconds})
    while not (out / "config.json").exists() and process.poll() is None:
        time.sleep(0.005)
    for longest in (2, 12, 12):  # seconds; processes need time to restart
        time.sleep(chance.uniform(0, longest))
        started = list(workers(process).values()) if process.poll() is None else []
        with suppress(ProcessLookupError, IndexError):
            os.kill(chance.choice(started), signal.SIGKILL)
            hits += 1
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert hits
    assert_same_run(uninterrupted_s_diet, out)
    assert torch.equal(rows_of(uninterrupted_s_diet), rows_of(out))


@pytest.mark.full
def test_classifier_file_in_use_raises_an_error_in_other_runs(tmp_path: Path) -> None:
    out, rows = tmp_path / "run", tmp_path / "rows"
    process = torchrun(out, method="s-diet", epochs=500, **{"head.path": rows})
    wait_for_step(out, 3, process)
    other = run("pretrain", "digits", "--method", "s-diet", "--out", str(tmp_path / "other"), f"head.path={rows}")
    assert "has the rows of another run" in other.stderr
    again = run("resume", str(out))
    assert "in use by another process" in again.stderr
    assert 0 not in (again.returncode, other.returncode)
    name = checkpoint.latest_name(out / "checkpoints")
    wait_for_step(out, int(name.partition("-")[2]) + 5, process)  # the first run continues
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=60)
    assert torch.isfinite(rows_of(out)).all()


@pytest.mark.full
@pytest.mark.parametrize("method", METHODS)
def test_resume_works_with_a_different_number_of_processes(method: str, tmp_path: Path) -> None:
    """Later steps are not bit-identical, because rounding differs and AdamW amplifies it."""
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


def twofold_messages(errors: str) -> list[str]:
    """The messages of Twofold, without those of torchrun and gloo."""
    return [line for line in errors.splitlines() if line.startswith(("error: ", "stopped"))]


@pytest.mark.full
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("number, target", [(signal.SIGINT, "all"), (signal.SIGTERM, "all"), (signal.SIGTERM, "one")])
def test_only_the_first_process_saves_and_prints_after_a_signal(
    number: signal.Signals, target: str, method: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    process = torchrun(out, method=method, **{"checkpoint.seconds": 1000})
    while not (out / "metrics.jsonl").exists() and process.poll() is None:
        time.sleep(0.01)
    if target == "all":
        os.killpg(process.pid, number)
    else:
        os.kill(workers(process)[1], number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    (line,) = twofold_messages(errors)
    assert f"twofold resume {out}" in line
    step, _ = checkpoint.load_latest(out)
    assert 0 < step < LAST_STEP


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.full
def test_processes_end_when_torchrun_is_killed(tmp_path: Path) -> None:
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
def test_failed_checkpoint_write_stops_all_processes(tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = torchrun(out)
    wait_for_step(out, 3, process)
    (out / "checkpoints").rename(tmp_path / "aside")
    (out / "checkpoints").write_text("no folder")
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    (line,) = twofold_messages(errors)
    assert "could not be written" in line


@pytest.mark.full
@pytest.mark.parametrize(
    "overrides, message",
    [({"lr": 1e30}, "not finite"), ({"batch_size": 1439}, "larger than the 1438 images"), ({"lrr": 1}, "did you mean")],
)
def test_errors_are_printed_once(overrides: dict[str, object], message: str, tmp_path: Path) -> None:
    process = torchrun(tmp_path / "run", **overrides)
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    (line,) = twofold_messages(errors)
    assert message in line
