"""Counter-based random numbers: each number is a hash of where it is used, not the next value of a stream.

`key(seed, step, position, view, "flip")` identifies the use, and `uniform` and `normal` turn keys into numbers. So a
random number does not depend on the number of processes, on earlier draws, on resuming, or on the device. The hash is
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
    """Return the int64 with the bits of `value` modulo 2^64."""
    value &= MASK
    return value - 2**64 if value >= 2**63 else value


def _mix(x: Tensor) -> Tensor:
    for shift, multiplier in zip(SHIFTS, (*MULTIPLIERS, None), strict=True):
        # `>>` on int64 copies the sign bit, but the hash needs zeros.
        x = (x >> shift).bitwise_and_(2 ** (64 - shift) - 1).bitwise_xor_(x)
        if multiplier is not None:
            x *= _signed(multiplier)
    return x


def purpose(name: str) -> int:
    """Return the number of a purpose. It is the same in every process and version of Python."""
    return _signed(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little"))


def key(*parts: int | str | Tensor, device: torch.device | str | None = None) -> Tensor:
    """Hash the parts into int64 keys. Tensors broadcast: `key(seed, step, position_N, view_V1)` has shape `[V, N]`."""
    if device is None:
        device = next((part.device for part in parts if isinstance(part, Tensor)), None)
    # The start is not 0, because the finaliser maps 0 to 0 and leading zeros would have no effect.
    return extend(torch.full((), _signed(GOLDEN), dtype=torch.int64, device=device), *parts)


def extend(state: Tensor, *parts: int | str | Tensor) -> Tensor:
    """Add parts to keys: `extend(key(a, b), c)` equals `key(a, b, c)`."""
    for part in parts:
        if isinstance(part, str):
            part = purpose(part)
        if isinstance(part, int):
            state = _mix(state ^ _signed(_signed(part) * GOLDEN))
        else:
            state = _mix(state ^ (part.to(torch.int64) * _signed(GOLDEN)))
    return state


def uniform(keys: Tensor, low: float | Tensor = 0.0, high: float | Tensor = 1.0) -> Tensor:
    """Return uniform float32 in [low, high), from the 24 highest bits of the keys."""
    unit = ((keys >> 40) & 0xFFFFFF).to(torch.float32) * 2.0**-24
    return low + (high - low) * unit


def normal(keys: Tensor) -> Tensor:
    """Return standard normal float32 (Box–Muller transform of two 24-bit parts of each key)."""
    radius = ((keys >> 40).bitwise_and_(0xFFFFFF)).to(torch.float32).add_(1.0).mul_(2.0**-24)
    angle = ((keys >> 16).bitwise_and_(0xFFFFFF)).to(torch.float32).mul_(2 * math.pi * 2.0**-24)
    return radius.log_().mul_(-2).sqrt_().mul_(angle.cos_())


def permutation(keys: Tensor) -> Tensor:
    """Return the order that sorts the keys `[n]`, which is a random permutation. Ties are broken by position."""
    return torch.argsort(keys, stable=True)
