"""The tones of the two headlines: good only where training helped, bad only where it did not."""

from typing import Any

import pytest

from fake_runs import RESULTS
from twofold.report import headlines

WELL = {"kind": "healthy", "sentence": "No collapse detected."}
COLLAPSED = {"kind": "dimensional collapse", "sentence": "Dimensional collapse."}


def gained(kind: str, *surpassed_by: str) -> dict[str, Any]:
    return {"kind": kind, "sentence": "A sentence.", "surpassed_by": list(surpassed_by), "evidence": []}


@pytest.mark.parametrize(
    "gain, verdict, tones",
    [
        (gained("helped"), WELL, ("good", "good")),
        (gained("helped", "HOG + colour"), WELL, ("open", "good")),
        (gained("did not help"), WELL, ("bad", "open")),
        (gained("cannot tell"), WELL, ("open", "open")),
        (gained("not judged"), WELL, ("open", "open")),
        (gained("helped"), COLLAPSED, ("good", "open")),
        (gained("did not help"), COLLAPSED, ("bad", "bad")),
        (gained("not judged"), COLLAPSED, ("open", "bad")),
    ],
)
def test_tones(gain: dict[str, Any], verdict: dict[str, Any], tones: tuple[str, str]) -> None:
    results = {"gain": gain, "verdict": verdict}
    found = headlines.gain(results), headlines.verdict(results)
    assert found[0] is not None
    assert found[1] is not None
    assert (found[0]["tone"], found[1]["tone"]) == tones


@pytest.mark.parametrize("linear, tone", [(0.98, "good"), (0.94, "open"), (0.80, "open")])
def test_older_runs_without_an_answer_are_good_only_if_they_beat_the_untrained_encoder(
    linear: float, tone: str
) -> None:
    table = [RESULTS["table"][0] | {"linear_accuracy": linear}, *RESULTS["table"][1:]]  # type: ignore[index]
    found = headlines.verdict(RESULTS | {"verdict": WELL, "table": table})
    assert found is not None
    assert found["tone"] == tone
    assert headlines.gain(RESULTS) is None
    assert headlines.short_answer(RESULTS) == ""
