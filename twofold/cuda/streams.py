"""What CUDA can do with work besides doing it at once: at the same time as other work, and again from a recording.

`Streams` is for a compiled step, `Event` and `SideStream` are for rows on their way to it (`train/row_slots.py`).
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch


class Streams:
    """What CUDA can do with work besides doing it at once: at the same time as other work, and from a recording."""

    def __init__(self, device: torch.device):
        self.side = torch.cuda.Stream(device)
        self.own = torch.cuda.Stream(device)  # of recordings; cuBLAS keeps 32 MiB for each stream that it has seen

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        """Run what is in the block on a second stream; what it reads must be kept until `join`."""
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            yield

    def join(self) -> None:
        """Wait, on the device, for the work on the side stream."""
        torch.cuda.current_stream().wait_stream(self.side)

    def first(self, step: Callable[[], None]) -> None:
        """On the stream of recordings: autograd remembers where a parameter was first used."""
        self.own.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.own):
            step()
        torch.cuda.current_stream().wait_stream(self.own)

    def waits(self, step: Callable[[], None]) -> bool:
        """Take a step, and say whether the host waited for the device in it, which no recording can repeat."""
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
        """The step as a graph, not yet run; an error where something in it waits for the device."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # what the first steps used: a graph has memory of its own
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self.own, capture_error_mode="thread_local"):
                step()
        except RuntimeError as error:
            torch.cuda.synchronize()
            raise CannotRecord(str(error).splitlines()[0]) from None
        torch.cuda.synchronize()  # for work on other streams, which is no part of the recording
        return graph.replay


class NoStreams:
    """In place of `Streams` where work is done in the order in which it is asked for."""

    def side_stream(self) -> AbstractContextManager[None]:
        return nullcontext()

    def join(self) -> None: ...


class CannotRecord(Exception):
    """Something in the step cannot be repeated from a recording."""


class Event:
    """In the work of a CUDA stream. Other devices do what they are asked for at once."""

    def __init__(self, device: torch.device):
        self.device = device
        self.event = torch.cuda.Event() if device.type == "cuda" else None

    def record(self) -> None:
        if self.event is not None:
            self.event.record(torch.cuda.current_stream(self.device))

    def hold_back(self) -> None:
        """Let the current stream wait for it."""
        if self.event is not None:
            torch.cuda.current_stream(self.device).wait_event(self.event)

    def wait(self) -> None:
        if self.event is not None:
            self.event.synchronize()


class SideStream:
    """A CUDA stream in addition to that of the computation."""

    def __init__(self, device: torch.device):
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @contextmanager
    def after(self, event: Event) -> Iterator[None]:
        with nullcontext() if self.stream is None else torch.cuda.stream(self.stream):
            event.hold_back()
            yield
