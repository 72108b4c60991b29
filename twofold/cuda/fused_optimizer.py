"""The optimizer step for all weights, in one to three kernels. CUDA, Triton.

The kernels read the bf16 gradients of weight copies directly and write the copies together with the weights. Separate
kernels for these casts would move half as many bytes again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from twofold.cuda.bf16_weights import Bf16Weights
from twofold.lars import LARS

BLOCK = 4096  # numbers that one program processes
# Columns of a block: addresses of the weight, the gradient, two moments and the bf16 copy; count of numbers; index of
# the weight; whether the gradient is bf16.
COLUMNS = 8
SUMS = 1024  # block sums that are added at once
ALIGNED = 16  # bytes; PyTorch aligns every allocation at least like this
KEPT = 8  # plans that are kept for steps outside a CUDA graph
MOMENTS = {LARS: ("momentum",), SGD: ("momentum_buffer",), Adam: ("exp_avg", "exp_avg_sq")}


@triton.jit
def _entry(blocks, column: tl.constexpr):
    return tl.load(blocks + tl.program_id(0) * 8 + column)


@triton.jit
def _float32_block(blocks, column: tl.constexpr):
    """The address where this program's block of a float32 tensor begins."""
    return tl.multiple_of(_entry(blocks, column).to(tl.pointer_type(tl.float32)), 16)


@triton.jit
def _bf16_block(blocks, column: tl.constexpr):
    # Aligned to 8 bytes only, so that one load reads four numbers as for float32. Otherwise numbers would have to be
    # exchanged between threads.
    return tl.multiple_of(_entry(blocks, column).to(tl.pointer_type(tl.bfloat16)), 8)


@triton.jit
def _read(start, at, count, FULL: tl.constexpr):
    """The numbers from `start` on. A full block needs no mask, so one load reads four numbers."""
    if FULL:
        x = tl.load(start + at)
    else:
        x = tl.load(start + at, at < count, 0.0)
    return x.to(tl.float32)


@triton.jit
def _write(start, at, count, x, FULL: tl.constexpr):
    if FULL:
        tl.store(start + at, x)
    else:
        tl.store(start + at, x, at < count)


@triton.jit
def _slopes(blocks, at, count, FULL: tl.constexpr):
    if _entry(blocks, 7) != 0:
        g = _read(_bf16_block(blocks, 1), at, count, FULL)
    else:
        g = _read(_float32_block(blocks, 1), at, count, FULL)
    return g


@triton.jit
def _set_weights(blocks, at, count, w, FULL: tl.constexpr):
    _write(_float32_block(blocks, 0), at, count, w, FULL)
    if _entry(blocks, 4) != 0:
        _write(_bf16_block(blocks, 4), at, count, w.to(tl.bfloat16), FULL)


@triton.jit
def _squares(blocks, sums, total, BLOCK: tl.constexpr):
    count = _entry(blocks, 5)
    if count == BLOCK:
        _add_squares(blocks, sums, total, count, BLOCK, True)
    else:
        _add_squares(blocks, sums, total, count, BLOCK, False)


@triton.jit
def _add_squares(blocks, sums, total, count, BLOCK: tl.constexpr, FULL: tl.constexpr):
    at = tl.arange(0, BLOCK)
    w = _read(_float32_block(blocks, 0), at, count, FULL)
    g = _slopes(blocks, at, count, FULL)
    tl.store(sums + tl.program_id(0), tl.sum(w * w))
    tl.store(sums + total + tl.program_id(0), tl.sum(g * g))


@triton.jit
def _rate(rates, weight):
    return tl.load(tl.load(rates + weight).to(tl.pointer_type(tl.float32)))


@triton.jit
def _ratios(spans, settings, rates, sums, total, ratios, SUMS: tl.constexpr):
    """LARS: min(η‖w‖ / (‖∇‖ + λ‖w‖) / lr, 1) for each weight."""
    weight = tl.program_id(0)
    first, count = tl.load(spans + 2 * weight), tl.load(spans + 2 * weight + 1)
    weight_decay, eta = tl.load(settings + 2 * weight), tl.load(settings + 2 * weight + 1)
    sizes = tl.zeros([SUMS], tl.float32)
    slopes = tl.zeros([SUMS], tl.float32)
    for begin in range(0, count, SUMS):
        at = begin + tl.arange(0, SUMS)
        sizes += tl.load(sums + first + at, at < count, 0.0)
        slopes += tl.load(sums + total + first + at, at < count, 0.0)
    size, slope = tl.sqrt(tl.sum(sizes)), tl.sqrt(tl.sum(slopes))
    ratio = tl.minimum(eta * size / (slope + weight_decay * size + 1e-12) / _rate(rates, weight), 1.0)
    tl.store(ratios + 2 * weight, tl.where((size > 0) & (slope > 0) & (eta > 0), ratio, 1.0))


