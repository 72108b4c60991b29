"""What should collapse does, and the switch that is said to prevent it does: the papers' negative controls."""

from pathlib import Path

import twofold
from running import trained


def spread(run: twofold.Run, *, last: bool) -> float:
    """Total variance of the embeddings at the start or the end."""
    records = [line for line in run.spectrum if line["of"] == "embeddings"]
    return sum(records[-1 if last else 0]["eigenvalues"])


def test_euclidean_without_stop_gradient_collapses_completely_and_with_a_predictor_does_not(tmp_path: Path) -> None:
    common = {"distance": "euclidean", "teacher_momentum": None, "epochs": 30}
    collapsed = trained("byol", tmp_path / "collapsed", stop_gradient=False, predictor=False, **common)
    healthy = trained("isoloss", tmp_path / "healthy", **common)
    assert spread(collapsed, last=True) < 1e-3 * spread(collapsed, last=False)
    # With W = C^½ each eigenvalue ends near 1: of 64 of them, those that views share.
    assert 1 < spread(healthy, last=True) < 64
    accuracy = [run.results["table"][0]["knn_accuracy"] for run in (collapsed, healthy)]
    assert accuracy[1] > accuracy[0] + 0.1


def test_cosine_without_stop_gradient_loses_rank(tmp_path: Path) -> None:
    common = {"predictor": False, "teacher_momentum": None, "stop_gradient": False}
    run = trained("byol", tmp_path / "run", **common)
    assert run.metrics[-1]["effective_rank"] < 0.5 * run.metrics[0]["effective_rank"]


def test_directpred_needs_its_teacher(tmp_path: Path) -> None:
    """Without a teacher DirectPred loses its dimensions, where IsoLoss, the same but for its gradient, keeps them."""
    setting = {"teacher_momentum": None, "optimizer": "sgd", "lr": 0.3, "weight_decay": 4e-4, "epochs": 40}
    crashed = trained("directpred", tmp_path / "directpred", **setting)
    kept = trained("isoloss", tmp_path / "isoloss", **setting)
    rank = {run.config.method: run.metrics[-1]["effective_rank"] for run in (crashed, kept)}
    assert rank["isoloss"] > 2 * rank["directpred"], rank
