"""Whether training helped: intervals against independent references, and answers on made-up cases of each kind."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from twofold.evaluate.gain import (
    compare_accuracies,
    compare_views,
    judge_by_labels,
    judge_by_views,
    obstacle,
    paired_difference,
)
from twofold.evaluate.view_retrieval import ViewScore

ENOUGH: dict[str, Any] = {"steps": 1000, "test_images": 1000}


def outcomes(gained: int, lost: int, *, of: int) -> tuple[Tensor, Tensor]:
    """Return whether two classifiers are right on each image: on `gained` images only the first, on `lost` only the
    second, and on half of the others both."""
    ours, theirs = torch.zeros(of, dtype=torch.bool), torch.zeros(of, dtype=torch.bool)
    ours[:gained], theirs[gained : gained + lost] = True, True
    both = slice(gained + lost, gained + lost + (of - gained - lost) // 2)
    ours[both] = theirs[both] = True
    return ours, theirs


def judged(linear: tuple[int, int], knn: tuple[int, int], start: str = "untrained", **settings: Any) -> Any:
    """Judge accuracies on 1,000 images: how many images the trained encoder gained and lost, for both measures."""
    pairs = {"linear_accuracy": outcomes(*linear, of=1000), "knn_accuracy": outcomes(*knn, of=1000)}
    correct = {
        "trained": {name: ours for name, (ours, _) in pairs.items()},
        start: {name: theirs for name, (_, theirs) in pairs.items()},
    }
    return judge_by_labels(compare_accuracies(correct), **(ENOUGH | settings))


def test_interval_of_many_images_equals_the_bootstrap() -> None:
    ours, theirs = outcomes(160, 100, of=2000)
    difference, low, high = paired_difference(ours, theirs)
    assert difference == pytest.approx(0.03)
    each = ours.numpy().astype(float) - theirs.numpy()
    draws = np.random.default_rng(0).choice(each, (5_000, len(each))).mean(1)
    assert (low, high) == pytest.approx(tuple(np.quantile(draws, [0.025, 0.975])), abs=2e-3)


@pytest.mark.parametrize("n, gained, lost", [(50, 0.05, 0.05), (50, 0.2, 0.1), (100, 0.02, 0.0), (360, 0.1, 0.04)])
def test_interval_contains_the_true_difference_in_95_per_cent_of_samples(n: int, gained: float, lost: float) -> None:
    drawn = np.random.default_rng(1).multinomial(n, [gained, lost, 1 - gained - lost], size=3000)
    kinds, counts = np.unique(drawn, axis=0, return_counts=True)
    covered = 0
    for (up, down, _), count in zip(kinds, counts, strict=True):
        _, low, high = paired_difference(*outcomes(int(up), int(down), of=n))
        covered += int(low <= gained - lost <= high) * count
    assert covered / 3000 >= 0.935


def test_classifiers_that_never_disagree_are_not_clearly_different() -> None:
    difference, low, high = paired_difference(*outcomes(0, 0, of=100))
    assert difference == 0
    assert -0.05 < low < 0 < high < 0.05


@pytest.mark.parametrize(
    "linear, knn, kind",
    [
        ((100, 40), (90, 30), "helped"),
        ((100, 40), (30, 35), "helped"),  # kNN is 0.5 points lower, which does not matter
        ((100, 40), (30, 60), "cannot tell"),  # linear is better, kNN is worse
        ((40, 82), (150, 35), "cannot tell"),  # linear 67.7 against 71.9 is not hidden by a better kNN
        ((40, 100), (30, 90), "did not help"),
        ((40, 100), (30, 32), "did not help"),
        ((2, 2), (1, 3), "did not help"),  # nothing changed
        ((50, 45), (60, 50), "cannot tell"),
    ],
)
def test_answer_depends_on_both_measures(linear: tuple[int, int], knn: tuple[int, int], kind: str) -> None:
    assert judged(linear, knn).kind == kind


def test_answer_states_the_differences_in_points() -> None:
    gain = judged((100, 40), (90, 30))
    assert gain.sentence.startswith(
        "Training helped, compared with the untrained encoder: linear accuracy +6.0 points (+3.7 to +8.3) and kNN"
    )
    assert gain.remedy is None
    assert gain.by == "labels"


@pytest.mark.parametrize("start, advice", [("untrained", "Train for more steps"), ("before training", "Lower lr")])
def test_advice_to_change_the_training_is_only_for_features_that_became_worse(start: str, advice: str) -> None:
    higher, lower = (judged((50, 45), knn, start=start) for knn in ((60, 50), (50, 60)))
    assert higher.kind == lower.kind == "cannot tell"
    assert "hold out more" in str(higher.remedy)
    assert advice not in str(higher.remedy)
    assert advice in str(lower.remedy)
    assert advice in str(judged((2, 2), (1, 3), start=start).remedy)


def test_answer_names_the_adapter_if_it_is_judged_with_it() -> None:
    assert judged((100, 40), (90, 30), with_adapter=True).sentence.startswith("Training and the adapter helped")
    assert "whether training and the adapter helped" in judged((50, 45), (60, 50), with_adapter=True).sentence


@pytest.mark.parametrize(
    "settings, reason",
    [
        ({"steps": 99}, "99 steps are too few (100 are needed)"),
        ({"test_images": 49}, "49 held-out images are too few (50 are needed)"),
        ({"copies": 0.6}, "60 % of the images are copies"),
    ],
)
def test_runs_that_cannot_be_judged_say_why_and_report_the_differences(settings: dict[str, Any], reason: str) -> None:
    gain = judged((100, 40), (90, 30), **settings)
    assert gain.kind == "not judged"
    assert reason in gain.sentence
    assert "linear accuracy +6.0 points" in gain.evidence[0]


def test_limits_of_a_judgement() -> None:
    assert obstacle(100, 50, 0.5) == ""
    assert "no images are held out" in obstacle(100, 0, 0.0)


def test_start_of_training_is_the_encoder_with_initial_weights() -> None:
    """Training from good weights did not help if it lost to them, however bad random weights are."""
    ours, start = outcomes(40, 100, of=1000)
    worst = torch.zeros_like(ours)
    measures = ("linear_accuracy", "knn_accuracy")
    correct = {"trained": ours, "untrained": worst, "before training": start}
    comparisons = compare_accuracies({name: dict.fromkeys(measures, right) for name, right in correct.items()})
    gain = judge_by_labels(comparisons, **ENOUGH)
    assert gain.kind == "did not help"
    assert "the encoder before training" in gain.sentence


def test_better_hand_made_features_are_named() -> None:
    ours, start = outcomes(100, 40, of=1000)
    best = torch.ones_like(ours)
    measures = ("linear_accuracy", "knn_accuracy")
    correct = {"trained": ours, "untrained": start, "HOG + colour": best}
    comparisons = compare_accuracies({name: dict.fromkeys(measures, right) for name, right in correct.items()})
    gain = judge_by_labels(comparisons, **ENOUGH)
    assert (gain.kind, gain.surpassed_by) == ("helped", ("HOG + colour",))
    assert "hand-made features (HOG + colour) are better" in str(gain.remedy)
    assert gain.record()["surpassed_by"] == ["HOG + colour"]


def test_runs_without_measurements_are_not_judged() -> None:
    gain = judge_by_labels([], steps=1000, test_images=0)
    assert (gain.kind, gain.comparisons) == ("not judged", ())
    assert "no images are held out" in gain.sentence


def scores(trained: float, untrained: float, *, rank: float = 50.0, n: int = 200) -> dict[str, ViewScore]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: ViewScore(mean + 0.1 * torch.randn(n, generator=generator, dtype=torch.float64), dimensions)
        for name, mean, dimensions in (("trained", trained, rank), ("untrained", untrained, 50.0))
    }


def test_interval_of_a_score_is_that_of_the_mean_of_paired_differences() -> None:
    given = scores(0.6, 0.5)
    (found,) = compare_views(given)
    each = (given["trained"].retrieval - given["untrained"].retrieval).numpy()
    half = 1.959964 * each.std(ddof=1) / np.sqrt(len(each))
    assert (found.difference, found.low, found.high) == pytest.approx(
        (each.mean(), each.mean() - half, each.mean() + half)
    )


@pytest.mark.parametrize(
    "trained, untrained, rank, kind",
    [
        (0.7, 0.5, 50.0, "helped"),
        (0.7, 0.5, 29.0, "cannot tell"),  # views are found, but by few dimensions
        (0.5, 0.5, 50.0, "cannot tell"),
        (0.54, 0.5, 50.0, "cannot tell"),  # clearly better, but not by much
        (0.42, 0.5, 50.0, "cannot tell"),  # clearly worse, but not by much
        (0.3, 0.5, 50.0, "did not help"),
        (0.3, 0.5, 5.0, "did not help"),
    ],
)
def test_answer_without_labels_is_cautious(trained: float, untrained: float, rank: float, kind: str) -> None:
    gain = judge_by_views(scores(trained, untrained, rank=rank), **ENOUGH)
    assert (gain.kind, gain.by) == (kind, "views")
    assert kind == "cannot tell" or "probably" in gain.sentence
    assert f"effective rank of the features: {rank:.1f}, 50.0 before training" in gain.evidence


def test_runs_without_scores_are_not_judged_by_views() -> None:
    assert judge_by_views({}, steps=1000, test_images=0).kind == "not judged"
    assert judge_by_views(scores(0.7, 0.5), steps=10, test_images=200).kind == "not judged"
