"""Functions that measure time and peak memory of a step, and describe the machine.

A step is a function from embeddings z[V, N, D] to a loss. Its backward pass is part of the measurement.
"""

import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import torch
from torch import Tensor

MIB = 2**20
FEWEST, MOST = 5, 100  # limits of the number of repetitions

Step = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Measured:
    """Time and memory of a step: medians over `repeats` runs."""

    forward_ms: float
    total_ms: float
    lower_ms: float  # lower and upper quartile of the total time
    upper_ms: float
    repeats: int
    peak_mib: float


def is_slower(ours: Measured, theirs: Measured) -> bool:
    """Return whether ours is slower by more than the spread: its lower quartile is above their upper quartile."""
    return ours.lower_ms > theirs.upper_ms


def gradient(step: Step, z: Tensor) -> tuple[Tensor, Tensor]:
    loss = step(z)
    return loss.detach(), torch.autograd.grad(loss, z)[0]


def timed(step: Step, z: Tensor) -> tuple[float, float]:
    """Return the milliseconds of the forward pass, and of forward and backward pass together."""
    if z.device.type == "cuda":
        start, between, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        torch.cuda.synchronize()
        start.record()
        loss = step(z)
        between.record()
        torch.autograd.grad(loss, z)
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(between), start.elapsed_time(end)
    begun = time.perf_counter()
    loss = step(z)
    forward = time.perf_counter()
    torch.autograd.grad(loss, z)
    return (forward - begun) * 1e3, (time.perf_counter() - begun) * 1e3


def peak_mib(step: Step, z: Tensor) -> float:
    if z.device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        gradient(step, z)
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / MIB
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # silences two lines that the profiler writes at each use
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        gradient(step, z)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(trace))
        events = [event for event in json.loads(trace.read_text())["traceEvents"] if event.get("name") == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event["ts"]):
        held += event["args"]["Bytes"]
        peak = max(peak, held)
    return peak / MIB


def out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def measure(steps: dict[str, Callable[[], Step]], z: Tensor, seconds: float) -> dict[str, Measured | str]:
    """Measure each step, or return "out of memory" for it.

    The steps take turns, for about `seconds` each, so that other load on the machine affects all of them alike.
    """
    results: dict[str, Measured | str] = {}
    ready: dict[str, tuple[Step, float]] = {}
    for name, make in steps.items():
        try:
            step = make()
            timed(step, z)
            ready[name] = step, peak_mib(step, z)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            results[name] = "out of memory"
            torch.cuda.empty_cache()
    samples: dict[str, list[tuple[float, float]]] = {name: [timed(step, z)] for name, (step, _) in ready.items()}
    slowest = max((sample[0][1] for sample in samples.values()), default=0)
    for _ in range(min(max(int(1e3 * seconds / max(slowest, 1e-3)), FEWEST), MOST)):
        for name, (step, _) in ready.items():
            samples[name].append(timed(step, z))
    for name, (_, peak) in ready.items():
        forward, both = zip(*samples[name][1:], strict=True)
        lower, _, upper = quantiles(both, n=4)
        results[name] = Measured(median(forward), median(both), lower, upper, len(both), peak)
    return results


def machine(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"CPU, {torch.get_num_threads()} threads, {platform.processor() or platform.machine()}"


def head_commit() -> str:
    """Return the short hash of HEAD, or "" without a repository or git."""
    try:
        found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return found.stdout.strip()
