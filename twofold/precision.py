"""Numerical precision: the meaning of the key `precision` on each device."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch


def uses_bf16(precision: str, device: torch.device) -> bool:
    return precision == "bf16" or (precision == "auto" and device.type == "cuda")


def computes_bf16(device: torch.device) -> bool:
    """Whether a CPU supports bfloat16 matrix products in oneDNN, which says nothing about their speed."""
    return device.type == "cpu" and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


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
