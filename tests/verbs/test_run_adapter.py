"""The adapter at the end of a run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import twofold
from twofold.evaluate.adaptation import fit_adapter

PIXELS = np.random.default_rng(0).integers(0, 255, (60, 12, 12), dtype=np.uint8)
LABELS = np.arange(60) % 2
KEYS: dict[str, Any] = {"encoder": "conv", "projector": (8, 4), "batch_size": 16, "epochs": 1, "map_points": 0}


@pytest.fixture
def sure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A map is kept although it may be no better."""
    monkeypatch.setattr("twofold.verbs.run_adapter.fit_adapter", lambda *a, **k: fit_adapter(*a, variant="within", **k))


@pytest.mark.usefixtures("sure")
def test_a_run_fits_an_adapter_to_the_encoder_that_it_keeps(tmp_path: Path) -> None:
    run = twofold.pretrain((PIXELS, LABELS), out=tmp_path / "run", adapter=True, augment__flip=0, **KEYS)
    rows = {row["name"]: row for row in run.results["table"]}
    assert "with adapter" in rows
    found = {(each["baseline"], each["measure"]): each["difference"] for each in run.results["gain"]["comparisons"]}
    assert "with adapter" not in {baseline for baseline, _ in found}
    gained = rows["with adapter"]["knn_accuracy"] - rows["untrained"]["knn_accuracy"]
    assert found["untrained", "knn_accuracy"] == pytest.approx(gained)
    assert "whether training and the adapter helped" in run.results["gain"]["sentence"]
    assert run.results["adapter"]["variant"] == "within"
    adapted, plain = twofold.load_encoder(run), twofold.load_encoder(run, adapter=False)
    images = torch.randn(5, 1, 12, 12)
    torch.testing.assert_close(adapted(images), adapted.adapter(plain(images)))
    assert not torch.allclose(adapted(images), plain(images))


def test_only_a_run_from_weights_fits_an_adapter_unless_it_is_asked_for(tmp_path: Path) -> None:
    run = twofold.pretrain((PIXELS, LABELS), out=tmp_path / "run", **KEYS)
    assert (run.config.adapter, run.results["adapter"]) == (False, None)
    further = twofold.pretrain(
        (PIXELS, LABELS), out=tmp_path / "further", init=str(run.path), **KEYS | {"encoder": None}
    )
    assert further.config.adapter
    assert further.results["adapter"]["images"] == further.results["train_images"]
    assert (tmp_path / "further" / "adapter.safetensors").exists() == (
        further.results["adapter"]["variant"] != "as it is"
    )
