"""Batches as a function of (seed, step): nothing is kept between steps, so a run continues from any of them."""

import torch
from torch import Tensor

from twofold import counter
from twofold.data.store import ImageStore
from twofold.errors import TwofoldError
from twofold.types import Batch


def suggested_batch_size(images: int) -> int:
    """The largest power of two that is at most half the images, and at least 2: two steps or more in an epoch."""
    return max(2, 2 ** ((images // 2).bit_length() - 1)) if images >= 2 else 2


class Loader:
    """`batch(step)` is the same whenever and wherever it is asked for. A last batch of one image is left out."""

    def __init__(self, store: ImageStore, *, batch_size: int, seed: int, drop_last: bool) -> None:
        if batch_size > len(store):
            raise TwofoldError(
                f"batch_size={batch_size} is larger than the {len(store)} images; "
                f"use batch_size={suggested_batch_size(len(store))}"
            )
        self.store = store
        self.batch_size = batch_size
        self.seed = seed
        full, rest = divmod(len(store), batch_size)
        short = not drop_last and rest >= 2
        self.steps_per_epoch = full + short
        self.last_batch_size = rest if short else batch_size
        self._order: tuple[int, Tensor] | None = None

    def batch(self, step: int) -> Batch:
        epoch, place = divmod(step, self.steps_per_epoch)
        start = place * self.batch_size
        rows, store = self.order(epoch)[start : start + self.batch_size], self.store
        images, labels = store.take(rows)
        index = store.index.index_select(0, rows.to(store.index.device, non_blocking=True))
        return Batch(images, index, torch.arange(len(rows), device=store.device), labels)

    def order(self, epoch: int) -> Tensor:
        """The epoch's permutation of the store's rows, int64 [n]; remembered for the current epoch."""
        if self._order is None or self._order[0] != epoch:
            index = self.store.index.to(self.store.images.device)
            self._order = epoch, counter.permutation(counter.key(self.seed, epoch, index, "order"))
        return self._order[1]
