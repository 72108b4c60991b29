"""The training step on CUDA: kernels compiled, then recorded as a graph, so that the host only says "again"."""

import importlib.util
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from twofold.data import cache
from twofold.errors import TwofoldError
from twofold.types import Batch

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
    """`replay(batch)` does what `step(batch)` does, from the fourth time on as a graph.

    The first calls are steps like all others, so nothing has to be undone. A batch of another size takes `step`
    itself, and so do all where the step cannot be recorded; `refused` then says why.
    """

    def __init__(self, step: Callable[[Batch], None]):
        self.step = step
        self.batch: Batch | None = None  # where the graph reads
        self.graph: torch.cuda.CUDAGraph | None = None
        self.calls = 0
        self.refused: str | None = None
        self.started = time.monotonic()

    def __call__(self, batch: Batch) -> None:
        if self.batch is None:
            labels = None if batch.labels is None else batch.labels.clone()
            self.batch = Batch(batch.images.clone(), batch.index.clone(), batch.position.clone(), labels)
        if self.refused or batch.images.shape != self.batch.images.shape:
            self.step(batch)
            return
        _copy(batch, self.batch)
        if self.calls == WARM_UP:
            self._record()
        self.calls += 1
        if self.graph is not None:
            self.graph.replay()
        else:
            self._on_a_stream_of_its_own()

    def _on_a_stream_of_its_own(self) -> None:
        """As the recording will be: autograd remembers the stream on which a parameter was first used."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            assert self.batch is not None
            self.step(self.batch)
        torch.cuda.current_stream().wait_stream(stream)

    def _record(self) -> None:
        assert self.batch is not None
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # what the first steps used: the graph has memory of its own
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self.step(self.batch)
        except RuntimeError as error:
            self.refused = str(error).splitlines()[0]
            torch.cuda.synchronize()
            return
        self.graph = graph
        self.seconds = time.monotonic() - self.started


def _copy(source: Batch, target: Batch) -> None:
    pairs: list[tuple[Tensor | None, Tensor | None]] = [
        (source.images, target.images),
        (source.index, target.index),
        (source.labels, target.labels),
    ]
    for new, old in pairs:
        if new is not None and old is not None:
            old.copy_(new, non_blocking=True)
