"""Negative controls of the papers: training collapses without the mechanism that prevents collapse."""

from pathlib import Path

import pytest
from sklearn.datasets import load_digits

import twofold
from running import trained


def spread(run: twofold.Run, *, last: bool) -> float:
    """Total variance of the embeddings at the start or the end."""
    records = [line for line in run.spectrum if line["of"] == "embeddings"]
    return sum(records[-1 if last else 0]["eigenvalues"])


def test_euclidean_byol_collapses_without_stop_gradient_and_isoloss_does_not(tmp_path: Path) -> None:
    common = {"distance": "euclidean", "teacher_momentum": None, "epochs": 30}
    collapsed = trained("byol", tmp_path / "collapsed", stop_gradient=False, predictor=False, **common)
    healthy = trained("isoloss", tmp_path / "healthy", **common)
    assert spread(collapsed, last=True) < 1e-3 * spread(collapsed, last=False)
    # With W = C^½ the eigenvalues of directions that the views share end near 1. There are 64 directions in all.
    assert 1 < spread(healthy, last=True) < 64
    assert [run.results["verdict"]["kind"] for run in (collapsed, healthy)] == ["complete collapse", "healthy"]
    accuracy = [run.results["table"][0]["knn_accuracy"] for run in (collapsed, healthy)]
    assert accuracy[1] > accuracy[0] + 0.1


def test_cosine_byol_without_stop_gradient_loses_rank(tmp_path: Path) -> None:
    common = {"predictor": False, "teacher_momentum": None, "stop_gradient": False}
    run = trained("byol", tmp_path / "run", **common)
    assert run.metrics[-1]["effective_rank"] < 0.5 * run.metrics[0]["effective_rank"]
    verdict = run.results["verdict"]
    assert "point in the same direction" in verdict["sentence"]
    assert f"warning  {verdict['sentence'].split(' since')[0]}" in (run.path / "log.txt").read_text()


@pytest.mark.full
def test_directpred_without_teacher_loses_dimensions(tmp_path: Path) -> None:
    """Without a teacher DirectPred loses dimensions. IsoLoss, which differs only in its gradient, keeps them."""
    setting = {"teacher_momentum": None, "optimizer": "sgd", "lr": 0.3, "weight_decay": 4e-4, "epochs": 40}
    setting |= {"correlation_momentum": 0.998, "scale": 1.0}
    crashed = trained("directpred", tmp_path / "directpred", **setting)
    kept = trained("isoloss", tmp_path / "isoloss", **setting)
    rank = {run.config.method: run.metrics[-1]["effective_rank"] for run in (crashed, kept)}
    assert rank["isoloss"] > 2 * rank["directpred"], rank
    assert crashed.results["verdict"]["kind"] == "dimensional collapse"


def test_dino_with_targets_softer_than_its_predictions_gets_the_verdict_guessing(tmp_path: Path) -> None:
    soft = {"first_target_temperature": 0.3, "target_temperature": 0.3}
    run = trained("dino", tmp_path / "run", lr=3e-4, **soft)
    verdict = run.results["verdict"]
    assert verdict["kind"] == "guessing", verdict
    assert f"warning  {verdict['sentence'].split(',')[0]}" in (run.path / "log.txt").read_text()


def test_vicreg_without_its_variance_term_collapses_completely(tmp_path: Path) -> None:
    run = trained("vicreg", tmp_path / "run", variance=0.0)
    assert run.results["verdict"]["kind"] == "complete collapse"


def test_too_high_learning_rate_is_reported(tmp_path: Path) -> None:
    grown = trained("simclr", tmp_path / "grown", lr=100.0, epochs=5)
    assert grown.results["verdict"]["kind"] == "exploding norm"
    with pytest.raises(twofold.TwofoldError, match=r"loss/covariance is not finite from step \d+ on. Lower lr"):
        trained("vicreg", tmp_path / "broken", lr=30.0, optimizer="sgd", epochs=5)
    assert "not finite" in (tmp_path / "broken" / "log.txt").read_text()


@pytest.mark.full
def test_few_dimensions_from_a_graph_of_few_labels_are_not_reported_as_collapse(tmp_path: Path) -> None:
    digits = load_digits()
    few = digits.target < 5
    run = twofold.pretrain(
        ((16 * digits.images[few]).clip(0, 255).astype("uint8"), digits.target[few]),
        method="graph-vicreg",
        out=tmp_path / "run",
        epochs=20,
        batch_size=128,
        encoder="conv",
        projector="512,64",
        map_points=0,
        graph__source="labels",
        weight=0.004,  # so small that the graph, which has rank 5, decides
    )
    verdict = run.results["verdict"]
    assert verdict["kind"] == "few dimensions", verdict
    assert "5 groups" in verdict["sentence"]
    assert "warning  " not in (run.path / "log.txt").read_text()
