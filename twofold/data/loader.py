"""Batches as a function of (seed, step): nothing is kept between steps, so a run continues from any of them."""

import copy

import torch
from torch import Tensor

from twofold import counter
from twofold.data.prefetch import Prefetcher
from twofold.data.store import ImageStore
from twofold.errors import TwofoldError
from twofold.types import Batch


def suggested_batch_size(images: int) -> int:
    """The largest power of two that is at most half the images, and at least 2: two steps or more in an epoch."""
    return max(2, 2 ** ((images // 2).bit_length() - 1)) if images >= 2 else 2


class Order:
    """Which rows make the batch of a step, for samples with these stable indices `[n]`."""

    def __init__(self, index: Tensor, *, batch_size: int, seed: int, drop_last: bool) -> None:
        self.index, self.batch_size, self.seed = index, batch_size, seed
        full, rest = divmod(len(index), batch_size)
        short = not drop_last and rest >= 2
        self.steps_per_epoch = full + short
        self.last_batch_size = rest if short else batch_size
        self._current: tuple[int, Tensor] | None = None

    def on_host(self) -> "Order":
        """The same order, told without asking the device."""
        other = copy.copy(self)
        other.index, other._current = self.index.cpu(), None
        return other

    def __call__(self, epoch: int) -> Tensor:
        """The epoch's permutation of the rows, int64 [n]; remembered for the current epoch."""
        current = self._current
        if current is None or current[0] != epoch:
            current = epoch, counter.permutation(counter.key(self.seed, epoch, self.index, "order"))
            self._current = current
        return current[1]

    def rows(self, step: int) -> Tensor:
        epoch, place = divmod(step, self.steps_per_epoch)
        start = place * self.batch_size
        return self(epoch)[start : start + self.batch_size]

    def size(self, step: int) -> int:
        """How many rows the step has."""
        last = (step + 1) % self.steps_per_epoch == 0
        return self.last_batch_size if last else self.batch_size


class Loader:
    """`batch(step)` is the same whenever and wherever it is asked for. A last batch of one image is left out.

    Where the images are not on the store's device, the batches of the next steps are made ready in the background.
    """

    def __init__(self, store: ImageStore, *, batch_size: int, seed: int, drop_last: bool) -> None:
        if batch_size > len(store):
            raise TwofoldError(
                f"batch_size={batch_size} is larger than the {len(store)} images; "
                f"use batch_size={suggested_batch_size(len(store))}"
            )
        self.store = store
        index = store.index.to(store.images.device)
        self.order = Order(index, batch_size=batch_size, seed=seed, drop_last=drop_last)
        self.steps_per_epoch = self.order.steps_per_epoch
        self.last_batch_size = self.order.last_batch_size
        self._prefetcher: Prefetcher | None = None
        if images_travel(store):
            self._prefetcher = Prefetcher(store.images, self.order.rows, batch_size, store.device)

    def batch(self, step: int) -> Batch:
        store, size = self.store, self.order.size(step)
        batch = Batch(
            images=torch.empty((size, *store.images.shape[1:]), dtype=torch.uint8, device=store.device),
            index=torch.empty(size, dtype=torch.int64, device=store.device),
            position=torch.arange(size, device=store.device),
            labels=None if store.labels is None else torch.empty(size, dtype=torch.int64, device=store.device),
        )
        self.fill(step, batch)
        return batch

    def fill(self, step: int, batch: Batch) -> None:
        """Write the step's images, index and labels into the tensors of `batch`, such as those a CUDA graph reads.

        The device is never waited for, except where images travel to it and it is some steps behind.
        """
        store, size = self.store, self.order.size(step)
        if len(batch.images) != size:
            raise TwofoldError(
                f"step {step} has {size} images and the batch to fill has room for {len(batch.images)}; "
                "use batch(step) for a short last batch"
            )
        if self._prefetcher is not None:
            rows = self._prefetcher.fill(step, batch.images)
        else:
            rows = self.order.rows(step)
            torch.index_select(store.images, 0, rows, out=batch.images)
        torch.index_select(store.index, 0, rows, out=batch.index)
        if store.labels is not None and batch.labels is not None:
            torch.index_select(store.labels, 0, rows, out=batch.labels)


def images_travel(store: ImageStore) -> bool:
    """Whether batches go to another device than the images are on."""
    return store.images.device.type != store.device.type
