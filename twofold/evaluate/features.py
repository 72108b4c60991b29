"""Representations of all images of a store, batch by batch: how an `Encoder` computes features, and the raw pixels
that probes compare them with.

n images, C channels, H height, W width, K feature dimension.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from twofold.errors import TwofoldError

DEVICE_BYTES = 2**30  # features up to this size stay on their device, larger ones go to the CPU
BATCH_SIZE = 512  # images that an encoder takes at a time
PIXEL_SIDE = 32


class ImageRows(Protocol):
    """Stored images: an `ImageStore`, or what hands over some of one or of several."""

    def __len__(self) -> int: ...

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """uint8 images `[N, C, H, W]` of these rows, and their labels `[N]` where there are any."""


class Subset:
    """Some rows of a store."""

    def __init__(self, store: ImageRows, rows: Tensor):
        self.store, self.rows = store, rows

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        return self.store.take(self.rows[rows])


def pixels(store: ImageRows, *, batch_size: int = 256) -> Tensor:
    """Raw pixels from 0 to 1 as float32 `[n, C·H·W]`, placed like features.

    Height and width above 32 are first averaged down to 32, so that a probe on pixels stays affordable.
    """

    def flatten(images: Tensor) -> Tensor:
        values = images.float() / 255
        height, width = (min(side, PIXEL_SIDE) for side in values.shape[2:])
        return functional.adaptive_avg_pool2d(values, (height, width)).flatten(1)

    return collect(len(store), batches(store, flatten, batch_size, None))


@torch.no_grad()
def batches(
    store: ImageRows,
    represent: Callable[[Tensor], Tensor],
    batch_size: int,
    progress: Callable[[int, int], None] | None,
) -> Iterator[Tensor]:
    """What `represent` makes of the images, in order; `progress(done, n)` is called after every batch."""
    total = len(store)
    if total == 0:
        raise TwofoldError("there are no images to represent: the data set is empty; give one with images")
    for start in range(0, total, batch_size):
        rows = torch.arange(start, min(start + batch_size, total))
        yield represent(store.take(rows)[0])
        if progress is not None:
            progress(start + len(rows), total)


def collect(total: int, batches: Iterator[Tensor]) -> Tensor:
    """The batches as one float32 `[total, K]`, where the first of them is up to 1 GiB, else on the CPU."""
    collected: Tensor | None = None
    done = 0
    for batch in batches:
        if collected is None:
            place = batch.device if 4 * total * batch.shape[1] <= DEVICE_BYTES else torch.device("cpu")
            collected = torch.empty(total, batch.shape[1], dtype=torch.float32, device=place)
        collected[done : done + len(batch)] = batch
        done += len(batch)
    assert collected is not None
    return collected