@triton.jit
def _move_by_momentum(blocks, settings, rates, ratios, momentum, BLOCK: tl.constexpr):
    count = _entry(blocks, 5)
    if count == BLOCK:
        _by_momentum(blocks, settings, rates, ratios, momentum, count, BLOCK, True)
    else:
        _by_momentum(blocks, settings, rates, ratios, momentum, count, BLOCK, False)


@triton.jit
def _by_momentum(blocks, settings, rates, ratios, momentum, count, BLOCK: tl.constexpr, FULL: tl.constexpr):
    at = tl.arange(0, BLOCK)
    weight = _entry(blocks, 6)
    weight_decay, ratio = tl.load(settings + 2 * weight), tl.load(ratios + 2 * weight)
    w = _read(_float32_block(blocks, 0), at, count, FULL)
    g = _slopes(blocks, at, count, FULL)
    m = momentum * _read(_float32_block(blocks, 2), at, count, FULL) + ratio * (g + weight_decay * w)
    _write(_float32_block(blocks, 2), at, count, m, FULL)
    _set_weights(blocks, at, count, w - _rate(rates, weight) * m, FULL)


@triton.jit
def _count_step(steps, logarithms, rates, ratios):
    """Increase the step count of each weight and compute Adam's bias corrections of the learning rate and of √v."""
    weight = tl.program_id(0)
    counter = tl.load(steps + weight).to(tl.pointer_type(tl.float32))
    count = tl.load(counter) + 1
    tl.store(counter, count)
    first = 1 - tl.exp(count.to(tl.float64) * tl.load(logarithms))
    second = 1 - tl.exp(count.to(tl.float64) * tl.load(logarithms + 1))
    tl.store(ratios + 2 * weight, (_rate(rates, weight) / first).to(tl.float32))
    tl.store(ratios + 2 * weight + 1, tl.sqrt(second).to(tl.float32))


@triton.jit
def _move_by_moments(
    blocks, settings, rates, ratios, beta1, new1, beta2, new2, eps, DECOUPLED: tl.constexpr, BLOCK: tl.constexpr
):
    count = _entry(blocks, 5)
    if count == BLOCK:
        _by_moments(blocks, settings, rates, ratios, beta1, new1, beta2, new2, eps, count, DECOUPLED, BLOCK, True)
    else:
        _by_moments(blocks, settings, rates, ratios, beta1, new1, beta2, new2, eps, count, DECOUPLED, BLOCK, False)


@triton.jit
def _by_moments(
    blocks,
    settings,
    rates,
    ratios,
    beta1,
    new1,
    beta2,
    new2,
    eps,
    count,
    DECOUPLED: tl.constexpr,
    BLOCK: tl.constexpr,
    FULL: tl.constexpr,
):
    at = tl.arange(0, BLOCK)
    weight = _entry(blocks, 6)
    weight_decay = tl.load(settings + 2 * weight)
    rate, unbiased = tl.load(ratios + 2 * weight), tl.load(ratios + 2 * weight + 1)
    w = _read(_float32_block(blocks, 0), at, count, FULL)
    g = _slopes(blocks, at, count, FULL)
    if DECOUPLED:
        w -= _rate(rates, weight) * weight_decay * w
    else:
        g += weight_decay * w
    m = beta1 * _read(_float32_block(blocks, 2), at, count, FULL) + new1 * g
    v = beta2 * _read(_float32_block(blocks, 3), at, count, FULL) + new2 * g * g
    _write(_float32_block(blocks, 2), at, count, m, FULL)
    _write(_float32_block(blocks, 3), at, count, v, FULL)
    _set_weights(blocks, at, count, w - rate * m / (tl.sqrt_rn(v) / unbiased + eps), FULL)


