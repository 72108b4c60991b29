"""Run folders of all formats that Twofold ever wrote: each is read, or refused by name. `formats/make.py` made them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from formats.make import images

import twofold
from torture.small_runs import Heard
from twofold.checksums import seal, unseal
from twofold.errors import TwofoldError
from twofold.models.encoders import ENCODERS
from twofold.runs.checkpoint_folder import FORMAT as CHECKPOINT_FORMAT
from twofold.verbs.check import check
from twofold.verbs.resume import resume

FIXTURES = Path(__file__).parents[1] / "formats"
NEWEST = "checkpoint-3"
OTHER_VERSION = {"Twofold": "0.0.1", "torch": "1.0", "threads": 99}


def fixture(name: str, target: Path) -> Path:
    """Copy a fixture, and let its configuration name the copy of its classifier rows."""
    assert "narrow" in ENCODERS
    shutil.copytree(FIXTURES / name, target / name)
    if name.startswith("rows"):
        path = target / name / "stopped" / "config.json"
        change(path, lambda record: record["values"].update({"head.path": str(target / name / "rows")}))
    return target / name


def change(path: Path, edit: Any) -> None:
    """Edit a JSON record. If it had a checksum, it has the right one afterwards."""
    record = json.loads(path.read_text())
    has_checksum = "crc32" in record
    record = unseal(record, path)
    edit(record)
    path.write_text(json.dumps(seal(record) if has_checksum else record))


def resumed(run: Path) -> tuple[twofold.Run, list[str]]:
    display = Heard()
    return resume(run, images(), display=display), display.said


@pytest.mark.parametrize("name", ["checkpoint-1", "checkpoint-2", "checkpoint-3"])
def test_finished_run_of_each_format_is_read(name: str, tmp_path: Path) -> None:
    run = fixture(name, tmp_path) / "finished"
    with torch.inference_mode():
        assert torch.isfinite(twofold.load_encoder(run)(torch.zeros(2, 1, 8, 8))).all()
    found = twofold.Run(run)
    assert found.config.method == "frossl"
    assert found.results is not None
    assert found.metrics[-1]["step"] == 2 * 3  # 24 training images in batches of 8, twice
    assert [file for file in check(run).files if file.problem] == []


def test_stopped_run_of_format_1_is_refused_by_name(tmp_path: Path) -> None:
    run = fixture("checkpoint-1", tmp_path) / "stopped"
    with pytest.raises(TwofoldError, match=r"has format 1, but .* reads format 2 and 3: use the version of Twofold"):
        resumed(run)


@pytest.mark.parametrize("name", ["checkpoint-2", "checkpoint-3", "rows-2"])
def test_stopped_run_of_an_older_format_resumes(name: str, tmp_path: Path) -> None:
    run = fixture(name, tmp_path) / "stopped"
    before = (run / "metrics.jsonl").read_bytes()
    found, said = resumed(run)
    assert any("at step 6 of 150" in line for line in said)
    assert found.results is not None
    assert (run / "metrics.jsonl").read_bytes().startswith(before)


def test_rows_of_format_1_are_refused_by_name(tmp_path: Path) -> None:
    run = fixture("rows-1", tmp_path) / "stopped"
    with pytest.raises(TwofoldError, match=r"rows .* has format 1, but .* reads format 2: use the version of Twofold"):
        resumed(run)


def newer(record: dict[str, Any]) -> None:
    record |= {"format": record["format"] + 1, "twofold": "9.8.7"}


@pytest.mark.parametrize(
    "file, message",
    [
        ("stopped/config.json", "format 3 and was written by Twofold 9.8.7, .*: use Twofold 9.8.7 or newer"),
        ("stopped/checkpoints/step-6/checksums.json", "format 4 and was written by Twofold 9.8.7, .*9.8.7 or newer"),
        ("rows/head.json", "format 3.* reads format 2: use "),
    ],
)
def test_newer_format_is_refused_with_the_version_that_reads_it(file: str, message: str, tmp_path: Path) -> None:
    folder = fixture("rows-2", tmp_path)
    change(folder / file, newer)
    with pytest.raises(TwofoldError, match=message):
        resumed(folder / "stopped")


def test_report_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    from twofold.report.page import render
    from twofold.runs.folder import RunFolder

    run = fixture(NEWEST, tmp_path) / "finished"
    change(run / "config.json", newer)
    with pytest.raises(TwofoldError, match=r"use Twofold 9\.8\.7 or newer"):
        render(RunFolder.open(run))


def test_resuming_in_another_environment_says_that_results_may_differ(tmp_path: Path) -> None:
    run = fixture(NEWEST, tmp_path) / "stopped"
    manifest = run / "checkpoints" / "step-6" / "checksums.json"
    change(manifest, lambda record: record["environment"].update(OTHER_VERSION))
    _, said = resumed(run)
    line = next(line for line in said if "may differ" in line)
    assert all(f"{name} {value}, now" in line for name, value in OTHER_VERSION.items())


def test_fixtures_have_the_formats_that_their_names_say() -> None:
    found = {
        path.parts[-5]: json.loads(path.read_text())["format"]
        for path in FIXTURES.glob("*/stopped/checkpoints/step-*/state.json")
    }
    assert found == {f"checkpoint-{number}": number for number in (1, 2, 3)} | {"rows-1": 2, "rows-2": 3}
    assert CHECKPOINT_FORMAT == 3, "add fixtures of the new format"
