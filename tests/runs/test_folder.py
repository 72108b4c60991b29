"""The run folder: existing files are never overwritten, records can be rewound, and errors say what to do."""

import errno
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from twofold.checksums import seal
from twofold.errors import Interrupted, Stopped, TwofoldError
from twofold.runs import checkpoint
from twofold.runs import folder as folder_module
from twofold.runs.folder import WRITTEN_IN_PLACE, ReadOnlyRunFolder, RunFolder
from twofold.runs.images_record import read_trained_images
from twofold.runs.new_folder import NumberedPath
from twofold.runs.run import Run


def test_existing_files_are_never_overwritten(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "{}")
    with pytest.raises(TwofoldError, match="twofold resume"):
        RunFolder.create(folder.path, "{}")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(TwofoldError, match="exists already"):
        RunFolder.create(tmp_path / "file", "{}")
    (tmp_path / "empty").mkdir()
    RunFolder.create(tmp_path / "empty", "{}")


def test_an_incomplete_last_line_is_ignored(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "{}")
    folder.append("metrics.jsonl", {"step": 1})
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "lo')
    assert folder.read("metrics.jsonl") == [{"step": 1}]
    assert folder.read("spectrum.jsonl") == []


def test_rewinding_removes_the_records_after_the_checkpoint(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "{}")
    folder.append("metrics.jsonl", {"step": 1})
    checksums = folder.record_checksums()
    before = (folder.path / "metrics.jsonl").read_bytes()
    folder.append("metrics.jsonl", {"step": 2})
    folder.append("spectrum.jsonl", {"step": 2})
    folder.rewind(checksums)
    assert (folder.path / "metrics.jsonl").read_bytes() == before
    assert (folder.path / "spectrum.jsonl").read_bytes() == b""
    for step in (1, 2):
        checkpoint.save(folder.path, step, {}, keep=2)
    folder.rewind(checksums, 1)
    assert checkpoint.load_latest(folder.path) == (1, {})
    folder.rewind({})
    assert (folder.path / "metrics.jsonl").read_bytes() == b""


@pytest.mark.parametrize("content", ["", '{"step": 1}\n{"st'])
def test_records_are_never_invented(tmp_path: Path, content: str) -> None:
    """A record that is shorter than the checkpoint says was cut; `truncate` would fill it with zeros."""
    folder = RunFolder.create(tmp_path / "run", "{}")
    for step in (1, 2):
        folder.append("metrics.jsonl", {"step": step})
    for checksums in (folder.record_checksums(), {"metrics.jsonl": 24}):  # of this format and of the one before
        (folder.path / "metrics.jsonl").write_text(content)
        with pytest.raises(TwofoldError, match=r"metrics\.jsonl has \d+ bytes, but had 24.*restore the file"):
            folder.rewind(checksums)
        assert (folder.path / "metrics.jsonl").read_text() == content
        (folder.path / "metrics.jsonl").unlink()
        with pytest.raises(TwofoldError, match=r"metrics\.jsonl is missing"):
            folder.rewind(checksums)


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_damaged_record_is_refused_by_name(tmp_path: Path, is_finished: bool) -> None:
    folder = RunFolder.create(tmp_path / "run", "{}")
    for name in ("metrics.jsonl", "timing.jsonl"):
        folder.append(name, {"step": 1, "value": 0.25})
    if is_finished:
        folder.write("results.json", json.dumps(seal({"records": folder.record_checksums()})))
    else:
        checkpoint.save(folder.path, 1, {}, keep=2, facts={"records": folder.record_checksums()})
    folder.append("metrics.jsonl", {"step": 2})
    assert [record["step"] for record in folder.read("metrics.jsonl")] == [1, 2]
    for name in ("metrics.jsonl", "timing.jsonl"):
        path = folder.path / name
        path.write_text(path.read_text().replace("0.25", "0.35"))
        with pytest.raises(TwofoldError, match=rf"{name} is damaged.*restore the file from a copy"):
            folder.read(name)


def test_a_damaged_log_does_not_stop_a_run(tmp_path: Path) -> None:
    """The times and the log do not influence the run. The damaged file is kept under another name."""
    folder, said = RunFolder.create(tmp_path / "run", "{}"), list[str]()
    folder.append("timing.jsonl", {"step": 1, "seconds": 0.25})
    checkpoint.save(folder.path, 1, {}, keep=2, facts={"records": folder.record_checksums()})
    (folder.path / "timing.jsonl").write_text('{"step": 1, "reconds": 0.25}\n')
    folder.load_checkpoint(said.append, allow_older=True, environment={})
    assert "timing.jsonl is damaged" in said[0]
    assert (folder.path / "timing.jsonl.damaged").exists()
    folder.append("timing.jsonl", {"step": 2, "seconds": 0.5})
    checkpoint.save(folder.path, 2, {}, keep=2, facts={"records": folder.record_checksums()})
    assert [record["step"] for record in folder.read("timing.jsonl")] == [2]


