"""Decide whether a run compiles its training step, and where compiled code is stored."""

import importlib.util
import os

import torch

from twofold.errors import TwofoldError
from twofold.files import cache_folder

LEAST_STEPS = 2000  # compiling takes up to a minute and saves about 20 ms per step


def worth_compiling(wanted: bool | None, device: torch.device, steps: int) -> bool:
    """Whether to compile the step. `wanted` is the key `compile`; None decides by device and number of steps."""
    if wanted is False or (wanted is None and (device.type != "cuda" or steps < LEAST_STEPS)):
        return False
    missing = what_is_missing(device)
    if wanted and missing:
        raise TwofoldError(f"compile=true needs {missing}: omit compile")
    return missing is None


def what_is_missing(device: torch.device) -> str | None:
    """What compiling needs and this machine does not have; None if it has everything."""
    if device.type != "cuda":
        return f"a CUDA device, not {device.type}"
    if importlib.util.find_spec("triton") is None:
        return "Triton, which is part of PyTorch for CUDA on Linux"
    try:
        torch.compile(lambda x: x + 1, dynamic=False)(torch.zeros(8, device=device))
    except Exception as error:  # many causes: no C compiler, no Python headers, a driver that is too old
        return f"what torch.compile needs ({str(error).strip().splitlines()[0]})"
    return None


def keep_compiled_code() -> None:
    """Store compiled code in the cache folder, so that later runs find it. PyTorch's default is a temporary folder."""
    for variable, name in (("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TRITON_CACHE_DIR", "triton")):
        os.environ.setdefault(variable, str(cache_folder() / "compiled" / name))
