"""Verdicts on made-up series with a known answer. Tests on real runs are in tests/methods."""

import math
from dataclasses import replace

import pytest
import torch

from twofold.evaluate.gain import Gain
from twofold.evaluate.verdict import Snapshot, judge, not_finite, snapshots, with_gain

STEPS = (1, 10, 100, 1000, 2000)


def series(spectra: list[list[float]], **values: list[float]) -> tuple[list[Snapshot], list[dict[str, float]]]:
    metrics = [
        {"step": step, "embedding_norm": 10.0, "uniformity": -3.0, "loss": 1.0 - number / 100}
        | {name: given[number] for name, given in values.items()}
        for number, step in enumerate(STEPS)
    ]
    lines = [
        {"step": step, "of": of, "eigenvalues": spectrum if of == "embeddings" else [1.0]}
        for step, spectrum in zip(STEPS, spectra, strict=True)
        for of in ("features", "embeddings")
    ]
    return snapshots(lines, metrics), metrics


EVEN, FLAT = [1.0] * 64, [1.0] * 3 + [1e-9] * 61


def test_a_constant_spectrum_is_no_collapse() -> None:
    verdict = judge(*series([EVEN] * 5))
    assert (verdict.kind, verdict.remedy, verdict.bad) == ("healthy", None, False)
    assert verdict.sentence == "No collapse detected: effective rank of the embeddings 64.0 of 64."


def test_collapse_starts_when_dimensions_become_few_and_stay_few() -> None:
    verdict = judge(*series([FLAT, EVEN, FLAT, FLAT, FLAT]))
    assert verdict.kind == "dimensional collapse"
    assert "Dimensional collapse since step 100: effective rank of the embeddings 3.0 of 64." in verdict.sentence
    assert any("3 of 64 singular values" in text for text in verdict.evidence)
    assert verdict.remedy


@pytest.mark.parametrize("spectrum", [EVEN, FLAT])
def test_two_measurements_of_a_run_are_too_few(spectrum: list[float]) -> None:
    seen, metrics = series([spectrum] * 5)
    verdict = judge(seen[:2], metrics[:2])
    assert (verdict.kind, verdict.bad) == ("unknown", False)
    assert verdict.sentence.startswith("No verdict yet: too few steps (at least 100 are needed). At step 10: ")
    assert verdict.sentence.endswith(" of 64.")
    assert judge(seen[:1]).kind in ("healthy", "dimensional collapse")  # a single spectrum that is not part of a run


def test_a_temporary_collapse_is_no_collapse() -> None:
    assert judge(*series([EVEN, FLAT, FLAT, EVEN, EVEN])).kind == "healthy"
    assert judge(*series([EVEN, EVEN, EVEN, FLAT, FLAT])).kind == "healthy"  # too short


def test_few_dimensions_by_design_are_not_bad() -> None:
    verdict = judge(*series([FLAT] * 5), few_dimensions="Theorem 3.")
    assert verdict.kind == "few dimensions"
    assert not verdict.bad
    assert verdict.sentence.endswith("Theorem 3.")
    assert judge(*series([EVEN] * 5), few_dimensions="Theorem 3.").kind == "healthy"


@pytest.mark.parametrize("dimension, few", [(2, 1), (8, 1), (16, 1), (29, 3), (64, 7), (512, 7), (2048, 31)])
def test_limit_of_few_dimensions_depends_on_the_width(dimension: int, few: int) -> None:
    def kind(count: int) -> str:
        return judge([Snapshot.of(torch.tensor([1.0] * count + [1e-12] * (dimension - count)), {})]).kind

    assert {kind(count) for count in range(1, few + 1)} == {"dimensional collapse"}
    assert {kind(count) for count in range(few + 2, dimension + 1)} <= {"healthy"}
    assert kind(dimension) == "healthy"


def test_a_one_dimensional_embedding_is_no_collapse() -> None:
    assert judge([Snapshot.of(torch.ones(1), {})]).kind == "healthy"


def test_a_long_tail_after_some_strong_directions_is_no_collapse() -> None:
    """The numbers come from two good runs of Barlow Twins after some hundred steps."""
    for dimension, rank, above in ((1024, 12.1, 8), (2048, 25.9, 10)):
        assert not Snapshot(1, dimension, rank, above, 1.0).few_dimensions
        assert Snapshot(1, dimension, 1.1 * above, above, 1.0).few_dimensions


def test_one_dominant_direction_with_many_others_is_no_collapse() -> None:
    spectrum = torch.tensor([1000.0] + [1.0] * 63)  # one singular value above 0.1 of the largest, effective rank 47
    assert judge([Snapshot.of(spectrum, {})]).kind == "healthy"


