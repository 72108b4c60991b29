"""CUDA streams, events and graph recording.

`Streams` is for a compiled step. `Event` and `SideStream` are for copying classifier rows (`train/row_slots.py`).
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch


class Streams:
    """Run work on a second stream, and record a step as a CUDA graph."""

    def __init__(self, device: torch.device):
        self.side = torch.cuda.Stream(device)
        self.own = torch.cuda.Stream(device)  # for recordings; only one, because cuBLAS keeps 32 MiB for each stream

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        """Run this context on a second stream. Keep the tensors that it reads until `join`."""
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            yield

    def join(self) -> None:
        """Make the current stream wait for the second one. The host does not wait."""
        torch.cuda.current_stream().wait_stream(self.side)

    def first(self, step: Callable[[], None]) -> None:
        """Run a step on the stream for recordings, because autograd remembers on which stream a parameter was used."""
        self.own.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.own):
            step()
        torch.cuda.current_stream().wait_stream(self.own)

    def waits(self, step: Callable[[], None]) -> bool:
        """Run a step and return whether the host waited for the GPU in it, which a CUDA graph cannot do."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                self.first(step)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        return any(
            "synchroniz" in str(warning.message) and "prototype" not in str(warning.message) for warning in caught
        )

    def record(self, step: Callable[[], None]) -> Callable[[], None]:
        """Record the step as a CUDA graph without running it. Raises `CannotRecord` if the step waits for the GPU."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # frees the memory of the first steps; a graph has its own memory
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self.own, capture_error_mode="thread_local"):
                step()
        except RuntimeError as error:
            torch.cuda.synchronize()
            raise CannotRecord(str(error).splitlines()[0]) from None
        torch.cuda.synchronize()  # for work on other streams, which is not part of the recording
        return graph.replay


class NoStreams:
    """Replaces `Streams` where all work runs in order on one stream."""

    def side_stream(self) -> AbstractContextManager[None]:
        return nullcontext()

    def join(self) -> None: ...


class CannotRecord(Exception):
    """The step cannot be recorded as a CUDA graph."""


class Event:
    """A CUDA event. On other devices it does nothing, because they run all work at once."""

    def __init__(self, device: torch.device):
        self.device = device
        self.event = torch.cuda.Event() if device.type == "cuda" else None

    def record(self) -> None:
        if self.event is not None:
            self.event.record(torch.cuda.current_stream(self.device))

    def hold_back(self) -> None:
        """Make the current stream wait for the event."""
        if self.event is not None:
            torch.cuda.current_stream(self.device).wait_event(self.event)

    def wait(self) -> None:
        """Make the host wait for the event."""
        if self.event is not None:
            self.event.synchronize()


class SideStream:
    """A second CUDA stream, in addition to the one that trains."""

    def __init__(self, device: torch.device):
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @contextmanager
    def after(self, event: Event) -> Iterator[None]:
        """Run this context on the second stream, after the event."""
        with nullcontext() if self.stream is None else torch.cuda.stream(self.stream):
            event.hold_back()
            yield
