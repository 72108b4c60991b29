"""Measure views per second of the training step on a CPU, compared with the bare network and with lightly's pipeline.

    python -m benchmarks.cpu [--rows conv-32,resnet18-32] [--threads 2] [--rounds 7] [--lightly PYTHON]

The bare network is forward, backward and SGD of encoder and projector on prepared views. It is measured in several
forms: all views in one pass, each view in its own, and half a view in its own. The fastest form counts. The product
step is everything that `twofold pretrain` does in a step of SimCLR. `--lightly` names the Python interpreter of an
environment that has lightly, torchvision and, for the row of a vision transformer, timm. Its pipeline runs in a process
of its own, with the same encoder, batch size and threads.

In each round, everything takes one step, because other programs may use the machine. The order is random: in a fixed
order, one step would always follow that of another process, whose data is then in the caches. Shares and ratios are
medians over the rounds. With one thread, the clock counts the CPU time of the process; with more, it is the wall clock.
All of Twofold's process keeps freed memory, as a run does; lightly's process has the defaults of the system.
"""

import argparse
import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.results import Table, keep
from benchmarks.throughput import build, product_step
from twofold.device import autocast_of, kept_memory
from twofold.models import one_by_one, together
from twofold.models.encoders import to_memory_format
from twofold.train.trainer import Trainer

VIEWS = 2
PRECISIONS = ("float32", "bf16")


@dataclass(frozen=True)
class Row:
    encoder: str
    size: int
    batch: int


ROWS = {
    "conv-8": Row("conv", 8, 256),
    "conv-32": Row("conv", 32, 256),
    "resnet18-32": Row("resnet18", 32, 128),
    "resnet18-64": Row("resnet18", 64, 64),
    "resnet18-96": Row("resnet18", 96, 64),
    "vit-96": Row("timm:vit_tiny_patch16_224", 96, 128),
}


def half_views(network: nn.Module, x_VN: Tensor) -> Tensor:
    """The outputs of all views, each in two passes. BatchNorm computes the statistics of half a view."""
    halves = [network(half) for half in x_VN.flatten(0, 1).chunk(2 * len(x_VN))]
    return torch.cat(halves).unflatten(0, x_VN.shape[:2])


FORMS = {"one pass": together, "a pass for each view": one_by_one, "two passes for each view": half_views}


def bare_step(trainer: Trainer, form: Callable[[nn.Module, Tensor], Tensor], precision: str) -> Callable[[], None]:
    """Return a step of only forward, backward and SGD of the encoder and the projector, on constant views."""
    config, method = trainer.config, trainer.method
    assert config.image_size is not None
    shape = (VIEWS * config.batch_size, 3, config.image_size, config.image_size)
    views = to_memory_format(torch.randn(shape), trainer.memory_format).unflatten(0, (VIEWS, -1))
    optimizer = torch.optim.SGD(method.parameters(), lr=1e-4, momentum=0.9, fused=True)
    autocast = autocast_of(precision, trainer.device)

    def step() -> None:
        optimizer.zero_grad()
        with autocast():
            z = form(method.projector, form(method.encoder, views))
        z.float().square().mean().backward()
        optimizer.step()

    return step


def timed(step: Callable[[], None], clock: Callable[[], float]) -> float:
    start = clock()
    step()
    return clock() - start


