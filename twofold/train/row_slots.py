"""Room for the rows of a few steps on their way between a sample head and the device."""

import dataclasses
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor

from twofold import dist
from twofold.models import BatchRows, SampleHead
from twofold.models.sample_head import Loaded


class Slot:
    """Room for the rows of one step; what was loaded stays beside it until it has moved. The host moves the rows."""

    def __init__(self, part: BatchRows, head: SampleHead):  # noqa: ARG002 — another kind needs the head
        self.part, self.device = part, part.rows.device
        self.pinned = self.device.type == "cuda"
        self.rows, self.labels, self.gradient = (
            self.room(like.shape, like.dtype) for like in (part.rows, part.labels, part.gradient)
        )
        self.wish = self.room((1,), torch.int64).zero_()  # of the first process: to save soon
        self.sizes = [0]  # rows of the batch that each process has
        self.own = slice(0, 0)  # and where this one's are among all
        self.loaded: Loaded | None = None
        self.read: Future[bool] | None = None  # whether the rows are there
        self.moved: Future[None] | None = None
        self.sent = Moment(self.device)
        self.arrived = Moment(self.device)

    def room(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(tuple(shape), dtype=dtype, pin_memory=self.pinned)

    def fill(self, head: SampleHead, index_R: np.ndarray, step: int, labels: Tensor, sizes: list[int]) -> None:
        """From the head, in the worker's thread."""
        before = sum(sizes[: dist.rank()])
        self.sizes, self.own = sizes, slice(before, before + sizes[dist.rank()])
        self.labels[: sum(sizes)].copy_(labels)
        self.load(head, index_R, step)

    def load(self, head: SampleHead, index_R: np.ndarray, step: int) -> None:
        self.loaded = head.load(index_R, step)
        self.rows[self.own].copy_(self.loaded.weights)

    def send(self, head: SampleHead) -> None:
        """Rows and labels to where the step reads them."""
        size = sum(self.sizes)
        self.put(head, self.part.rows[self.own], self.part.labels[:size])
        if len(self.sizes) > 1:
            self.part.rows[:size].copy_(dist.one_after_another(self.part.rows[self.own], self.sizes, "rows"))

    def put(self, head: SampleHead, rows: Tensor, labels: Tensor) -> None:  # noqa: ARG002
        rows.copy_(self.rows[self.own], non_blocking=True)
        labels.copy_(self.labels[: len(labels)], non_blocking=True)
        self.sent.record()

    def tell(self, wish: bool) -> None:
        """All processes come to know what the first wishes, when the gradient has arrived."""
        asked = torch.full((1,), int(wish and dist.is_first()), device=self.device)
        self.wish.copy_(dist.sum_(asked, "rows"), non_blocking=True)

    def receive(self, head: SampleHead) -> None:  # noqa: ARG002
        """Begin to bring back what the step left."""
        self.gradient[self.own].copy_(self.part.gradient[self.own], non_blocking=True)
        self.arrived.record()

    def apply(self, head: SampleHead) -> None:
        """To the head, in the worker's thread, once that has arrived."""
        assert self.loaded is not None
        head.apply(self.loaded, self.gradient[self.own])

    def wait_until_free(self) -> None:
        if self.moved is not None:
            self.moved.result()
        self.sent.wait()


class DeviceSlot(Slot):
    """The device moves the rows, beside the steps before and after: the host is too slow for it, and only copies.

    Whatever a recorded step reads and writes is copied from and to places of our own, within the device, so that a
    step never waits for the host's memory.
    """

    def __init__(self, part: BatchRows, head: SampleHead):
        super().__init__(part, head)
        nobody = head.read(np.empty(0, dtype=np.int64), 0)
        state_shape = (len(part.rows), *nobody.state_RSD.shape[1:])
        self.state = self.room(state_shape, nobody.state_RSD.dtype)
        self.lag = self.room((len(part.rows), nobody.lag.shape[1]), nobody.lag.dtype)
        host = (self.state, self.lag, self.labels, self.gradient)
        self.there = [torch.empty_like(tensor, device=self.device, pin_memory=False) for tensor in host]
        self.inward, self.outward = Way(self.device), Way(self.device)
        self.left = Moment(self.device)

    def load(self, head: SampleHead, index_R: np.ndarray, step: int) -> None:
        loaded, rows = head.read(index_R, step), len(index_R)
        self.state[:rows].copy_(loaded.state_RSD)
        self.lag[:rows].copy_(loaded.lag)
        self.loaded = dataclasses.replace(loaded, state_RSD=self.state[:rows])

    def put(self, head: SampleHead, rows: Tensor, labels: Tensor) -> None:
        state, lag, places, _ = self.there
        with self.inward.after(self.arrived):
            for target, source in ((state, self.state), (lag, self.lag)):
                target[: len(rows)].copy_(source[: len(rows)], non_blocking=True)
            places[: len(labels)].copy_(self.labels[: len(labels)], non_blocking=True)
            head.optimizer.catch_up(state[: len(rows)], lag[: len(rows)])
            self.sent.record()
        self.sent.hold_back()
        rows.copy_(state[: len(rows), 0])
        labels.copy_(places[: len(labels)])

    def receive(self, head: SampleHead) -> None:
        assert self.loaded is not None
        own = self.part.gradient[self.own]
        state, gradient = (self.there[place][: len(own)] for place in (0, 3))
        gradient.copy_(own)
        self.left.record()
        with self.outward.after(self.left):
            head.optimizer.advance(state, gradient, self.loaded.step + 1)
            self.state[: len(own)].copy_(state, non_blocking=True)
            self.arrived.record()

    def apply(self, head: SampleHead) -> None:
        assert self.loaded is not None
        head.write(self.loaded)


class Moment:
    """In the work of a CUDA stream. Other devices do what they are asked for at once."""

    def __init__(self, device: torch.device):
        self.device = device
        self.event = torch.cuda.Event() if device.type == "cuda" else None

    def record(self) -> None:
        if self.event is not None:
            self.event.record(torch.cuda.current_stream(self.device))

    def hold_back(self) -> None:
        """The current stream goes on after it."""
        if self.event is not None:
            torch.cuda.current_stream(self.device).wait_event(self.event)

    def wait(self) -> None:
        if self.event is not None:
            self.event.synchronize()


class Way:
    """A CUDA stream beside the computation's."""

    def __init__(self, device: torch.device):
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @contextmanager
    def after(self, moment: Moment) -> Iterator[None]:
        with nullcontext() if self.stream is None else torch.cuda.stream(self.stream):
            moment.hold_back()
            yield


def slot_kind(device: torch.device) -> type[Slot]:
    return DeviceSlot if device.type == "cuda" else Slot
