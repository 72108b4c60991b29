"""BatchNorm, addition and ReLU with as few passes over memory as possible. CUDA, Triton.

The forward pass reads x for its statistics, then reads x again and writes y. The backward pass reads the gradient and x
for two sums, then reads both again and writes the gradient of x. All arithmetic is in float32; tensors keep their
dtype.

Shapes: V views, R rows (samples times pixels) of each, C channels, P partial sums. Tensors are [V·R, C], channels-last.
"""

from typing import Any, Protocol

import torch
import triton
import triton.language as tl
from torch import Tensor


class Norm(Protocol):
    """The attributes of a BatchNorm layer that the kernels use."""

    relu: bool
    eps: float
    momentum: float | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    @property
    def views(self) -> int: ...


PROGRAMS = 264  # two for each multiprocessor of a large GPU; with prefetched loads they keep its memory busy
AHEAD = 3  # tiles that are loaded before they are used
CHANNELS = 64  # channels of a tile
SUM_ROWS, ROWS = 64, 256  # rows of a tile in kernels that sum over rows, and in the others
PARTS, FEW = 32, 8  # rows and channels of a tile of partial sums


@triton.jit
def _tile(start, end, C, ROWS: tl.constexpr, CHANNELS: tl.constexpr, base):
    """Memory offsets of the rows from `start` and of this program's channels, and a mask of those that exist."""
    row = start + tl.arange(0, ROWS)
    channel = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    at = (base + row).to(tl.int64)[:, None] * C + channel[None, :]
    return at, (row < end)[:, None] & (channel < C)[None, :]


@triton.jit(do_not_specialize=["P", "span"])
def _sums(x, partial, R, C, P, span, AHEAD: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr):
    """Σ(x − k) and Σ(x − k)², where k is one value of each channel. This avoids cancellation in the variance."""
    view, part = tl.program_id(0), tl.program_id(1)
    channel = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    k = tl.load(x + view.to(tl.int64) * R * C + channel, channel < C, 0.0).to(tl.float32)
    first = tl.zeros((ROWS, CHANNELS), tl.float32)
    second = tl.zeros((ROWS, CHANNELS), tl.float32)
    end = tl.minimum((part + 1) * span, R)
    for start in tl.range(part * span, end, ROWS, num_stages=AHEAD):
        at, exists = _tile(start, end, C, ROWS, CHANNELS, view * R)
        d = tl.where(exists, tl.load(x + at, exists, 0.0).to(tl.float32) - k[None, :], 0.0)
        first += d
        second += d * d
    to = (view * P + part) * C + channel
    plane = tl.num_programs(0) * P * C
    tl.store(partial + to, tl.sum(first, 0), channel < C)
    tl.store(partial + plane + to, tl.sum(second, 0), channel < C)


@triton.jit
def _total(partial, plane, P, C, channel, view, PARTS: tl.constexpr, CHANNELS: tl.constexpr):
    """The sum of the partial sums of one view."""
    total = tl.zeros((PARTS, CHANNELS), tl.float32)
    for start in range(0, P, PARTS):
        part = start + tl.arange(0, PARTS)
        at = (view * P + part)[:, None] * C + channel[None, :]
        total += tl.load(partial + plane + at, (part < P)[:, None] & (channel < C)[None, :], 0.0)
    return tl.sum(total, 0)


