"""The same work for many items on all cores: in order, with memory that stays flat however many there are."""

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

WORKERS = min(32, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
CHUNK = 16  # items handed over at once: a small image is decoded in less than a millisecond

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]  # (done, total)


def in_order(function: Callable[[Item], Result], items: Iterable[Item], threads: int | None = None) -> Iterator[Result]:
    """`map` over threads, with few results waiting. Pillow decodes without the GIL."""
    threads = threads or WORKERS
    pool = ThreadPoolExecutor(threads)
    waiting: deque[Future[list[Result]]] = deque()
    supply = iter(items)

    def work(chunk: list[Item]) -> list[Result]:
        return [function(item) for item in chunk]

    try:
        while chunk := list(islice(supply, CHUNK)):
            waiting.append(pool.submit(work, chunk))
            if len(waiting) > 2 * threads:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def counted(results: Iterable[Result], total: int, progress: Progress | None) -> Iterator[Result]:
    for done, result in enumerate(results, start=1):
        yield result
        if progress is not None:
            progress(done, total)


@contextmanager
def quiet_pillow() -> Iterator[None]:
    """What Pillow warns of in a file (size, EXIF, palette) is either harmless or in the list of skipped files."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield
