"""Tiny runs that train within half a second, and what two runs must have in common."""

import json
import tempfile
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file

import twofold
from running import stopped_at
from twofold import dist
from twofold.display import Display
from twofold.errors import Interrupted
from twofold.evaluate import probes
from twofold.models.encoders import ENCODERS, TinyConv
from twofold.runs.new_folder import has_no_run_yet
from twofold.verbs.pretrain import configure, start
from twofold.verbs.resume import resume


class Narrow(TinyConv):
    """A network whose files have a few KB, so that a campaign spends its time on the code under test."""

    WIDTHS = (4, 4, 8, 8)


ENCODERS["narrow"] = lambda channels, _, __: Narrow(channels)

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (48, 8, 8), dtype=np.uint8)
LABELS = np.arange(48) % 2
DATA = ((IMAGES[:32], LABELS[:32]), (IMAGES[32:], LABELS[32:]))
SETTINGS: dict[str, Any] = {"epochs": 3, "batch_size": 8, "encoder": "narrow", "device": "cpu", "map_points": 0}
SETTINGS |= {"checkpoint.seconds": 0.0, "checkpoint.keep": 2, "augment.jitter": 0.0, "augment.flip": 0.0}
METHODS: dict[str, dict[str, Any]] = {
    "frossl": {"projector": "16,8", "select": "best"},
    "byol": {"projector": "16,8", "predictor_width": 8},
    "s-diet": {"projector": "16,8", "head.path": None},  # the rows are in a folder next to the run
    "moco": {"projector": "16,8", "queue": 16},
    "simclr": {"projector": "16,8", "data": "files"},  # the images are files, and the cache is used
    "dino": {"projector": "16,8", "prototypes": 8},
    "supervised": {"adapter": True},
}
STEPS = 12
STOP = 9  # the step at which `stopped` ends
COMPARED = ("metrics.jsonl", "spectrum.jsonl")
TEMPORARY = (".part", ".damaged")


def without_few_labels() -> AbstractContextManager[Any]:
    """Leave out the accuracies with few labels. They take most of the time and depend on the encoder only."""
    return patch.object(probes, "few_label_accuracy", lambda *_, **__: (0.5, 0.0))


class Heard(Display):
    """Keeps what a run says."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.said: list[str] = []

    def say(self, text: object = "") -> None:
        self.said.append(str(text))


@cache
def image_files() -> "tempfile.TemporaryDirectory[str]":
    """A folder of images in two classes; the result must be kept as long as the files are needed."""
    folder = tempfile.TemporaryDirectory(prefix="twofold-images-")
    for number, (image, label) in enumerate(zip(IMAGES, LABELS, strict=True)):
        path = Path(folder.name, "test" if number >= 32 else "train", "ab"[label], f"{number}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return folder


def begin(method: str, out: Path) -> list[str]:
    """Train from the start to the end, and return what the run says."""
    settings = SETTINGS | METHODS[method]
    data: Any = image_files().name if settings.pop("data", None) else DATA
    if "head.path" in settings:
        settings["head.path"] = str(rows_of(out))
    display = Heard()
    with dist.joined():
        config, source = configure(data, method, settings, display)
        start(config, source, out=out, display=display)
    return display.said


def go_on(out: Path) -> list[str]:
    """Resume, and return what the run says."""
    display = Heard()
    is_from_files = '"array"' not in (out / "config.json").read_text(errors="replace")
    resume(out, None if is_from_files else DATA, display=display)
    return display.said


def continue_or_begin(method: str, out: Path) -> list[str]:
    """Do what a user does after a failure: resume the run, or repeat its start if it has not begun."""
    return begin(method, out) if not out.is_dir() or has_no_run_yet(out) else go_on(out)


def rows_of(out: Path) -> Path:
    return out.parent / f"{out.name}-rows"


def finished(method: str, folder: Path) -> Path:
    begin(method, folder / "run")
    return folder


def stopped(method: str, folder: Path) -> Path:
    try:
        with stopped_at(STOP):
            begin(method, folder / "run")
    except Interrupted:
        pass
    return folder


def differences(run: Path, whole: Path, *, may_have_more: bool = False) -> str:
    """Return what a finished run has otherwise than an uninterrupted one, or "" if it has the same."""
    found = [name for name in COMPARED if (run / name).read_bytes() != (whole / name).read_bytes()]
    for name in ("encoder.safetensors", "classifier.safetensors", "adapter.safetensors"):
        ours, theirs = (load_file(path / name) if (path / name).exists() else {} for path in (run, whole))
        if ours.keys() != theirs.keys() or not all(torch.equal(ours[key], theirs[key]) for key in ours):
            found.append(name)
    tables = [json.loads((path / "results.json").read_text())["table"] for path in (run, whole)]
    if tables[0] != tables[1]:
        found.append("results.json")
    rows = [rows_of(path) / "rows.bin" for path in (run, whole)]
    if rows[1].exists() and rows[0].read_bytes() != rows[1].read_bytes():
        found.append("rows.bin")
    names = [
        {str(file.relative_to(path)) for file in path.rglob("*") if not file.name.endswith(TEMPORARY)}
        for path in (run, whole)
    ]
    found += [f"{name} is missing" for name in sorted(names[1] - names[0])]
    found += [] if may_have_more else [f"{name} is left" for name in sorted(names[0] - names[1])]
    return ", ".join(found)


def contents(run: Path) -> list[Any]:
    """Return what users read of a run: features, records, results and the report."""
    from twofold.report.page import render

    opened = twofold.Run(run)
    with torch.inference_mode():
        encoder = twofold.load_encoder(run)
        features = encoder(encoder.preprocess(torch.from_numpy(IMAGES[:4, None])))
    return [features.tolist(), opened.metrics, opened.spectrum, opened.results, render(opened.folder)]
