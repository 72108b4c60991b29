"""Batches as a function of (seed, step). There is no state between steps, so a run can resume at any step.

The trainer makes a `Loader` of its training images and requests the batch of each step. `cuda/step_graph.py` lets the
`Loader` fill tensors of a CUDA graph. `BatchOrder` determines the rows of each step; the report and the per-image
classifier also use it.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from twofold import counter
from twofold.data.objects import Objects
from twofold.data.pictures import gather_batch
from twofold.data.prefetch import Prefetcher
from twofold.data.store import ImageStore
from twofold.errors import TwofoldError
from twofold.types import Batch


def suggested_batch_size(images: int) -> int:
    """Return the largest power of two that gives at least two steps per epoch; it is at least 2."""
    return max(2, 2 ** ((images // 2).bit_length() - 1)) if images >= 2 else 2


def refuse_large_batch(batch_size: int, samples: int, *, are_objects: bool = False) -> None:
    if batch_size > samples:
        raise TwofoldError(
            f"batch_size={batch_size} is larger than the {samples} {'objects' if are_objects else 'images'}; use "
            f"batch_size={suggested_batch_size(samples)}"
        )


Share = Callable[[int, torch.device], Tensor]  # (size of a batch, device) → positions of this process's samples


class BatchOrder:
    """The rows of the batch of each step.

    Parameters
    ----------
    index
        The stable indices of the samples, int64 [n].
    batch_size
        The number of samples in a batch, over all processes.
    seed
        The seed of the order.
    drop_last
        Whether to drop a last batch that is smaller than the others. A last batch of one sample is always dropped.
    share
        Selects the samples of this process. None selects all.
    """

    def __init__(
        self, index: Tensor, *, batch_size: int, seed: int, drop_last: bool, share: Share | None = None
    ) -> None:
        self.index, self.batch_size, self.seed, self.share = index, batch_size, seed, share
        full, rest = divmod(len(index), batch_size)
        short = not drop_last and rest >= 2
        self.steps_per_epoch = full + short
        self.last_batch_size = rest if short else batch_size
        self._current: tuple[int, Tensor] | None = None

    def on_host(self) -> "BatchOrder":
        """Return the same order on the host, for complete batches of all processes."""
        other = copy.copy(self)
        other.index, other._current, other.share = self.index.cpu(), None, None
        return other

    def permutation(self, epoch: int) -> Tensor:
        """Return the epoch's permutation of the rows, int64 [n]. It is cached for the current epoch."""
        current = self._current
        if current is None or current[0] != epoch:
            current = epoch, counter.permutation(counter.key(self.seed, epoch, self.index, "order"))
            self._current = current
        return current[1]

    def rows(self, step: int) -> Tensor:
        """Return the rows of this process in the step's batch, int64 [N]."""
        epoch, place = divmod(step, self.steps_per_epoch)
        start = place * self.batch_size
        rows = self.permutation(epoch)[start : start + self.batch_size]
        return rows if self.share is None else rows.index_select(0, self.positions(step, self.index.device))

    def positions(self, step: int, device: torch.device) -> Tensor:
        """Return the positions of these rows in the step's batch, int64 [N]."""
        size = self.batch_size_of(step)
        return torch.arange(size, device=device) if self.share is None else self.share(size, device)

    def size(self, step: int) -> int:
        """Return the number of rows of this process in the step's batch."""
        size = self.batch_size_of(step)
        return size if self.share is None else len(self.share(size, self.index.device))

    def batch_size_of(self, step: int) -> int:
        """Return the number of rows in the step's batch over all processes."""
        last = (step + 1) % self.steps_per_epoch == 0
        return self.last_batch_size if last else self.batch_size


@dataclass(frozen=True, eq=False)
class ImagesOfBatch:
    """The rows of the images of each step: one for each sample, or with objects one for each view of each sample.

    A prefetching thread refers to it, so it must not refer to the `Loader`, which could otherwise never be freed.
    """

    order: BatchOrder
    objects: Objects | None
    views: int

    def of_step(self, step: int) -> Tensor:
        return self.of_samples(self.order.rows(step), step)

    def of_samples(self, samples: Tensor, step: Tensor | int) -> Tensor:
        if self.objects is None:
            return samples
        index = self.order.index.index_select(0, samples)
        return self.objects.choose(samples, index, step, self.order.seed, self.views).flatten()


