"""Copy rows of an array of images to a given tensor, for `ImageStore.take`, the loader and the prefetcher."""

import functools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

THREADS = 4
LEAST_BYTES = 2**20  # for less, one thread finishes before others have started


def gather_rows(images: Tensor, rows: Tensor, out: Tensor) -> Tensor:
    """Write images[rows] to `out`, which is on the same device.

    On the host, torch would copy one image at a time with all of its threads, and synchronise them after each image.
    Here, each thread copies different images, so pages of a mapped file are read in parallel.
    """
    if images.device.type != "cpu":
        return torch.index_select(images, 0, rows, out=out)
    parts = THREADS if out.nbytes >= LEAST_BYTES else 1
    source, places = images.numpy(), np.array_split(out.numpy(), parts)

    def copy(part: int) -> None:
        np.take(source, numbers[part], axis=0, out=places[part], mode="clip")  # other modes copy twice

    numbers = np.array_split(rows.numpy(), parts)
    if parts == 1:
        copy(0)
    else:
        list(_threads().map(copy, range(parts)))
    return out


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="twofold-gather")
