"""Measure the cost of monitoring: the fraction of training time spent on spectra, norms, alignment and uniformity.

    python -m benchmarks.spectrum [--methods frossl,byol] [--data digits --device cpu]

Steps with all observers and steps with only loss and online probe take turns, because other programs may use the
machine. On a CPU, the time is that of the process and does not include other programs.

"step" is the fraction by which monitoring slows steps down; it is noisy. "alone" is the time of monitoring without the
rest of the step, as a fraction of a step; on CUDA it runs in parallel with the backward pass. "log points" is the time
of the eigenvalues at all log points of a run, divided by the number of steps, as a fraction of a step.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from torch import Tensor

from benchmarks.results import Table, keep
from benchmarks.throughput import RANDOM_IMAGES, WARM_UP, build, product_step, synchronize
from twofold.train.observers import Observers
from twofold.train.trainer import Trainer
from twofold.train.watch import spectra
from twofold.types import Batch, Embeddings, LossTerms

METHODS = "frossl,byol,isoloss"
ALONE = 10  # repetitions of monitoring without the rest of the step


class Unwatched(Observers):
    """Observers that record only loss and online probe."""

    def observe(self, embeddings: Embeddings, loss: LossTerms, batch: Batch, lr_factor: Tensor) -> None:
        values = {"loss": loss.total} | {f"loss/{name}": value for name, value in loss.terms.items()}
        if self.probe is not None and batch.labels is not None:
            values |= self.probe.observe(embeddings.features, batch.labels, lr_factor)
        self.means.observe(values)


def timed(work: Callable[[], Any], device: str) -> float:
    clock = time.process_time if device == "cpu" else time.perf_counter
    synchronize()
    start = clock()
    work()
    synchronize()
    return clock() - start


def measure(method: str, options: argparse.Namespace) -> dict[str, Any]:
    watched, plain = build(method, options), build(method, options)
    plain.observers.__class__ = Unwatched
    steps = {"watched": repeated(watched, options.steps), "plain": repeated(plain, options.steps)}
    for step in steps.values():
        for _ in range(-(-WARM_UP // options.steps)):
            step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(options.rounds):
        for name, step in steps.items():
            times[name].append(timed(step, options.device) / options.steps)
    lost = [1 - plain / watched for plain, watched in zip(times["plain"], times["watched"], strict=True)]
    at_log_point = median(
        timed(lambda: spectra(watched.observers, watched.method.direct), options.device) for _ in range(5)
    )
    batch = watched.loader.batch(0)
    with torch.no_grad():
        (views,) = watched.make_views(batch.images, batch.position, watched.clock)
        embeddings = watched.train_step.forward(views, batch)
        loss = watched.method.objective(embeddings)

    def observe(trainer: Trainer) -> float:
        rate = torch.ones((), device=trainer.device)
        return timed(
            lambda: [trainer.observers.observe(embeddings, loss, batch, rate) for _ in range(ALONE)], options.device
        )

    alone = [(observe(watched) - observe(plain)) / ALONE for _ in range(options.rounds)]
    log_points = at_log_point * len(watched.spectrum_points) / watched.total_steps
    return {
        "method": method,
        "step ms": 1e3 * median(times["watched"]),
        "step": median(lost),
        "alone": median(alone) / median(times["watched"]),
        "log points": log_points / median(times["watched"]),
        "step, quartiles of the rounds": quantiles(lost, n=4),
        "embeddings": len(watched.observers.spectra["embeddings"].covariance),
        "features": len(watched.observers.spectra["features"].covariance),
        "steps of the run": watched.total_steps,
    }


def repeated(trainer: Trainer, count: int) -> Callable[[], None]:
    trainer.method.train()
    step = product_step(trainer)

    def several() -> None:
        for _ in range(count):
            step()

    return several


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--data", default=None, help="a named dataset, with its configuration [default: random images]")
    parser.add_argument("--steps", type=int, default=5, help="steps in a round")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1, help="number of threads on a CPU")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--commit", default="", help="the commit to record, if git is not available")
    options = parser.parse_args()
    for name, default in RANDOM_IMAGES.items():
        setattr(options, name, default)
    if options.device == "cpu":
        torch.set_num_threads(options.threads)
    table = Table("method", "step ms", "step", "alone", "log points", "embeddings", "features")
    for method in options.methods.split(","):
        torch._dynamo.reset()
        table.add(measure(method, options))
    settings = {name: value for name, value in vars(options).items() if name not in ("out", "commit")}
    name = "spectrum" if options.data is None else f"spectrum-{options.data}-{options.device}"
    keep(name, table, settings, options.device, options.commit, options.out)


if __name__ == "__main__":
    main()