def test_rounding_errors_in_many_dimensions_do_not_hide_a_collapse() -> None:
    spectrum = torch.tensor([1.0, 0.5] + [1e-7] * 2046)  # about the rounding error of float32
    assert judge([Snapshot.of(spectrum, {})]).kind == "dimensional collapse"


def test_the_remedy_does_not_suggest_the_method_of_the_run() -> None:
    assert "frossl" in judge(*series([FLAT] * 5), method="byol").remedy
    assert "frossl" not in judge(*series([FLAT] * 5), method="frossl").remedy


def test_one_point_is_a_complete_collapse() -> None:
    spectra = [EVEN, EVEN, [1e-3] * 64, [1e-3] * 64, [1e-3] * 64]  # the mean square is 100
    verdict = judge(*series(spectra))
    assert verdict.kind == "complete collapse"
    assert "since step 100" in verdict.sentence
    assert judge([Snapshot.of(torch.zeros(8), {})]).kind == "complete collapse"


OFFSET = {"embedding_norm": 400.0, "uniformity": -0.001}  # the variance of EVEN is 64: 4e-4 of the mean square


def test_rich_embeddings_with_a_common_offset_did_not_collapse() -> None:
    verdict = judge([Snapshot.of(torch.tensor(EVEN), OFFSET)])
    assert (verdict.kind, verdict.bad) == ("common offset", False)
    assert "effective rank of the embeddings 64.0 of 64. But they have a large common offset" in verdict.sentence
    assert "Subtract the mean" in verdict.remedy
    turned = judge([Snapshot.of(torch.tensor(EVEN), OFFSET | {"embedding_norm": 200.0})])
    assert turned.kind == "common offset"  # detected by uniformity alone


def test_an_offset_does_not_hide_a_collapse() -> None:
    for poor in (FLAT, [1000.0] + [1.0] * 63):
        assert judge([Snapshot.of(0.1 * torch.tensor(poor), OFFSET)]).kind == "complete collapse"
    of_rounding = [value * 4e-6 * 400**2 / 64 for value in EVEN]
    assert judge([Snapshot.of(torch.tensor(of_rounding), OFFSET)]).kind == "complete collapse"
    in_a_run = judge(*series([EVEN] * 5, **{name: [value] * 5 for name, value in OFFSET.items()}))
    assert in_a_run.kind == "complete collapse"


def test_one_direction_is_a_complete_collapse() -> None:
    verdict = judge(*series([EVEN] * 5, uniformity=[-3.0, -1.0, -0.004, -0.002, -0.001]))
    assert verdict.kind == "complete collapse"
    assert "since step 100:" in verdict.sentence
    for good in ([-3.0, -0.001, -0.1, -1.0, -1.0], [-0.001, -0.1, -0.1, -0.001, -0.001]):
        assert judge(*series([EVEN] * 5, uniformity=good)).kind == "healthy"


def test_shrinking_embeddings_collapse_only_if_the_loss_shrinks_too() -> None:
    scales = [1.0, 0.5, 0.05, 0.02, 0.01]
    spectra, norms = [[scale**2] * 64 for scale in scales], [10 * scale for scale in scales]
    falling = judge(*series(spectra, embedding_norm=norms, loss=[scale**2 for scale in scales]))
    assert falling.kind == "complete collapse"
    assert "since step 100" in falling.sentence
    fading = judge(*series(spectra, embedding_norm=norms, loss=[-1.0, -1.2, -1.5, -1.9, -1.9]))
    assert fading.kind == "vanishing norm"
    assert "0.01 times" in fading.sentence


def test_growing_norm_gets_the_verdict_exploding_norm() -> None:
    norms = [10.0, 100.0, 1e4, 1e5, 1e6]
    verdict = judge(*series([[norm**2 / 64] * 64 for norm in norms], embedding_norm=norms))
    assert verdict.kind == "exploding norm"
    assert "1e+05 times" in verdict.sentence
    assert "since step 100" in verdict.evidence[0]


def test_falling_probe_accuracy_gets_the_verdict_falling_probe() -> None:
    accuracy, loss = [0.8, 0.9, 0.75, 0.7, 0.72], [5.0, 4.0, 3.0, 2.0, 1.0]
    verdict = judge(*series([EVEN] * 5, online_accuracy=accuracy, loss=loss))
    assert verdict.kind == "falling probe"
    assert "90.0 % at step 10." in verdict.sentence
    for good in ([0.8, 0.9, 0.75, 0.7, 0.88], [0.8, 0.9, 0.85, 0.82, 0.81], [0.3, 0.8, 0.9, 0.75, 0.7]):
        assert judge(*series([EVEN] * 5, online_accuracy=good, loss=loss)).kind == "healthy"
    assert "while the loss falls" in verdict.sentence
    assert "augment" in verdict.remedy
    unstable = judge(*series([EVEN] * 5, online_accuracy=accuracy, loss=loss[::-1]))
    assert unstable.kind == "falling probe"
    assert "while the loss falls" not in unstable.sentence
    assert unstable.evidence == ("the loss changed from 2 to 5 in the same steps",)
    assert "Lower lr" in unstable.remedy


