"""A short part of each campaign of `make torture`, and their record."""

import json
import shutil
import time
from pathlib import Path
from random import Random

import pytest

from torture import disks, kills, power
from torture.forked import DONE, FAILED, KILLED, REFUSED, SLOW, Forked
from torture.row import Row
from torture.small_runs import differences
from torture.table import add_to_record, table
from twofold.errors import TwofoldError

RECORDS = "benchmarks/results/torture-cpu-*.json"


def refuse() -> None:
    raise TwofoldError("no")


def fail() -> None:
    raise KeyError("a")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))


def test_outcome_of_a_process_is_known() -> None:
    assert Forked(lambda: "text").wait() == (DONE, "text")
    assert Forked(refuse).wait() == (REFUSED, "no")
    assert Forked(fail).wait().kind == FAILED
    assert Forked(lambda: time.sleep(9)).wait(0.05).kind == SLOW
    process = Forked(lambda: time.sleep(9))
    process.kill()
    assert process.wait().kind == KILLED


@pytest.mark.full
def test_killed_runs_resume_without_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kills, "KILLS_PER_RUN", 2)
    (tmp_path / "whole").mkdir()
    tried, failures = kills.campaign("byol", tmp_path, Random(1), 0.1, 1)
    assert tried.total() > 0
    assert failures == []


def test_difference_is_found(tmp_path: Path) -> None:
    power.begin("byol", tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert differences(tmp_path / "a", tmp_path / "b") == ""
    with (tmp_path / "a" / "metrics.jsonl").open("a") as file:
        file.write("{}\n")
    (tmp_path / "a" / "pictures.json").unlink()
    assert differences(tmp_path / "a", tmp_path / "b") == "metrics.jsonl, pictures.json is missing"


def test_run_on_a_full_disk_is_continued(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    disks.train("byol", whole, None)
    used = sum(file.stat().st_size for file in whole.rglob("*"))
    full, problem = disks.attempt("byol", tmp_path / "full", whole, used, Random(2))
    assert full > 0
    assert problem == ""


def test_run_survives_power_losses(tmp_path: Path) -> None:
    tried, states, failures = power.replay("byol", tmp_path, Random(0), time.monotonic() + 60, most=2)
    assert tried == 2
    assert states > 100
    assert failures == []


def test_parts_of_a_campaign_are_added_up(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    add_to_record(record, "kills", 1, [Row("kills at random times, byol", 1000, 1, "a"), Row("fuzz a", 5, 0)])
    add_to_record(record, "kills", 2, [Row("kills at random times, moco", 500, 0)])
    assert table(json.loads(record.read_text())["parts"]).splitlines()[2:] == [
        "| kills at random times | 1,500 | 1 |",
        "| changed files of all kinds (fuzzing) | 5 | 0 |",
    ]


def test_page_on_reliability_has_the_sums_of_the_records() -> None:
    root = Path(__file__).parents[2]
    parts = [part for file in root.glob(RECORDS) for part in json.loads(file.read_text())["parts"]]
    assert table(parts) in (root / "docs/reliability.md").read_text()
