"""Rows of an array of images, copied to where they are wanted: for `ImageStore.take`, the loader and the prefetcher."""

import functools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

THREADS = 4
LEAST_BYTES = 2**20  # below that, one thread is done before others have begun


def gather_rows(images: Tensor, rows: Tensor, out: Tensor) -> Tensor:
    """Write images[rows] to `out`, which lies on the same device.

    On the host not by torch, which has all of its threads copy one image after the other, and wait for each other
    after every one. Each of ours has images of its own: pages of a mapped file are then read side by side.
    """
    if images.device.type != "cpu":
        return torch.index_select(images, 0, rows, out=out)
    parts = THREADS if out.nbytes >= LEAST_BYTES else 1
    source, places = images.numpy(), np.array_split(out.numpy(), parts)

    def copy(part: int) -> None:
        np.take(source, numbers[part], axis=0, out=places[part], mode="clip")  # else it would copy twice

    numbers = np.array_split(rows.numpy(), parts)
    if parts == 1:
        copy(0)
    else:
        list(_threads().map(copy, range(parts)))
    return out


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="twofold-gather")
