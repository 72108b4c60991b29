"""Every item of the papers is on the page of coverage with a command that exists."""

import re
from dataclasses import replace

import pytest

from generators import coverage as page
from twofold_papers.coverage import MISSING, Covered, coverage, covers, references, status_of
from twofold_papers.items import ITEMS
from twofold_papers.reproduce.show import Cell, Line
from twofold_papers.reproduce.table import own_conditions
from twofold_papers.reproduce.tables import TABLES
from twofold_papers.verify.claim import PAPERS
from twofold_papers.verify.figure import figures


@pytest.mark.parametrize(
    "text, expected",
    [
        ("eq 10 and 11", {"eq 10", "eq 11"}),
        ("eqs 18-20", {"eq 18", "eq 19", "eq 20"}),
        ("eq 12, 13 and 14", {"eq 12", "eq 13", "eq 14"}),
        ("eq 19 to 21", {"eq 19", "eq 20", "eq 21"}),
        ("Lemma 1, eq 3", {"Lemma 1", "eq 3"}),
        ("Proposition D.1, eq 18, 34", {"Proposition D.1", "eq 18", "eq 34"}),
        ("Theorem B.1 (only if)", {"Theorem B.1"}),
        ("C.4, eq 24", {"Appendix C.4", "eq 24"}),
        ("Figures 3a and 8, at reduced scale", {"Figure 3a", "Figure 8"}),
        ("Table 1, row 7, rates", {"Table 1"}),
        ("section 5.1 (rate)", {"Section 5.1"}),
        ("Not in the paper", set()),
    ],
)
def test_a_number_names_items(text: str, expected: set[str]) -> None:
    assert references(text) == expected


def test_a_figure_covers_its_parts_and_an_equation_only_itself() -> None:
    assert covers({"Figure 8"}, "Figure 8a")
    assert covers({"Figure 2a"}, "Figure 2")
    assert not covers({"Figure 3a"}, "Figure 3b")
    assert not covers({"eq 1"}, "eq 10")


def found(paper: str) -> list[Covered]:
    return coverage(paper, lambda _: [], [figure.number for figure in figures(paper)])


@pytest.mark.parametrize("paper", PAPERS)
def test_every_item_has_a_command_that_exists(paper: str) -> None:
    for each in found(paper):
        assert each.status != MISSING, each.item.name
        assert each.commands
        for command in each.commands:
            match = re.fullmatch(r"twofold (verify (?P<paper>\S+)(?: --report)?|reproduce (?P<table>\S+))", command)
            assert match is not None, command
            assert match["paper"] == paper or match["table"] in TABLES


@pytest.mark.parametrize("paper", PAPERS)
def test_items_are_named_once_and_refer_to_items_and_tables(paper: str) -> None:
    names = [item.name for item in ITEMS[paper]]
    assert len(set(names)) == len(names)
    for item in ITEMS[paper]:
        assert set(item.within) <= set(names), item.name
        assert set(item.tables) <= TABLES.keys()


def test_a_run_that_failed_needs_no_gpu() -> None:
    table = TABLES["s-diet-3"]
    own = [own_conditions(table, row) for row in table.rows]
    found = [
        Line(row.name, run.epochs, seeds, [Cell("", "", values=values)], "", {}, (run.data, run.encoder, ""))
        for row, run, seeds, values in zip(table.rows, own, [(0,), (0,)], [(1.0,), ()], strict=True)
    ]
    assert status_of(table, found) == "run at reduced scale (s-diet-3: 2 of 2 rows)"
    assert status_of(table, [found[0], replace(found[1], seeds=())]).endswith("1 of 2 rows; the rest needs a GPU)")


def test_an_item_without_a_command_is_named_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ITEMS, "birth", [*ITEMS["birth"], type(ITEMS["birth"][0])("Theorem 99")])
    assert "missing: Theorem 99." in page.page()
