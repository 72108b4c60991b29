"""Small runs for tests: a few hundred tiny images and networks that train in a second or two."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from twofold import api
from twofold.train.progress import Display
from twofold.train.trainer import Trainer

SMALL: dict[str, Any] = {"epochs": 2, "batch_size": 128, "projector": "32,16"}
METHOD_EXTRAS: dict[str, dict[str, Any]] = {"byol": {"predictor_width": 32}}


def small(method: str, **overrides: Any) -> dict[str, Any]:
    return SMALL | METHOD_EXTRAS.get(method, {}) | overrides


def trainer(method: str = "frossl", **overrides: Any) -> Trainer:
    config, source = api.configure("digits", method, small(method, **overrides))
    display = Display(quiet=True)
    return Trainer(config, api.read_data(config, source, display), display)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "twofold", *words]


def start(*words: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    """`twofold WORDS` as a process of its own. One thread: bit-identity is promised for a fixed number."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    return subprocess.Popen(
        command(*words), cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    process = start(*words, cwd=cwd)
    out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
