"""Maps of runs: the form in records, and the positions of images in the picture."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from twofold.report.gallery import FORMAT
from twofold_papers.reproduce.maps import DOT, GRID, SIDE, TITLE, kept_map, side_by_side
from twofold_papers.reproduce.page import write_page
from twofold_papers.reproduce.show import figures_of, line_of, lines_of_records, markdown
from twofold_papers.reproduce.svg import GAP
from twofold_papers.reproduce.table import own_conditions
from twofold_papers.reproduce.tables import TABLES

MAP = {"x": [0, GRID, 0, GRID], "y": [0, 0, GRID, GRID], "labels": [0, 1, 1, -1], "classes": ["<a>", "b"]}

EMPTY = {"online_accuracy": {}, "spectrum": {}, "results": {"table": []}}  # the other keys of a record that are read


def corners(path: ElementTree.Element) -> set[tuple[int, int]]:
    return {(int(x), int(y)) for x, y in re.findall(r"M(\d+) (\d+)", path.attrib["d"])}


def test_a_square_for_each_image_in_the_colour_of_its_class() -> None:
    """Large y values are at the top, and every panel stays within its frame."""
    picture = ElementTree.fromstring(side_by_side([("one & two", {"map": MAP}), ("other", {"map": MAP})]))
    name = "{http://www.w3.org/2000/svg}"
    for number in range(2):
        paths = picture.findall(f"{name}path")[3 * number : 3 * number + 3]
        left, top, far = GAP + number * (SIDE + GAP), TITLE, SIDE - DOT
        low, high = top + far, top
        expected = [{(left + far, high)}, {(left, low)}, {(left + far, low), (left, high)}]
        assert [corners(path) for path in paths] == expected  # images without a class first, then by class
    colours = [path.attrib["fill"] for path in picture.findall(f"{name}path")]
    assert colours[:3] == colours[3:]
    assert len(set(colours)) == 3
    texts = [text.text for text in picture.findall(f"{name}text")]
    assert texts == ["one & two", "other", "<a>", "b"]
    legend = [each.attrib["fill"] for each in picture.findall(f"{name}rect") if each.attrib.get("width") == "9"]
    assert legend == colours[1:3]


def test_a_record_keeps_the_positions_of_images(tmp_path: Path) -> None:
    sheet = {"side": 1, "gutter": 1, "columns": 3, "rows": 1, "address": "data:image/png;base64,"}
    assert kept_map(tmp_path) is None
    found = {"x": [-1.0, 0.0, 1.0], "y": [0.5, -0.25, 0.0], "labels": [2, None, 0], "sheet": sheet}
    found |= {"perplexity": 1.0, "divergence": 0.5, "index": [0, 1, 2], "held_out": [0, 0, 1], "names": [None] * 3}
    text = json.dumps({"format": FORMAT, "classes": ["a", "b", "c"], "map": found, "neighbours": None, "views": None})
    (tmp_path / "pictures.json").write_text(text)
    kept = kept_map(tmp_path)
    assert kept == {"x": [0, 500, 999], "y": [749, 375, 500], "labels": [2, -1, 0], "classes": ["a", "b", "c"]}


def test_a_table_shows_the_maps_of_its_records(tmp_path: Path) -> None:
    table = TABLES["s-diet-figure-2"]
    lines = lines_of_records(table, {})
    assert figures_of(table, lines) == {}
    assert not any("figures/" in line for line in markdown(table, lines))
    lines = [replace(lines[0], records={"run": {"map": None}, "second": {"map": MAP}}), lines[1]]
    assert figures_of(table, lines) == {"s-diet-figure-2-maps.svg": side_by_side([("S-DIET", {"map": MAP})])}
    assert figures_of(TABLES["s-diet-3"], lines) == {}
    assert "![t-SNE of features, CIFAR-10, ResNet-18](figures/s-diet-figure-2-maps.svg)" in markdown(table, lines)
    drawn = [replace(each, records={name: record | EMPTY for name, record in each.records.items()}) for each in lines]
    assert "<svg" in write_page(tmp_path / "page.html", table, drawn).read_text()


@pytest.mark.parametrize("maps, has_note", [([None], True), ([None, MAP], False), ([], False)])
def test_a_row_without_a_map_has_a_note(maps: list[Any], has_note: bool) -> None:
    table = TABLES["s-diet-figure-2"]
    runs = {str(seed): EMPTY | {"map": each, "config": {"values": {"seed": seed}}} for seed, each in enumerate(maps)}
    for shown, other in ((table, has_note), (TABLES["s-diet-3"], False)):
        assert (
            "the record has no map"
            in line_of(shown, table.rows[0], own_conditions(shown, table.rows[0]), runs, "").note
        ) == other
