"""Buffers for the rows of a few steps, on their way between the per-image classifier and the device."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np
import torch
from torch import Tensor

from twofold import dist
from twofold.cuda.streams import Event, SideStream
from twofold.models import BatchRows, SampleHead
from twofold.models.sample_head.head import Loaded


class RowSlot(ABC):
    """Buffers for the rows of one step, which stay in them until they are updated.

    The worker thread calls `fill` and `apply`; the training thread calls the other methods.
    """

    def __init__(self, part: BatchRows):
        self.part, self.device = part, part.rows.device
        self.labels = self.room(part.labels.shape, torch.int64)
        self.wish = self.room((1,), torch.int64).zero_()  # the first process wishes to save soon
        self.sizes = [0]  # number of the batch's rows that each process has
        self.own = slice(0, 0)  # where the rows of this process are among them
        self.loaded: Loaded | None = None
        self.read: Future[bool] | None = None  # whether the rows were read
        self.moved: Future[None] | None = None
        self.sent, self.arrived = Event(self.device), Event(self.device)

    def room(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(tuple(shape), dtype=dtype, pin_memory=self.device.type == "cuda")

    def fill(self, head: SampleHead, index_R: np.ndarray, step: int, labels: Tensor, sizes: list[int]) -> None:
        before = sum(sizes[: dist.rank()])
        self.sizes, self.own = sizes, slice(before, before + sizes[dist.rank()])
        self.labels[: sum(sizes)].copy_(labels)
        self.load(head, index_R, step)

    @abstractmethod
    def load(self, head: SampleHead, index_R: np.ndarray, step: int) -> None:
        """Read these rows, and keep what `apply` will need."""

    def send(self, head: SampleHead) -> None:
        """Copy rows and labels to where the step reads them."""
        size = sum(self.sizes)
        self.put(head, self.part.rows[self.own], self.part.labels[:size])
        if len(self.sizes) > 1:
            self.part.rows[:size].copy_(dist.one_after_another(self.part.rows[self.own], self.sizes, "rows"))

    @abstractmethod
    def put(self, head: SampleHead, rows: Tensor, labels: Tensor) -> None:
        """Copy the rows of this process and all labels into these tensors."""

    def tell(self, wish: bool) -> None:
        """Send the wish of the first process to all; they have it when the gradient arrives."""
        asked = torch.full((1,), int(wish and dist.is_first()), device=self.device)
        self.wish.copy_(dist.sum_(asked, "rows"), non_blocking=True)

    @abstractmethod
    def receive(self, head: SampleHead) -> None:
        """Start copying back what the step computed."""

    @abstractmethod
    def apply(self, head: SampleHead) -> None:
        """Update the rows in the classifier with it; called after it arrived."""

    def wait_until_free(self) -> None:
        if self.moved is not None:
            self.moved.result()
        self.sent.wait()


class HostRowSlot(RowSlot):
    """The worker updates the rows on the host: rows go to the device, and their gradient comes back."""

    def __init__(self, part: BatchRows):
        super().__init__(part)
        self.rows, self.gradient = (self.room(like.shape, like.dtype) for like in (part.rows, part.gradient))

    def load(self, head: SampleHead, index_R: np.ndarray, step: int) -> None:
        self.loaded = head.load(index_R, step)
        self.rows[self.own].copy_(self.loaded.weights)

    def put(self, head: SampleHead, rows: Tensor, labels: Tensor) -> None:  # noqa: ARG002
        rows.copy_(self.rows[self.own], non_blocking=True)
        labels.copy_(self.labels[: len(labels)], non_blocking=True)
        self.sent.record()

    def receive(self, head: SampleHead) -> None:  # noqa: ARG002
        self.gradient[self.own].copy_(self.part.gradient[self.own], non_blocking=True)
        self.arrived.record()

    def apply(self, head: SampleHead) -> None:
        assert self.loaded is not None
        head.apply(self.loaded, self.gradient[self.own])


class Workbench:
    """Buffers in which the device updates the rows of a step. No recorded step reads or writes them."""

    def __init__(self, part: BatchRows, nobody: Loaded):
        count, device = len(part.rows), part.rows.device
        self.state, self.lag = (
            torch.empty(count, *like.shape[1:], dtype=like.dtype, device=device)
            for like in (nobody.state_RSD, nobody.lag)
        )
        self.labels, self.gradient = torch.empty_like(part.labels), torch.empty_like(part.gradient)
        self.free = Event(device)


class DeviceRowSlot(RowSlot):
    """The device updates the rows while other steps run, because the host is too slow for it; the host only copies."""

    def __init__(self, part: BatchRows, bench: Workbench, streams: tuple[SideStream, SideStream]):
        super().__init__(part)
        self.bench, (self.inward, self.outward) = bench, streams
        self.state, self.lag = (self.room(like.shape, like.dtype) for like in (bench.state, bench.lag))
        self.left = Event(self.device)

    def load(self, head: SampleHead, index_R: np.ndarray, step: int) -> None:
        loaded, rows = head.read(index_R, step), len(index_R)
        self.state[:rows].copy_(loaded.state_RSD)
        self.lag[:rows].copy_(loaded.lag)
        self.loaded = dataclasses.replace(loaded, state_RSD=self.state[:rows])

    def put(self, head: SampleHead, rows: Tensor, labels: Tensor) -> None:
        state, lag, places = (
            self.bench.state[: len(rows)],
            self.bench.lag[: len(rows)],
            self.bench.labels[: len(labels)],
        )
        with self.inward.after(self.bench.free):
            for target, source in ((state, self.state), (lag, self.lag), (places, self.labels)):
                target.copy_(source[: len(target)], non_blocking=True)
            head.optimizer.catch_up(state, lag)
            self.sent.record()
        self.sent.hold_back()
        rows.copy_(state[:, 0])
        labels.copy_(places)

    def receive(self, head: SampleHead) -> None:
        assert self.loaded is not None
        own = self.part.gradient[self.own]
        state, gradient = self.bench.state[: len(own)], self.bench.gradient[: len(own)]
        gradient.copy_(own)
        self.left.record()
        with self.outward.after(self.left):
            head.optimizer.advance(state, gradient, self.loaded.step + 1)
            self.state[: len(own)].copy_(state, non_blocking=True)
            self.arrived.record()
            self.bench.free.record()

    def apply(self, head: SampleHead) -> None:
        assert self.loaded is not None
        head.write(self.loaded)


def make_slots(count: int, part: BatchRows, head: SampleHead) -> list[RowSlot]:
    """Slots for a classifier like `head`."""
    if part.rows.device.type != "cuda":
        return [HostRowSlot(part) for _ in range(count)]
    return device_slots(count, part, head)


def device_slots(count: int, part: BatchRows, head: SampleHead) -> list[RowSlot]:
    """Slots with two workbenches: rows of one step are caught up while those of the previous step are in use."""
    nobody = head.read(np.empty(0, dtype=np.int64), 0)
    benches = Workbench(part, nobody), Workbench(part, nobody)
    streams = SideStream(part.rows.device), SideStream(part.rows.device)
    return [DeviceRowSlot(part, benches[number % 2], streams) for number in range(count)]
