"""Published numbers by data set, network and epochs: which one stands next to a run."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from twofold.cli import app
from twofold_papers.reproduce.published import Conditions, Published, label, number_for, published
from twofold_papers.reproduce.show import lines_of_jobs
from twofold_papers.reproduce.table import jobs_of
from twofold_papers.reproduce.tables import TABLES

OWN = Conditions("cifar10", "resnet18", 100)
NUMBERS = [
    *published({"cifar10": (84.06, 0.30), "cifar100": 55.70}, epochs=100),
    *published({"cifar10": 87.63, "cifar100": 59.71}, epochs=300),
    *published({"cifar10": 86.39}, epochs=100, encoder="resnet50"),
    *published({"stl10": 89.0}),
]


@pytest.mark.parametrize(
    "run, value, condition",
    [
        (OWN, 84.06, ""),
        (Conditions("cifar10", "resnet18", 300), 87.63, ""),
        (Conditions("cifar10", "resnet18", 200), 87.63, "300 epochs"),
        (Conditions("cifar10", "resnet50", 100), 86.39, ""),
        (Conditions("cifar100", "resnet18", 100), 55.70, ""),
        (Conditions("cifar100", "resnet50", 100), None, ""),
        (Conditions("stl10", "resnet18", 7), 89.0, ""),  # the paper does not state the epochs
        (Conditions("digits", "resnet18", 100), None, ""),
    ],
)
def test_a_run_has_the_number_for_its_data_network_and_epochs(run: Conditions, value: float, condition: str) -> None:
    number = number_for(NUMBERS, run, OWN)
    assert (None if number is None else number.value) == value
    assert number is None or label(number, run, OWN) == condition


def test_a_table_on_other_data_than_the_paper_says_so() -> None:
    numbers = published({"cifar100": 66.88}, epochs=5000)
    number = number_for(numbers, OWN, OWN)
    assert number is not None
    assert label(number, OWN, OWN) == "CIFAR-100, 5000 epochs"
    other = Conditions("stl10", "resnet18", 100)
    assert number_for(numbers, other, OWN) is None
    assert number_for([Published(1.0)], other, OWN) is None


@pytest.mark.parametrize(
    "table, user, epochs, row, text",
    [
        ("alpha-cl-1", "data=cifar100", 500, "α-CL-direct", "60.27 ± 0.29"),
        ("alpha-cl-1", "data=cifar100", 100, "α-CL-r_H", ""),
        ("alpha-cl-1", "data=cifar10", 100, "InfoNCE", "84.06 ± 0.30"),
        ("alpha-cl-2", "encoder=resnet18", 100, "InfoNCE", "84.06 ± 0.30"),
        ("alpha-cl-3", "data=stl10", 100, "InfoNCE", "82.09 ± 0.31"),
        ("alpha-cl-4", "data=cifar100", 100, "p = 4", ""),
        ("isoloss-3", "data=tiny-imagenet", 100, "IsoLoss, α = 1", "38.5 ± 0.5"),
        ("isoloss-2", "data=imagenet100", 100, "BYOL, EMA", ""),
        ("s-diet-5", "data=tiny-imagenet encoder=resnet50", 5000, "S-DIET", "52.52"),
        ("s-diet-5", "data=tiny-imagenet", 100, "S-DIET", ""),
        ("long", "data=stl10", 500, "SimSiam", "88.5"),
        ("long", "data=stl10", 500, "CorInfoMax", ""),
    ],
)
def test_tables_have_the_numbers_of_all_columns_of_the_papers(
    table: str, user: str, epochs: int, row: str, text: str
) -> None:
    chosen = [each for each in TABLES[table].rows if each.name == row]
    settings = dict(word.split("=") for word in user.split())
    (line,) = lines_of_jobs(TABLES[table], jobs_of(TABLES[table], chosen, epochs=epochs, user=settings), {})
    assert [cell.published for cell in line.cells if cell.published] == [text] * bool(text)


@pytest.mark.parametrize(
    "words, row, text",
    [
        (["alpha-cl-1", "data=cifar100"], "InfoNCE", "55.70 ± 0.37"),
        (["isoloss-3", "data=stl10"], "IsoLoss, EMA", "89.0 ± 0.3"),
    ],
)
def test_the_command_shows_the_number_of_the_data_set(words: list[str], row: str, text: str, tmp_path: Path) -> None:
    words = ["reproduce", *words, "--row", row, "--budget", "0", "--out", str(tmp_path)]
    shown = CliRunner().invoke(app, words, env={"COLUMNS": "250"}, catch_exceptions=False).stdout
    assert f"\n {row}  {text} " in shown


def test_every_number_is_unique_for_its_conditions() -> None:
    for table in TABLES.values():
        for row in table.rows:
            for column in table.columns:
                at = [(each.data, each.encoder, each.epochs) for each in row.published.get(column.title, ())]
                assert len(set(at)) == len(at), (table.name, row.name)
