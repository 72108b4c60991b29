"""Whether our runs agree with a statement of a paper: computed from seeds, published numbers and conditions."""

import re
from dataclasses import replace
from typing import Any

import pytest

from generators.results import lines_of, paragraph
from twofold_papers.reproduce.conclusions import OPENINGS, Numbers, conclusion, findings, seeds_of_rows
from twofold_papers.reproduce.published import published
from twofold_papers.reproduce.readings import KNN, LINEAR
from twofold_papers.reproduce.show import Line, cell_of, lines_of_records
from twofold_papers.reproduce.statement import judge
from twofold_papers.reproduce.table import Row, Statement, Table, job_of, own_conditions
from twofold_papers.reproduce.tables import TABLES

ROWS = [
    Row("a", "frossl", {}, {LINEAR.title: published({"cifar10": 84.0}, epochs=100)}),
    Row("b", "vicreg", {}, {LINEAR.title: published({"cifar10": 82.0, "cifar100": 50.0}, epochs=100)}),
    Row("c", "simclr", {}, {LINEAR.title: published({"stl10": 80.0}, epochs=100)}),
]
ABOVE = Statement("a is better than b", "Table 0", LINEAR, "a", "above", "b")
TABLE = Table(
    "t", "frossl", "Table 0", "a test", (LINEAR, KNN), ROWS, 100, settings=(), statements=(ABOVE,), data="cifar10"
)


def lines(**accuracies: list[float]) -> list[Line]:
    """The lines of the table if each row has runs with these linear accuracies, one for each seed."""
    records: dict[str, Any] = {}
    for row in ROWS:
        for seed, accuracy in enumerate(accuracies.get(row.name, [])):
            job = job_of(TABLE, row, 100, seed, {})
            values = {"epochs": 100, "seed": seed, "method": row.method, "data": "cifar10", "encoder": "resnet18"}
            table = [{"name": "trained", "linear_accuracy": accuracy / 100, "knn_accuracy": accuracy / 200}]
            records[job.name] = {"config": {"values": values}, "results": {"table": table}, "online_accuracy": {}}
    return lines_of_records(TABLE, records)


@pytest.mark.parametrize(
    "a, b, status",
    [
        ([85, 85.2, 85.4], [84, 84.2, 84.4], "agrees"),
        ([85, 85.2], [84, 84.2, 84.4], "consistent with"),  # two seeds
        ([85], [84], "consistent with"),
        ([85], [84.7], "not decided"),  # one seed: less than half a point
        ([85, 86, 87], [84.5, 85.5, 86.5], "not decided"),  # half a point, with standard deviations of 1
        ([84, 84.2, 84.4], [85, 85.2, 85.4], "disagrees"),
        ([84], [85], "disagrees"),
        ([84], [], "not run yet"),
    ],
)
def test_status_depends_on_direction_spread_and_seeds(a: list[float], b: list[float], status: str) -> None:
    assert judge(TABLE, ABOVE, lines(a=a, b=b)).status == status


@pytest.mark.parametrize(
    "relation, by, a, b, status",
    [
        ("below", 0.0, 84.0, 85.0, "consistent with"),
        ("below", 30.0, 84.0, 85.0, "disagrees"),
        ("above", 30.0, 84.0, 20.0, "consistent with"),
        ("equal", 0.5, 84.0, 84.4, "consistent with"),
        ("equal", 0.5, 84.0, 84.8, "not decided"),
        ("equal", 0.5, 84.0, 86.0, "disagrees"),
        ("at least", 0.0, 84.0, 84.3, "consistent with"),
        ("at least", 0.0, 84.0, 85.5, "disagrees"),
    ],
)
def test_relations(relation: Any, by: float, a: float, b: float, status: str) -> None:
    statement = replace(ABOVE, relation=relation, by=by)
    assert judge(TABLE, statement, lines(a=[a], b=[b])).status == status


def test_runs_on_other_data_than_the_paper_never_agree_or_disagree() -> None:
    other = replace(ABOVE, second="c")
    seeds = [85.0, 85.2, 85.4]
    assert judge(TABLE, other, lines(a=seeds, c=[80, 80.2, 80.4])).status == "consistent with"
    assert judge(TABLE, other, lines(a=[80, 80.2, 80.4], c=seeds)).status == "disagrees at this size"
    level = Statement("the accuracy of c", "Table 0", LINEAR, "c", "equal", by=0.5)
    assert judge(TABLE, level, lines(c=seeds)).status == "not comparable"
    level = replace(level, first="a")
    assert judge(TABLE, level, lines(a=[83.9, 84.0, 84.3])).status == "agrees"
    assert judge(TABLE, level, lines(a=seeds)).status == "disagrees"


