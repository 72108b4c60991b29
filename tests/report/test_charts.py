"""Axes and legends of line charts in a browser."""

import json
from pathlib import Path

import pytest

from browser import CHROMIUM, elements, visit
from twofold.report.page import write_report
from twofold.runs.folder import RunFolder

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium to run the scripts of the page")

TICKS = """
const texts = [...document.querySelectorAll('[data-chart="online_accuracy"] svg text[text-anchor="end"]')];
document.body.dataset.ticks = texts.map((text) => text.textContent).filter((text) => text.includes("%"))
  .map((text) => parseFloat(text)).join(" ");
const line = document.querySelector('[data-chart="online_accuracy"] .line').getBBox();
const plot = document.querySelector('[data-chart="online_accuracy"] clipPath rect').getAttribute("height");
document.body.dataset.share = line.height / plot;
"""


def drawn(path: Path, *accuracies: float) -> tuple[list[float], float, list[str]]:
    """Return the ticks of the y axis, the fraction of its height that the curve fills, and the values of the legend."""
    folder = RunFolder.create(path, json.dumps({"values": {"method": "simclr", "data": "digits"}}))
    for step, accuracy in enumerate(accuracies, start=1):
        folder.append("metrics.jsonl", {"step": step, "epoch": step, "loss": 1.0, "online_accuracy": accuracy})
    folder.append("metrics.jsonl", {"step": 9, "epoch": 9, "loss": 1.0, "online_train_accuracy": accuracies[0]})
    seen = visit(write_report(folder), TICKS)
    assert seen.console == []
    (body,) = [element for element in elements(seen.dom) if element.tag == "body"]
    ticks = [float(tick) for tick in (body.attributes["data-ticks"] or "").split()]
    legend = [
        "".join(e.text)
        for e in elements(seen.dom)
        if e.inside == ("online_accuracy",) and e.attributes.get("class") == "last"
    ]
    return ticks, float(body.attributes["data-share"] or 0), legend


def test_a_small_change_of_accuracy_does_not_fill_the_axis(tmp_path: Path) -> None:
    _, share, _ = drawn(tmp_path / "narrow", 0.5, 0.54)
    assert share == pytest.approx(4 / 20, abs=0.03)
    # The axis moves to stay between 0 and 100 and keeps its length.
    high, share, _ = drawn(tmp_path / "high", 0.98, 1.0)
    assert (max(high), share) == (100, pytest.approx(2 / 20, abs=0.03))
    low, share, _ = drawn(tmp_path / "low", 0.0, 0.02)
    assert (min(low), share) == (0, pytest.approx(2 / 20, abs=0.03))
    assert drawn(tmp_path / "wide", 0.1, 0.7)[1] > 0.8
    constant, _, _ = drawn(tmp_path / "constant", 0.5, 0.5)
    assert (min(constant), max(constant)) == (40, 60)


def test_accuracies_in_a_legend_have_one_decimal(tmp_path: Path) -> None:
    _, _, legend = drawn(tmp_path / "run", 0.53125, 0.5)
    assert legend == ["53.1\N{NARROW NO-BREAK SPACE}%", "50.0\N{NARROW NO-BREAK SPACE}%"]


def test_eigenvalues_are_numbered_by_an_index(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", json.dumps({"values": {"method": "simclr", "data": "digits"}}))
    folder.append("spectrum.jsonl", {"step": 1, "of": "features", "eigenvalues": [3.0, 2.0, 1.0]})
    seen = visit(write_report(folder))
    texts = {
        chart: ["".join(e.text) for e in elements(seen.dom) if e.inside == (chart,)]
        for chart in ("final_spectrum", "features_eigenvalues")
    }
    assert texts["final_spectrum"].count("index") == 1
    assert "log index" in texts["final_spectrum"]
    assert not any("rank" in text for found in texts.values() for text in found)