@dataclass(frozen=True)
class WeightState:
    """One weight and everything that its update reads and writes. All tensors have the memory layout of the weight."""

    weight: Tensor
    slope: Tensor  # the gradient of the weight or of its copy
    moments: list[Tensor]
    copy: Tensor | None  # in bfloat16
    count: Tensor | None  # number of steps, if the optimizer needs it
    lr: Tensor
    weight_decay: float
    eta: float  # LARS's η; 0 means the learning rate is not adapted

    def addresses(self) -> tuple[int, ...]:
        first, second = (*(moment.data_ptr() for moment in self.moments), 0)[:2]
        copy = 0 if self.copy is None else self.copy.data_ptr()
        return self.weight.data_ptr(), self.slope.data_ptr(), first, second, copy

    def blocks(self, number: int) -> list[tuple[int, ...]]:
        narrow = int(self.slope.dtype == torch.bfloat16)
        bytes_each = (4, 2 if narrow else 4, 4, 4, 2)
        n = self.weight.numel()
        return [
            (
                *(a and a + each * at for a, each in zip(self.addresses(), bytes_each, strict=True)),
                min(BLOCK, n - at),
                number,
                narrow,
            )
            for at in range(0, n, BLOCK)
        ]


def count_of_blocks(parts: Sequence[WeightState]) -> int:
    return sum(triton.cdiv(part.weight.numel(), BLOCK) for part in parts)


class Plan:
    """Tables on the GPU of where all weights are in memory; each program looks up its block."""

    def __init__(self, parts: Sequence[WeightState]):
        """Allocate the tables, which is not possible while a step is recorded."""
        device, weights = parts[0].weight.device, len(parts)
        blocks = count_of_blocks(parts)
        tables = {
            "blocks": ((blocks, COLUMNS), torch.int64),
            "spans": ((weights, 2), torch.int32),
            "settings": ((weights, 2), torch.float32),
            "steps": ((weights,), torch.int64),
            "rates": ((weights,), torch.int64),
        }
        self._pinned = [torch.empty(shape, dtype=dtype, pin_memory=True) for shape, dtype in tables.values()]
        self._tables = [torch.empty_like(pinned, device=device) for pinned in self._pinned]
        self.blocks, self.spans, self.settings, self.steps, self.rates = self._tables
        self.sums = torch.empty(2, blocks, device=device)
        self.ratios = torch.ones(weights, 2, device=device)

    def fits(self, parts: Sequence[WeightState]) -> bool:
        return (count_of_blocks(parts), len(parts)) == (len(self.blocks), len(self.spans))

    def fill(self, parts: Sequence[WeightState]) -> None:
        """Fill the tables on the current stream. Call this once."""
        blocks: list[tuple[int, ...]] = []
        spans: list[tuple[int, int]] = []
        for number, part in enumerate(parts):
            own = part.blocks(number)
            spans.append((len(blocks), len(own)))
            blocks += own
        settings = [(part.weight_decay, part.eta) for part in parts]
        steps = [0 if part.count is None else part.count.data_ptr() for part in parts]
        rates = [part.lr.data_ptr() for part in parts]
        for pinned, values in zip(self._pinned, (blocks, spans, settings, steps, rates), strict=True):
            pinned.copy_(torch.tensor(values, dtype=pinned.dtype))
        for table, pinned in zip(self._tables, self._pinned, strict=True):
            table.copy_(pinned, non_blocking=True)


