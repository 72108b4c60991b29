"""Make a fixture: a stopped and a finished run of any version of Twofold, with a few KB.

PYTHONPATH=WORKING_TREE_OF_THE_VERSION python tests/formats/make.py OUT METHOD
"""

import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch

import twofold
from twofold.models.encoders import ENCODERS, TinyConv

WIDTHS = (4, 4, 8, 8)
SETTINGS: dict[str, Any] = {"batch_size": 8, "encoder": "narrow", "device": "cpu", "checkpoint.seconds": 0.0}
SETTINGS |= {"checkpoint.keep": 1, "augment.jitter": 0.0, "augment.flip": 0.0, "projector": "16,8"}


class Narrow(TinyConv):
    """The same network in all versions: the widths were an argument once, and are an attribute now."""

    def __init__(self, channels: int):
        if hasattr(TinyConv, "WIDTHS"):
            self.WIDTHS = WIDTHS
            super().__init__(channels)
        else:
            super().__init__(channels, WIDTHS)  # type: ignore[arg-type]


def images() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.integers(0, 256, (32, 8, 8), dtype=np.uint8), np.arange(32) % 2


def stop_after(step: int, run: Path) -> None:
    """Send this process SIGTERM when a checkpoint of this step or a later one is there."""
    latest = run / "checkpoints" / "latest"
    while not latest.exists() or int(latest.read_text().strip().removeprefix("step-") or 0) < step:
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main(out: Path, method: str) -> None:
    torch.set_num_threads(1)
    ENCODERS["narrow"] = lambda channels, *_: Narrow(channels)
    settings = {key: value for key, value in SETTINGS.items() if method == "frossl" or key != "projector"}
    settings |= {"projector": "8"} if method == "s-diet" else {}
    twofold.pretrain({"data": images(), **settings, "epochs": 2}, method=method, out=out / "finished")
    if method == "s-diet":
        settings["head.path"] = str(out / "rows")
    threading.Thread(target=stop_after, args=(6, out / "stopped"), daemon=True).start()
    try:
        twofold.pretrain({"data": images(), **settings, "epochs": 50}, method=method, out=out / "stopped")
    except BaseException as stop:
        print(stop)
    for name in ("report.html", "pictures.json"):
        (out / "finished" / name).unlink(missing_ok=True)
    shutil.rmtree(out / "finished" / "checkpoints", ignore_errors=True)
    if method == "s-diet":
        shutil.rmtree(out / "finished")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2])
