"""Curves of records as pictures: each point has the right position on the axes that all panels share."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from twofold_papers.reproduce.curves import (
    EIGENVALUES,
    HEIGHT,
    LEFT,
    TITLE,
    WIDTH,
    accuracies,
    axis,
    eigenvalues,
    ramp,
    shown,
    singular_values,
)
from twofold_papers.reproduce.page import write_page
from twofold_papers.reproduce.show import Line, figures_of, lines_of_records, markdown, runs_in
from twofold_papers.reproduce.svg import GAP
from twofold_papers.reproduce.tables import TABLES

SVG = "{http://www.w3.org/2000/svg}"
X, Y = GAP + LEFT, TITLE  # the corner of the first panel

# Powers of ten, so that positions are known without a logarithm.
FIRST = {"step": [1, 10, 100], "eigenvalues": {"1": [1.0, 100.0, 1e4], "14": [1.0, 1.0, 1.0], "20": [1.0, 1.0, 1e-9]}}
SECOND = {"step": [10, 100], "eigenvalues": {"1": [100.0, 1.0], "2": [10.0, 0.0]}}
RUNS = [("one & two", {"spectrum": FIRST}), ("other", {"spectrum": SECOND})]


def curves(picture: str) -> list[list[tuple[float, float]]]:
    lines = ElementTree.fromstring(picture).findall(f"{SVG}polyline")
    pairs = [[pair.split(",") for pair in line.attrib["points"].split()] for line in lines]
    return [[(float(x), float(y)) for x, y in line] for line in pairs]


def texts(picture: str) -> list[str]:
    return [str(text.text) for text in ElementTree.fromstring(picture).findall(f"{SVG}text")]


def test_eigenvalues_have_log_positions_in_every_panel() -> None:
    picture = eigenvalues(RUNS)
    middle, right = X + WIDTH / 2, X + WIDTH
    low, half, top = Y + HEIGHT, Y + HEIGHT / 2, Y
    further = LEFT + WIDTH + GAP  # the distance to the next panel, which has the same axes; its steps start at 10
    assert curves(picture) == [
        [(X, low), (middle, half), (right, top)],
        [(X, low), (middle, low), (right, low)],
        [(X, low), (middle, low)],  # 1e-9 of 10,000 is rounding error, and so is 0
        [(middle + further, half), (right + further, low)],
        [(middle + further, Y + 3 * HEIGHT / 4)],
    ]
    words = texts(picture)
    assert {"one & two", "other", "step", "eigenvalue", "10⁴", "100", "rank 1", "2", "14", "20"} <= set(words)
    # A rank has the same colour in every panel and in the legend.
    lines = [line.attrib["stroke"] for line in ElementTree.fromstring(picture).findall(f"{SVG}polyline")]
    squares = [each.attrib["fill"] for each in ElementTree.fromstring(picture).findall(f"{SVG}rect")][3:]
    assert [squares.index(colour) for colour in lines] == [0, 2, 3, 0, 1]


def test_ranks_limits_the_eigenvalues() -> None:
    assert len(curves(eigenvalues(RUNS, ranks=14))) == 4
    assert "20" not in texts(eigenvalues(RUNS, ranks=14))


def test_panels_are_in_rows_of_three() -> None:
    places = [line[0] for line in curves(eigenvalues([("again", {"spectrum": SECOND})] * 4, ranks=1))]
    assert [y - places[0][1] for _, y in places[:3]] == [0, 0, 0]
    assert places[3][0] == places[0][0]
    assert places[3][1] > places[0][1] + HEIGHT


def test_singular_values_are_roots_of_the_last_eigenvalues() -> None:
    spectrum = {"step": [1, 2], "eigenvalues": {"1": [1.0, 400.0], "10": [1.0, 4.0], "100": [1.0, 0.04]}}
    tenth, curve = curves(singular_values([("run", {"spectrum": spectrum})]))
    assert curve == [(X, Y), (X + WIDTH / 2, Y + HEIGHT / 2), (X + WIDTH, Y + HEIGHT)]  # 1, 1/10, 1/100
    assert tenth == [(X, Y + HEIGHT / 2), (X + WIDTH, Y + HEIGHT / 2)]


def test_the_accuracy_axis_starts_at_zero() -> None:
    record = {"online_accuracy": {"1.0": 0.2, "10.0": 0.35, "100.0": 0.4}}
    assert curves(accuracies([("run", record)])) == [
        [(X, Y + HEIGHT / 2), (X + WIDTH / 2, Y + HEIGHT / 8), (X + WIDTH, Y)]
    ]


@pytest.mark.parametrize(
    "low, high, ticks",
    [
        (0.5, 2000.0, ["1", "10", "100", "1000"]),
        (2e-6, 3e5, ["10⁻⁵", "0.001", "0.1", "10", "1000", "10⁵"]),
        (3.0, 3.0, ["10"]),  # a single value has no range
    ],
)
def test_log_ticks_are_at_most_six_powers_of_ten(low: float, high: float, ticks: list[str]) -> None:
    found = axis("step", [low, high], log=True)
    assert [shown(tick, log=True) for tick in found.ticks()] == ticks
    assert all(0 <= found.part(tick) <= 1 for tick in found.ticks())


def test_the_colours_of_a_ramp_are_distinct() -> None:
    assert len(set(ramp(20))) == 20
    assert ramp(1) == ramp(20)[:1]


def test_a_figure_shows_the_runs_that_have_its_data() -> None:
    """The first record of a row with the data is drawn. Failed runs are left out, and so is an empty figure."""

    def line(name: str, epochs: int, *records: dict[str, Any]) -> Line:
        return replace(
            empty, name=name, epochs=epochs, records={str(number): each for number, each in enumerate(records)}
        )

    table = TABLES["frossl-spectrum"]
    empty = lines_of_records(table, {})[0]
    kept = {"spectrum": FIRST}
    lines = [
        line("none", 5),
        line("old", 5, {"spectrum": {}}, kept),
        line("failed", 5, kept | {"failed": "not finite"}),
    ]
    assert runs_in(EIGENVALUES, lines) == [("old", kept)]
    assert runs_in(EIGENVALUES, [*lines, line("long", 9, kept)]) == [("old, 5 epochs", kept), ("long, 9 epochs", kept)]
    assert figures_of(table, lines) == {"frossl-spectrum-eigenvalues.svg": eigenvalues([("old", kept)], ranks=14)}
    assert figures_of(table, lines[:1]) == {}
    assert f"![{table.title}](figures/frossl-spectrum-eigenvalues.svg)" in markdown(table, lines)


def test_a_page_shows_code_and_bold_text(tmp_path: Path) -> None:
    table = replace(TABLES["frossl-spectrum"], differs=("no `code` here",), statements=())
    table = replace(table, findings=("**a:** a < b, see `x=<y>` & `z`",))
    page = write_page(tmp_path / "page.html", table, lines_of_records(table, {})).read_text()
    assert "<b>a:</b> a &lt; b, see <code>x=&lt;y&gt;</code> &amp; <code>z</code>" in page
    assert "<li>no <code>code</code> here</li>" in page
