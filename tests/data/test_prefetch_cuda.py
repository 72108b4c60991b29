"""Prefetching with CUDA streams: the order of operations with fake streams, and real batches if there is a GPU."""

import gc

import pytest
import torch
from torch import Tensor

from twofold.data import prefetch
from twofold.data import store as store_module
from twofold.data.loader import Loader
from twofold.data.prefetch import DEPTH, BatchSlot, CudaBatchSlot, Prefetcher
from twofold.data.store import ImageStore
from twofold.types import Batch

CPU = torch.device("cpu")
FIELDS = ("images", "index", "position", "labels")
IMAGES = torch.arange(60, dtype=torch.uint8).reshape(-1, 1, 1, 1).expand(-1, 3, 4, 4).contiguous()
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


class FakeStream:
    """A stand-in for a CUDA stream that records the order of operations. Copies happen immediately."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def wait_event(self, event: "FakeEvent") -> None:
        self.log.append(f"{self.name} waits for {event.name}")


class FakeEvent:
    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log, self.pending = name, log, False

    def record(self, stream: FakeStream) -> None:
        self.pending = True
        self.log.append(f"{stream.name} records {self.name}")

    def synchronize(self) -> None:
        self.pending = False
        self.log.append(f"host waits for {self.name}")


@pytest.fixture
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run CudaBatchSlot on the CPU and record what it requests of streams and events."""
    log: list[str] = []
    names = iter(f"{what} {slot}" for slot in range(100) for what in ("arrival", "consumption"))
    side, main = FakeStream("side", log), FakeStream("main", log)
    plain_slot = BatchSlot.__init__
    monkeypatch.setattr(BatchSlot, "__init__", lambda self, size, shape, **_: plain_slot(self, size, shape))
    monkeypatch.setattr(torch.cuda, "Event", lambda: FakeEvent(next(names), log))
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: side)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: main)

    class StreamContext:
        def __init__(self, stream: FakeStream) -> None:
            self.stream = stream

        def __enter__(self) -> None:
            log.append(f"on {self.stream.name}")

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(torch.cuda, "stream", StreamContext)
    monkeypatch.setattr(Tensor, "record_stream", lambda _, stream: log.append(f"memory is used by {stream.name}"))
    return log


def test_streams_wait_for_each_other(fake_cuda: list[str]) -> None:
    slot = CudaBatchSlot(4, (3, 4, 4), CPU, torch.cuda.Stream(CPU))
    slot.gather_batch(IMAGES, torch.tensor([5, 1]))
    fake_cuda.clear()
    slot.send()
    images, rows = slot.receive()
    assert (images[:, 0, 0, 0].tolist(), rows.tolist()) == ([5, 1], [5, 1])
    assert images.data_ptr() != slot.images_NCHW.data_ptr()
    slot.consumed()
    slot.wait()
    assert fake_cuda == [
        "side waits for consumption 0",
        "on side",
        "side records arrival 0",
        "main waits for arrival 0",
        "memory is used by main",
        "memory is used by main",
        "main records consumption 0",
        "host waits for arrival 0",
    ]


def test_pinned_memory_is_not_overwritten_before_its_copy_is_complete(
    fake_cuda: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    overwritten: list[bool] = []
    gather = CudaBatchSlot.gather_batch

    def watch(slot: CudaBatchSlot, images: Tensor, rows: Tensor) -> None:
        overwritten.append(slot.arrival.pending)
        gather(slot, images, rows)

    monkeypatch.setattr(CudaBatchSlot, "gather_batch", watch)
    slots = [CudaBatchSlot(4, (3, 4, 4), CPU, torch.cuda.Stream(CPU)) for _ in range(DEPTH + 1)]
    monkeypatch.setattr(prefetch, "BatchSlot", lambda *_: slots.pop())
    prefetcher = Prefetcher(IMAGES, lambda step: torch.arange(4) + step, 4, CPU)
    images = torch.empty(4, 3, 4, 4, dtype=torch.uint8)
    for step in [*range(12), 3, 4, 30, 31, 32, 33]:
        prefetcher.fill(step, images)
        assert images[:, 0, 0, 0].tolist() == [step, step + 1, step + 2, step + 3]
        assert fake_cuda
    assert len(overwritten) >= 18
    assert not any(overwritten)


@needs_cuda
def test_prefetched_batches_on_cuda_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (600, 3, 64, 64), dtype=torch.uint8, generator=generator)
    whole = ImageStore(images, torch.arange(600) % 7, torch.arange(600) * 2)
    monkeypatch.setattr(store_module, "free_memory", lambda _: 0)
    here = Loader(whole, batch_size=128, seed=1, drop_last=False)
    there = Loader(whole.place("cuda"), batch_size=128, seed=1, drop_last=False)
    static = there.batch(0)
    work = torch.randn(2048, 2048, device="cuda")
    kept = []
    for step in [*range(60), 20, 21, 22, 5, 5, 6]:
        work = work @ work / work.norm()  # keeps the GPU busy, so that it lags behind the host
        if there.order.size(step) == 128:
            there.fill(step, static)
            kept.append((step, Batch(*(getattr(static, name).clone() for name in FIELDS))))
        else:
            kept.append((step, there.batch(step)))
    for step, batch in kept:
        assert batch.images.is_cuda
        for name in FIELDS:
            assert torch.equal(getattr(batch, name).cpu(), getattr(here.batch(step), name)), name


@needs_cuda
def test_batch_stays_valid_after_its_cuda_loader_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "free_memory", lambda _: 0)
    whole = ImageStore(torch.full((512, 3, 96, 96), 7, dtype=torch.uint8), None, torch.arange(512))
    for _ in range(5):
        loader = Loader(whole.place("cuda"), batch_size=128, seed=1, drop_last=True)
        batch = loader.batch(0)
        del loader
        gc.collect()
        torch.full((3 * 128, 3, 96, 96), 0, dtype=torch.uint8, device="cuda")
        assert (batch.images == 7).all()
