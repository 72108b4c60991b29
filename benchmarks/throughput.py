"""Measure views per second of the training step, compared with the bare network and with the pipeline of lightly.

    python -m benchmarks.throughput [--methods frossl,simclr] [--encoder resnet18] [--size 32] [--host] [--lightly]
    python -m benchmarks.throughput --data digits --device cpu --steps 5 --rounds 31

The ceiling is the bare network: forward, backward and SGD on prepared views, with the same batch size and precision, on
CUDA as one graph. It includes the forward passes of a teacher and a linear head if the method has them. The product
step is everything that `twofold pretrain` does in a step. With `--data digits`, it is the step of the demo. The two
take turns, because other programs may use the machine. The results are stored in benchmarks/results.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.results import Table, keep
from twofold.config import RUN_KEYS
from twofold.cuda.bf16_weights import Bf16Weights
from twofold.cuda.step_graph import StepGraph
from twofold.data import store
from twofold.data.load import read_data
from twofold.device import autocast_of, tf32_products
from twofold.display import Display
from twofold.models.encoders import to_memory_format
from twofold.train.sample_rows import NoRows
from twofold.train.trainer import Trainer
from twofold.verbs.pretrain import configure
from twofold_papers.reproduce.runner import forget

METHODS = "frossl,simclr,alpha-cl,vicreg,byol,isoloss,diet"
DEMO_METHOD = RUN_KEYS["method"].default
RANDOM_IMAGES = {"encoder": "resnet18", "size": 32, "batch": 256, "images": 50_000}  # options and their defaults
WARM_UP = 8


def build(method: str, options: argparse.Namespace, **overrides: Any) -> Trainer:
    """Return the trainer that `twofold pretrain` would use, on the named dataset or on random images."""
    data, keys = (options.data, {}) if options.data is not None else random_images(options)
    config, source = configure(data, method, {"device": options.device} | keys | overrides)
    return Trainer(config, read_data(config, source, Display(quiet=True)), Display(quiet=True))


def random_images(options: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """Return random images with labels, and the configuration for them."""
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
    }
    return (images, labels), keys


def product_step(trainer: Trainer) -> Callable[[], None]:
    def step() -> None:
        trainer.take_step(trainer.step)
        trainer.step += 1

    return step


def bare_step(trainer: Trainer) -> Callable[[], None]:
    """Return a step of only forward, backward and SGD of the networks of the trainer, on constant views."""
    method, device = trainer.method, trainer.device
    config, channels = trainer.config, trainer.data.train.images.shape[1]
    shape = (config.views * config.batch_size, channels, config.image_size, config.image_size)
    views = to_memory_format(torch.randn(shape, device=device), trainer.memory_format).unflatten(0, (config.views, -1))
    parameters = [parameter for _, parameter in method.trained_parameters()]
    optimizer = torch.optim.SGD(parameters, lr=torch.tensor(1e-4, device=device), momentum=0.9, fused=True)
    batch, autocast = trainer.loader.batch(0), autocast_of(config.precision, device)
    optimizer_step: Callable[[], None] = optimizer.step
    if isinstance(trainer.run_step, StepGraph):
        from twofold.cuda.fused_optimizer import FusedStep

        copies = trainer.train_step.weight_copies
        optimizer_step = FusedStep(optimizer, copies if isinstance(copies, Bf16Weights) else None)

    def step() -> None:
        optimizer.zero_grad()
        with tf32_products(trainer.train_step.bf16):
            with autocast():
                embeddings = trainer.train_step.weight_copies(views, batch)
            output = embeddings.z if embeddings.prediction is None else embeddings.prediction
            output = output.float()
            if isinstance(method.head, nn.Linear):
                output = method.head(output)
            output.square().mean().backward()
        optimizer_step()

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


def seconds_per_step(steps: Mapping[str, Callable[[], None]], repeats: int, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each step in each round. In a round, the steps take turns."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            synchronize()
            start = time.perf_counter()
            for _ in range(repeats):
                step()
            synchronize()
            times[name].append((time.perf_counter() - start) / repeats)
    return times


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure(method: str, options: argparse.Namespace) -> dict[str, Any]:
    trainer = build(method, options, **options.override)
    views = trainer.config.views * trainer.config.batch_size
    # A per-image classifier initialises its rows in the first epoch.
    warm_up = WARM_UP if isinstance(trainer.rows, NoRows) else max(WARM_UP, trainer.loader.steps_per_epoch)
    if warm_up + options.steps * options.rounds > trainer.total_steps:
        raise SystemExit(f"the run has only {trainer.total_steps} steps; lower --steps or --rounds, or raise epochs")
    trainer.method.train()
    step = product_step(trainer)
    if options.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    for _ in range(WARM_UP):
        step()
    synchronize()
    start_up = time.perf_counter() - start
    while trainer.step < warm_up:
        step()
    memory = torch.cuda.max_memory_allocated() / 2**20 if options.device == "cuda" else None
    refused = trainer.run_step.refused if isinstance(trainer.run_step, StepGraph) else None
    if refused:
        print(f"{method}: the step could not be recorded as a CUDA graph: {refused}")
    if options.profile:
        kernels(step)
    bare = bare_step(trainer)
    bare()
    times = seconds_per_step({"product": step, "bare": bare}, options.steps, options.rounds)
    shares = [bare / ours for bare, ours in zip(times["bare"], times["product"], strict=True)]
    return {
        "method": method,
        "views/s": views / median(times["product"]),
        "ceiling": views / median(times["bare"]),
        "share": median(times["bare"]) / median(times["product"]),
        "share, quartiles of the rounds": quantiles(shares, n=4),
        "start-up s": start_up,
        "MiB": memory,
    }


def kernels(step: Callable[[], None], most: int = 40) -> None:
    """Print the kernels of a step with their times."""
    cuda = torch.cuda.is_available()
    activity = torch.profiler.ProfilerActivity.CUDA if cuda else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity]) as profile:
        for _ in range(5):
            step()
        synchronize()
    times = {row: row.device_time_total if cuda else row.self_cpu_time_total for row in profile.key_averages()}
    print(f"{sum(times.values()) / 5:.0f} µs in {sum(row.count for row in times) / 5:.0f} kernels")
    for row in sorted(times, key=lambda row: -times[row])[:most]:
        print(f"{times[row] / 5:9.1f} µs {row.count / 5:6.1f} ×  {row.key[:100]}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", help=f"methods to measure [default: {METHODS}; with --data: {DEMO_METHOD}]")
    parser.add_argument("--data", default=None, help="a named dataset, with its configuration [default: random images]")
    parser.add_argument("--encoder")
    parser.add_argument("--size", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--images", type=int)
    parser.add_argument("--steps", type=int, default=100, help="steps in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2, help="number of threads on a CPU")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--host", action="store_true", help="keep images in host memory, as if the GPU were too small")
    parser.add_argument("--lightly", action="store_true", help="also measure the pipeline of lightly")
    parser.add_argument("--profile", action="store_true", help="print the kernels of the step")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--commit", default="", help="the commit to record, if git is not available")
    parser.add_argument("override", nargs="*", help="configuration of all methods, as key=value")
    options = parser.parse_args()
    options.methods = options.methods or (METHODS if options.data is None else DEMO_METHOD)
    for name, default in RANDOM_IMAGES.items():
        if options.data is None:
            setattr(options, name, getattr(options, name) or default)
        elif getattr(options, name) is not None:
            parser.error(f"--{name} applies to random images only; leave it out with --data {options.data}")
    if options.lightly and options.data is not None:
        parser.error("--lightly applies to random images only; leave out --data")
    options.override = dict(item.split("=", 1) for item in options.override)
    return options


def main() -> None:
    options = arguments()
    if options.device == "cpu":
        torch.set_num_threads(options.threads)
    if options.host:
        store.DEVICE_SHARE = 0.0
    table = Table("method", "views/s", "ceiling", "share", "start-up s", "MiB")
    for method in options.methods.split(","):
        forget()
        table.add(measure(method, options))
    if options.lightly:
        from benchmarks.lightly_pipeline import measure_lightly

        table.add(measure_lightly(options))
    settings = {name: value for name, value in vars(options).items() if name not in ("out", "commit")}
    name = "throughput" if options.data is None else f"throughput-{options.data}-{options.device}"
    keep(name, table, settings, options.device, options.commit, options.out)


if __name__ == "__main__":
    main()
