"""The training step as a CUDA graph. The first steps run eagerly, the next is recorded, all later ones replay it.

`StepGraph` replaces `EagerSteps` (`train/step.py`) in a compiled run. `worth_compiling` decides whether a run is
compiled.
"""

import importlib.util
import os
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from twofold.cuda.streams import CannotRecord, Streams
from twofold.errors import TwofoldError
from twofold.files import cache_folder
from twofold.types import Batch


class Sizes(Protocol):
    def size(self, step: int) -> int: ...


class Batches(Protocol):
    """The methods of a loader that `StepGraph` uses."""

    @property
    def order(self) -> Sizes: ...

    @property
    def on_device(self) -> bool: ...

    def batch(self, step: int) -> Batch: ...
    def fill(self, step: int, batch: Batch) -> None: ...
    def set_epoch_of(self, step: int) -> None: ...
    def fill_on_device(self, step: Tensor, batch: Batch) -> None: ...


MakeViews = Callable[..., list[Tensor]]  # (images, positions, step, sizes of pictures) → views and small crops
Train = Callable[[Batch, list[Tensor]], None]
LEAST_STEPS = 2000  # compiling takes up to a minute and saves about 20 ms per step
WARM_UP = 3  # steps before the recording: they compile and select kernels and create the optimizer's state


class StepGraph:
    """`graph(step)` trains on the batch of that step; from the fourth call on it replays a CUDA graph.

    The first calls are normal training steps, so nothing needs to be undone. While the network trains on one batch, the
    views of the next are computed on a second stream. A batch of another size is trained on without the graph. If the
    step cannot be recorded, all batches are, and `refused` gives the reason.
    """

    def __init__(self, loader: Batches, make_views: MakeViews, train: Train, clock: Tensor, streams: Streams):
        self.loader, self.make_views, self.train = loader, make_views, train
        self.clock, self.streams = clock, streams
        self.recorded: Callable[[], None] | None = None
        self.calls = 0
        self.ready: int | None = None  # the step whose views are ready
        self.refused: str | None = None
        self.reported = False  # whether `take_refusal` has returned the reason
        self.batch, self.ahead = loader.batch(0), loader.batch(0)
        self.views: list[Tensor] = []  # the tensors that the graph reads

    def __call__(self, step: int) -> None:
        size = self.loader.order.size
        if self.refused or size(step) != len(self.batch.images):
            batch = self.loader.batch(step)
            self.train(batch, self.make_views(batch.images, batch.position, self.clock, batch.sizes))
            return
        if self.ready != step:
            self.loader.fill(step, self.batch)
            self._keep(self.make_views(self.batch.images, self.batch.position, self.clock, self.batch.sizes))
        full = size(step + 1) == len(self.batch.images)
        if self.loader.on_device:
            self.loader.set_epoch_of(step + 1 if full else step)
        elif full:
            self.loader.fill(step + 1, self.ahead)
        self.ready = step + 1 if full else None
        self.calls += 1
        if self.calls < WARM_UP:
            self.streams.first(self._train_and_look_ahead)
        elif self.calls == WARM_UP:
            if self.streams.waits(self._train_and_look_ahead):
                self.refused = "an operation in the step waits for the GPU"
        else:
            if self.recorded is None:
                self._record()
            (self.recorded or self._train_and_look_ahead)()

    def _train_and_look_ahead(self) -> None:
        position, next_clock = self.ahead.position, self.clock + 1
        with self.streams.side_stream():
            if self.loader.on_device:
                self.loader.fill_on_device(next_clock, self.ahead)
            views = self.make_views(self.ahead.images, position, next_clock, self.ahead.sizes)
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

    def take_refusal(self) -> str | None:
        """Return once why the step is not recorded; None if it is, or if the reason was returned before."""
        reason, is_new = self.refused, not self.reported
        self.reported = self.reported or reason is not None
        return reason if is_new else None

    def _record(self) -> None:
        try:
            self.recorded = self.streams.record(self._train_and_look_ahead)
        except CannotRecord as error:
            self.refused = str(error)


def worth_compiling(wanted: bool | None, device: torch.device, steps: int) -> bool:
    """Whether to compile the step. `wanted` is the key `compile`; None decides by device and number of steps."""
    if wanted is False or (wanted is None and (device.type != "cuda" or steps < LEAST_STEPS)):
        return False
    missing = what_is_missing(device)
    if wanted and missing:
        raise TwofoldError(f"compile=true needs {missing}: omit compile")
    return missing is None


def what_is_missing(device: torch.device) -> str | None:
    """What compiling needs and this machine does not have; None if it has everything."""
    if device.type != "cuda":
        return f"a CUDA device, not {device.type}"
    if importlib.util.find_spec("triton") is None:
        return "Triton, which is part of PyTorch for CUDA on Linux"
    try:
        torch.compile(lambda x: x + 1, dynamic=False)(torch.zeros(8, device=device))
    except Exception as error:  # many causes: no C compiler, no Python headers, a driver that is too old
        return f"what torch.compile needs ({str(error).strip().splitlines()[0]})"
    return None


def keep_compiled_code() -> None:
    """Store compiled code in the cache folder, so that later runs find it. PyTorch's default is a temporary folder."""
    for variable, name in (("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TRITON_CACHE_DIR", "triton")):
        os.environ.setdefault(variable, str(cache_folder() / "compiled" / name))
