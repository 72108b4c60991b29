"""Loggers get the recorded metrics, report errors before a run starts, and continue when it is resumed."""

import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import running
import twofold
from twofold.errors import TwofoldError
from twofold.runs.folder import RunFolder
from twofold.train.loggers import logging_to
from twofold.verbs import pretrain


class FakeWandb(types.ModuleType):
    """Records the calls of the part of wandb that is used."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.started: list[dict[str, Any]] = []
        self.logged: dict[int, dict[str, float]] = {}
        self.finished = 0
        self.id = "abc123"

    def init(self, **options: Any) -> "FakeWandb":
        self.started.append(options)
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        self.logged[step] = values

    def finish(self) -> None:
        self.finished += 1


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def test_logger_gets_the_recorded_metrics(wandb: FakeWandb, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (32, 8, 8), dtype=np.uint8)
    keys = running.small("frossl", epochs=2, batch_size=8)
    run = twofold.pretrain(images, out=tmp_path / "run", encoder=running.SmallEncoder(), log="wandb", **keys)
    recorded = {record.pop("step"): record for record in run.metrics}
    assert set(wandb.logged) == set(recorded)
    for step, values in recorded.items():
        assert wandb.logged[step].pop("images_per_second") > 0
        assert wandb.logged[step] == values
    (options,) = wandb.started
    assert options["name"] == "run"
    assert options["config"]["epochs"] == 2
    assert wandb.finished == 1
    assert run.config.log == ("wandb",)


def test_resumed_run_continues_the_same_wandb_run(wandb: FakeWandb, tmp_path: Path) -> None:
    config, _ = pretrain.configure("digits", "frossl", {"log": "wandb"})
    folder = RunFolder.create(tmp_path / "run", "{}")
    for step in (0, 5):
        with logging_to(config, folder, step) as write:
            write(step + 1, {"loss": 1.0})
    first, second = wandb.started
    assert "id" not in first
    assert (second["id"], second["resume"]) == ("abc123", "allow")
    assert wandb.finished == 2


def test_logger_that_fails_to_start_raises_an_error(wandb: FakeWandb, tmp_path: Path) -> None:
    def refuse(**_: Any) -> None:
        raise RuntimeError("no API key")

    wandb.init = refuse  # type: ignore[method-assign]
    config, _ = pretrain.configure("digits", "frossl", {"log": "wandb"})
    folder = RunFolder.create(tmp_path / "run", "{}")
    with pytest.raises(TwofoldError, match=r"no API key.*WANDB_MODE=offline"), logging_to(config, folder, 0):
        pass


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_missing_package_raises_an_error_before_anything_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # importing it fails
    with pytest.raises(TwofoldError, match=rf"pip install 'twofold\[{name}\]'"):
        twofold.pretrain({"data": "digits", **running.small("frossl")}, out=tmp_path / "run", log=name)
    assert not (tmp_path / "run").exists()


def test_unknown_logger_raises_an_error() -> None:
    with pytest.raises(
        TwofoldError, match=r"log=tensorbord is not a list of values .each tensorboard or wandb., or none"
    ):
        pretrain.configure("digits", "frossl", {"log": "tensorbord"})


def test_tensorboard_purges_steps_that_are_logged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []

    class Writer:
        def __init__(self, folder: str, purge_step: int | None) -> None:
            calls.append(("open", folder, purge_step))

        def __enter__(self) -> "Writer":
            return self

        def __exit__(self, *_: object) -> None:
            calls.append(("close",))

        def add_scalar(self, name: str, value: float, step: int) -> None:
            calls.append((name, value, step))

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    config, _ = pretrain.configure("digits", "frossl", {"log": "tensorboard"})
    folder = RunFolder.create(tmp_path / "run", "{}")
    with logging_to(config, folder, 7) as write:
        write(8, {"loss": 2.0, "effective_rank": 3.0})
    place = str(tmp_path / "run" / "tensorboard")
    assert calls == [("open", place, 8), ("loss", 2.0, 8), ("effective_rank", 3.0, 8), ("close",)]
    calls.clear()
    with logging_to(config, folder, 0):
        pass
    assert calls == [("open", place, None), ("close",)]


@pytest.mark.extras
def test_tensorboard_reads_the_written_events(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed: pip install tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config, _ = pretrain.configure("digits", "frossl", {"log": "tensorboard"})
    folder = RunFolder.create(tmp_path / "run", json.dumps({}))
    with logging_to(config, folder, 0) as write:
        for step in (1, 2, 3):
            write(step, {"loss": 1 / step})
    with logging_to(config, folder, 1) as write:  # resumed after a kill, from a checkpoint at step 1
        write(2, {"loss": 20.0})
    events = EventAccumulator(str(folder.path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 1.0), (2, 20.0)]
