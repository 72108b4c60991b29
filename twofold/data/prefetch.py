"""Prefetch batches of images from host memory to the GPU.

The `Loader` makes a `Prefetcher` if the images do not fit on the device. A thread gathers the rows of the next steps
into a few reused slots of pinned memory. It makes no CUDA calls: the caller's thread sends the gathered images, on a
separate stream. So no CUDA call of another thread can disturb the exit of the process or the capture of a CUDA graph.

In shapes, N is the number of samples in a batch, C the number of channels, H the height and W the width. Pictures of
different sizes are lines [N, L, C, W] instead (see data/pictures.py).
"""

import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

from twofold.data.pictures import CropSource, gather_batch

DEPTH = 2  # batches ahead of the one in use
JOIN_SECONDS = 10  # how long an exiting process waits for the thread, which a lost disk may block forever

Place = TypeVar("Place")


class Lookahead(Generic[Place]):
    """Calls `work(step, place)` in a thread for each following step as long as a place is free.

    An error of `work` is raised when its place is taken. Call `restart` after an error. The thread ends together with
    this object or with the process.
    """

    def __init__(self, work: Callable[[int, Place], None], places: Sequence[Place]) -> None:
        self._state = _SharedState(tuple(places))
        # The thread refers to the state but not to this object, which could otherwise never be freed.
        self.thread = threading.Thread(target=self._state.serve, args=(work,), name="twofold-prefetch", daemon=True)
        self.close = weakref.finalize(self, _stop_thread, self._state, self.thread)
        self.thread.start()

    def restart(self, step: int) -> None:
        """Continue from this step. All places become free except the one that the thread is working on."""
        state = self._state
        with state.changed:
            state.round += 1
            state.done.clear()
            state.free = [place for place in state.places if place is not state.busy]
            state.next = step
            state.changed.notify_all()

    def ready(self) -> bool:
        """Whether `take` would return immediately and without an error."""
        with self._state.changed:
            return bool(self._state.done) and self._state.done[0][1] is None

    def take(self) -> Place:
        """Return the place of the next step. It belongs to the caller until `give_back`."""
        state = self._state
        with state.changed:
            state.changed.wait_for(lambda: state.done)
            place, error = state.done.popleft()
        if error is not None:
            raise error
        return place

    def give_back(self, place: Place) -> None:
        with self._state.changed:
            self._state.free.append(place)
            self._state.changed.notify_all()


class _SharedState(Generic[Place]):
    """The state that the thread and its owner share. Every access must hold `changed`."""

    def __init__(self, places: tuple[Place, ...]) -> None:
        self.changed = threading.Condition()
        self.places = places
        self.free: list[Place] = []
        self.busy: Place | None = None  # the place that the thread is working on
        self.done: deque[tuple[Place, BaseException | None]] = deque()
        self.next = 0
        self.round = 0  # the number of restarts; results of earlier rounds are discarded
        self.closed = False

    def serve(self, work: Callable[[int, Place], None]) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.closed or self.free)
                if self.closed:
                    return
                place, step, round_ = self.free.pop(0), self.next, self.round
                self.busy, self.next = place, step + 1
            error: BaseException | None = None
            try:
                work(step, place)
            except BaseException as caught:  # any error must reach the thread that waits for the result
                error = caught
            with self.changed:
                self.busy = None
                if round_ == self.round:
                    self.done.append((place, error))
                else:
                    self.free.append(place)
                self.changed.notify_all()


def _stop_thread(state: _SharedState[Place], thread: threading.Thread) -> None:
    with state.changed:
        state.closed = True
        state.changed.notify_all()
    if thread is not threading.current_thread():  # garbage collection may run in any thread
        thread.join(JOIN_SECONDS)


class BatchSlot:
    """Host memory for one batch. This base class is for devices that need no separate copy."""

    def __init__(self, batch_size: int, image_shape: Sequence[int], *, pinned: bool = False) -> None:
        self.images_NCHW = torch.empty((batch_size, *image_shape), dtype=torch.uint8, pin_memory=pinned)
        self.rows_N = torch.empty(batch_size, dtype=torch.int64, pin_memory=pinned)
        self.size = 0  # the size of the current batch; the last of an epoch may be short

    def gather_batch(self, source: CropSource, rows: Tensor) -> None:
        self.size = len(rows)
        self.rows_N[: self.size].copy_(rows)
        gather_batch(source, rows, self.images_NCHW[: self.size])

    def send(self) -> None:
        """Start to copy the gathered batch to the device."""

    def receive(self) -> tuple[Tensor, Tensor]:
        """Return images and rows. They are valid for work that is queued before the call of `consumed`."""
        return self.images_NCHW[: self.size], self.rows_N[: self.size]

    def consumed(self) -> None:
        """State that all work that reads the received tensors is queued."""

    def wait(self) -> None:
        """Wait until the host memory may be overwritten."""


class CudaBatchSlot(BatchSlot):
    """A slot with a copy on the GPU. The copy runs on a separate stream and overlaps with the computation."""

    def __init__(
        self, batch_size: int, image_shape: Sequence[int], device: torch.device, stream: torch.cuda.Stream
    ) -> None:
        super().__init__(batch_size, image_shape, pinned=True)
        self.device, self.stream = device, stream
        with torch.cuda.stream(stream):
            self.device_images_NCHW = torch.empty_like(self.images_NCHW, device=device)
            self.device_rows_N = torch.empty_like(self.rows_N, device=device)
        self.arrival, self.consumption = torch.cuda.Event(), torch.cuda.Event()

    def send(self) -> None:
        self.stream.wait_event(self.consumption)
        with torch.cuda.stream(self.stream):
            for target, source in (
                (self.device_images_NCHW, self.images_NCHW),
                (self.device_rows_N, self.rows_N),
            ):
                target[: self.size].copy_(source[: self.size], non_blocking=True)
            self.arrival.record(self.stream)

    def receive(self) -> tuple[Tensor, Tensor]:
        consumer = torch.cuda.current_stream(self.device)
        consumer.wait_event(self.arrival)
        for tensor in (self.device_images_NCHW, self.device_rows_N):
            tensor.record_stream(consumer)  # if this slot is freed, its memory is not reused while work still reads it
        return self.device_images_NCHW[: self.size], self.device_rows_N[: self.size]

    def consumed(self) -> None:
        self.consumption.record(torch.cuda.current_stream(self.device))

    def wait(self) -> None:
        self.arrival.synchronize()


class Prefetcher:
    """Copies the images of one step after another to a device, and prefetches those of the next steps."""

    def __init__(
        self, source: CropSource, rows: Callable[[int], Tensor], batch_size: int, device: torch.device
    ) -> None:
        """`rows(step)` returns the step's rows of `source`, both in host memory. It is called from a thread."""
        shape = source.shape[1:]
        self._slots: list[BatchSlot]
        if device.type == "cuda":
            stream = torch.cuda.Stream(device)
            self._slots = [CudaBatchSlot(batch_size, shape, device, stream) for _ in range(DEPTH + 1)]
        else:
            self._slots = [BatchSlot(batch_size, shape) for _ in range(DEPTH + 1)]
        self._next: int | None = None  # the expected next step
        self._sent: deque[BatchSlot] = deque()  # the slots of the next steps, in order
        self._used: BatchSlot | None = None  # the slot of the previous step, whose copy may still be running
        self.lookahead = Lookahead(lambda step, slot: slot.gather_batch(source, rows(step)), self._slots)

    def fill(self, step: int, images_NCHW: Tensor) -> Tensor:
        """Write the step's images to a tensor on the device, and return its rows `[N]` on the device.

        The host waits if the images are not gathered yet, or if the device is several steps behind.
        """
        expected, self._next = self._next, None  # after an error or an interrupt, the next call restarts
        if step != expected:
            self._restart(step)
        elif self._used is not None:
            self._used.wait()
            self.lookahead.give_back(self._used)
        if not self._sent:
            self._send()
        self._used = self._sent.popleft()
        images, rows = self._used.receive()
        images_NCHW.copy_(images)
        own_rows = rows.to(images_NCHW.device, copy=True)
        self._used.consumed()
        while self.lookahead.ready():
            self._send()
        self._next = step + 1
        return own_rows

    def _send(self) -> None:
        slot = self.lookahead.take()
        slot.send()
        self._sent.append(slot)

    def _restart(self, step: int) -> None:
        self._sent.clear()
        self._used = None
        for slot in self._slots:
            slot.wait()
        self.lookahead.restart(step)
