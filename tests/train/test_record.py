"""The run folder: never overwritten, cut lines not read, wound back to a checkpoint, a full disk said so."""

import errno
from pathlib import Path

import pytest

from twofold.errors import TwofoldError
from twofold.train import checkpoint
from twofold.train.record import Bystander, RunFolder, last_taken, next_free


def test_what_is_there_is_never_touched(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "{}")
    with pytest.raises(TwofoldError, match="twofold resume"):
        RunFolder.create(folder.path, "{}")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(TwofoldError, match="exists already"):
        RunFolder.create(tmp_path / "file", "{}")
    (tmp_path / "empty").mkdir()
    RunFolder.create(tmp_path / "empty", "{}")


def test_a_line_that_was_cut_is_not_read(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "{}")
    folder.append("metrics.jsonl", {"step": 1})
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "lo')
    assert folder.read("metrics.jsonl") == [{"step": 1}]
    assert folder.read("spectrum.jsonl") == []


def test_rewinding_forgets_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "{}")
    folder.append("metrics.jsonl", {"step": 1})
    offsets = folder.offsets()
    before = (folder.path / "metrics.jsonl").read_bytes()
    folder.append("metrics.jsonl", {"step": 2})
    folder.append("spectrum.jsonl", {"step": 2})
    folder.rewind(offsets)
    assert (folder.path / "metrics.jsonl").read_bytes() == before
    assert (folder.path / "spectrum.jsonl").read_bytes() == b""
    folder.rewind({})
    assert (folder.path / "metrics.jsonl").read_bytes() == b""
    for step in (1, 2):
        checkpoint.save(folder.path, step, {}, keep=2)
    folder.rewind(offsets, 1)
    assert checkpoint.load_latest(folder.path) == (1, {})


def test_a_full_disk_is_one_line_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder.create(tmp_path / "run", "{}")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(TwofoldError, match=r"No space left on device.*twofold resume") as error:
        folder.append("metrics.jsonl", {"step": 1})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["pictures.json", "report.html"])
def test_a_report_that_cannot_be_written_is_no_reason_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = RunFolder.create(tmp_path / "run", "{}")

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "write_text", read_only)
    with pytest.raises(
        TwofoldError, match=r"Read-only file system\): make .*run writable, then `twofold report"
    ) as error:
        folder.write(name, "{}")
    assert "resume" not in str(error.value)
    with pytest.raises(TwofoldError, match=r"make .*run writable, then `twofold resume"):
        folder.write("results.json", "{}")


def test_names_of_runs_count_up(tmp_path: Path) -> None:
    assert next_free(tmp_path, "frossl-digits").name == "frossl-digits-1"
    (tmp_path / "frossl-digits-1").mkdir()
    assert next_free(tmp_path, "frossl-digits").name == "frossl-digits-2"
    assert next_free(tmp_path, "frossl-my photos (2023)").name == "frossl-my-photos-2023--1"


@pytest.mark.parametrize("name, message", [("nowhere", "no run folder"), (".", "no config.json")])
def test_what_is_no_run_is_refused(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(TwofoldError, match=message):
        RunFolder.open(tmp_path / name)


def test_the_last_folder_that_was_taken(tmp_path: Path) -> None:
    assert last_taken(tmp_path, "frossl-my photos") is None
    for _ in range(2):
        next_free(tmp_path, "frossl-my photos").mkdir()
    assert last_taken(tmp_path, "frossl-my photos") == tmp_path / "frossl-my-photos-2"


def test_a_bystander_writes_nothing(tmp_path: Path) -> None:
    first = RunFolder.create(tmp_path / "run", "{}")
    first.append("metrics.jsonl", {"step": 1})
    before = {path: path.read_bytes() for path in first.path.iterdir()}
    other = Bystander(first.path)
    other.append("metrics.jsonl", {"step": 2})
    other.log("line")
    other.write("results.json", "{}")
    other.rewind({})
    assert other.offsets() == {}
    assert {path: path.read_bytes() for path in first.path.iterdir()} == before
    assert other.read("metrics.jsonl") == [{"step": 1}]
