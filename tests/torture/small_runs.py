"""Tiny runs that train within a second, and what two runs must have in common."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

import twofold
from running import stopped_at
from twofold.display import Display
from twofold.errors import Interrupted
from twofold.verbs.pretrain import configure, start
from twofold.verbs.resume import resume

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (48, 8, 8), dtype=np.uint8)
LABELS = np.arange(48) % 2
DATA = ((IMAGES[:32], LABELS[:32]), (IMAGES[32:], LABELS[32:]))
SETTINGS: dict[str, Any] = {"epochs": 3, "batch_size": 8, "encoder": "conv", "device": "cpu", "map_points": 0}
SETTINGS |= {"checkpoint.seconds": 0.0, "checkpoint.keep": 2, "augment.jitter": 0.0, "augment.flip": 0.0}
METHODS: dict[str, dict[str, Any]] = {
    "frossl": {"projector": "16,8", "select": "best"},
    "byol": {"projector": "16,8", "predictor_width": 8},
    "s-diet": {"head.path": None},  # the rows are in a folder next to the run
}
STEPS = 12
STOP = 9  # the step at which `stopped` ends
COMPARED = ("metrics.jsonl", "spectrum.jsonl")


class Heard(Display):
    """Keeps what a run says."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.said: list[str] = []

    def say(self, text: object = "") -> None:
        self.said.append(str(text))


def begin(method: str, out: Path) -> None:
    """Train from the start to the end."""
    settings = SETTINGS | METHODS[method]
    if "head.path" in settings:
        settings["head.path"] = str(out.parent / f"{out.name}-rows")
    display = Heard()
    config, source = configure(DATA, method, settings, display)
    start(config, source, out=out, display=display)


def go_on(out: Path) -> list[str]:
    """Resume, and return what the run says."""
    display = Heard()
    resume(out, DATA, display=display)
    return display.said


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


def differences(run: Path, whole: Path) -> str:
    """Return what a finished run has otherwise than an uninterrupted one, or "" if it has the same."""
    found = [name for name in COMPARED if (run / name).read_bytes() != (whole / name).read_bytes()]
    ours, theirs = (load_file(path / "encoder.safetensors") for path in (run, whole))
    if ours.keys() != theirs.keys() or not all(torch.equal(ours[name], theirs[name]) for name in ours):
        found.append("encoder.safetensors")
    tables = [json.loads((path / "results.json").read_text())["table"] for path in (run, whole)]
    if tables[0] != tables[1]:
        found.append("results.json")
    return ", ".join(found)


def contents(run: Path) -> list[Any]:
    """Return what users read of a run: features, records, results and the report."""
    from twofold.report.page import render

    opened = twofold.Run(run)
    with torch.inference_mode():
        encoder = twofold.load_encoder(run)
        features = encoder(encoder.preprocess(torch.from_numpy(IMAGES[:4, None])))
    return [features.tolist(), opened.metrics, opened.spectrum, opened.results, render(opened.folder)]
