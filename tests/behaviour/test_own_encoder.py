"""Runs with a user-defined encoder: the run keeps the initial weights, even if the module is trained further."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.datasets import load_digits

import twofold
from running import Own, small, stopped_at

DIGITS = load_digits()
DATA = (np.rint(DIGITS.images[:300] * 15).astype(np.uint8), DIGITS.target[:300])
KEYS = small("frossl", batch_size=64, epochs=4, seed=3)


def new_encoder() -> Own:
    torch.manual_seed(0)
    return Own()


def accuracy_of_untrained(rows: list[dict[str, object]]) -> object:
    (row,) = (row for row in rows if row["name"] == "untrained")
    return row["linear_accuracy"] if "linear_accuracy" in row else row["top1"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[twofold.Run, Own]:
    module = new_encoder()
    return twofold.pretrain(DATA, encoder=module, out=tmp_path_factory.mktemp("own") / "run", **KEYS), module


def test_initial_weights_are_saved(uninterrupted: tuple[twofold.Run, Own]) -> None:
    run, module = uninterrupted
    kept = load_file(run.path / "untrained.safetensors")
    assert torch.equal(kept["linear.weight"], new_encoder().linear.weight)
    assert not torch.equal(kept["linear.weight"], module.linear.weight.cpu())  # training changed the module itself


def test_probe_compares_the_trained_module_with_its_initial_weights(uninterrupted: tuple[twofold.Run, Own]) -> None:
    run, module = uninterrupted
    before = module.linear.weight.clone()
    found = twofold.probe(run, DATA, encoder=module)
    assert accuracy_of_untrained(found["rows"]) == pytest.approx(accuracy_of_untrained(run.results["table"]))
    assert torch.equal(module.linear.weight, before)  # probing does not change the module
    fresh = Own()  # its own weights are not used
    assert twofold.probe(run, DATA, encoder=fresh)["rows"] == found["rows"]


def test_run_resumed_with_the_partly_trained_module_equals_the_uninterrupted_run(
    uninterrupted: tuple[twofold.Run, Own], tmp_path: Path
) -> None:
    module = new_encoder()
    with stopped_at(7), pytest.raises(KeyboardInterrupt):
        twofold.pretrain(DATA, encoder=module, out=tmp_path / "run", **KEYS)
    run = twofold.resume(tmp_path / "run", data=DATA, encoder=module)
    assert run.metrics == uninterrupted[0].metrics
    assert run.results["table"] == uninterrupted[0].results["table"]


def test_probe_with_a_different_module_raises_an_error(uninterrupted: tuple[twofold.Run, Own]) -> None:
    other = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 20))
    with pytest.raises(twofold.TwofoldError, match="trained another Sequential than the one given"):
        twofold.probe(uninterrupted[0], DATA, encoder=other)