def test_rising_loss_is_only_mentioned_as_evidence() -> None:
    verdict = judge(*series([EVEN] * 5, online_accuracy=[0.5, 0.6, 0.7, 0.8, 0.9], loss=[1.0, 2.0, 3.0, 4.0, 5.0]))
    assert verdict.kind == "healthy"
    assert any("the loss rose from 1 to 5" in text for text in verdict.evidence)


def test_few_directions_with_better_features_are_no_collapse() -> None:
    """A run with accuracy 94.2 against 88.1 before training was called a collapse because of its ranks."""
    collapsed = judge(*series([FLAT] * 5))
    assert collapsed.kind == "dimensional collapse"
    corrected = with_gain(collapsed, Gain("helped", "Training helped."))
    assert (corrected.kind, corrected.bad) == ("few dimensions", False)
    assert "Effective rank of the embeddings 3.0" in corrected.sentence
    for kind in ("did not help", "cannot tell", "not judged"):
        assert with_gain(collapsed, Gain(kind, "")) is collapsed
    healthy = judge(*series([EVEN] * 5))
    assert with_gain(healthy, Gain("did not help", "")) is healthy


def test_few_steps_are_not_judged() -> None:
    seen, metrics = series([FLAT] * 5)
    early = [replace(item, step=number + 1) for number, item in enumerate(seen)]
    verdict = judge(early, metrics)
    assert (verdict.kind, verdict.bad) == ("unknown", False)
    assert "at least 100 are needed" in verdict.sentence
    assert judge([*early[:4], replace(early[4], step=100)], metrics).kind == "dimensional collapse"


def test_a_fall_of_accuracy_must_exceed_chance() -> None:
    accuracy, loss = [0.8, 0.9, 0.75, 0.7, 0.72], [5.0, 4.0, 3.0, 2.0, 1.0]
    # The fall is from 0.9 to 0.75, the best of the last three: 3 √((0.09 + 0.1875) / n) is 0.15 at n = 111.
    kinds = {
        held_out: judge(*series([EVEN] * 5, online_accuracy=accuracy, loss=loss), held_out=held_out).kind
        for held_out in (25, 110, 112, 10_000)
    }
    assert kinds == {25: "healthy", 110: "healthy", 112: "falling probe", 10_000: "falling probe"}


def test_loss_of_equal_probabilities_gets_the_verdict_guessing() -> None:
    guess = math.log(4096)
    losses = [8.0, 8.2, 8.31, 8.317, 8.3177]
    verdict = judge(*series([EVEN] * 5, loss=losses), guess=guess)
    assert verdict.kind == "guessing"
    assert verdict.bad
    assert "8.3177" in verdict.sentence
    assert judge(*series([EVEN] * 5, loss=losses)).kind == "healthy"
    assert judge(*series([EVEN] * 5, loss=[8.0, 8.2, 8.3, 8.317, 8.3177]), guess=guess).kind == "healthy"  # too short


def test_a_constant_loss_is_bad() -> None:
    verdict = judge(*series([EVEN] * 5, loss=[0.0] * 5))
    assert (verdict.kind, verdict.bad) == ("standing still", True)
    assert judge(*series([EVEN] * 5, loss=[1.0, 1.0, 1.0, 1.0, 1.0 - 1e-7])).kind == "healthy"


def test_a_loss_that_is_not_finite_at_the_first_step_is_not_blamed_on_the_learning_rate() -> None:
    assert "lr" not in (not_finite(1, ["loss"]).remedy or "lr")
    assert "lr" in (not_finite(2, ["loss"]).remedy or "")


def test_verdict_of_a_nonfinite_loss_names_step_and_term() -> None:
    verdict = not_finite(17, ["loss/covariance"])
    assert verdict.sentence == "loss/covariance is not finite from step 17 on."
    assert verdict.bad
    assert "lr" in (verdict.remedy or "")


def test_record_of_a_verdict_is_plain_json() -> None:
    record = judge(*series([FLAT] * 5)).record()
    assert set(record) == {"kind", "sentence", "evidence", "remedy"}
    assert isinstance(record["evidence"], list)
    assert judge([]).kind == "unknown"
    assert not judge([]).bad
    assert math.isfinite(Snapshot.of(torch.ones(4), {}).rank)


def test_limit_of_few_dimensions_above_512_is_a_sixty_fourth() -> None:
    assert Snapshot(1, 2048, 31.0, 2, 1.0).few_dimensions
    assert not Snapshot(1, 2048, 33.0, 2, 1.0).few_dimensions