@pytest.mark.parametrize("every", [97, pytest.param(1, marks=pytest.mark.full)])
def test_flipped_bits_of_the_record_of_images_raise_one_error_or_change_nothing(every: int, tmp_path: Path) -> None:
    path = tmp_path / "images.npz"
    arrays = {"fingerprint": np.array("abc"), "trained": np.arange(50, dtype=np.uint64) ** 5}
    np.savez_compressed(path, arrays=np.array(list(arrays)), **arrays)
    expected, content = read_trained_images(tmp_path), path.read_bytes()
    for bit in range(0, 8 * len(content), every):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            found = read_trained_images(tmp_path)
        except TwofoldError:
            continue
        assert found.keys() == expected.keys(), bit
        assert all(np.array_equal(found[name], expected[name]) for name in found), bit


def test_checksums_continue_after_rewinding(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "{}")
    folder.append("metrics.jsonl", {"step": 1})
    at_first = folder.record_checksums()
    for step in (2, 3):
        folder.append("metrics.jsonl", {"step": step})
    expected = folder.record_checksums()
    again = RunFolder.open(folder.path)
    again.rewind(at_first)
    for step in (2, 3):
        again.append("metrics.jsonl", {"step": step})
    assert again.record_checksums()["metrics.jsonl"] == expected["metrics.jsonl"]


def test_a_full_disk_is_reported_in_one_line_with_the_command_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.create(tmp_path / "run", "{}")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("twofold.runs.folder.open_in_place", full)
    with pytest.raises(TwofoldError, match=r"No space left on device.*twofold resume") as error:
        folder.append("metrics.jsonl", {"step": 1})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["pictures.json", "report.html"])
def test_if_the_report_cannot_be_written_the_error_names_the_report_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = RunFolder.create(tmp_path / "run", "{}")

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "write_bytes", read_only)
    with pytest.raises(
        TwofoldError, match=r"Read-only file system\): make .*run writable, then run `twofold report"
    ) as error:
        folder.write(name, "{}")
    assert "resume" not in str(error.value)
    with pytest.raises(TwofoldError, match=r"make .*run writable, then run `twofold resume"):
        folder.write("results.json", "{}")


def test_new_runs_get_the_next_free_number(tmp_path: Path) -> None:
    assert NumberedPath(tmp_path / "new", "frossl-digits").create().name == "frossl-digits-1"
    assert NumberedPath(tmp_path / "new", "frossl-digits").create().name == "frossl-digits-2"
    assert NumberedPath(tmp_path, "frossl-my photos (2023)").create().name == "frossl-my-photos-2023--1"
    (tmp_path / "dangling-1").symlink_to(tmp_path / "nowhere")
    assert NumberedPath(tmp_path, "dangling").create().name == "dangling-2"
    (tmp_path / "file").touch()
    with pytest.raises(TwofoldError, match=r"the run folder .*file/run-1 could not be written"):
        RunFolder.create(NumberedPath(tmp_path / "file", "run"), "{}")


def test_runs_that_start_at_the_same_time_get_different_folders(tmp_path: Path) -> None:
    all_started = threading.Barrier(8)

    def created(_: int) -> Path:
        all_started.wait()
        return RunFolder.create(NumberedPath(tmp_path, "run"), "{}").path

    with ThreadPoolExecutor(8) as threads:
        assert {path.name for path in threads.map(created, range(8))} == {f"run-{number}" for number in range(1, 9)}


def test_only_one_of_two_processes_gets_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = RunFolder.refuse_existing

    def check_then_be_overtaken(path: Path) -> None:
        check(path)
        monkeypatch.undo()
        RunFolder.create(path, "first")

    monkeypatch.setattr(RunFolder, "refuse_existing", staticmethod(check_then_be_overtaken))
    with pytest.raises(
        TwofoldError, match=r"exists already; choose another --out, or continue this run with `twofold resume"
    ):
        RunFolder.create(tmp_path / "run", "second")
    assert RunFolder(tmp_path / "run").config_text() == "first"


def test_two_processes_cannot_start_a_run_in_the_same_folder_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, refused = folder_module.write_atomically, []

    def write_while_another_starts(path: Path, content: str) -> None:
        with pytest.raises(TwofoldError, match="in use by another process, which starts a run") as error:
            RunFolder.create(tmp_path / "run", "second")
        refused.append(error)
        write(path, content)

    monkeypatch.setattr(folder_module, "write_atomically", write_while_another_starts)
    assert RunFolder.create(tmp_path / "run", "first").config_text() == "first"
    assert len(refused) == 1