@triton.jit(do_not_specialize=["P"])
def _statistics(
    x, partial, mean, rstd, running_mean, running_var, tracked, R, C, P, momentum, eps,
    V: tl.constexpr, PARTS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Mean and 1/σ of each view. The running statistics are updated once for each view."""
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    inside = channel < C
    moving_mean = tl.load(running_mean + channel, inside, 0.0)
    moving_var = tl.load(running_var + channel, inside, 1.0)
    for view in tl.static_range(V):
        k = tl.load(x + tl.cast(view, tl.int64) * R * C + channel, inside, 0.0).to(tl.float32)
        first = _total(partial, 0, P, C, channel, view, PARTS, CHANNELS) / R
        second = _total(partial, V * P * C, P, C, channel, view, PARTS, CHANNELS) / R
        var = tl.maximum(second - first * first, 0.0)
        tl.store(mean + view * C + channel, k + first, inside)
        tl.store(rstd + view * C + channel, tl.rsqrt(var + eps), inside)
        moving_mean += momentum * (k + first - moving_mean)
        moving_var += momentum * (var * (R / (R - 1.0)) - moving_var)
    tl.store(running_mean + channel, moving_mean, inside)
    tl.store(running_var + channel, moving_var, inside)
    if tl.program_id(0) == 0:
        tl.store(tracked, tl.load(tracked) + V)


@triton.jit
def _coefficients(mean, rstd, weight, bias, C, AFFINE: tl.constexpr, CHANNELS: tl.constexpr):
    """Mean, scale and shift for this program's view and channels, with norm(x) = scale·x + shift."""
    channel = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    inside = channel < C
    m = tl.load(mean + tl.program_id(0) * C + channel, inside, 0.0)
    scale = tl.load(rstd + tl.program_id(0) * C + channel, inside, 0.0)
    shift = tl.zeros((CHANNELS,), tl.float32)
    if AFFINE:
        scale *= tl.load(weight + channel, inside, 0.0)
        shift += tl.load(bias + channel, inside, 0.0)
    return m, scale, shift - m * scale


@triton.jit
def _apply(
    x, residual, y, mean, rstd, weight, bias, R, C,
    AFFINE: tl.constexpr, ADD: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    _, scale, shift = _coefficients(mean, rstd, weight, bias, C, AFFINE, CHANNELS)
    at, exists = _tile(tl.program_id(1) * ROWS, R, C, ROWS, CHANNELS, tl.program_id(0) * R)
    out = tl.load(x + at, exists, 0.0).to(tl.float32) * scale[None, :] + shift[None, :]
    if ADD:
        out += tl.load(residual + at, exists, 0.0).to(tl.float32)
    if RELU:
        out = tl.maximum(out, 0.0)
    tl.store(y + at, out.to(y.dtype.element_ty), exists)


@triton.jit(do_not_specialize=["P", "span"])
def _gradient_sums(
    dy, more, x, y, masked, partial, mean, rstd, weight, bias, R, C, P, span,
    AFFINE: tl.constexpr, ADD: tl.constexpr, MORE: tl.constexpr, RELU: tl.constexpr, WRITE: tl.constexpr,
    AHEAD: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Σg and Σg(x − mean), where g is the gradient with respect to the input of the ReLU.

    g is written to memory if it is needed again: as the gradient of the residual, or if it is the sum of two gradients.
    """
    view, part = tl.program_id(0), tl.program_id(1)
    m, scale, shift = _coefficients(mean, rstd, weight, bias, C, AFFINE, CHANNELS)
    first = tl.zeros((ROWS, CHANNELS), tl.float32)
    second = tl.zeros((ROWS, CHANNELS), tl.float32)
    end = tl.minimum((part + 1) * span, R)
    for start in tl.range(part * span, end, ROWS, num_stages=AHEAD):
        at, exists = _tile(start, end, C, ROWS, CHANNELS, view * R)
        g = tl.load(dy + at, exists, 0.0).to(tl.float32)
        if MORE:
            g += tl.load(more + at, exists, 0.0).to(tl.float32)
        value = tl.load(x + at, exists, 0.0).to(tl.float32)
        if RELU:
            if ADD:
                on = tl.load(y + at, exists, 0.0) > 0
            else:
                on = value * scale[None, :] + shift[None, :] > 0
            g = tl.where(on, g, 0.0)
        if WRITE:
            tl.store(masked + at, g.to(masked.dtype.element_ty), exists)
        first += g
        second += tl.where(exists, g * (value - m[None, :]), 0.0)
    channel = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    to = (view * P + part) * C + channel
    plane = tl.num_programs(0) * P * C
    tl.store(partial + to, tl.sum(first, 0), channel < C)
    tl.store(partial + plane + to, tl.sum(second, 0), channel < C)


@triton.jit(do_not_specialize=["P"])
def _gradient_statistics(
    partial, rstd, dmean, dvar, dweight, dbias, R, C, P,
    V: tl.constexpr, AFFINE: tl.constexpr, PARTS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    channel = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    inside = channel < C
    along_weight = tl.zeros((CHANNELS,), tl.float32)
    along_bias = tl.zeros((CHANNELS,), tl.float32)
    for view in tl.static_range(V):
        first = _total(partial, 0, P, C, channel, view, PARTS, CHANNELS)
        second = _total(partial, V * P * C, P, C, channel, view, PARTS, CHANNELS)
        r = tl.load(rstd + view * C + channel, inside, 0.0)
        tl.store(dmean + view * C + channel, first / R, inside)
        tl.store(dvar + view * C + channel, second * r * r / R, inside)
        along_weight += second * r
        along_bias += first
    if AFFINE:
        tl.store(dweight + channel, along_weight, inside)
        tl.store(dbias + channel, along_bias, inside)


@triton.jit
def _gradient(
    g, x, dx, mean, rstd, weight, bias, dmean, dvar, R, C,
    AFFINE: tl.constexpr, MASK: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """dx = scale · (g − mean of g − (x − mean) · mean of g(x − mean)/σ²)."""
    m, scale, shift = _coefficients(mean, rstd, weight, bias, C, AFFINE, CHANNELS)
    channel = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    of_view = tl.program_id(0) * C + channel
    first = tl.load(dmean + of_view, channel < C, 0.0)
    second = tl.load(dvar + of_view, channel < C, 0.0)
    at, exists = _tile(tl.program_id(1) * ROWS, R, C, ROWS, CHANNELS, tl.program_id(0) * R)
    slope = tl.load(g + at, exists, 0.0).to(tl.float32)
    value = tl.load(x + at, exists, 0.0).to(tl.float32)
    if MASK:
        slope = tl.where(value * scale[None, :] + shift[None, :] > 0, slope, 0.0)
    out = scale[None, :] * (slope - first[None, :] - (value - m[None, :]) * second[None, :])
    tl.store(dx + at, out.to(dx.dtype.element_ty), exists)


class Grid:
    """How the work on a tensor [V·R, C] is divided among programs."""

    def __init__(self, x: Tensor, views: int):
        self.V, self.C = views, x.shape[1]
        self.R = x.numel() // self.C // views
        blocks = triton.cdiv(self.C, CHANNELS)
        tiles = triton.cdiv(self.R, SUM_ROWS)
        each = triton.cdiv(tiles, max(1, min(tiles, PROGRAMS // (views * blocks))))
        self.span, self.P = each * SUM_ROWS, triton.cdiv(tiles, each)
        self.sums = (views, self.P, blocks)
        self.tiles = (views, triton.cdiv(self.R, ROWS), blocks)
        self.channels = (triton.cdiv(self.C, FEW),)

    def partial(self, like: Tensor) -> Tensor:
        return torch.empty(2, self.V, self.P, self.C, dtype=torch.float32, device=like.device)

    def of_views(self, like: Tensor) -> Tensor:
        return torch.empty(self.V, self.C, dtype=torch.float32, device=like.device)


def channels_last(x: Tensor | None) -> Tensor | None:
    if x is None:
        return None
    return x.contiguous(memory_format=torch.channels_last if x.ndim == 4 else torch.contiguous_format)


class FusedNorm(torch.autograd.Function):
    """y twice, for two uses. The kernel that reads the two gradients adds them."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, residual: Tensor | None, norm: Norm
    ) -> tuple[Tensor, Tensor]:
        x, residual = channels_last(x), channels_last(residual)  # type: ignore[assignment]
        grid, affine, add, relu = Grid(x, norm.views), weight is not None, residual is not None, norm.relu
        R, C, P = grid.R, grid.C, grid.P
        partial, mean, rstd, y = grid.partial(x), grid.of_views(x), grid.of_views(x), torch.empty_like(x)
        _sums[grid.sums](x, partial, R, C, P, grid.span, AHEAD, SUM_ROWS, CHANNELS, num_warps=4)
        _statistics[grid.channels](
            x, partial, mean, rstd, norm.running_mean, norm.running_var, norm.num_batches_tracked, R, C, P,
            norm.momentum, norm.eps, grid.V, PARTS, FEW, num_warps=8,
        )  # fmt: skip
        _apply[grid.tiles](
            x, residual, y, mean, rstd, weight, bias, R, C, affine, add, relu, ROWS, CHANNELS, num_warps=4
        )
        # The backward pass computes the mask of the ReLU from x; with a residual from y, which the next layer also
        # keeps.
        ctx.save_for_backward(x, y if add and relu else None, mean, rstd, weight, bias)
        ctx.grid, ctx.add, ctx.relu = grid, add, relu
        ctx.set_materialize_grads(False)
        return y, y.view_as(y)

    @staticmethod
    def backward(ctx: Any, dy: Tensor | None, more: Tensor | None) -> tuple[Tensor | None, ...]:
        x, y, mean, rstd, weight, bias = ctx.saved_tensors
        grid, affine, add, relu = ctx.grid, weight is not None, ctx.add, ctx.relu
        R, C, P = grid.R, grid.C, grid.P
        dy, more = channels_last(dy), channels_last(more)
        if dy is None:
            dy, more = more, None
        assert dy is not None
        written = (add and relu) or more is not None
        masked = torch.empty_like(x) if written else None
        partial, dmean, dvar, dx = grid.partial(x), grid.of_views(x), grid.of_views(x), torch.empty_like(x)
        dweight, dbias = (torch.empty_like(weight), torch.empty_like(bias)) if affine else (None, None)
        _gradient_sums[grid.sums](
            dy, more, x, y, masked, partial, mean, rstd, weight, bias, R, C, P, grid.span,
            affine, add, more is not None, relu, written, AHEAD, SUM_ROWS, CHANNELS, num_warps=4,
        )  # fmt: skip
        _gradient_statistics[grid.channels](
            partial, rstd, dmean, dvar, dweight, dbias, R, C, P, grid.V, affine, PARTS, FEW, num_warps=8
        )
        g = dy if masked is None else masked
        _gradient[grid.tiles](
            g, x, dx, mean, rstd, weight, bias, dmean, dvar, R, C, affine, relu and masked is None, ROWS, CHANNELS,
            num_warps=4,
        )  # fmt: skip
        return dx, dweight, dbias, g if add else None, None
