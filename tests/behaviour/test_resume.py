"""A killed and resumed run is bit-identical to an uninterrupted one. Uses real processes and real kills.

Runs that nothing interrupts are trained in this process, which is quicker.
"""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from running import call, kill_and_resume, small, start
from twofold.methods import CATALOG
from twofold.runs import checkpoint

COMPARED = ("metrics.jsonl", "spectrum.jsonl")
LAST_STEP = 33


def words(method: str, out: Path, **overrides: object) -> list[str]:
    settings = small(method, epochs=3, **{"checkpoint.seconds": 0.0}) | overrides
    return ["pretrain", "digits", "--method", method, "--out", str(out), *(f"{k}={v}" for k, v in settings.items())]


def assert_same_run(a: Path, b: Path) -> None:
    for name in COMPARED:
        assert (a / name).read_bytes() == (b / name).read_bytes(), name
    (step_a, state_a), (step_b, state_b) = checkpoint.load_latest(a), checkpoint.load_latest(b)
    assert step_a == step_b
    tensors_a: dict[str, torch.Tensor] = {}
    tensors_b: dict[str, torch.Tensor] = {}
    assert checkpoint.pack(state_a, tensors_a) == checkpoint.pack(state_b, tensors_b)
    assert tensors_a.keys() == tensors_b.keys()
    for name, tensor in tensors_a.items():
        assert torch.equal(tensor, tensors_b[name]), name
    for name, tensor in load_file(a / "encoder.safetensors").items():
        assert torch.equal(tensor, load_file(b / "encoder.safetensors")[name]), name
    table = [json.loads((path / "results.json").read_text())["table"] for path in (a, b)]
    assert table[0] == table[1]


@pytest.fixture(scope="module", autouse=True)
def same_evaluation_in_all_processes(measured_once: Any) -> Iterator[None]:
    with measured_once.five_subsets():
        yield


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {"parent": tmp_path_factory.mktemp("whole")}


def uninterrupted(method: str, reference: dict[str, Path]) -> Path:
    if method not in reference:
        path = reference["parent"] / method
        finished = call(*words(method, path))
        assert finished.returncode == 0, finished.stderr
        reference[method] = path
    return reference[method]


def check_kills(method: str, reference: dict[str, Path], tmp_path: Path, seed: int, kills: int) -> None:
    whole = uninterrupted(method, reference)
    folder = tmp_path / "killed"

    def launch() -> subprocess.Popen[str]:
        return start("resume", str(folder)) if (folder / "config.json").exists() else start(*words(method, folder))

    kill_and_resume(launch, folder, random.Random(seed), kills, LAST_STEP)
    assert_same_run(whole, folder)


def test_run_killed_at_random_times_resumes_bit_identically(reference: dict[str, Path], tmp_path: Path) -> None:
    check_kills("byol", reference, tmp_path, seed=1, kills=3)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("method", sorted(CATALOG))
def test_every_method_killed_at_random_times_resumes_bit_identically(
    method: str, seed: int, reference: dict[str, Path], tmp_path: Path
) -> None:
    check_kills(method, reference, tmp_path, seed, kills=4)


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_run_saves_after_a_signal_and_prints_how_to_resume(
    number: signal.Signals, code: int, reference: dict[str, Path], tmp_path: Path
) -> None:
    whole, folder = uninterrupted("frossl", reference), tmp_path / "stopped"
    process = start(*words("frossl", folder, **{"checkpoint.seconds": 1000}))
    while not (folder / "metrics.jsonl").exists() and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert f"twofold resume {folder}" in err
    step, _ = checkpoint.load_latest(folder)
    assert 0 < step < LAST_STEP
    finished = call("resume", str(folder))
    assert finished.returncode == 0, finished.stderr
    # The runs differ in checkpoint.seconds only, which must not change the result.
    assert_same_run(whole, folder)


def test_resume_skips_damaged_checkpoints(reference: dict[str, Path], tmp_path: Path) -> None:
    whole, folder = uninterrupted("frossl", reference), tmp_path / "damaged"
    assert call(*words("frossl", folder, **{"checkpoint.keep": 12})).returncode == 0
    for name in ("results.json", "report.html", "encoder.safetensors"):
        (folder / name).unlink()
    for step in range(24, LAST_STEP + 1):
        for path in (folder / "checkpoints" / f"step-{step}").iterdir():
            os.truncate(path, 100)
    resumed = call("resume", str(folder))
    assert resumed.returncode == 0, resumed.stderr
    for said in ("".join(resumed.stdout.split()), "".join((folder / "log.txt").read_text().split())):
        assert f"{folder}/checkpoints/step-{LAST_STEP}cannotberead" in said
        assert "therunresumesfromthecheckpointofstep23" in said
    assert_same_run(whole, folder)
    assert len(list((folder / "checkpoints").glob("step-*"))) == 12
    assert checkpoint.load_newest_readable(folder, pytest.fail)[0] == LAST_STEP


def test_resuming_a_finished_run_changes_nothing(reference: dict[str, Path]) -> None:
    whole = uninterrupted("frossl", reference)
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    finished = call("resume", str(whole))
    assert finished.returncode == 0
    assert "finished" in finished.stdout
    assert before == {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    (whole / "report.html").unlink()
    assert call("resume", str(whole)).returncode == 0
    assert (whole / "report.html").read_bytes() == before[whole / "report.html"]
