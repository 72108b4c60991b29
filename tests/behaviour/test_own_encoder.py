"""A run of an encoder of one's own knows what it began with, whatever the module has been trained to since."""

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


def own() -> Own:
    torch.manual_seed(0)
    return Own()


def untrained_of(rows: list[dict[str, object]]) -> object:
    (row,) = (row for row in rows if row["name"] == "untrained")
    return row["linear_accuracy"] if "linear_accuracy" in row else row["top1"]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> tuple[twofold.Run, Own]:
    module = own()
    return twofold.pretrain(DATA, encoder=module, out=tmp_path_factory.mktemp("own") / "run", **KEYS), module


def test_what_it_began_with_is_kept(straight: tuple[twofold.Run, Own]) -> None:
    run, module = straight
    kept = load_file(run.path / "untrained.safetensors")
    assert torch.equal(kept["linear.weight"], own().linear.weight)
    assert not torch.equal(kept["linear.weight"], module.linear.weight.cpu())  # the module itself is trained


def test_probes_of_the_trained_module_have_the_untrained_one_beside_them(straight: tuple[twofold.Run, Own]) -> None:
    run, module = straight
    before = module.linear.weight.clone()
    found = twofold.probe(run, DATA, encoder=module)
    assert untrained_of(found["rows"]) == pytest.approx(untrained_of(run.results["table"]))
    assert torch.equal(module.linear.weight, before)  # looking at it changes nothing
    fresh = Own()  # whose weights are of no matter
    assert twofold.probe(run, DATA, encoder=fresh)["rows"] == found["rows"]


def test_a_run_resumed_with_the_module_as_it_is_now_ends_as_if_it_had_not_stopped(
    straight: tuple[twofold.Run, Own], tmp_path: Path
) -> None:
    module = own()
    with stopped_at(7), pytest.raises(KeyboardInterrupt):
        twofold.pretrain(DATA, encoder=module, out=tmp_path / "run", **KEYS)
    run = twofold.resume(tmp_path / "run", data=DATA, encoder=module)
    assert run.metrics == straight[0].metrics
    assert run.results["table"] == straight[0].results["table"]


def test_another_module_is_refused(straight: tuple[twofold.Run, Own]) -> None:
    other = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 20))
    with pytest.raises(twofold.TwofoldError, match="trained another Sequential than the one given"):
        twofold.probe(straight[0], DATA, encoder=other)