class Loader:
    """Makes the batches of an `ImageStore`. `batch(step)` always returns the same batch for the same step.

    If the images are not on the store's device, the batches of the next steps are prefetched in the background.
    """

    def __init__(
        self,
        store: ImageStore,
        *,
        batch_size: int,
        seed: int,
        drop_last: bool,
        share: Share | None = None,
        views: int = 1,
    ) -> None:
        self.store, self.views = store, views
        index = store.index.to(store.crop_source.device)
        self.objects = None if store.objects is None else store.objects.to(index.device)
        index = index if self.objects is None else index[self.objects.first]
        refuse_large_batch(batch_size, len(index), are_objects=self.objects is not None)
        self.order = BatchOrder(index, batch_size=batch_size, seed=seed, drop_last=drop_last, share=share)
        self.images = ImagesOfBatch(self.order, self.objects, views)
        self.steps_per_epoch = self.order.steps_per_epoch
        self.last_batch_size = self.order.last_batch_size
        self._rows: Tensor | None = None  # the epoch's permutation, at a fixed address that a CUDA graph has recorded
        self._epoch: int | None = None
        self._prefetcher: Prefetcher | None = None
        if needs_prefetch(store):
            images = batch_size if self.objects is None else batch_size * views
            self._prefetcher = Prefetcher(store.crop_source, self.images.of_step, images, store.device)

    @property
    def on_device(self) -> bool:
        """Whether `fill_on_device` works, after `set_epoch_of`."""
        return self._prefetcher is None and self.order.share is None

    def set_epoch_of(self, step: int) -> None:
        """Prepare `fill_on_device` for the epoch of this step."""
        epoch = step // self.steps_per_epoch
        if self._epoch != epoch:
            rows = self.order.permutation(epoch)
            self._rows = rows.clone() if self._rows is None else self._rows.copy_(rows)
            self._epoch = epoch

    def fill_on_device(self, step: Tensor, batch: Batch) -> None:
        """Like `fill`, for a step number that is only on the device. A short batch is filled with arbitrary images."""
        assert self._rows is not None, "call set_epoch_of first"
        place = step.remainder(self.steps_per_epoch) * self.order.batch_size + batch.position
        samples = self._rows.index_select(0, place.clamp(max=len(self._rows) - 1))
        self._copy_rows(self.images.of_samples(samples, step), batch)

    def batch(self, step: int) -> Batch:
        """Return the step's batch in new tensors."""
        store, size = self.store, self.order.size(step)
        shape = (size,) if self.objects is None else (size, self.views)
        batch = Batch(
            images=torch.empty((*shape, *store.crop_source.shape[1:]), dtype=torch.uint8, device=store.device),
            index=torch.empty(size, dtype=torch.int64, device=store.device),
            position=self.order.positions(step, store.device),
            labels=None if store.labels is None else torch.empty(size, dtype=torch.int64, device=store.device),
            sizes=None if store.pictures is None else torch.empty(*shape, 2, dtype=torch.int64, device=store.device),
        )
        self.fill(step, batch)
        return batch

    def fill(self, step: int, batch: Batch) -> None:
        """Write the step's images, index and labels to the tensors of `batch`, for example those of a CUDA graph.

        The host waits for the device only if images are copied to it and it is several steps behind.
        """
        size = self.order.size(step)
        if len(batch.images) != size:
            raise TwofoldError(
                f"step {step} has {size} images and the batch to fill has room for {len(batch.images)}; "
                "use batch(step) for a short last batch"
            )
        if self._prefetcher is not None:
            images = batch.images if self.objects is None else batch.images.flatten(0, 1)
            self._copy_rows(self._prefetcher.fill(step, images), batch, images=False)
        else:
            self._copy_rows(self.images.of_step(step), batch)

    def _copy_rows(self, rows: Tensor, batch: Batch, images: bool = True) -> None:
        store = self.store
        if images:
            gather_batch(store.crop_source, rows, batch.images if self.objects is None else batch.images.flatten(0, 1))
        if self.objects is not None:
            if store.pictures is not None and batch.sizes is not None:
                sizes = store.pictures.sizes.index_select(0, rows.to(store.pictures.sizes.device))
                batch.sizes.copy_(sizes.view_as(batch.sizes))
            # Index and label of a sample are those of its first image.
            objects = self.objects.to(rows.device)
            rows = objects.first.index_select(0, objects.of_row.index_select(0, rows[:: self.views]))
        torch.index_select(store.index, 0, rows, out=batch.index)
        if store.labels is not None and batch.labels is not None:
            torch.index_select(store.labels, 0, rows, out=batch.labels)
        if self.objects is None and store.pictures is not None and batch.sizes is not None:
            torch.index_select(store.pictures.sizes, 0, rows, out=batch.sizes)


def needs_prefetch(store: ImageStore) -> bool:
    """Whether the images are on another device than the batches, so that prefetching saves time."""
    return store.crop_source.device.type != store.device.type
