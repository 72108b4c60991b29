"""Prefetching and order of batches on the CPU, without CUDA streams."""

import dataclasses
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from twofold.data import loader as loader_module
from twofold.data.loader import Loader
from twofold.data.prefetch import DEPTH, BatchSlot, Lookahead, Prefetcher
from twofold.data.store import ImageStore
from twofold.errors import TwofoldError
from twofold.types import Batch

CPU = torch.device("cpu")
FIELDS = ("images", "index", "position", "labels")


def store(count: int = 23, labelled: bool = True) -> ImageStore:
    images = torch.arange(count, dtype=torch.uint8).reshape(-1, 1, 1, 1).expand(-1, 3, 4, 4).contiguous()
    return ImageStore(images, torch.arange(count) * 10 if labelled else None, torch.arange(count) * 3 + 100)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture
def direct_loader() -> Loader:
    return Loader(store(), batch_size=5, seed=3, drop_last=False)


@pytest.fixture
def prefetching_loader(monkeypatch: pytest.MonkeyPatch) -> Loader:
    monkeypatch.setattr(loader_module, "needs_prefetch", lambda _: True)
    return Loader(store(), batch_size=5, seed=3, drop_last=False)


def assert_same(one: Batch, other: Batch) -> None:
    for name in FIELDS:
        assert torch.equal(getattr(one, name).cpu(), getattr(other, name).cpu()), name


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "twofold-prefetch"]


def test_prefetched_batches_are_the_same_for_several_epochs(direct_loader: Loader, prefetching_loader: Loader) -> None:
    assert threads()
    for step in range(4 * direct_loader.steps_per_epoch):
        assert_same(prefetching_loader.batch(step), direct_loader.batch(step))


def test_prefetched_batches_are_the_same_after_jumps_and_repetitions(
    direct_loader: Loader, prefetching_loader: Loader
) -> None:
    for step in (7, 8, 9, 2, 2, 3, 40, 0, 1, 2, 3, 4, 5, 4, 19, 20):
        assert_same(prefetching_loader.batch(step), direct_loader.batch(step))


def test_batches_are_not_overwritten_later(direct_loader: Loader, prefetching_loader: Loader) -> None:
    batches = [prefetching_loader.batch(step) for step in range(12)]
    for step, batch in enumerate(batches):
        assert_same(batch, direct_loader.batch(step))


@pytest.mark.parametrize("loader_name", ["direct_loader", "prefetching_loader"])
def test_fill_writes_into_the_given_tensors(
    loader_name: str, direct_loader: Loader, request: pytest.FixtureRequest
) -> None:
    loader = request.getfixturevalue(loader_name)
    batch = loader.batch(0)
    addresses = [getattr(batch, name).data_ptr() for name in FIELDS]
    for step in (0, 1, 2, 7, 6):
        loader.fill(step, batch)
        assert_same(batch, direct_loader.batch(step))
    assert [getattr(batch, name).data_ptr() for name in FIELDS] == addresses


@pytest.mark.parametrize("loader_name", ["direct_loader", "prefetching_loader"])
def test_filling_a_batch_of_another_size_raises_an_error(
    loader_name: str, direct_loader: Loader, request: pytest.FixtureRequest
) -> None:
    loader = request.getfixturevalue(loader_name)
    batch = loader.batch(0)
    with pytest.raises(TwofoldError, match="step 4 has 3 images and the batch to fill has room for 5"):
        loader.fill(4, batch)
    short = loader.batch(4)
    with pytest.raises(TwofoldError, match="step 5 has 5 images"):
        loader.fill(5, short)
    loader.fill(9, short)
    assert_same(short, direct_loader.batch(9))


def test_prefetched_batches_of_unlabelled_images_have_no_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_module, "needs_prefetch", lambda _: True)
    loader = Loader(store(labelled=False), batch_size=5, seed=3, drop_last=True)
    assert [loader.batch(step).labels for step in range(3)] == [None] * 3


