"""The device of a process: how it is chosen, its memory, and the numerical precision of computations on it."""

import ctypes
import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from twofold import dist
from twofold.errors import TwofoldError

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # parameters of mallopt, from malloc.h
DEVICE_SHARE = 0.6  # the share of the device's free memory for images; the rest is for the network
ASSUMED_MEMORY = 4e9  # bytes of the host, if the system does not report them


def choose_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if dist.count() > 1:
        name = own_device(name)
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)  # streams and Triton kernels use the current device
    except (RuntimeError, AssertionError) as error:
        known = "Expected one of" not in str(error)
        reason = str(error).splitlines()[0] if known else "choose auto, cpu, cuda, cuda:1 or mps"
        raise TwofoldError(f"device={name} is not available: {reason}") from None
    return device


def own_device(name: str) -> str:
    """Return the device of this process among several processes on a machine."""
    if name == "mps":
        return "cpu"  # torch.distributed does not support mps
    if name != "cuda":
        return name
    if dist.local_rank() >= torch.cuda.device_count():
        raise TwofoldError(
            f"there are more processes than GPUs ({torch.cuda.device_count()}): run torchrun with "
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
    """Return how many bytes are available without swapping, or half of the memory if the system does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return total_memory(torch.device("cpu")) / 2


def total_memory(device: torch.device) -> float:
    """Return the bytes of memory of a device, whether they are free or not.

    If the system does not report its memory, the result is ASSUMED_MEMORY.
    """
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[1])
    if device.type == "mps":
        return float(torch.mps.recommended_max_memory())
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return ASSUMED_MEMORY


def peak_memory(device: torch.device) -> float | None:
    """Return the peak memory that torch allocated on a CUDA device, in MiB; None for other devices."""
    return torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None


def process_memory() -> float | None:
    """Return the peak memory of this process on the host, in MiB; None if the system does not report it."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 2**10  # macOS reports bytes, other systems KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


@contextmanager
def kept_memory(*, when: bool = True) -> Iterator[None]:
    """Keep the memory of freed tensors in the process, instead of returning it to the system and asking for it again.

    By default, glibc requests each tensor of more than 32 MiB from the system, and returns it as soon as it is freed.
    The system then has to clear every page again, which took 13 to 16 % of a training step. Other C libraries, and
    settings of glibc that the user made, stay as they are.
    """
    own_settings = any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)
    libc = ctypes.CDLL(None) if when and sys.platform == "linux" and not own_settings else None
    if libc is None or not hasattr(libc, "mallopt"):
        yield
        return
    try:
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, -1)
        yield
    finally:
        libc.mallopt(M_MMAP_MAX, 65536)  # the default
        libc.mallopt(M_MMAP_THRESHOLD, 32 * 2**20)  # the values that glibc reaches by itself after large tensors
        libc.mallopt(M_TRIM_THRESHOLD, 64 * 2**20)
        libc.malloc_trim(0)


def free_memory(device: torch.device) -> float:
    """Return how many bytes can still be allocated on a GPU, or 0 on a device that does not report it."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory()
    return 0.0


def uses_bf16(precision: str, device: torch.device) -> bool:
    return precision == "bf16" or (precision == "auto" and device.type == "cuda")


def computes_bf16(device: torch.device) -> bool:
    """Whether a CPU computes bfloat16 matrix products by instructions of its own; others emulate them slowly."""
    if device.type != "cpu" or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return True
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # not in every version of torch
    return any(getattr(torch.cpu, name, lambda: False)() for name in names)


def evaluation_precision(precision: str, device: torch.device) -> str:
    """Return the precision in which the encoder of a run is evaluated: that of the run, or float32 if this is faster.

    A CPU without instructions for bfloat16 computes in float32 faster.
    """
    return "float32" if device.type == "cpu" and precision == "bf16" and not computes_bf16(device) else precision


def autocast_of(precision: str, device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    bf16 = uses_bf16(precision, device)
    # Without bf16, autocast is disabled explicitly, because the caller may have enabled it.
    return lambda: torch.autocast(device.type, dtype=torch.bfloat16 if bf16 else None, enabled=bf16)


@contextmanager
def own_modes() -> Iterator[None]:
    """Disable the caller's autocast and inference mode, in which training does not work correctly."""
    with ExitStack() as modes:
        modes.enter_context(torch.inference_mode(False))
        for kind in ("cpu", "cuda", "mps"):
            if torch.is_autocast_enabled(kind):
                modes.enter_context(torch.autocast(kind, enabled=False))
        yield


@contextmanager
def tf32_products(allowed: bool) -> Iterator[None]:
    """Allow TF32 for float32 matrix products on CUDA: factors have 11 significant bits, 3 more than bfloat16."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = before or allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def one_thread(*, when: bool = True) -> Iterator[None]:
    """Compute with one CPU thread: for small tensors, several threads mostly wait for each other."""
    threads = torch.get_num_threads()
    if when:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
