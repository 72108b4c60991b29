"""The step of LARS for all weights at once, in three kernels. For CUDA, through Triton."""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from twofold.train.optim import Weights, lars_step

BLOCK = 4096  # numbers that one program works on
SUMS = 1024  # of blocks that are added at once
ALIGNED = 16  # bytes: whatever torch has allocated is
KEPT = 8  # plans of steps that are not recorded


@triton.jit
def _block(blocks, column: tl.constexpr):
    """Where the program's part of a weight, of its gradient or of its momentum begins."""
    address = tl.load(blocks + tl.program_id(0) * 5 + column)
    return tl.multiple_of(address, 16).to(tl.pointer_type(tl.float32))


@triton.jit
def _squares(blocks, sums, total, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < tl.load(blocks + tl.program_id(0) * 5 + 3)
    w = tl.load(_block(blocks, 0) + at, inside, 0.0)
    g = tl.load(_block(blocks, 1) + at, inside, 0.0)
    tl.store(sums + tl.program_id(0), tl.sum(w * w))
    tl.store(sums + total + tl.program_id(0), tl.sum(g * g))


@triton.jit
def _ratios(spans, settings, sums, total, lr, ratios, SUMS: tl.constexpr):
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
    ratio = tl.minimum(eta * size / (slope + weight_decay * size + 1e-12) / tl.load(lr), 1.0)
    tl.store(ratios + weight, tl.where((size > 0) & (slope > 0) & (eta > 0), ratio, 1.0))


@triton.jit
def _move(blocks, settings, ratios, lr, momentum, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < tl.load(blocks + tl.program_id(0) * 5 + 3)
    weight = tl.load(blocks + tl.program_id(0) * 5 + 4)
    weight_decay, ratio, rate = tl.load(settings + 2 * weight), tl.load(ratios + weight), tl.load(lr)
    weights, slopes, buffers = _block(blocks, 0), _block(blocks, 1), _block(blocks, 2)
    w = tl.load(weights + at, inside)
    m = momentum * tl.load(buffers + at, inside) + ratio * (tl.load(slopes + at, inside) + weight_decay * w)
    tl.store(buffers + at, m, inside)
    tl.store(weights + at, w - rate * m, inside)


class Plan:
    """Where the numbers of all weights lie, for programs that look it up."""

    def __init__(self, groups: Sequence[Weights]):
        """Room for it, which cannot be asked for while a step is recorded."""
        weights = [w for group in groups for w in group.weights]
        blocks = sum(triton.cdiv(w.numel(), BLOCK) for w in weights)
        tables = ((blocks, 5), torch.int64), ((len(weights), 2), torch.int32), ((len(weights), 2), torch.float32)
        device = weights[0].device
        self._told = [torch.empty(shape, dtype=dtype, pin_memory=True) for shape, dtype in tables]
        self.blocks, self.spans, self.settings = (torch.empty_like(table, device=device) for table in self._told)
        self.sums = torch.empty(2, blocks, device=device)
        self.ratios = torch.empty(len(weights), device=device)

    def tell(self, groups: Sequence[Weights], slopes: Sequence[Tensor]) -> None:
        """Once: a recording repeats the copy from here to the device."""
        weights = [w for group in groups for w in group.weights]
        buffers = [m for group in groups for m in group.buffers]
        blocks: list[tuple[int, ...]] = []
        spans: list[tuple[int, int]] = []
        for number, tensors in enumerate(zip(weights, slopes, buffers, strict=True)):
            n = tensors[0].numel()
            spans.append((len(blocks), triton.cdiv(n, BLOCK)))
            for at in range(0, n, BLOCK):
                blocks.append((*(t.data_ptr() + 4 * at for t in tensors), min(BLOCK, n - at), number))
        settings = [(group.weight_decay, group.eta or 0.0) for group in groups for _ in group.weights]
        for told, values in zip(self._told, (blocks, spans, settings), strict=True):
            told.copy_(torch.tensor(values, dtype=told.dtype))
        for table, told in zip((self.blocks, self.spans, self.settings), self._told, strict=True):
            table.copy_(told, non_blocking=True)


class FusedStep:
    """In place of `optim.lars_step`, for float32 on one CUDA device."""

    def __init__(self) -> None:
        self._plans: dict[tuple[int, ...], Plan] = {}  # by where tensors lie, which is often where they lay before
        self._spare: list[Plan] = []  # for a recording
        self._recorded: list[Plan] = []  # which it goes on to read

    def __call__(self, groups: Sequence[Weights], lr: Tensor, momentum: float) -> None:
        pairs = [pair for group in groups for pair in zip(group.weights, group.slopes, strict=True)]
        slopes = [g if g.stride() == w.stride() else torch.empty_like(w).copy_(g) for w, g in pairs]
        tensors = [tensor for group in groups for tensor in (*group.weights, *group.buffers)]
        addresses = tuple(tensor.data_ptr() for tensor in (*tensors, *slopes))
        if any(address % ALIGNED for address in addresses):  # a view of something, perhaps
            lars_step(list(groups), lr, momentum)
            return
        plan = self._plan(addresses, groups, slopes)
        total = plan.sums.shape[1]
        _squares[(total,)](plan.blocks, plan.sums, total, BLOCK, num_warps=8)
        _ratios[(len(slopes),)](plan.spans, plan.settings, plan.sums, total, lr, plan.ratios, SUMS)
        _move[(total,)](plan.blocks, plan.settings, plan.ratios, lr, momentum, BLOCK, num_warps=8)

    def _plan(self, addresses: tuple[int, ...], groups: Sequence[Weights], slopes: Sequence[Tensor]) -> Plan:
        if torch.cuda.is_current_stream_capturing():
            plan = self._spare.pop()
            self._recorded.append(plan)
            plan.tell(groups, slopes)
            return plan
        if addresses not in self._plans:
            if not self._spare:
                self._spare = [Plan(groups)]
            if len(self._plans) == KEPT:
                self._plans.pop(next(iter(self._plans)))
            self._plans[addresses] = Plan(groups)
            self._plans[addresses].tell(groups, slopes)
        return self._plans[addresses]