def test_loader_without_transfers_starts_no_thread() -> None:
    before = threads()
    loader = Loader(store(), batch_size=5, seed=0, drop_last=True)
    loader.batch(0)
    assert threads() == before
    accelerator = dataclasses.replace(store(), device=torch.device("meta"))
    placed = Loader(accelerator, batch_size=5, seed=0, drop_last=True)
    assert len(threads()) == len(before) + 1
    del placed
    gc.collect()
    assert threads() == before


class RecordedRows:
    """A stand-in for `BatchOrder.rows` that records the requested steps, and can fail or block."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.fail: set[int] = set()
        self.open = threading.Event()
        self.open.set()

    def __call__(self, step: int) -> Tensor:
        self.steps.append(step)
        self.open.wait(10)
        if step in self.fail:
            raise OSError(f"step {step} cannot be read")
        return torch.arange(4) + step


@pytest.fixture
def rows() -> RecordedRows:
    return RecordedRows()


@pytest.fixture
def prefetcher(rows: RecordedRows) -> Prefetcher:
    return Prefetcher(store(60).images, rows, 4, CPU)


def filled(prefetcher: Prefetcher, step: int) -> list[int]:
    images = torch.empty(4, 3, 4, 4, dtype=torch.uint8)
    rows = prefetcher.fill(step, images)
    assert torch.equal(images, rows.to(torch.uint8).view(-1, 1, 1, 1).expand_as(images))
    return rows.tolist()


def test_rows_are_not_overwritten_later(prefetcher: Prefetcher) -> None:
    images = torch.empty(4, 3, 4, 4, dtype=torch.uint8)
    kept = [prefetcher.fill(step, images) for step in range(10)]
    assert [rows.tolist() for rows in kept] == [[step, step + 1, step + 2, step + 3] for step in range(10)]


def test_exactly_two_steps_are_gathered_ahead(rows: RecordedRows, prefetcher: Prefetcher) -> None:
    time.sleep(0.02)
    assert rows.steps == []  # no step was requested yet
    for step in range(5, 10):
        assert filled(prefetcher, step) == [step, step + 1, step + 2, step + 3]
        wait_until(lambda last=step + DEPTH: rows.steps == list(range(5, last + 1)))
        time.sleep(0.02)
        assert rows.steps == list(range(5, step + DEPTH + 1))


def test_gathered_batches_are_sent_before_they_are_requested(
    rows: RecordedRows, prefetcher: Prefetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    monkeypatch.setattr(BatchSlot, "send", lambda slot: sent.append(int(slot.rows_N[0])))
    filled(prefetcher, 0)
    wait_until(lambda: rows.steps == [0, 1, 2])
    time.sleep(0.02)
    filled(prefetcher, 1)
    assert sent[:3] == [0, 1, 2]


def test_batch_of_another_step_is_never_returned(rows: RecordedRows, prefetcher: Prefetcher) -> None:
    filled(prefetcher, 0)
    wait_until(lambda: rows.steps == [0, 1, 2])
    rows.open.clear()
    jump = threading.Timer(0.05, rows.open.set)
    jump.start()
    assert filled(prefetcher, 20) == [20, 21, 22, 23]
    assert filled(prefetcher, 21) == [21, 22, 23, 24]
    # A jump while the thread gathers a step that is no longer needed.
    wait_until(lambda: rows.steps[-1] == 23)
    rows.open.clear()
    again = threading.Timer(0.05, rows.open.set)
    filled(prefetcher, 22)
    wait_until(lambda: rows.steps[-1] == 24)
    again.start()
    for step in (3, 4, 5, 6, 7):
        assert filled(prefetcher, step) == [step, step + 1, step + 2, step + 3]


def test_memory_of_slots_is_allocated_once(rows: RecordedRows, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []
    gather = BatchSlot.gather_batch

    def record_slot(slot: BatchSlot, images: Tensor, rows: Tensor) -> None:
        gather(slot, images, rows)
        used.append(slot.images_NCHW.data_ptr())

    monkeypatch.setattr(BatchSlot, "gather_batch", record_slot)
    prefetcher = Prefetcher(store(60).images, rows, 4, CPU)
    for step in [*range(20), *range(5, 25)]:
        filled(prefetcher, step)
    assert len(set(used)) == DEPTH + 1
    assert len(used) >= 40


def test_error_is_raised_at_the_step_that_it_belongs_to(rows: RecordedRows, prefetcher: Prefetcher) -> None:
    rows.fail = {3}
    for step in (0, 1, 2):
        filled(prefetcher, step)
        time.sleep(0.01)
    for _ in range(2 * DEPTH + 2):  # the error is repeated, and no slot is lost
        with pytest.raises(OSError, match="step 3 cannot be read"):
            filled(prefetcher, 3)
    filled(prefetcher, 4)
    rows.fail = set()
    for step in (3, 4, 5):
        assert filled(prefetcher, step)[0] == step


def test_interruptions_lose_no_slot(prefetcher: Prefetcher, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: BatchSlot) -> None:
        raise KeyboardInterrupt

    for step in range(2 * DEPTH + 2):
        with monkeypatch.context() as patch:
            patch.setattr(BatchSlot, "receive", interrupt)
            with pytest.raises(KeyboardInterrupt):
                filled(prefetcher, step)
    assert [filled(prefetcher, step)[0] for step in range(9)] == list(range(9))


@pytest.mark.parametrize("started", [False, True])
def test_thread_ends_when_the_loader_is_deleted(
    prefetching_loader: Loader, started: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader_module, "needs_prefetch", lambda _: True)
    loader = Loader(store(), batch_size=5, seed=0, drop_last=True)
    thread = loader._prefetcher.lookahead.thread
    if started:
        loader.batch(0)
    assert thread.is_alive()
    del loader
    gc.collect()
    assert not thread.is_alive()
    assert prefetching_loader._prefetcher.lookahead.thread.is_alive()


def test_close_ends_a_thread_with_remaining_work() -> None:
    started = threading.Event()

    def work(_: int, place: list[int]) -> None:
        started.set()
        time.sleep(0.001)
        place.append(1)

    places: list[list[int]] = [[] for _ in range(1000)]
    lookahead = Lookahead(work, places)
    lookahead.restart(0)
    started.wait(10)
    lookahead.close()
    assert not lookahead.thread.is_alive()
    assert sum(map(len, places)) < 1000


SCRIPT = """
import torch, threading, time, signal, os
from twofold.data.prefetch import Prefetcher
def rows(step):
    time.sleep({seconds})
    return torch.arange(2)
images = torch.zeros(8, 1, 2, 2, dtype=torch.uint8)
prefetcher = Prefetcher(images, rows, 2, torch.device("cpu"))
{ending}
"""


@pytest.mark.parametrize(
    "seconds, ending, status",
    [
        (0.0, "prefetcher.fill(0, images[:2])", 0),
        (0.2, "prefetcher.lookahead.restart(0)", 0),
        (0.0, "prefetcher.fill(0, images[:2]); raise SystemExit(3)", 3),
        # Ctrl-C while the caller waits for the thread.
        (
            2.0,
            "threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start(); prefetcher.fill(0, images[:2])",
            -2,
        ),
    ],
    ids=["end", "end while gathering", "exit", "interrupt"],
)
def test_process_ends_despite_the_thread(seconds: float, ending: str, status: int) -> None:
    script = SCRIPT.format(seconds=seconds, ending=ending)
    # Shells that start tests in the background ignore SIGINT. The child would inherit this and miss the interrupt.
    done = subprocess.run(
        [sys.executable, "-c", "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n" + script],
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert done.returncode == status, done.stderr
    assert "Fatal" not in done.stderr