class FusedStep:
    """Replaces an optimizer's `step` for float32 weights on one GPU.

    The optimizer itself makes the first step, which creates the moments. It also makes every step in which the kernels
    do not support a weight, its moments or its gradient.
    """

    def __init__(self, optimizer: Optimizer, copies: Bf16Weights | None):
        self.optimizer, self.copies = optimizer, copies
        self.moments = next((names for kind, names in MOMENTS.items() if isinstance(optimizer, kind)), None)
        self._plans: dict[tuple[int, ...], Plan] = {}  # by the addresses of all tensors, which often stay the same
        self._spare: list[Plan] = []  # allocated in advance for a recording
        self._recorded: list[Plan] = []  # read by the replays of a recording
        self._side_stream = torch.cuda.Stream()  # fills a recording's plan once instead of in every replay
        first = optimizer.param_groups[0]
        self._logarithms: Tensor | None = None
        if "betas" in first:
            logarithms = [math.log(beta) if beta else -math.inf for beta in first["betas"]]
            self._logarithms = torch.tensor(logarithms, dtype=torch.float64, device=first["params"][0].device)

    @torch.no_grad()
    def __call__(self) -> None:
        parts = self._parts()
        if parts:
            self._launch(self._plan(parts), len(parts))
        else:
            if self.copies is not None:
                self.copies.collect_gradients()
            self.optimizer.step()
            if self.copies is not None:
                self.copies.refresh(self.copies.trained)
        if self.copies is not None:
            self.copies.moved()

    def _parts(self) -> list[WeightState]:
        """The state of each weight that has a gradient; empty if the kernels do not support all of them."""
        parts: list[WeightState] = []
        for group in self.optimizer.param_groups:
            for weight in group["params"]:
                copy = None if self.copies is None else self.copies.copy_of(weight)
                slope = weight.grad if copy is None or copy.grad is None else copy.grad
                if slope is None:
                    continue
                state = self.optimizer.state[weight]
                moments = [state.get(name) for name in self.moments or ()]
                known = bool(moments) and all(moment is not None for moment in moments)
                if not (known and simple(weight)) or (slope is not weight.grad and weight.grad is not None):
                    return []
                eta = group["eta"] if group.get("adapt") else 0.0
                slope = slope if same_order(slope, weight) else torch.empty_like(weight, dtype=slope.dtype).copy_(slope)
                settings = group["lr"], group["weight_decay"], eta
                parts.append(WeightState(weight, slope, moments, copy, state.get("step"), *settings))
        aligned = all(address % ALIGNED == 0 for part in parts for address in part.addresses())
        return parts if aligned else []

    def _launch(self, plan: Plan, weights: int) -> None:
        first, blocks = self.optimizer.param_groups[0], len(plan.blocks)
        if self._logarithms is not None:
            beta1, beta2 = first["betas"]
            _count_step[(weights,)](plan.steps, self._logarithms, plan.rates, plan.ratios)
            factors = beta1, 1 - beta1, beta2, 1 - beta2, first["eps"]
            decoupled = isinstance(self.optimizer, AdamW)
            _move_by_moments[(blocks,)](
                plan.blocks, plan.settings, plan.rates, plan.ratios, *factors, decoupled, BLOCK, num_warps=8
            )
            return
        if isinstance(self.optimizer, LARS):
            _squares[(blocks,)](plan.blocks, plan.sums, blocks, BLOCK, num_warps=8)
            _ratios[(weights,)](plan.spans, plan.settings, plan.rates, plan.sums, blocks, plan.ratios, SUMS)
        tables = plan.blocks, plan.settings, plan.rates, plan.ratios
        _move_by_momentum[(blocks,)](*tables, first["momentum"], BLOCK, num_warps=8)

    def _plan(self, parts: Sequence[WeightState]) -> Plan:
        if torch.cuda.is_current_stream_capturing():
            if not (self._spare and self._spare[0].fits(parts)):
                raise RuntimeError("the recorded step has gradients for other weights than the first steps")
            plan = self._spare.pop()
            self._recorded.append(plan)
            with torch.cuda.stream(self._side_stream):
                plan.fill(parts)
            return plan
        addresses = tuple(address for part in parts for address in (*part.addresses(), part.lr.data_ptr()))
        if addresses not in self._plans:
            self._spare = self._spare if self._spare and self._spare[0].fits(parts) else [Plan(parts)]
            if len(self._plans) == KEPT:
                self._plans.pop(next(iter(self._plans)))
            self._plans[addresses] = Plan(parts)
            self._plans[addresses].fill(parts)
        return self._plans[addresses]


def simple(weight: Tensor) -> bool:
    """Whether a weight is float32 and contiguous (also as channels-last), as the kernels require."""
    dense = weight.is_contiguous() or (weight.ndim == 4 and weight.is_contiguous(memory_format=torch.channels_last))
    return dense and weight.dtype == torch.float32


def same_order(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors of the same shape store their numbers in the same order."""
    return all(a == b for size, a, b in zip(x.shape, x.stride(), y.stride(), strict=True) if size > 1)
