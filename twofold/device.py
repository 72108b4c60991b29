"""Where a process computes, and how much memory it takes there."""

import os
import sys
from pathlib import Path

import torch

from twofold import dist
from twofold.errors import TwofoldError

DEVICE_SHARE = 0.6  # of the accelerator's free memory; the rest is for the network


def choose_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if dist.count() > 1:
        name = own_device(name)
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)  # streams and Triton's kernels are those of the current device
    except (RuntimeError, AssertionError) as error:
        known = "Expected one of" not in str(error)
        reason = str(error).splitlines()[0] if known else "it is auto, cpu, cuda, cuda:1 or mps"
        raise TwofoldError(f"device={name} cannot be used here: {reason}") from None
    return device


def own_device(name: str) -> str:
    """What a process takes of a machine on which there are others."""
    if name == "mps":
        return "cpu"  # processes can exchange nothing on it
    if name != "cuda":
        return name
    if dist.local_rank() >= torch.cuda.device_count():
        raise TwofoldError(
            f"there are {torch.cuda.device_count()} GPUs here for more processes: give torchrun "
            f"--nproc-per-node {torch.cuda.device_count()}, or set device=cpu"
        )
    torch.cuda.set_device(dist.local_rank())
    return f"cuda:{dist.local_rank()}"


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{device.type}, {threads} thread{'' if threads == 1 else 's'}"


def host_memory() -> float:
    """Bytes that the machine has free without swapping, or half of all where nobody says."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) / 2


def peak_memory(device: torch.device) -> float | None:
    """The most that torch had allocated there at one time, in MiB; None where it does not count."""
    return torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None


def process_memory() -> float | None:
    """The most that this process had of the machine's memory since it began, in MiB; None where nobody counts."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 2**10  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def free_memory(device: torch.device) -> float:
    """Bytes that can still be allocated; without an answer from the device, what fits is not known: 0."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory()
    return 0.0
