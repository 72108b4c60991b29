"""The training step on CUDA: kernels compiled, then recorded as a graph, so that the host only says "again"."""

import importlib.util
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from twofold.data import cache
from twofold.data.loader import Loader
from twofold.errors import TwofoldError
from twofold.types import Batch

MakeViews = Callable[[Tensor, Tensor, Tensor], list[Tensor]]  # images, positions, step → views, and small crops
Train = Callable[[Batch, list[Tensor]], None]
LEAST_STEPS = 2000  # compiling takes up to a minute, and saves about 20 ms a step
WARM_UP = 3  # steps before the recording: kernels are compiled and chosen, and the optimizer makes its state


def worth_compiling(wanted: bool | None, device: torch.device, steps: int) -> bool:
    """What `compile` means here; None leaves it to the device and the length of the run."""
    if wanted is False or (wanted is None and (device.type != "cuda" or steps < LEAST_STEPS)):
        return False
    missing = what_is_missing(device)
    if wanted and missing:
        raise TwofoldError(f"compile=true needs {missing}; leave compile out")
    return missing is None


def what_is_missing(device: torch.device) -> str | None:
    if device.type != "cuda":
        return f"a CUDA device, not {device.type}"
    if importlib.util.find_spec("triton") is None:
        return "Triton, which comes with torch for CUDA on Linux"
    try:
        torch.compile(lambda x: x + 1, dynamic=False)(torch.zeros(8, device=device))
    except Exception as error:  # of many kinds: a C compiler, Python's headers or a driver that is too old
        return f"what torch.compile needs ({str(error).strip().splitlines()[0]})"
    return None


def keep_compiled_code() -> None:
    """Between runs: torch's own place for it is a temporary folder."""
    for variable, name in (("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TRITON_CACHE_DIR", "triton")):
        os.environ.setdefault(variable, str(cache.folder() / "compiled" / name))


class Streams:
    """What CUDA can do with work besides doing it at once: beside other work, and again from a recording."""

    def __init__(self, device: torch.device):
        self.side = torch.cuda.Stream(device)
        self.own = torch.cuda.Stream(device)  # of recordings; cuBLAS keeps 32 MiB for each stream that it has seen

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Run what is in the block on a second stream; what it reads must be kept until `join`."""
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            yield

    def join(self) -> None:
        """Wait, on the device, for what was put beside."""
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
        torch.cuda.synchronize()  # for what was done beside the recording, and is no part of it
        return graph.replay


class CannotRecord(Exception):
    """Something in the step cannot be repeated from a recording."""


class Replay:
    """`replay(step)` trains on the batch of that step, from the fourth time on as a graph.

    The first calls are steps like all others, so nothing has to be undone. While one batch is trained on, the views of
    the next are made beside it. Batches of another size, and all where the step cannot be recorded, go the plain way;
    `refused` then says why.
    """

    def __init__(self, loader: Loader, make_views: MakeViews, train: Train, clock: Tensor, streams: Streams):
        self.loader, self.make_views, self.train = loader, make_views, train
        self.clock, self.streams = clock, streams
        self.recorded: Callable[[], None] | None = None
        self.calls = 0
        self.ready: int | None = None  # the step whose views are made
        self.refused: str | None = None
        self.batch, self.ahead = loader.batch(0), loader.batch(0)
        self.views: list[Tensor] = []  # where the graph reads them

    def __call__(self, step: int) -> None:
        size = self.loader.order.size
        if self.refused or size(step) != len(self.batch.images):
            batch = self.loader.batch(step)
            self.train(batch, self.make_views(batch.images, batch.position, self.clock))
            return
        if self.ready != step:
            self.loader.fill(step, self.batch)
            self._keep(self.make_views(self.batch.images, self.batch.position, self.clock))
        full = size(step + 1) == len(self.batch.images)
        if self.loader.on_device:
            self.loader.turn_to(step + 1 if full else step)
        elif full:
            self.loader.fill(step + 1, self.ahead)
        self.ready = step + 1 if full else None
        self.calls += 1
        if self.calls < WARM_UP:
            self.streams.first(self._train_and_look_ahead)
        elif self.calls == WARM_UP:
            if self.streams.waits(self._train_and_look_ahead):
                self.refused = "something in it waits for the device"
        else:
            if self.recorded is None:
                self._record()
            (self.recorded or self._train_and_look_ahead)()

    def _train_and_look_ahead(self) -> None:
        position, next_clock = self.ahead.position, self.clock + 1
        with self.streams.beside():
            if self.loader.on_device:
                self.loader.fill_at(next_clock, self.ahead)
            views = self.make_views(self.ahead.images, position, next_clock)
        self.train(self.batch, self.views)
        self.streams.join()
        self._keep(views)
        self.batch.index.copy_(self.ahead.index)
        if self.batch.labels is not None and self.ahead.labels is not None:
            self.batch.labels.copy_(self.ahead.labels)

    def _keep(self, views: list[Tensor]) -> None:
        if not self.views:
            self.views = [view.clone() for view in views]
        for kept, view in zip(self.views, views, strict=True):
            kept.copy_(view)

    def _record(self) -> None:
        try:
            self.recorded = self.streams.record(self._train_and_look_ahead)
        except CannotRecord as error:
            self.refused = str(error)
