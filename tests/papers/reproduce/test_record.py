"""Records of runs: their names, their numbers, and the results page."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import twofold
from generators import paths, results
from running import small
from twofold.methods import CATALOG
from twofold_papers.reproduce.record import read_records, record_name, steady_rate, wall_clock
from twofold_papers.reproduce.tables import TABLES

ROOT = Path(__file__).parents[3]
RECORDS = sorted((ROOT / "records").glob("*.json"))


def script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


recording = script("records/record.py")


def record(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> None:
    monkeypatch.setattr(sys, "argv", ["record.py", *map(str, words)])
    recording.main()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("records") / "run"
    return twofold.pretrain("digits", out=out, **small("frossl", seed=4)).path


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_configuration_determines_the_name_of_a_record(path: Path) -> None:
    assert record_name(json.loads(path.read_text())["config"]) == path.stem


@pytest.mark.parametrize(
    "asked, name",
    [
        ({}, "cifar10-frossl"),
        ({"epochs": 30, "device": "cuda", "checkpoint.seconds": 9.0}, "cifar10-frossl-30"),
        ({"seed": 2, "epochs": 30}, "cifar10-frossl-30-seed2"),
        ({"seed": 2, "epochs": 30, "logarithm": False}, "cifar10-frossl-30-logarithm-False-seed2"),
        ({"projector": [64, 32], "encoder": "timm:resnet18"}, "cifar10-frossl-encoder-timm-resnet18-projector-64-32"),
    ],
)
def test_a_name_contains_all_settings_of_the_user(asked: dict[str, Any], name: str) -> None:
    values = {"data": "cifar10", "method": "frossl", "epochs": 100, "seed": 0, "lr": 0.3} | asked
    origin = {"lr": "method", "data": "user", "method": "user"} | dict.fromkeys(asked, "user")
    assert record_name({"values": values, "origin": origin}) == name


def test_the_rate_is_the_median_of_the_second_half() -> None:
    rates = {10: 1.0, 50: 3.0, 51: 100.0, 80: 104.0, 90: 2.0, 100: 101.0}
    timing = [{"step": step, "images_per_second": rate} for step, rate in rates.items()]
    assert steady_rate(timing) == 100.5  # of 100, 104, 2 and 101


@pytest.mark.parametrize(
    "clock, last, expected",
    [([1, 5, 9], 12, 12), ([1, 5, 2, 9], 12, 17), ([1, 5, 2, 9, 3], 4, 18), ([1, 5, 9], 3, 12)],
    ids=["not resumed", "resumed", "resumed twice", "resumed to evaluate"],
)
def test_wall_clock_counts_every_part_of_a_run(clock: list[float], last: float, expected: float) -> None:
    assert wall_clock([{"seconds": seconds} for seconds in clock], last) == expected


def test_several_runs_are_recorded_at_once(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = shutil.copytree(run, tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    config["values"] |= {"seed": 5, "data_dir": "/somebody/data"}
    (other / "config.json").write_text(json.dumps(config))
    record(monkeypatch, run, other, "--to", tmp_path / "to", "--machine", "a shed", "--commit", "abc")
    stem = "digits-frossl-2-batch_size-128-projector-32-16"
    assert sorted(path.stem for path in (tmp_path / "to").iterdir()) == [f"{stem}-seed4", f"{stem}-seed5"]
    text = (tmp_path / "to" / f"{stem}-seed5.json").read_text()
    assert "/somebody" not in text
    assert str(other) not in text
    kept = json.loads(text)
    assert (kept["machine"], kept["commit"]) == ("a shed", "abc")
    assert kept["config"]["values"] == config["values"] | {"data_dir": "data"}
    assert kept["last"]["effective_rank"] == twofold.Run(run).metrics[-1]["effective_rank"]
    assert kept["seconds"] == kept["results"]["seconds"] == twofold.Run(run).results["seconds"]
    assert kept["results"]["memory"] is None


def test_no_run_is_recorded_if_one_of_them_cannot_be(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unfinished = shutil.copytree(run, tmp_path / "unfinished", ignore=shutil.ignore_patterns("results.json"))
    twin = shutil.copytree(run, tmp_path / "twin")
    for second, reason in ((unfinished, "not a finished run"), (twin, "have the same configuration")):
        with pytest.raises(SystemExit):
            record(monkeypatch, run, second, "--to", tmp_path / "to")
        assert reason in capsys.readouterr().err
    assert not (tmp_path / "to").exists()


def rows(page: str, title: str) -> list[list[str]]:
    """The cells of the table below a title, without the header."""
    lines = page.split(f"## {title}\n")[1].split("\n## ")[0].splitlines()
    table = [line for line in lines if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert {len(row) for row in cells} == {12}
    return cells[2:]


def test_results_have_a_row_for_every_method_and_lose_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = json.loads((ROOT / "records" / "cifar10-simclr-30.json").read_text())
    for name in ("steady_images_per_second", "seconds"):  # as in the first records
        del old[name]
    old["results"] = {name: value for name, value in old["results"].items() if name not in ("memory", "date")}
    old |= {"commit": "b9b070a", "results": old["results"] | {"seconds": 411.3}}
    earlier = json.loads(json.dumps(old))
    earlier["config"]["values"]["augment.crop_scale"] = [0.3, 1.0]  # no longer the default
    new = json.loads(json.dumps(old)) | {"steady_images_per_second": 12345.6, "seconds": 78.4, "machine": "a shed"}
    new["results"] |= {"memory": 2345.6, "date": "2026-01-02"}
    new["config"]["values"]["seed"], new["config"]["origin"]["seed"] = 7, "user"
    runs = {"simclr-30": old, "simclr-30-seed7": new, "simclr-30-lr-1-seed7": new, "byol-9": old}
    for name, kept in (runs | {"simclr-30-seed8": earlier}).items():
        (tmp_path / f"cifar10-{name}.json").write_text(json.dumps(kept))
    monkeypatch.setattr(paths, "RECORDS", tmp_path)
    page = results.results_page()

    methods = rows(page, "All methods, CIFAR-10, ResNet-18, 30 epochs")
    expected = [row.name for row in TABLES["catalog"].rows]
    assert methods[0][0] == "simclr"  # the only method with records; the others are below
    assert {row[0] for row in methods} == {*expected, "untrained", "raw pixels"}
    assert CATALOG.keys() <= set(expected)
    first, second = (row for row in methods if row[0] == "simclr")
    trained = next(row for row in old["results"]["table"] if row["name"] == "trained")
    numbers = [f"{100 * trained[name]:.1f}" for name in ("linear_accuracy", "knn_accuracy")]
    numbers.append(f"{100 * old['last']['online_accuracy']:.1f}")
    numbers.append(f"{old['last']['effective_rank']:.0f}")
    assert first[1:] == [*numbers, "—", "—", "411", "0", "—", "b9b070a", "1"]
    assert second[1:] == [*numbers, "12,346", "2,346", "78", "7", "2026-01-02", "b9b070a", "2"]
    assert {row[0] for row in methods if row[1] == "not run yet"} == set(expected) - {"simclr"}

    other = [row[0].split("]")[0] for row in rows(page, "Other runs")]
    assert other == ["[cifar10-byol-9", "[cifar10-simclr-30-lr-1-seed7", "[cifar10-simclr-30-seed8"]
    assert "\n2. a shed, twofold 0.1.0, torch 2.11.0+cu130, python 3.12.3\n" in page


def test_records_with_other_defaults_are_not_read(tmp_path: Path) -> None:
    kept = json.loads((ROOT / "records" / "cifar10-frossl-30.json").read_text())
    (tmp_path / "now.json").write_text(json.dumps(kept))
    kept["config"]["values"]["augment.crop_scale"] = [0.3, 1.0]
    (tmp_path / "then.json").write_text(json.dumps(kept))
    kept["config"]["origin"]["augment.crop_scale"] = "user"  # set by the user, so the name of the record contains it
    (tmp_path / "asked.json").write_text(json.dumps(kept))
    assert list(read_records(tmp_path)) == ["asked", "now"]


def test_long_names_are_shortened_and_stay_distinct() -> None:
    names = set()
    for last in (0.1, 0.2):
        keys = {f"augment.a_long_name_of_a_key_{number}": number + last for number in range(12)}
        values = {"data": "cifar10", "method": "frossl", "epochs": 1, "seed": 0, **keys}
        names.add(record_name({"values": values, "origin": dict.fromkeys(keys, "user")}))
    assert len(names) == 2
    assert all(len(name) == 200 for name in names)
