"""Views per second of the whole training step, beside the bare network and beside lightly's pipeline.

    python -m benchmarks.throughput [--methods frossl,simclr] [--encoder resnet18] [--size 32] [--host] [--lightly]

The ceiling is the same network, with the same batch and precision, doing nothing but forward, backward and SGD on
views that lie ready, as one CUDA graph; a teacher's forward passes are part of it where the method has one. The product
step is all that `twofold pretrain` does in a step. All are measured in one run, and kept under benchmarks/results.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.results import Table, keep
from twofold.api import configure, read_data
from twofold.data import store
from twofold.train.progress import Display
from twofold.train.trainer import Trainer

METHODS = "frossl,simclr,alpha-cl,vicreg,byol,isoloss,diet"
WARM_UP = 8


def build(method: str, options: argparse.Namespace, **overrides: Any) -> Trainer:
    """The trainer that `twofold pretrain` would use, on random images."""
    rng = np.random.default_rng(0)
    shape = (options.images, options.size, options.size, 3)
    images = rng.integers(0, 256, shape, dtype=np.uint8)
    labels = rng.integers(0, 10, options.images)
    keys = {
        "image_size": options.size,
        "encoder": options.encoder,
        "batch_size": options.batch,
        "epochs": 100,
        "test_fraction": 0.0,
        "compile": options.device == "cuda",
        "device": options.device,
    }
    config, source = configure((images, labels), method, keys | overrides)
    return Trainer(config, read_data(config, source, Display(quiet=True)), Display(quiet=True))


def product_step(trainer: Trainer) -> Callable[[], None]:
    def step() -> None:
        torch.manual_seed(trainer.step)
        trainer.take_step(trainer.step)
        trainer.step += 1

    return step


def bare_step(trainer: Trainer) -> Callable[[], None]:
    """Forward, backward and SGD of the trainer's networks, on views that do not change."""
    method, device = trainer.method, trainer.device
    shape = (trainer.config.views * trainer.config.batch_size, 3, trainer.config.image_size, trainer.config.image_size)
    views = torch.randn(shape, device=device)
    if device.type == "cuda":
        views = views.contiguous(memory_format=torch.channels_last)
    views = views.unflatten(0, (trainer.config.views, -1))
    parameters = [parameter for _, parameter in method.trained_parameters()]
    fused = {"fused": True} if device.type == "cuda" else {"foreach": False}
    optimizer = torch.optim.SGD(parameters, lr=torch.tensor(1e-4, device=device), momentum=0.9, **fused)
    batch = trainer.loader.batch(0)

    def step() -> None:
        with trainer.autocast():
            embeddings = (trainer.narrow or method)(views, batch)
        output = embeddings.z if embeddings.prediction is None else embeddings.prediction
        optimizer.zero_grad()
        output.float().square().mean().backward()
        if trainer.narrow is not None:
            trainer.narrow.collect_gradients()
        optimizer.step()

    return step if device.type != "cuda" else graphed(step)


def graphed(step: Callable[[], None]) -> Callable[[], None]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def seconds_per_step(step: Callable[[], None], steps: int, rounds: int = 3) -> float:
    """The median of some rounds, each timed as a whole."""
    times = []
    for _ in range(rounds):
        synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            step()
        synchronize()
        times.append((time.perf_counter() - start) / steps)
    return sorted(times)[rounds // 2]


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure(method: str, options: argparse.Namespace) -> dict[str, Any]:
    trainer = build(method, options, **options.override)
    views = trainer.config.views * trainer.config.batch_size
    trainer.method.train()
    step = product_step(trainer)
    if options.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    for _ in range(WARM_UP):
        step()
    synchronize()
    start_up = time.perf_counter() - start
    ours = seconds_per_step(step, options.steps)
    memory = torch.cuda.max_memory_allocated() / 2**20 if options.device == "cuda" else None
    refused = trainer.replay and trainer.replay.refused
    if refused:
        print(f"{method}: the step could not be recorded: {refused}")
    if options.profile:
        kernels(step)
    bare = seconds_per_step(bare_step(trainer), options.steps)
    again = seconds_per_step(step, options.steps)
    return {
        "method": method,
        "views/s": views / min(ours, again),
        "ceiling": views / bare,
        "share": bare / min(ours, again),
        "start-up s": start_up,
        "MiB": memory,
    }


def kernels(step: Callable[[], None], most: int = 40) -> None:
    """Print where a step's time goes."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(5):
            step()
        synchronize()
    rows = sorted(profile.key_averages(), key=lambda row: -row.device_time_total)
    print(
        f"{sum(row.device_time_total for row in rows) / 5:.0f} µs in {sum(row.count for row in rows) / 5:.0f} kernels"
    )
    for row in rows[:most]:
        print(f"{row.device_time_total / 5:9.1f} µs {row.count / 5:6.1f} ×  {row.key[:100]}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--encoder", default="resnet18")
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--host", action="store_true", help="keep the images in host memory, as if they did not fit")
    parser.add_argument("--lightly", action="store_true", help="also lightly's pipeline")
    parser.add_argument("--profile", action="store_true", help="print the kernels of the step")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--commit", default="", help="where git cannot be asked")
    parser.add_argument("override", nargs="*", help="key=value for every method")
    options = parser.parse_args()
    options.override = dict(item.split("=", 1) for item in options.override)
    return options


def main() -> None:
    options = arguments()
    if options.host:
        store.DEVICE_SHARE = 0.0
    table = Table("method", "views/s", "ceiling", "share", "start-up s", "MiB")
    for method in options.methods.split(","):
        torch._dynamo.reset()
        table.add(measure(method, options))
    if options.lightly:
        from benchmarks.lightly_pipeline import measure_lightly

        table.add(measure_lightly(options))
    settings = {name: value for name, value in vars(options).items() if name not in ("out", "commit")}
    keep("throughput", table, settings, options.device, options.commit, options.out)


if __name__ == "__main__":
    main()
