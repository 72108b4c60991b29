"""The run folder: never overwritten, cut lines not read, wound back to a checkpoint, a full disk said so."""

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from twofold.errors import Interrupted, Stopped, TwofoldError
from twofold.runs import checkpoint
from twofold.runs.folder import Numbered, ReadOnlyRunFolder, RunFolder
from twofold.runs.run import Run


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

    monkeypatch.setattr(Path, "write_bytes", read_only)
    with pytest.raises(
        TwofoldError, match=r"Read-only file system\): make .*run writable, then `twofold report"
    ) as error:
        folder.write(name, "{}")
    assert "resume" not in str(error.value)
    with pytest.raises(TwofoldError, match=r"make .*run writable, then `twofold resume"):
        folder.write("results.json", "{}")


def test_names_of_runs_count_up(tmp_path: Path) -> None:
    assert Numbered(tmp_path / "new", "frossl-digits").take().name == "frossl-digits-1"
    assert Numbered(tmp_path / "new", "frossl-digits").take().name == "frossl-digits-2"
    assert Numbered(tmp_path, "frossl-my photos (2023)").take().name == "frossl-my-photos-2023--1"
    (tmp_path / "dangling-1").symlink_to(tmp_path / "nowhere")
    assert Numbered(tmp_path, "dangling").take().name == "dangling-2"
    (tmp_path / "file").touch()
    with pytest.raises(TwofoldError, match=r"the run folder .*file/run-1 cannot be written"):
        RunFolder.create(Numbered(tmp_path / "file", "run"), "{}")


def test_those_who_begin_at_the_same_time_get_folders_of_their_own(tmp_path: Path) -> None:
    together = threading.Barrier(8)

    def created(_: int) -> Path:
        together.wait()
        return RunFolder.create(Numbered(tmp_path, "run"), "{}").path

    with ThreadPoolExecutor(8) as threads:
        assert {path.name for path in threads.map(created, range(8))} == {f"run-{number}" for number in range(1, 9)}


def test_of_two_who_find_a_folder_empty_one_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = RunFolder.refuse_existing

    def look_and_lose(path: Path) -> None:
        look(path)
        monkeypatch.undo()
        RunFolder.create(path, "first")

    monkeypatch.setattr(RunFolder, "refuse_existing", staticmethod(look_and_lose))
    with pytest.raises(TwofoldError, match=r"exists already; `twofold resume"):
        RunFolder.create(tmp_path / "run", "second")
    assert RunFolder(tmp_path / "run").config_text() == "first"


@pytest.mark.parametrize("name, message", [("nowhere", "no run folder"), (".", "no config.json")])
def test_what_is_no_run_is_refused(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(TwofoldError, match=message):
        RunFolder.open(tmp_path / name)


def test_runs_of_a_numbered_name_are_found_the_last_begun_first(tmp_path: Path) -> None:
    place = Numbered(tmp_path, "frossl-my photos")
    assert place.taken() == []
    begun = {"frossl-my-photos-2": 1, "frossl-my-photos-1": 3, "frossl-my-photos-10": 2, "frossl-my-photos-x": 4}
    for name, seconds in begun.items():  # the first number is free again where its folder was deleted
        folder = RunFolder.create(tmp_path / name, "{}")
        os.utime(folder.path / "config.json", (seconds, seconds))
    place.take()  # no run yet
    assert [path.name[-2:] for path in place.taken()] == ["-1", "10", "-2"]


def test_damaged_records_are_named(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "{}")
    (folder.path / "metrics.jsonl").write_text('{"step": 1}\n{"a\n')
    with pytest.raises(TwofoldError, match=r"metrics\.jsonl is damaged: it has a line that is not JSON"):
        folder.read("metrics.jsonl")
    (folder.path / "results.json").write_text("{")
    with pytest.raises(TwofoldError, match=r"results\.json is damaged"):
        _ = Run(folder.path).results


def test_a_stop_at_once_says_which_run_it_was(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "{}")
    with pytest.raises(Stopped) as caught, folder.held():
        raise KeyboardInterrupt
    assert caught.value.path == folder.path
    with pytest.raises(Interrupted), folder.held():
        raise Interrupted(folder.path, 2)


def test_a_start_that_failed_leaves_the_folder_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("twofold.runs.folder.write_atomically", full)
        with pytest.raises(TwofoldError, match="No space left"):
            RunFolder.create(tmp_path / "run", "{}")
    assert RunFolder.create(tmp_path / "run", "{}").config_text() == "{}"


def test_a_bystander_writes_nothing(tmp_path: Path) -> None:
    first = RunFolder.create(tmp_path / "run", "{}")
    first.append("metrics.jsonl", {"step": 1})
    before = {path: path.read_bytes() for path in first.path.iterdir()}
    other = ReadOnlyRunFolder(first.path)
    other.append("metrics.jsonl", {"step": 2})
    other.log("line")
    other.write("results.json", "{}")
    other.rewind({})
    assert other.offsets() == {}
    assert {path: path.read_bytes() for path in first.path.iterdir()} == before
    assert other.read("metrics.jsonl") == [{"step": 1}]


def test_a_name_that_is_no_text_can_be_logged(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "{}")
    folder.log(os.fsdecode(b"na\xffme"))
    assert (folder.path / "log.txt").read_text() == "na\\udcffme\n"
