"""How many digits: what `precision` means on a device."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch


def uses_bf16(precision: str, device: torch.device) -> bool:
    return precision == "bf16" or (precision == "auto" and device.type == "cuda")


def computes_bf16(device: torch.device) -> bool:
    """Whether a CPU's library has products in bfloat16, not whether they are faster; others use them anyway."""
    return device.type == "cpu" and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def autocast_of(precision: str, device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    bf16 = uses_bf16(precision, device)
    # Off, where it is not wanted: the caller's may be on.
    return lambda: torch.autocast(device.type, dtype=torch.bfloat16 if bf16 else None, enabled=bf16)


@contextmanager
def own_modes() -> Iterator[None]:
    """Leave the caller's autocast and inference mode, in which nothing can be trained as it should."""
    with ExitStack() as modes:
        modes.enter_context(torch.inference_mode(False))
        for kind in ("cpu", "cuda", "mps"):
            if torch.is_autocast_enabled(kind):
                modes.enter_context(torch.autocast(kind, enabled=False))
        yield


@contextmanager
def tf32_products(allowed: bool) -> Iterator[None]:
    """float32 matrix products on CUDA with 11 bits of each factor: three more than embeddings in bfloat16 have."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = before or allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
