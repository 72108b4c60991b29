"""Whether a run compiles its step, and where compiled code is kept. `Trainer` asks before it builds the step."""

import importlib.util
import os

import torch

from twofold.errors import TwofoldError
from twofold.files import cache_folder

LEAST_STEPS = 2000  # compiling takes up to a minute, and saves about 20 ms a step


def worth_compiling(wanted: bool | None, device: torch.device, steps: int) -> bool:
    """What `compile` means here; None leaves it to the device and the length of the run."""
    if wanted is False or (wanted is None and (device.type != "cuda" or steps < LEAST_STEPS)):
        return False
    missing = what_is_missing(device)
    if wanted and missing:
        raise TwofoldError(f"compile=true needs {missing}; leave compile out")
    return missing is None


def what_is_missing(device: torch.device) -> str | None:
    if device.type != "cuda":
        return f"a CUDA device, not {device.type}"
    if importlib.util.find_spec("triton") is None:
        return "Triton, which comes with torch for CUDA on Linux"
    try:
        torch.compile(lambda x: x + 1, dynamic=False)(torch.zeros(8, device=device))
    except Exception as error:  # of many kinds: a C compiler, Python's headers or a driver that is too old
        return f"what torch.compile needs ({str(error).strip().splitlines()[0]})"
    return None


def keep_compiled_code() -> None:
    """Between runs: torch's own place for it is a temporary folder."""
    for variable, name in (("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TRITON_CACHE_DIR", "triton")):
        os.environ.setdefault(variable, str(cache_folder() / "compiled" / name))
