"""A state that does not fit the run is described before any of it is loaded, and an older checkpoint is used."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import running
from twofold.errors import Interrupted
from twofold.runs import checkpoint
from twofold.train.state_check import find_difference, find_misfit
from twofold.train.trainer import Trainer


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    found = running.trainer("frossl", optimizer="adamw")
    found.method.train()
    for step in range(2):
        found.take_step(step)
    return found


def state_of(trainer: Trainer) -> dict[str, Any]:
    state = {"fingerprint": "a", "method": trainer.method.state_dict(), "records": {}, "rows": None}
    state |= {"optimizer": trainer.optimizer.state_dict()["state"], "observers": trainer.observers.state_dict()}
    tensors: dict[str, torch.Tensor] = {}
    return checkpoint.unpack(checkpoint.pack(state, tensors), tensors)


def misfit(trainer: Trainer, state: Any) -> str:
    return find_misfit(state, trainer.method.state_dict(), trainer.optimizer, trainer.observers.state_dict())


def without(key: str) -> Callable[[dict[str, Any]], None]:
    return lambda state: state.pop(key)


# Each of these led to an error of another type when it was loaded, some after half of the state had been loaded.
@pytest.mark.parametrize(
    "change, problem",
    [
        (without("method"), "it has no method"),
        (without("observers"), "it has no observers"),
        (lambda s: s.update(method=[]), "method is missing"),
        (lambda s: s["method"].popitem(), "is missing or not expected"),
        (lambda s: s["method"].update(extra=torch.zeros(1)), "method.extra is missing or not expected"),
        (lambda s: s["method"].update({next(iter(s["method"])): 3}), "is not a tensor"),
        (lambda s: s["method"].update({next(iter(s["method"])): torch.zeros(3)}), r"is float32 \[3\], not float32"),
        (lambda s: s.update(optimizer=None), "optimizer is not a dict"),
        (lambda s: s["optimizer"].update({99: {}}), "optimizer.99 belongs to no weight"),
        (lambda s: s["optimizer"][0].update(exp_avg=torch.zeros(3)), "optimizer.0.exp_avg does not fit"),
        (lambda s: s["optimizer"][0].pop("exp_avg"), "optimizer is incomplete"),
        (lambda s: s["observers"].update(means=None), "observers.means is missing"),
        (lambda s: s["observers"]["means"].update(names="abc"), "names is not a list"),
        (lambda s: s["observers"]["means"].update(sums=torch.zeros(1)), "sums does not fit its names"),
        (lambda s: s["observers"].update(spectra={}), "observers.spectra"),
        (lambda s: s.update(rows={"rows": torch.zeros(1)}), "rows has no steps"),
        (lambda s: s.update(fingerprint=3), "its fingerprint"),
    ],
)
def test_states_that_do_not_fit_are_described(trainer: Trainer, change: Any, problem: str) -> None:
    state = state_of(trainer)
    assert misfit(trainer, state) == ""
    change(state)
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(misfit(trainer, state))


def test_a_state_of_the_first_step_fits(trainer: Trainer) -> None:
    state = state_of(running.trainer("frossl", optimizer="adamw"))
    assert misfit(trainer, state) == ""
    assert find_difference({1: [torch.zeros(2)]}, {1: [torch.ones(2)]}, "") == ""


@pytest.mark.full
def test_a_run_resumes_from_an_older_checkpoint_if_the_newest_does_not_fit(tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = running.small("frossl", **{"checkpoint.seconds": 0.0})
    with running.stopped_at(4), contextlib.suppress(Interrupted):
        running.twofold.pretrain({"data": "digits", **settings}, method="frossl", out=run)
    newest, older, *_ = checkpoint.latest_and_older(run / "checkpoints")
    (newest / checkpoint.MANIFEST).unlink()
    path = newest / "state.json"
    packed = json.loads(path.read_text())
    packed["format"] = checkpoint.WITHOUT_CHECKSUMS
    packed["state"]["dict"] = [pair for pair in packed["state"]["dict"] if pair[0] != "observers"]
    path.write_text(json.dumps(packed))
    with running.stopped_at(5), contextlib.suppress(Interrupted):
        running.twofold.resume(run)
    text = f"{newest} does not fit the run: it has no observers; the run resumes from the checkpoint of step"
    assert f"{text} {older.name[5:]}" in (run / "log.txt").read_text()
