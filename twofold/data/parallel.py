"""Apply a function to many items in threads, in order, with constant memory.

`ItemSplit` decodes images and the readers inspect files with `map_in_order`. For many small files,
`data/decode_processes.py` is used instead.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

WORKERS = min(32, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
ITEMS_PER_TASK = 16  # items per task, because a small image is decoded in less than a millisecond

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]  # (done, total)


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int | None = None
) -> Iterator[Result]:
    """Like `map`, but in threads, with a bounded number of waiting results. Pillow releases the GIL while decoding."""
    threads = threads or WORKERS
    pool = ThreadPoolExecutor(threads)
    waiting: deque[Future[list[Result]]] = deque()
    supply = iter(items)

    def work(chunk: list[Item]) -> list[Result]:
        return [function(item) for item in chunk]

    try:
        while chunk := list(islice(supply, ITEMS_PER_TASK)):
            waiting.append(pool.submit(work, chunk))
            if len(waiting) > 2 * threads:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def with_progress(results: Iterable[Result], total: int, progress: Progress | None) -> Iterator[Result]:
    """Yield the results and report progress. A result is reported after the caller has used it."""
    for done, result in enumerate(results, start=1):
        yield result
        if progress is not None:
            progress(done, total)
