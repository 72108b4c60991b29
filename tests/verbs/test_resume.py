"""Runs that are extended after their end."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import running
import twofold
from twofold.errors import TwofoldError
from twofold.runs import checkpoint
from twofold.train.optim import learning_rates

IMAGES = np.random.default_rng(0).integers(0, 256, (48, 8, 8), dtype=np.uint8)


def train(out: Path, method: str = "simclr", **settings: Any) -> twofold.Run:
    few = {"epochs": 1, "batch_size": 16, "encoder": "conv", "warmup_epochs": 0, "checkpoint.seconds": 0.0} | settings
    return twofold.pretrain({"data": IMAGES, **running.small(method, **few)}, method=method, out=out)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one epoch. The settings make the weights independent of the number of epochs."""
    return train(tmp_path_factory.mktemp("runs") / "one", schedule="constant", select="last").path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


def test_a_finished_run_keeps_one_checkpoint(finished: Path, tmp_path: Path) -> None:
    assert [path.name for path in (finished / "checkpoints").glob("step-*")] == ["step-3"]
    kept = train(tmp_path / "kept", **{"checkpoint.keep": 3}).path
    assert len(list((kept / "checkpoints").glob("step-*"))) == 3


def test_a_run_killed_before_it_removes_a_checkpoint_keeps_as_many_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prune(root: Path, keep: int, newest: str) -> None:
        if newest == "step-3":
            raise InterruptedError
        original(root, keep, newest)

    original = checkpoint.prune
    monkeypatch.setattr(checkpoint, "prune", prune)
    with pytest.raises(TwofoldError):
        train(tmp_path / "killed", **{"checkpoint.keep": 2})
    monkeypatch.undo()
    names = {path.name for path in (tmp_path / "killed" / "checkpoints").glob("step-*")}
    assert names == {"step-1", "step-2", "step-3"}
    resumed = twofold.resume(tmp_path / "killed", IMAGES).path
    assert {path.name for path in (resumed / "checkpoints").glob("step-*")} == {"step-2", "step-3"}


def test_an_extended_run_has_the_weights_of_a_run_with_all_epochs(run: Path, tmp_path: Path) -> None:
    extended = twofold.resume(run, IMAGES, epochs=2)
    whole = train(tmp_path / "whole", epochs=2, schedule="constant", select="last")
    assert extended.config.epochs == 2
    assert extended.results["seconds"] > 0
    (step, state), (expected_step, expected) = checkpoint.load_latest(run), checkpoint.load_latest(whole.path)
    assert step == expected_step == 6
    for part in ("method", "optimizer"):
        ours, theirs = {}, {}  # type: ignore[var-annotated]
        assert checkpoint.pack(state[part], ours) == checkpoint.pack(expected[part], theirs)
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    weights = load_file(run / "encoder.safetensors")
    assert all(
        torch.equal(weights[name], value) for name, value in load_file(whole.path / "encoder.safetensors").items()
    )


def test_an_extended_run_says_which_schedule_it_follows(tmp_path: Path) -> None:
    run = train(tmp_path / "run")
    before = run.config
    twofold.resume(run, IMAGES, epochs=2)
    rates = learning_rates(run.config, 3), learning_rates(before, 3)
    line = (
        "extended from 1 to 2 epochs: from step 3 on, all schedules are those of a run with 2 epochs. The learning "
        f"rate continues at {rates[0][3]:.3g} (schedule=cosine). It was {rates[1][2]:.3g} in the last step."
    )
    assert line in (run.path / "log.txt").read_text().splitlines()
    assert [record["step"] for record in run.metrics][-1] == 6
    assert json.loads((run.path / "config.json").read_text())["origin"]["epochs"] == "user"


def test_fewer_epochs_are_refused_and_as_many_change_nothing(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(TwofoldError, match="epochs=0 is not a whole number from 1"):
        twofold.resume(run, IMAGES, epochs=0)
    twofold.resume(run, IMAGES, epochs=1)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_an_extension_without_its_images_leaves_the_run_finished(run: Path, tmp_path: Path) -> None:
    with pytest.raises(TwofoldError):
        twofold.resume(run, tmp_path / "nowhere", epochs=2)
    assert twofold.Run(run).config.epochs == 1
    assert twofold.Run(run).results is not None


@pytest.mark.full
@pytest.mark.parametrize("update", ["exact", "multistep"])
@pytest.mark.parametrize("on_disk", [False, True])
def test_classifier_rows_are_extended_too(tmp_path: Path, update: str, on_disk: bool) -> None:
    place = {"head.path": str(tmp_path / "rows")} if on_disk else {}
    settings = {"schedule": "constant", "select": "last", "head.update": update}
    run = train(tmp_path / "run", "s-diet", **settings, **place)
    extended = twofold.resume(run, IMAGES, epochs=2)
    whole = train(tmp_path / "whole", "s-diet", epochs=2, **settings)
    weights = load_file(extended.path / "encoder.safetensors")
    for name, value in load_file(whole.path / "encoder.safetensors").items():
        assert torch.equal(weights[name], value), name
