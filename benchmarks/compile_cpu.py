"""Measure what `torch.compile` gains on a CPU: the seconds that it takes to start, and the time of a step.

    python -m benchmarks.compile_cpu [--rows conv-32,resnet18-32] [--threads 1]

The step is forward, backward and SGD of the encoder on prepared views, as in `benchmarks.cpu`, with a smaller batch. A
C++ compiler is needed. With one thread, the clock counts the CPU time of the process and of the compilers it starts.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from benchmarks.cpu import ROWS
from benchmarks.results import Table, keep
from twofold.config.resolve import default_encoder_keys
from twofold.device import kept_memory
from twofold.models import build_encoder

BATCH = 32


def cpu_seconds() -> float:
    return sum(os.times()[:4])


def step_of(network: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad()
        network(x).square().mean().backward()
        optimizer.step()

    return step


def measure(name: str, rounds: int, clock: Callable[[], float]) -> dict[str, Any]:
    row = ROWS[name]
    stem = default_encoder_keys(row.size).get("stem", "small")
    network = build_encoder(row.encoder, channels=3, stem=stem, image_size=row.size)
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = torch.randn(BATCH, 3, row.size, row.size).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4, momentum=0.9, fused=True)
    plain, compiled = step_of(network, optimizer, x), step_of(torch.compile(network), optimizer, x)
    plain()
    start = clock()
    compiled()
    first = clock() - start
    times: dict[str, list[float]] = {"plain": [], "compiled": []}
    for _ in range(rounds):
        for key, step in (("plain", plain), ("compiled", compiled)):
            start = clock()
            step()
            times[key].append(clock() - start)
    ratio = median(a / b for a, b in zip(times["plain"], times["compiled"], strict=True))
    seconds = {f"{key}, s": median(values) for key, values in times.items()}
    return {"row": name, "start, s": first - seconds["compiled, s"], **seconds, "times as fast": ratio}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="conv-32,resnet18-32,resnet18-96", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--commit", default="", help="the commit to record, if git is not available")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    table = Table("row", "start, s", "plain, s", "compiled, s", "times as fast")
    with kept_memory():
        for name in options.rows.split(","):
            table.add(measure(name, options.rounds, cpu_seconds if options.threads == 1 else time.perf_counter))
    settings = {"batch": BATCH, "threads": options.threads, "rounds": options.rounds}
    keep("compile-cpu", table, settings, "cpu", options.commit, options.out)


if __name__ == "__main__":
    main()
