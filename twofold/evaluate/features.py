"""Features of all images of a store, computed in batches, and raw pixels as a baseline.

Shapes: n images, C channels, H height, W width, K feature dimension.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from twofold.errors import TwofoldError

DEVICE_BYTES = 2**30  # features up to this size stay on their device, larger ones go to the CPU
BATCH_SIZE = 512  # images per forward pass of an encoder
PIXEL_SIDE = 32
VIEWS = (1, 5)  # the numbers of views whose features can be averaged
CROP = 0.8  # of the side of the image


class ImageRows(Protocol):
    """Stored images: an `ImageStore`, or a selection from one or several stores."""

    def __len__(self) -> int: ...

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the uint8 images `[N, C, H, W]` of these rows and their labels `[N]`, or None without labels."""


class Subset:
    """A selection of rows of a store."""

    def __init__(self, store: ImageRows, rows: Tensor):
        self.store, self.rows = store, rows

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        return self.store.take(self.rows[rows])


def check_views(views: int) -> int:
    """Return the number of views. Refuse a number for which there are no fixed views."""
    if views not in VIEWS:
        raise TwofoldError(f"views={views} is not possible: use 1 (the image) or 5 (the image and four crops)")
    return views


def fixed_views(images: Tensor, views: int) -> list[Tensor]:
    """Return views whose features are averaged: the middle square of the images and, if `views` is 5, its corners.

    They are the same for each call, and without flips, so that they suit digits and text.

    Parameters
    ----------
    images : uint8 Tensor [N, C, H, W]
        The images.
    views : int
        1 or 5.
    """
    if check_views(views) == 1:
        return [images]
    height, width = images.shape[2:]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = images[:, :, top : top + side, left : left + side]
    near, far = slice(0, max(1, round(CROP * side))), slice(side - max(1, round(CROP * side)), side)
    return [square, *(square[:, :, rows, columns] for rows in (near, far) for columns in (near, far))]


def pixels(store: ImageRows, *, batch_size: int = 256) -> Tensor:
    """Return raw pixels from 0 to 1 as float32 `[n, C·H·W]`, on the device that `collect` chooses.

    Larger images are averaged to 32 pixels high and wide, so that a probe on pixels stays affordable.
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
    """Yield `represent(images)` for each batch of the store, in order; call `progress(done, n)` after each batch."""
    total = len(store)
    if total == 0:
        raise TwofoldError("the dataset contains no images; choose data that contains images")
    for start in range(0, total, batch_size):
        rows = torch.arange(start, min(start + batch_size, total))
        yield represent(store.take(rows)[0])
        if progress is not None:
            progress(start + len(rows), total)


def collect(total: int, batches: Iterator[Tensor]) -> Tensor:
    """Join the batches to float32 `[total, K]`: on the device of the first batch up to 1 GiB, otherwise on the CPU."""
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