@pytest.mark.parametrize(
    "left", [(), ("log.txt",), ("log.txt", ".config.json.part"), ("log.txt", ".config.json.x1.part")]
)
def test_a_folder_whose_run_never_began_is_used_again(tmp_path: Path, left: tuple[str, ...]) -> None:
    """A process was killed before it wrote config.json."""
    path = tmp_path / "run"
    path.mkdir()
    for name in left:
        (path / name).touch()
    message = r"has no run yet.*start it again with the same `twofold pretrain`" if left else r"has no config\.json"
    with pytest.raises(TwofoldError, match=message):
        RunFolder.open(path)
    assert RunFolder.create(path, "{}").config_text() == "{}"


@pytest.mark.parametrize("name, content", [("log.txt", "a user's notes"), ("thesis.tex", ""), (".thesis.part", "")])
def test_a_folder_with_files_of_the_user_is_not_used(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(TwofoldError, match="exists already"):
        RunFolder.create(tmp_path, "{}")
    with pytest.raises(TwofoldError, match="not a run folder"):
        RunFolder.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name, message", [("nowhere", "no run folder"), (".", "no config.json")])
def test_opening_a_folder_that_is_not_a_run_raises_an_error(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(TwofoldError, match=message):
        RunFolder.open(tmp_path / name)


def test_existing_runs_are_listed_by_start_the_most_recent_first(tmp_path: Path) -> None:
    place = NumberedPath(tmp_path, "frossl-my photos")
    assert place.existing_runs() == []
    started = {"frossl-my-photos-2": 1, "frossl-my-photos-1": 3, "frossl-my-photos-10": 2, "frossl-my-photos-x": 4}
    for name, seconds in started.items():  # the number 1 was free again because its folder had been deleted
        folder = RunFolder.create(tmp_path / name, "{}")
        os.utime(folder.path / "config.json", (seconds, seconds))
    place.create()  # a folder without config.json is not a run
    assert [path.name[-2:] for path in place.existing_runs()] == ["-1", "10", "-2"]


def test_errors_name_the_damaged_file(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "{}")
    (folder.path / "metrics.jsonl").write_text('{"step": 1}\n{"a\n')
    with pytest.raises(TwofoldError, match=r"metrics\.jsonl is damaged: it has a line that is not JSON"):
        folder.read("metrics.jsonl")
    (folder.path / "results.json").write_text("{")
    with pytest.raises(TwofoldError, match=r"results\.json is not JSON"):
        _ = Run(folder.path).results


def test_a_keyboard_interrupt_names_the_run(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "{}")
    with pytest.raises(Stopped) as caught, folder.locked():
        raise KeyboardInterrupt
    assert caught.value.path == folder.path
    with pytest.raises(Interrupted), folder.locked():
        raise Interrupted(folder.path, 2)


def test_a_folder_can_be_used_again_after_a_failed_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("twofold.runs.folder.write_atomically", full)
        with pytest.raises(TwofoldError, match="No space left"):
            RunFolder.create(tmp_path / "run", "{}")
    assert RunFolder.create(tmp_path / "run", "{}").config_text() == "{}"


def test_a_read_only_run_folder_writes_nothing(tmp_path: Path) -> None:
    first = RunFolder.create(tmp_path / "run", "{}")
    first.append("metrics.jsonl", {"step": 1})
    before = {path: path.read_bytes() for path in first.path.iterdir()}
    other = ReadOnlyRunFolder(first.path)
    other.append("metrics.jsonl", {"step": 2})
    other.log("line")
    other.write("results.json", "{}")
    other.rewind({})
    assert other.record_checksums() == {}
    assert {path: path.read_bytes() for path in first.path.iterdir()} == before
    assert other.read("metrics.jsonl") == [{"step": 1}]


def test_a_file_name_that_is_not_valid_text_can_be_logged(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "{}")
    folder.log(os.fsdecode(b"na\xffme"))
    assert (folder.path / "log.txt").read_text() == "na\\udcffme\n"


@pytest.mark.parametrize("name", [*WRITTEN_IN_PLACE, "checkpoints/step-1", "head/rows.bin"])
def test_a_run_whose_files_are_links_is_not_trained(tmp_path: Path, name: str) -> None:
    folder, outside = RunFolder.create(tmp_path / "run", "{}"), tmp_path / "outside"
    outside.mkdir()
    (folder.path / name).parent.mkdir(exist_ok=True)
    (folder.path / name).unlink(missing_ok=True)
    (folder.path / name).symlink_to(outside)
    with pytest.raises(TwofoldError, match=f"{name} is a link"), folder.locked():
        raise AssertionError("this line must not be reached")
    if name.endswith((".jsonl", ".txt")):
        with pytest.raises(TwofoldError, match=f"{name} is a link"):
            folder.append(name, {})
    assert list(outside.iterdir()) == []
