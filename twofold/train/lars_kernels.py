"""The step of LARS for one weight in one pass over memory. For CUDA, through Triton."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit
def _move(
    weight, slope, buffer, weight_norm, slope_norm, lr, momentum, weight_decay, eta, n, BLOCK: tl.constexpr
):  # fmt: skip
    size, steepness, rate = tl.load(weight_norm), tl.load(slope_norm), tl.load(lr)
    ratio = tl.minimum(eta * size / (steepness + weight_decay * size + 1e-12) / rate, 1.0)
    ratio = tl.where((size > 0) & (steepness > 0), ratio, 1.0)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    w = tl.load(weight + at, at < n)
    g = tl.load(slope + at, at < n)
    m = momentum * tl.load(buffer + at, at < n) + ratio * (g + weight_decay * w)
    tl.store(buffer + at, m, at < n)
    tl.store(weight + at, w - rate * m, at < n)


def lars_step(
    weights: list[Tensor],
    slopes: list[Tensor],
    buffers: list[Tensor],
    lr: Tensor,
    momentum: float,
    weight_decay: float,
    eta: float,
) -> None:
    """As `optim.lars_step` with an `eta`; weights, gradients and momenta lie alike in memory."""
    sizes, steepness = torch._foreach_norm(weights), torch._foreach_norm(slopes)
    for w, g, m, size, slope in zip(weights, slopes, buffers, sizes, steepness, strict=True):
        if g.stride() != w.stride():
            g = torch.empty_like(w).copy_(g)
        grid = (triton.cdiv(w.numel(), BLOCK),)
        _move[grid](w, g, m, size, slope, lr, momentum, weight_decay, eta, w.numel(), BLOCK, num_warps=4)
