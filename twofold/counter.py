"""Randomness as a counter: a draw is a hash of where it is used, never the next value of a stream.

`key(seed, step, position, view, "flip")` names a place; `uniform` and `normal` are the values drawn there. So a draw
does not depend on the number of processes, on what was drawn before, on resuming, or on the device. All of it is
integer tensor arithmetic modulo 2^64 (the finaliser of splitmix64), which CUDA graphs can capture.
"""

import hashlib
import math

import torch
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15
MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
SHIFTS = (30, 27, 31)
MASK = 2**64 - 1


def _signed(value: int) -> int:
    """The int64 that has the bits of `value` modulo 2^64."""
    value &= MASK
    return value - 2**64 if value >= 2**63 else value


def _mix(x: Tensor) -> Tensor:
    for shift, multiplier in zip(SHIFTS, (*MULTIPLIERS, None), strict=True):
        # `>>` on int64 copies the sign bit, the hash wants zeros.
        x = (x >> shift).bitwise_and_(2 ** (64 - shift) - 1).bitwise_xor_(x)
        if multiplier is not None:
            x *= _signed(multiplier)
    return x


def purpose(name: str) -> int:
    """The number that stands for a purpose; the same in every process and version of Python."""
    return _signed(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little"))


def key(*parts: int | str | Tensor, device: torch.device | str | None = None) -> Tensor:
    """Fold the parts into int64 keys; tensors broadcast, so `key(seed, step, position_N, view_V1)` is `[V, N]`."""
    if device is None:
        device = next((part.device for part in parts if isinstance(part, Tensor)), None)
    # Not 0, which the finaliser leaves as it is: leading zeros would then not count.
    return extend(torch.full((), _signed(GOLDEN), dtype=torch.int64, device=device), *parts)


def extend(state: Tensor, *parts: int | str | Tensor) -> Tensor:
    """The keys of places that share their first parts: `extend(key(a, b), c)` is `key(a, b, c)`."""
    for part in parts:
        if isinstance(part, str):
            part = purpose(part)
        if isinstance(part, int):
            state = _mix(state ^ _signed(_signed(part) * GOLDEN))
        else:
            state = _mix(state ^ (part.to(torch.int64) * _signed(GOLDEN)))
    return state


def uniform(keys: Tensor, low: float | Tensor = 0.0, high: float | Tensor = 1.0) -> Tensor:
    """float32 in [low, high), from the 24 highest bits."""
    unit = ((keys >> 40) & 0xFFFFFF).to(torch.float32) * 2.0**-24
    return low + (high - low) * unit


def normal(keys: Tensor) -> Tensor:
    """float32 standard normal (Box–Muller on two 24-bit parts of the key)."""
    radius = ((keys >> 40).bitwise_and_(0xFFFFFF)).to(torch.float32).add_(1.0).mul_(2.0**-24)
    angle = ((keys >> 16).bitwise_and_(0xFFFFFF)).to(torch.float32).mul_(2 * math.pi * 2.0**-24)
    return radius.log_().mul_(-2).sqrt_().mul_(angle.cos_())


def permutation(keys: Tensor) -> Tensor:
    """The order that sorts the keys `[n]`: a random permutation, ties broken by position."""
    return torch.argsort(keys, stable=True)
