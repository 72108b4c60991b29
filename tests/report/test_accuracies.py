"""Accuracies on the report page: the table, the tiles, and which differences are larger than chance explains."""

import json

import pytest

from browser import elements, texts
from fake_runs import RESULTS, fake_run, finished_run
from twofold.report.accuracies import accuracy_table, shortfall
from twofold.report.page import render


def test_the_table_is_in_per_cent_and_the_clearly_best_cell_is_bold(tmp_path):
    html = render(finished_run(tmp_path / "run"))
    head, table = texts(html, "th")[:4], elements(html)
    assert head == ["accuracy, %", "linear", "linear, 10 labels per class", "kNN"]
    cells = [e for e in table if e.tag == "td"][:9]
    assert ["".join(cell.text).strip() for cell in cells] == [
        "97.1", "92.1", "96.1",
        "93.0", "80.1", "90.0",
        "95.5", "85.0", "97.1",
    ]  # fmt: skip
    # The kNN accuracies 97.1 and 96.1 differ by less than chance explains on 360 test images.
    assert [i for i, cell in enumerate(cells) if cell.attributes.get("class") == "best"] == [0, 1]
    assert texts(html, "small") == ["\N{PLUS-MINUS SIGN} 1.2"] * 3


def test_tiles_show_each_number_with_its_baselines(tmp_path):
    html = render(finished_run(tmp_path / "run"))
    values = [e for e in elements(html) if e.attributes.get("class") in ("value", "beside", "warning")]
    assert ["".join(e.text).strip() for e in values] == [
        "97.1", "untrained 93.0 % · raw pixels 95.5 %",
        "96.1", "untrained 90.0 % · raw pixels 97.1 %", "not better than raw pixels",
        f"{3 + 480**0.4:.3g}", "of 64 dimensions of the encoder's output, measured on augmented images",
        "2,560", "cpu",
    ]  # fmt: skip


def test_rows_of_the_run_itself_are_no_baselines(tmp_path):
    table = RESULTS["table"]
    made = [table[0] | {"name": name, "linear_accuracy": 0.99} for name in ("with adapter", "kept, step 50")]
    folder = finished_run(tmp_path / "run")
    folder.write("results.json", json.dumps(RESULTS | {"table": [*table, *made]}))
    warnings = [e for e in elements(render(folder)) if e.attributes.get("class") == "warning"]
    assert ["".join(e.text).strip() for e in warnings] == ["not better than raw pixels"]


def test_missing_numbers_are_dashes_and_empty_columns_are_left_out(tmp_path):
    table = accuracy_table([{"name": "trained", "knn_accuracy": 0.5}, {"name": "untrained"}])
    assert table is not None
    assert table["columns"] == ["kNN"]
    assert [row["cells"][0]["text"] for row in table["rows"]] == ["50.0", "–"]
    folder = fake_run(tmp_path / "run")
    folder.write("results.json", "{}")
    assert "not evaluated yet" in render(folder)


def test_equal_displayed_numbers_are_not_bold():
    table = accuracy_table([{"name": "a", "knn_accuracy": 0.97141}, {"name": "b", "knn_accuracy": 0.97139}])
    assert table is not None
    assert [row["cells"][0]["best"] for row in table["rows"]] == [False, False]


def test_the_few_labels_column_is_left_out_if_the_numbers_are_missing(tmp_path):
    folder = finished_run(tmp_path / "run")
    none = {"few_labels_accuracy": None, "few_labels_sd": None, "labels_per_class": None}
    folder.write("results.json", json.dumps(RESULTS | {"table": [row | none for row in RESULTS["table"]]}))
    assert texts(render(folder), "th")[:3] == ["accuracy, %", "linear", "kNN"]


@pytest.mark.parametrize(
    "first, second, best",
    [
        ((0.525, 0.146), (0.483, 0.140), False),
        ((0.525, 0.02), (0.483, 0.03), True),
        ((0.525, 0.03), (0.483, 0.03), False),
    ],
)
def test_bold_considers_both_standard_deviations(first, second, best):
    rows = [{"name": "?", "few_labels_accuracy": value, "few_labels_sd": sd} for value, sd in (first, second)]
    table = accuracy_table(rows, 10**9)
    assert table is not None
    assert [row["cells"][0]["best"] for row in table["rows"]] == [best, False]


@pytest.mark.parametrize(
    "untrained, test_images, words",
    [
        (0.50, 10_000, ""),
        (0.50, 24, "not clearly better than untrained"),
        (0.50, 0, ""),
        (0.5999, 10_000, "not better than untrained"),
        (0.60, 0, "not better than untrained"),
        (0.70, 10_000, "not better than untrained"),
    ],
)
def test_a_baseline_that_training_does_not_beat_is_named(untrained, test_images, words):
    trained = {"name": "trained", "knn_accuracy": 0.60}
    others = [{"name": "untrained", "knn_accuracy": untrained}, {"name": "raw pixels", "knn_accuracy": 0.05}]
    assert shortfall(trained, others, "knn_accuracy", test_images) == words


def test_all_baselines_that_training_does_not_beat_are_named():
    trained = {"name": "trained", "linear_accuracy": 0.60}
    others = [{"name": str(value), "linear_accuracy": value} for value in (0.55, 0.6, 0.65)]
    expected = "not better than 0.6 and 0.65, not clearly better than 0.55"
    assert shortfall(trained, others, "linear_accuracy", 50) == expected
