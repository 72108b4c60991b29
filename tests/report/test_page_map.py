"""The map in a browser: points, tooltip, legend and pictures."""

import re
from pathlib import Path

import pytest

from browser import CHROMIUM, elements, visit
from fake_runs import fake_pictures, pictured_run
from twofold.report.page import write_report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium to run the scripts of the page")

HOVER = """{
const drawing = document.querySelector('[data-chart="map"] svg'), frame = drawing.getBoundingClientRect();
// The right end of the spiral is at half the height.
const end = {clientX: frame.right - 20, clientY: frame.top + frame.height / 2, bubbles: true};
drawing.dispatchEvent(new PointerEvent("pointermove", end));
}"""


def dots(dom: str) -> dict[str, list[tuple[float, float]]]:
    """Return the points of each class, in pixels."""
    paths = [e for e in elements(dom) if e.tag == "path" and (e.attributes.get("class") or "").startswith("points")]
    return {
        str(e.attributes["data-label"]): [
            (float(x), float(y)) for x, y in re.findall(r"M([^,]+),([^h]+)h0", e.attributes["d"] or "")
        ]
        for e in paths
    }


def test_every_image_is_a_point_of_its_class(tmp_path: Path) -> None:
    seen = visit(write_report(pictured_run(tmp_path / "run")))
    assert seen.console == []
    drawn, described = dots(seen.dom), fake_pictures()["map"]
    assert {label: len(points) for label, points in drawn.items()} == {str(label): 10 for label in range(4)}
    # Both axes have the same scale, and y points up.
    (x0, y0), (x1, y1) = drawn["0"][0], drawn["1"][-1]
    scale = (x1 - x0) / (described["x"][37] - described["x"][0])
    assert scale > 50
    assert described["y"][37] < -0.3
    assert y1 - y0 == pytest.approx(-scale * (described["y"][37] - described["y"][0]), abs=0.3)


def test_the_tooltip_shows_picture_name_class_and_split(tmp_path: Path) -> None:
    seen = visit(write_report(pictured_run(tmp_path / "run")), HOVER)
    assert seen.console == []
    inside = [e for e in elements(seen.dom) if e.inside == ("map",)]
    shown = ["".join(e.text) for e in inside if e.text]
    assert {"39.png", "kind 3", "held out"} <= set(shown)
    (tile,) = [e for e in inside if e.attributes.get("class") == "tile"]
    # It is the last of 40 tiles of 8 pixels, which are 10 pixels apart, in 6 rows of 7.
    found = re.search(r"background-position: ([\d.]+)% ([\d.]+)%", tile.attributes["style"] or "")
    assert found is not None
    assert [float(part) for part in found.groups()] == pytest.approx(
        [100 * 41 / (70 - 8), 100 * 51 / (60 - 8)], abs=1e-3
    )


def test_the_legend_hides_a_class(tmp_path: Path) -> None:
    script = """document.querySelectorAll('[data-chart="map"] .series')[1].click();"""
    seen = visit(write_report(pictured_run(tmp_path / "run")), script)
    assert seen.console == []
    assert [len(points) for points in dots(seen.dom).values()] == [10, 0, 10, 10]


PAINTED = """
setTimeout(() => {
  const canvas = document.querySelector('[data-chart="map"] canvas');
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const shades = new Set();
  for (let i = 0; i < pixels.length; i += 4) {
    if (pixels[i + 3] === 255 && pixels[i] === pixels[i + 1] && pixels[i] === pixels[i + 2]) shades.add(pixels[i]);
  }
  document.body.dataset.shades = [...shades].sort((a, b) => a - b).join(" ");
  document.body.dataset.hidden = canvas.hidden;
}, 500);"""


def test_pictures_are_drawn_at_their_points(tmp_path: Path) -> None:
    script = """document.querySelectorAll('[data-chart="map"] .modes button')[1].click();""" + PAINTED
    seen = visit(write_report(pictured_run(tmp_path / "run")), script)
    assert seen.console == []
    (body,) = [e for e in elements(seen.dom) if e.tag == "body"]
    shades = {int(shade) for shade in (body.attributes["data-shades"] or "").split()}
    # The picture of image i has the shade i. The outer turn of the spiral has room for all its pictures.
    assert body.attributes["data-hidden"] == "false"
    assert set(range(34, 40)) <= shades
    assert dots(seen.dom) == {}


def test_without_labels_the_map_shows_pictures_first(tmp_path: Path) -> None:
    seen = visit(write_report(pictured_run(tmp_path / "run", classes=None)), HOVER + PAINTED)
    assert seen.console == []
    (body,) = [e for e in elements(seen.dom) if e.tag == "body"]
    assert body.attributes["data-hidden"] == "false"
    assert "39" in (body.attributes["data-shades"] or "").split()
    assert "39.png" in ["".join(e.text) for e in elements(seen.dom)]
    assert "Colours are labels" not in seen.dom


def test_many_classes_have_colours_and_no_legend(tmp_path: Path) -> None:
    seen = visit(write_report(pictured_run(tmp_path / "run", classes=40)), HOVER)
    assert seen.console == []
    assert len(dots(seen.dom)) == 40
    strokes = {e.attributes["style"] for e in elements(seen.dom) if e.attributes.get("class") == "points"}
    assert len(strokes) == 40
    assert "kind 39" in ["".join(e.text) for e in elements(seen.dom)]
    assert not [e for e in elements(seen.dom) if e.attributes.get("class") == "classes"]
