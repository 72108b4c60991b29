"""What should collapse does, and the switch that is said to prevent it does: the papers' negative controls."""

from pathlib import Path

import pytest
import torch
from runs import trained


def spread(run: object) -> float:
    """Total variance of the embeddings at the end."""
    last = [line for line in run.spectrum if line["of"] == "embeddings"][-1]
    return sum(last["eigenvalues"])


def test_euclidean_without_stop_gradient_collapses_completely(tmp_path: Path) -> None:
    common = {"distance": "euclidean", "predictor": False, "teacher_momentum": None, "epochs": 15}
    collapsed = trained("byol", tmp_path / "collapsed", stop_gradient=False, **common)
    healthy = trained("isoloss", tmp_path / "healthy", distance="euclidean", teacher_momentum=None, epochs=15)
    start = sum(collapsed.spectrum[1]["eigenvalues"])
    assert spread(collapsed) < 1e-3 * start
    assert spread(healthy) > 0.1


def test_directpred_needs_its_teacher(tmp_path: Path) -> None:
    """Without a teacher DirectPred loses its dimensions, where IsoLoss, the same but for its gradient, keeps them."""
    setting = {"teacher_momentum": None, "optimizer": "sgd", "lr": 0.3, "weight_decay": 4e-4, "epochs": 40}
    crashed = trained("directpred", tmp_path / "directpred", **setting)
    kept = trained("isoloss", tmp_path / "isoloss", **setting)
    rank = {run.config.method: run.metrics[-1]["effective_rank"] for run in (crashed, kept)}
    assert rank["isoloss"] > 2 * rank["directpred"], rank


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_cosine_keeps_its_scale_without_stop_gradient_and_euclidean_does_not(distance: str, tmp_path: Path) -> None:
    run = trained(
        "byol", tmp_path / "run", distance=distance, predictor=False, teacher_momentum=None, stop_gradient=False
    )
    eigenvalues = torch.tensor([line for line in run.spectrum if line["of"] == "embeddings"][-1]["eigenvalues"])
    if distance == "cosine":
        assert run.metrics[-1]["effective_rank"] < 0.5 * run.metrics[0]["effective_rank"]
    else:
        assert eigenvalues.sum() < 1e-3
