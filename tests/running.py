"""Small runs for tests: a few hundred tiny images and networks that train in a second or two."""

import io
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

import twofold
from twofold import cli
from twofold.display import Display
from twofold.methods import schema
from twofold.runs import checkpoint
from twofold.train.guards import ask_to_stop
from twofold.train.trainer import Trainer
from twofold.verbs import pretrain

SMALL: dict[str, Any] = {"epochs": 2, "batch_size": 128, "projector": "32,16", "predictor_width": 32, "map_points": 0}
SMALL["device"] = "cpu"  # tests that need CUDA say so; the others run on the CPU of a machine with a GPU, too


def small(method: str, **overrides: Any) -> dict[str, Any]:
    return {key: value for key, value in SMALL.items() if key in schema(method)} | overrides


def trainer(method: str = "frossl", **overrides: Any) -> Trainer:
    config, source = pretrain.configure("digits", method, small(method, **overrides))
    display = Display(quiet=True)
    return Trainer(config, pretrain.read_data(config, source, display), display)


@contextmanager
def stopped_at(step: int) -> Iterator[None]:
    """Ask runs in this block to stop at this step, like Ctrl-C does."""
    take = Trainer.take_step

    def take_step(self: Trainer, now: int) -> None:
        if now == step:
            ask_to_stop()
        take(self, now)

    with patch.object(Trainer, "take_step", take_step):
        yield


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "twofold", *words]


def start(*words: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    """Start `twofold WORDS` in a new process. It has one thread, because bit-identity needs a fixed number of
    threads."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    return subprocess.Popen(
        command(*words), cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    process = start(*words, cwd=cwd)
    out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def call(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `twofold WORDS` like `run`, but in this process, because a new one imports torch first, which takes seconds.

    It has one thread, as `run` does.
    """
    out, err, code, threads = io.StringIO(), io.StringIO(), 0, torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with (
            patch.object(sys, "argv", ["twofold", *words]),
            patch.dict(os.environ, COLUMNS="120"),
            chdir(cwd or Path.cwd()),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)  # as Python itself does
    finally:
        torch.set_num_threads(threads)
    return subprocess.CompletedProcess(["twofold", *words], code, out.getvalue(), err.getvalue())


def checkpoint_step(folder: Path) -> int:
    """The step of the newest checkpoint, or 0 if there is none."""
    name = checkpoint.latest_name(folder / "checkpoints")
    return 0 if name is None else int(name.partition("-")[2])


def kill_and_resume(
    launch: Callable[[], "subprocess.Popen[str]"],
    folder: Path,
    rng: random.Random,
    kills: int,
    last_step: int,
    pause: float = 0.1,
) -> None:
    """Launch, kill and launch again until the end. At least one kill hits between the first step and the last.

    A resumed process first spends seconds on imports. Every third kill hits during the imports, the others after a
    random step.
    """
    left = []
    process = launch()
    for kill in range(kills):
        if kill % 3 == 2:
            time.sleep(rng.uniform(0, 4))
        else:
            step = rng.randint(min(checkpoint_step(folder) + 1, last_step - 1), last_step - 1)
            deadline = time.monotonic() + 120
            while checkpoint_step(folder) < step and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.005)
            time.sleep(rng.uniform(0, pause))
        if process.poll() is None:
            process.kill()
            left.append(checkpoint_step(folder))
        process.communicate()
        process = launch()
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert any(0 < step < last_step for step in left), f"no kill hit the training, but {left}: this shows nothing"


QUICK: dict[str, object] = {"epochs": 15, "lr": 0.01, "projector": (128, 64), "predictor_width": 64, "map_points": 0}


class SmallEncoder(nn.Module):
    """An encoder whose untrained features are clearly worse than those that any method learns in seconds."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        widths = ((1, 16, 1), (16, 32, 2), (32, 64, 2))
        layers = [
            layer
            for before, after, stride in widths
            for layer in (nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU())
        ]
        self.body = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x).mean(dim=(2, 3))


def quick(method: str, **overrides: object) -> dict[str, object]:
    return {key: value for key, value in QUICK.items() if key in schema(method)} | overrides


def trained(method: str, out: Path, **overrides: object) -> twofold.Run:
    return twofold.pretrain(
        {"data": "digits", **quick(method, **overrides)}, method=method, out=out, encoder=SmallEncoder()
    )


class Own(nn.Module):
    """A user-defined encoder for digits."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 20)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.flatten(1)).relu()
