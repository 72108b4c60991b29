"""`select=best`: which encoder a run keeps, by views of held-out images and without labels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.datasets import load_digits

import twofold
from running import small, stopped_at
from twofold.data.hold_out import training_rows
from twofold.errors import Interrupted
from twofold.evaluate.view_retrieval import ViewScore
from twofold.runs import checkpoint, snapshots
from twofold.verbs import pretrain as verb
from twofold.verbs.selection import best_of

IMAGES = (load_digits().images[:400] * 15).astype(np.uint8)  # without labels, so 50 of them are held out
STEPS = 100


def train(out: Path, lr: float, **overrides: Any) -> twofold.Run:
    settings = {"epochs": 10, "batch_size": 32, "optimizer": "adamw", "lr_scaling": "none", "augment.flip": 0}
    return twofold.pretrain(
        {"data": IMAGES, **small("simclr", **settings), "lr": lr, **overrides}, method="simclr", out=out
    )


def score(mean: float, spread: float = 0.1, n: int = 200) -> ViewScore:
    noise = torch.randn(n, generator=torch.Generator().manual_seed(int(1000 * mean)), dtype=torch.float64)
    return ViewScore(mean + spread * (noise - noise.mean()), 10.0)


@pytest.mark.parametrize(
    "trained, start, middle, expected",
    [
        (0.6, 0.4, 0.5, "trained"),
        (0.3, 0.6, 0.4, "untrained"),
        (0.3, 0.4, 0.6, "step 5"),
        (0.5, 0.55, 0.4, "trained"),  # clearly, but not much better
    ],
)
def test_an_earlier_encoder_is_kept_only_if_it_is_much_better(
    trained: float, start: float, middle: float, expected: str
) -> None:
    assert best_of({"trained": score(trained), "untrained": score(start), "step 5": score(middle)}) == expected


def test_a_difference_that_chance_explains_does_not_count() -> None:
    start = score(0.4, spread=1.0, n=10)
    assert best_of({"trained": score(0.2, spread=1.0, n=10), "untrained": start}) == "trained"


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> twofold.Run:
    """A run with a learning rate 1,000 times too high."""
    return train(tmp_path_factory.mktemp("failed") / "run", 1.0)


def test_run_that_fails_keeps_the_encoder_before_training(failed: twofold.Run) -> None:
    results = failed.results
    assert results is not None
    assert results["gain"]["kind"] == "did not help"
    assert results["kept"]["step"] == 0
    assert "training did not help" in results["kept"]["sentence"]
    kept = load_file(failed.path / "encoder.safetensors")
    assert kept["body.1.running_mean"].abs().max() == 0  # BatchNorm of the kept encoder never saw a batch
    step, state = checkpoint.load_latest(failed.path) or (0, {})
    assert step == STEPS  # the last step is still in the checkpoint
    assert not torch.equal(state["method"]["encoder.body.0.weight"], kept["body.0.weight"])
    assert not list((failed.path / "checkpoints").glob("encoder-*"))


def test_interrupted_run_keeps_the_same_encoder(failed: twofold.Run, tmp_path: Path) -> None:
    with pytest.raises(Interrupted), stopped_at(60):
        train(tmp_path / "run", 1.0)
    missing: list[str] = []
    earlier = snapshots.load_snapshots(tmp_path / "run", STEPS, missing.append)
    assert list(earlier) == [25, 50]
    assert "the encoder of step 75 cannot be chosen" in missing[0]
    snapshots.snapshot_path(tmp_path / "run", 75).write_bytes(b"left by a killed process")
    run = twofold.resume(tmp_path / "run", IMAGES)
    assert run.results is not None
    assert failed.results is not None
    assert run.results["kept"] == failed.results["kept"]
    assert (run.path / "encoder.safetensors").read_bytes() == (failed.path / "encoder.safetensors").read_bytes()


def test_select_last_keeps_the_last_step_and_changes_no_record(failed: twofold.Run, tmp_path: Path) -> None:
    run = train(tmp_path / "run", 1.0, select="last")
    assert run.results is not None
    assert run.results["kept"]["step"] == STEPS
    assert run.results["gain"]["kind"] == "did not help"
    assert (run.path / "metrics.jsonl").read_bytes() == (failed.path / "metrics.jsonl").read_bytes()


def test_run_that_trains_keeps_the_last_step(tmp_path: Path) -> None:
    run = train(tmp_path / "run", 1e-3)
    assert run.results is not None
    assert run.results["kept"]["step"] == STEPS
    names = [score["name"] for score in run.results["kept"]["scores"]]
    assert names == ["trained", "untrained", "step 25", "step 50", "step 75", "HOG + colour", "raw pixels"]


def test_snapshots_are_at_quarters_of_the_run() -> None:
    assert snapshots.steps_of(100) == [25, 50, 75]
    assert snapshots.steps_of(3) == [1, 2]
    assert snapshots.steps_of(1) == []


def test_only_plain_pretrain_selects() -> None:
    """Papers' tables and benchmarks resolve their configuration with `configure`."""
    config, _ = verb.configure(IMAGES, "frossl")
    assert (config.select, config.unlabelled_fraction, config.origin.get("select")) == ("last", 0.0, None)
    config, _ = verb.configure(IMAGES, "frossl", for_use=True)
    assert (config.select, config.origin["select"]) == ("best", "chosen")
    assert config.unlabelled_fraction == pytest.approx(50 / 400)
    config, _ = verb.configure(IMAGES, "frossl", {"select": "last", "test_fraction": 0.0}, for_use=True)
    assert (config.select, config.unlabelled_fraction) == ("last", 0.0)


@pytest.mark.parametrize("images, held_out", [(249, 0), (250, 50), (5_000, 500), (20_000, 1_000)])
def test_a_tenth_of_unlabelled_images_is_held_out(images: int, held_out: int) -> None:
    source = verb.open_source(np.zeros((images, 2, 2), np.uint8))
    fraction = verb.unlabelled_hold_out(source, {}).get("unlabelled_fraction", 0.0)
    assert images - len(training_rows(source, 0.2, fraction)) == held_out
    labelled = verb.open_source((np.zeros((images, 2, 2), np.uint8), np.arange(images) % 2))
    assert verb.unlabelled_hold_out(labelled, {}) == {}
