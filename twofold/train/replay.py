"""The training step on CUDA: kernels compiled, then recorded as a graph, so that the host only says "again"."""

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from twofold.data import cache
from twofold.data.loader import Loader
from twofold.errors import TwofoldError
from twofold.types import Batch

MakeViews = Callable[[Tensor, Tensor, Tensor], Tensor]  # images, positions, step → views
Train = Callable[[Batch, Tensor], None]
LEAST_STEPS = 2000  # compiling takes up to a minute, and saves about 20 ms a step
WARM_UP = 3  # steps before the recording: kernels are compiled and chosen, and the optimizer makes its state


def worth_compiling(wanted: bool | None, device: torch.device, steps: int) -> bool:
    """What `compile` means here; None leaves it to the device and the length of the run."""
    missing = None
    if device.type != "cuda":
        missing = f"a CUDA device, not {device.type}"
    elif importlib.util.find_spec("triton") is None:
        missing = "Triton, which comes with torch for CUDA on Linux"
    elif not (os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")):
        missing = "a C compiler (gcc or clang)"
    if wanted and missing:
        raise TwofoldError(f"compile=true needs {missing}; leave compile out")
    return missing is None and (steps >= LEAST_STEPS if wanted is None else wanted)


def keep_compiled_code() -> None:
    """Between runs: torch's own place for it is a temporary folder."""
    for variable, name in (("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("TRITON_CACHE_DIR", "triton")):
        os.environ.setdefault(variable, str(cache.folder() / "compiled" / name))


class Beside:
    """`with beside():` runs what is in it on a second stream; `join` waits for it, on the device.

    What the block reads must be kept until then.
    """

    def __init__(self, device: torch.device):
        self.stream = torch.cuda.Stream(device)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            yield

    def join(self) -> None:
        torch.cuda.current_stream().wait_stream(self.stream)


class Replay:
    """`replay(step)` trains on the batch of that step, from the fourth time on as a graph.

    The first calls are steps like all others, so nothing has to be undone. While one batch is trained on, the views of
    the next are made beside it. Batches of another size, and all where the step cannot be recorded, go the plain way;
    `refused` then says why.
    """

    def __init__(self, loader: Loader, make_views: MakeViews, train: Train, clock: Tensor, beside: Beside):
        self.loader, self.make_views, self.train = loader, make_views, train
        self.clock, self.beside = clock, beside
        self.graph: torch.cuda.CUDAGraph | None = None
        self.calls = 0
        self.ready: int | None = None  # the step whose views are made
        self.refused: str | None = None
        self.batch, self.ahead = loader.batch(0), loader.batch(0)
        self.views = torch.empty(0)

    def __call__(self, step: int) -> None:
        size = self.loader.order.size
        if self.refused or size(step) != len(self.batch.images):
            batch = self.loader.batch(step)
            self.train(batch, self.make_views(batch.images, batch.position, self.clock))
            return
        if self.ready != step:
            self.loader.fill(step, self.batch)
            views = self.make_views(self.batch.images, self.batch.position, self.clock)
            # The graph reads where these first lie.
            self.views = self.views.copy_(views) if self.views.numel() else views.clone()
        self.ready = None
        if size(step + 1) == len(self.batch.images):
            self.loader.fill(step + 1, self.ahead)
            self.ready = step + 1
        self.calls += 1
        if self.calls > WARM_UP and self.graph is None:
            self._record()
        if self.graph is not None:
            self.graph.replay()
        else:
            self._first_steps()

    def _train_and_look_ahead(self) -> None:
        position, next_clock = self.ahead.position, self.clock + 1
        with self.beside():
            views = self.make_views(self.ahead.images, position, next_clock)
        self.train(self.batch, self.views)
        self.beside.join()
        self.views.copy_(views)
        self.batch.index.copy_(self.ahead.index)
        if self.batch.labels is not None and self.ahead.labels is not None:
            self.batch.labels.copy_(self.ahead.labels)

    def _first_steps(self) -> None:
        """On a stream of their own, as the recording will be: autograd remembers where a parameter was first used."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._train_and_look_ahead()
        torch.cuda.current_stream().wait_stream(stream)

    def _record(self) -> None:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # what the first steps used: the graph has memory of its own
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._train_and_look_ahead()
        except RuntimeError as error:
            self.refused = str(error).splitlines()[0]
            torch.cuda.synchronize()
            return
        self.graph = graph