class LightlyProcess:
    """lightly's pipeline in a process of its own, which takes a step when it is asked to."""

    def __init__(self, python: str, row: Row, precision: str, workers: int, threads: int):
        words = [python, "-m", "benchmarks.lightly_cpu", row.encoder]
        numbers = [row.size, row.batch, threads, workers]
        self.process = subprocess.Popen(
            [*words, *map(str, numbers), precision], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def seconds(self) -> float:
        """Let it take a step, and return the seconds by the same clock as ours."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the process of lightly ended: see its error above")
        return float(line)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


@contextlib.contextmanager
def takers(row: Row, options: argparse.Namespace) -> Iterator[dict[tuple[str, str], Callable[[], float]]]:
    """What is measured, by name and precision: functions that take a step and return its seconds."""
    clock = time.process_time if options.threads == 1 else time.perf_counter
    given = argparse.Namespace(
        data=None, encoder=row.encoder, size=row.size, batch=row.batch, images=4 * row.batch, device="cpu"
    )
    found: dict[tuple[str, str], Callable[[], float]] = {}
    others: list[LightlyProcess] = []
    for precision in PRECISIONS:
        trainer = build("simclr", given, precision=precision, compile=False)
        trainer.method.train()
        steps = {"product": product_step(trainer)}
        steps |= {name: bare_step(trainer, form, precision) for name, form in FORMS.items()}
        found |= {(name, precision): lambda step=step: timed(step, clock) for name, step in steps.items()}
        # Processes that load images have CPU time of their own, so they need the wall clock.
        for workers in () if options.lightly is None else (0,) if options.threads == 1 else (0, 2):
            other = LightlyProcess(options.lightly, row, precision, workers, options.threads)
            others.append(other)
            found[f"lightly, {workers} loaders", precision] = other.seconds
    try:
        yield found
    finally:
        for other in others:
            other.close()


def measure(name: str, row: Row, options: argparse.Namespace) -> list[dict[str, Any]]:
    with takers(row, options) as steps:
        times: dict[tuple[str, str], list[float]] = {key: [] for key in steps}
        for number in range(options.warm_up + options.rounds):
            for key in random.Random(number).sample([*steps], len(steps)):
                seconds = steps[key]()
                if number >= options.warm_up:
                    times[key].append(seconds)
    return [described(name, row, precision, times) for precision in PRECISIONS]


def described(name: str, row: Row, precision: str, times: dict[tuple[str, str], list[float]]) -> dict[str, Any]:
    """A row of the table: speeds, and ratios to the fastest bare network and to the fastest pipeline of lightly."""
    views, own = VIEWS * row.batch, {key: values for (key, kind), values in times.items() if kind == precision}
    fastest = min(FORMS, key=lambda form: median(own[form]))
    theirs = [key for key in own if key.startswith("lightly")]
    product, float32 = own["product"], times["product", "float32"]
    found = {
        "row": name,
        "batch": row.batch,
        "precision": precision,
        "views/s": views / median(product),
        "bare, views/s": views / median(own[fastest]),
        "fastest form": fastest,
        "share": ratio(own[fastest], product),
        "of float32": ratio(float32, product),
        "seconds": {key: median(values) for key, values in own.items()},
        "share, quartiles of the rounds": quartiles(own[fastest], product),
    }
    if theirs:
        best = min(theirs, key=lambda key: median(own[key]))
        found |= {"lightly, views/s": views / median(own[best]), "of lightly": ratio(own[best], product)}
        found["of lightly in float32"] = ratio(times[best, "float32"], product)
    return found


def ratio(others: list[float], ours: list[float]) -> float:
    """How many times as fast ours is: the median over the rounds."""
    return median(other / own for other, own in zip(others, ours, strict=True))


def quartiles(others: list[float], ours: list[float]) -> list[float]:
    ratios = [other / own for other, own in zip(others, ours, strict=True)]
    return quantiles(ratios, n=4) if len(ratios) > 1 else ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS), help=f"rows to measure, of {', '.join(ROWS)}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warm-up", type=int, default=2, help="rounds that are not counted")
    parser.add_argument("--lightly", metavar="PYTHON", help="the interpreter of an environment with lightly")
    parser.add_argument("--note", default="", help="a remark for the record, such as what else used the machine")
    parser.add_argument("--commit", default="", help="the commit to record, if git is not available")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    table = Table("row", "batch", "precision", "views/s", "bare, views/s", "share", "of float32", "of lightly")
    with kept_memory():
        for name in options.rows.split(","):
            for row in measure(name, ROWS[name], options):
                table.add(row)
    settings = {"threads": options.threads, "rounds": options.rounds, "note": options.note, "python": sys.version}
    keep(f"cpu-{options.threads}-threads", table, settings, "cpu", options.commit, options.out)


if __name__ == "__main__":
    main()