def test_texts_state_both_numbers_their_difference_size_and_seeds() -> None:
    judged = judge(TABLE, ABOVE, lines(a=[85, 85.2, 85.4], b=[84.0]))
    assert judged.published == "84 and 82: +2.00"
    assert judged.ours == "85.20 ± 0.20 and 84.00: +1.20"
    assert (judged.size, judged.seeds) == ("CIFAR-10, ResNet-18, 100 epochs", "3 and 1 seeds")
    columns = Statement("linear is better than kNN", "Table 0", LINEAR, "a", "above", other_column=KNN)
    assert judge(TABLE, columns, lines(a=[84.0])).ours == "84.00 and 42.00: +42.00"


def test_a_sentence_with_numbers_follows_the_records_and_is_left_out_without_them() -> None:
    table = replace(
        TABLE,
        findings=(
            "Always.",
            lambda our: f"a is {our.apart('a', 'b', LINEAR)} b.",
            lambda our: f"c has {our.text('c', LINEAR)} %.",
        ),
    )
    assert findings(table, lines(a=[85], b=[84])) == ["Always.", "a is 1.0 points above b."]
    assert findings(table, lines(a=[83], b=[84])) == ["Always.", "a is 1.0 points below b."]
    assert findings(table, lines(c=[80, 82])) == ["Always.", "c has 81.0 ± 1.4 %."]
    first, *rest = conclusion(table, lines(a=[85], b=[84]))
    assert first == "**Consistent with the paper:** a is better than b (ours: 85.00 and 84.00: +1.00)."
    first = conclusion(table, lines(a=[85, 85.2], b=[84]))[0]
    assert first.endswith("(ours: 85.10 ± 0.14 and 84.00: +1.10; 2 and 1 seeds).")
    assert len(rest) == 2


def test_a_change_is_clear_only_beyond_its_uncertainty() -> None:
    def change(**accuracies: list[float]) -> str:
        return Numbers(TABLE, lines(**accuracies)).change("a", "b", LINEAR)

    assert change(a=[85, 85.2, 85.4], b=[84, 84.2, 84.4]) == "1.0 ± 0.3 points higher"  # 2·√(2·0.2²/3)
    assert change(a=[80, 82], b=[84, 84.2]) == "3.1 ± 2.0 points lower"
    assert change(a=[84, 85, 86], b=[84.2, 85.5, 86.1]) == "not clearly different (−0.3 ± 1.6 points)"
    assert change(a=[85], b=[84]) == "1.0 points higher"  # one seed has no standard deviation
    assert change(a=[84.4], b=[84]) == "not clearly different (+0.4 points)"


@pytest.mark.parametrize(
    "a, b, text",
    [
        ([85], [84], "1 seed for each row"),
        ([85, 86], [84, 85], "2 seeds for each row"),
        ([85], [84, 85, 86], "1 to 3 seeds for each row"),
        ([], [], ""),
    ],
)
def test_conclusions_say_how_many_seeds_they_rest_on(a: list[float], b: list[float], text: str) -> None:
    found = lines(a=a, b=b)
    assert seeds_of_rows(found) == text
    assert paragraph(TABLE, found).startswith(f"**What we conclude{f' ({text})' if text else ''}.**")


def invented_lines(table: Table) -> list[Line]:
    """The lines of a table if each of its rows has results with three seeds."""
    baselines = [{"name": name, "linear_accuracy": 0.5} for name in ("untrained", "raw pixels")]
    found = []
    for number, row in enumerate(table.rows):
        values = [50.0 + number + 0.1 * seed for seed in range(3)]
        run = own_conditions(table, row)
        cells = [cell_of(table, row, column, run, "a number", values) for column in table.columns]
        records = {f"{row.name}, {seed}": {"results": {"table": baselines}} for seed in range(3)}
        found.append(Line(row.name, run.epochs, (0, 1, 2), cells, "", records, (run.data, run.encoder, "some epochs")))
    return found


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_table_with_results_has_conclusions_and_none_of_its_findings_is_left_out(table: Table) -> None:
    """A finding that names a row which does not exist would be left out, as if the row had not been run."""
    texts = findings(table, invented_lines(table))
    assert len(texts) == len(table.findings)
    assert conclusion(table, invented_lines(table))
    assert not any("  " in text or ".." in text for text in texts)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_statements_name_rows_and_columns_and_conclusions_are_short(table: Table) -> None:
    rows, titles = {row.name for row in table.rows}, {column.title for column in table.columns}
    for each in table.statements:
        assert {each.first, each.second or each.first} <= rows
        assert {each.column.title, (each.other_column or each.column).title} <= titles
    sentences = re.findall(r"[.](?=\s|$)", " ".join(conclusion(table, lines_of(table.name))))
    assert len(sentences) <= 5, sentences


def test_no_text_says_confirmed() -> None:
    """The status of a statement is computed, so that it cannot become out of date."""
    texts = [text for table in TABLES.values() for text in conclusion(table, lines_of(table.name))]
    assert not any("onfirmed" in text for text in [*texts, *OPENINGS.values()])
