"""The lines of Python at the end of a run load its encoder. Its report names the files that were left out."""

import contextlib
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import running
import twofold
from twofold.cli.results import conclude
from twofold.display import Display

SETTINGS = {"batch_size": 8, "epochs": 1, "encoder": "conv"}


def printed_lines(run: twofold.Run, capsys: pytest.CaptureFixture[str]) -> str:
    """The lines of Python that the command line prints at the end of the run."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        conclude(run, Display())
    lines = (out.getvalue() or capsys.readouterr().out).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("python"))
    return "\n".join(line[9:] for line in lines[start:])


def test_the_printed_lines_compute_the_features_of_an_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkdir("photos")
    for number in range(16):
        Image.fromarray(np.full((8, 8, 3), 15 * number, np.uint8)).save(f"photos/{number}.png")
    Path("photos/notes.txt").write_text("no image")
    run = twofold.pretrain("photos", method="simclr", out="run", **running.small("simclr", **SETTINGS))
    assert run.results["note"] == "left out 1 .txt file"
    assert "Images: left out 1 .txt file." in run.report.read_text()
    lines = printed_lines(run, capsys)
    assert len(lines.splitlines()) == 5
    scope: dict[str, Any] = {}
    exec(lines, scope)
    encoder = twofold.load_encoder("run")
    with torch.inference_mode():
        expected = encoder(encoder.preprocess(Image.open("photos/0.png")))
    assert torch.equal(scope["features"], expected)


def test_without_files_the_lines_use_pixels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = np.random.default_rng(0).integers(0, 256, (16, 8, 8), dtype=np.uint8)
    settings = running.small("simclr", **SETTINGS)
    run = twofold.pretrain(images, method="simclr", out=tmp_path / "run", **settings)
    scope: dict[str, Any] = {}
    exec(printed_lines(run, capsys), scope)
    assert scope["features"].shape[0] == 1


def test_the_lines_of_a_users_module_are_left_out(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (16, 8, 8), dtype=np.uint8)
    settings = running.small("simclr", batch_size=8, epochs=1, recipe="scratch")
    run = twofold.pretrain(images, method="simclr", encoder=running.SmallEncoder(), out=tmp_path / "run", **settings)
    assert run.results["load"] == []
