"""Damaged files that once raised a foreign error or were read without an end: the cases that the fuzzer found."""

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from formats.make import images
from test_formats import change, fixture

import twofold
from torture.fuzz import limited
from twofold.cli.common import fail
from twofold.data import cache
from twofold.data.decode_options import DecodeOptions, Unreadable
from twofold.data.image_formats import open_image
from twofold.data.picture_cache import PictureSet
from twofold.data.readers.file_index import index_path, load_index
from twofold.errors import TwofoldError
from twofold.report.page import render
from twofold.runs.checkpoint import read_checkpoint
from twofold.runs.classifier_file import load_classifier
from twofold.runs.folder import RunFolder
from twofold.runs.initial_weights import of_description
from twofold.runs.tensor_files import save_tensors


def test_text_with_impossible_characters_is_refused(tmp_path: Path) -> None:
    labels = np.array([2**31 - 1] * 4, np.uint32).view("<U1")
    np.savez(tmp_path / "a.npz", images=np.zeros((4, 8, 8), np.uint8), labels=labels)
    with pytest.raises(TwofoldError, match="characters that do not exist"):
        twofold.pretrain(tmp_path / "a.npz")


def test_index_without_arrays_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))
    path = index_path(tmp_path)
    path.parent.mkdir(parents=True)
    np.savez(path, names=np.zeros(1, np.uint8))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("rows", b"no array")
    assert load_index(tmp_path) is None


def test_cached_pictures_without_their_size_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path))
    pictures = PictureSet("a", 3, 12, 8)
    pixels, sidecar = cache.paths_of("a")
    pixels.write_bytes(b"")
    sidecar.write_text(json.dumps({"shape": pictures.shape, "count": 1, "skipped": [], "checksums": []}))
    assert pictures.read() is None


@pytest.mark.parametrize("step", [10**400, 7, "a", None], ids=["huge", "7", "text", "none"])
def test_checkpoint_that_names_another_step_is_damaged(step: Any, tmp_path: Path) -> None:
    run = fixture("checkpoint-2", tmp_path) / "stopped"
    change(run / "checkpoints" / "step-6" / "state.json", lambda state: state.update(step=step))
    with pytest.raises(TwofoldError, match="step-6 is damaged"):
        twofold.resume(run, images())


@pytest.mark.parametrize("key", ["skipped_images", "processes", "measures", "meanings", "load", "note"])
def test_report_refuses_results_of_another_type(key: str, tmp_path: Path) -> None:
    run = fixture("checkpoint-3", tmp_path) / "finished"
    change(run / "results.json", lambda results: results.update({key: {"a": {"b": []}}}))
    with pytest.raises(TwofoldError, match=rf"results\.json .*{key}"):
        render(RunFolder.open(run))


@pytest.mark.parametrize("counts", [{"train_images": None}, {"test_images": None}], ids=["train", "test"])
def test_report_of_results_without_a_number_of_images_is_written(counts: dict[str, None], tmp_path: Path) -> None:
    run = fixture("checkpoint-3", tmp_path) / "finished"
    change(run / "results.json", lambda results: results.update(counts))
    assert "</html>" in render(RunFolder.open(run))


def test_encoder_file_that_states_an_infinite_image_size_has_no_own_input() -> None:
    assert of_description({"image_size": float("inf"), "mean": [0.5], "std": [0.5]}) is None
    assert of_description({"image_size": 8, "mean": [0.5], "std": [0.5]}) is not None


PLACES = ["config.json", "metrics.jsonl", "images.npz", "checkpoints/latest"]
PLACES += [f"checkpoints/step-6/{name}" for name in ("state.json", "state.safetensors", "checksums.json")]


@pytest.mark.parametrize("name", PLACES)
def test_pipe_in_a_run_folder_is_named(name: str, tmp_path: Path) -> None:
    run = fixture("checkpoint-3", tmp_path) / "stopped"
    (run / name).unlink()
    os.mkfifo(run / name)
    with limited(), pytest.raises(TwofoldError, match=f"{name} is a pipe"):
        twofold.resume(run, images())


@pytest.mark.parametrize("name", ["checkpoints/step-6/state.safetensors", "config.json"])
def test_huge_file_in_a_run_folder_is_not_read(name: str, tmp_path: Path) -> None:
    run = fixture("checkpoint-3", tmp_path) / "stopped"
    os.truncate(run / name, 2**40)
    with limited(), pytest.raises(TwofoldError, match=r"damaged|too large"):
        twofold.resume(run, images())


def test_huge_records_are_cut_at_the_checkpoint(tmp_path: Path) -> None:
    run = fixture("checkpoint-3", tmp_path) / "stopped"
    os.truncate(run / "metrics.jsonl", 2**40)
    with limited(), pytest.raises(TwofoldError, match="too large"):
        render(RunFolder.open(run))
    step, state = read_checkpoint(run / "checkpoints" / "step-6")
    RunFolder.open(run).rewind(state["records"], step)
    assert (run / "metrics.jsonl").stat().st_size < 2**20


def test_latest_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    run = fixture("checkpoint-3", tmp_path) / "stopped"
    (run / "checkpoints" / "latest").unlink()
    (run / "checkpoints" / "latest").mkdir()
    with pytest.raises(TwofoldError, match="latest could not be written"):
        twofold.resume(run, images())


def test_classifier_with_another_description_is_refused(tmp_path: Path) -> None:
    described = json.dumps({"classes": ["a"], "encoder": "conv", "image_size": 10**9})
    save_tensors(tmp_path / "c.safetensors", {"a": torch.zeros(1)}, {"twofold": described})
    with pytest.raises(TwofoldError, match="its description has no"):
        load_classifier(tmp_path / "c.safetensors")


@pytest.mark.parametrize("start", [b"GIF89a", b"\xff\xd8\xff\xe0"], ids=["gif", "jpeg"])
def test_huge_damaged_image_is_not_searched_to_its_end(start: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.gif"
    path.write_bytes(start)
    os.truncate(path, 2**40)
    with limited(), pytest.raises(Unreadable), open_image(path, DecodeOptions()):
        pass


def test_long_message_is_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        fail("a" * 10**6 + "b", 2)
    assert len(capsys.readouterr().err) < 5000


@pytest.mark.parametrize("end", [b'{"step": 7, "sec', b"\0" * 50, b"\0\n{}\n"], ids=["cut", "zeros", "more"])
@pytest.mark.parametrize("name", ["timing.jsonl", "log.txt"])
def test_incomplete_end_of_a_log_is_removed(name: str, end: bytes, tmp_path: Path) -> None:
    run = fixture("checkpoint-3", tmp_path) / "stopped"
    intact = (run / name).read_bytes()
    with (run / name).open("ab") as file:
        file.write(end)
    step, state = read_checkpoint(run / "checkpoints" / "step-6")
    folder = RunFolder.open(run)
    folder.rewind(state["records"], step)
    assert (run / name).read_bytes() == intact
    folder.append("timing.jsonl", {"step": 7, "seconds": 1.0, "images_per_second": 2.0})
    render(folder)
