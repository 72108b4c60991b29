import re

import numpy as np
import pytest
import torch

from twofold.data.loader import Loader, suggested_batch_size
from twofold.data.store import ImageStore
from twofold.errors import TwofoldError


def store(count: int = 23, labelled: bool = True) -> ImageStore:
    """Images whose pixels, label and index identify the row."""
    images = torch.arange(count, dtype=torch.uint8).reshape(-1, 1, 1, 1).expand(-1, 3, 2, 2).contiguous()
    labels = torch.arange(count) * 10 if labelled else None
    return ImageStore(images, labels, torch.arange(count) * 3 + 100)


def rows_of(loader: Loader, epoch: int) -> list[int]:
    steps = range(epoch * loader.steps_per_epoch, (epoch + 1) * loader.steps_per_epoch)
    return [int(row) for step in steps for row in loader.batch(step).images[:, 0, 0, 0]]


def test_every_epoch_is_a_different_permutation() -> None:
    loader = Loader(store(), batch_size=5, seed=1, drop_last=False)
    epochs = [rows_of(loader, epoch) for epoch in range(4)]
    assert all(sorted(rows) == list(range(23)) for rows in epochs)
    assert len({tuple(rows) for rows in epochs}) == 4
    assert rows_of(Loader(store(), batch_size=5, seed=2, drop_last=False), 0) != epochs[0]


def test_rows_are_uniformly_distributed_over_positions() -> None:
    loader = Loader(store(8), batch_size=8, seed=3, drop_last=True)
    epochs = 1000
    places = np.array([loader.order.permutation(epoch).numpy() for epoch in range(epochs)])
    counts = np.stack([np.bincount(places[:, place], minlength=8) for place in range(8)])
    chi2 = ((counts - epochs / 8) ** 2 / (epochs / 8)).sum()
    assert 20 < chi2 < 90  # 49 degrees of freedom: outside of this range with probability below 0.001


def test_batch_does_not_depend_on_earlier_requests() -> None:
    in_order = Loader(store(), batch_size=5, seed=7, drop_last=True)
    batches = [in_order.batch(step) for step in range(12)]
    out_of_order = Loader(store(), batch_size=5, seed=7, drop_last=True)
    for step in (11, 0, 5, 4, 5, 9, 11):
        again, first = out_of_order.batch(step), batches[step]
        for name in ("images", "index", "position", "labels"):
            assert torch.equal(getattr(again, name), getattr(first, name))


def test_batch_has_labels_indices_and_positions_of_its_images() -> None:
    batch = Loader(store(), batch_size=6, seed=0, drop_last=True).batch(2)
    rows = batch.images[:, 0, 0, 0].long()
    assert torch.equal(batch.labels, rows * 10)
    assert torch.equal(batch.index, rows * 3 + 100)
    assert batch.position.tolist() == list(range(6))
    assert (batch.images.dtype, batch.index.dtype) == (torch.uint8, torch.int64)
    assert Loader(store(labelled=False), batch_size=6, seed=0, drop_last=True).batch(0).labels is None


def test_order_of_an_epoch_is_computed_once() -> None:
    order = Loader(store(), batch_size=5, seed=0, drop_last=True).order
    assert order.permutation(3) is order.permutation(3)
    assert torch.equal(order.rows(13), order.permutation(3)[5:10])


def test_order_follows_the_stable_index_and_not_the_row() -> None:
    """A file that becomes unreadable does not change the order of the others."""
    whole = store()
    keep = torch.tensor([row for row in range(23) if row != 11])
    less = ImageStore(whole.images[keep], whole.labels[keep], whole.index[keep])
    before = [row for row in rows_of(Loader(whole, batch_size=1, seed=5, drop_last=True), 2) if row != 11]
    assert rows_of(Loader(less, batch_size=1, seed=5, drop_last=True), 2) == before


@pytest.mark.parametrize(
    "count, drop_last, sizes",
    [(10, True, [5, 5]), (13, True, [5, 5]), (13, False, [5, 5, 3]), (12, False, [5, 5, 2]), (11, False, [5, 5])],
)
def test_last_batch_is_dropped_or_short(count: int, drop_last: bool, sizes: list[int]) -> None:
    loader = Loader(store(count), batch_size=5, seed=0, drop_last=drop_last)
    assert loader.steps_per_epoch == len(sizes)
    assert [len(loader.batch(step).images) for step in range(2 * len(sizes))] == sizes * 2


def test_error_for_a_too_large_batch_suggests_one_that_fits() -> None:
    message = "batch_size=512 is larger than the 300 images; use batch_size=128"
    images = torch.zeros(300, 1, 1, 1, dtype=torch.uint8)
    with pytest.raises(TwofoldError, match=re.escape(message)):
        Loader(ImageStore(images, None, torch.arange(300)), batch_size=512, seed=0, drop_last=False)
    assert Loader(store(4), batch_size=4, seed=0, drop_last=True).steps_per_epoch == 1


def test_suggested_batch_size_is_a_power_of_two() -> None:
    assert [suggested_batch_size(n) for n in (2, 3, 4, 7, 8, 255, 256, 511, 512)] == [2, 2, 2, 2, 4, 64, 128, 128, 256]


@pytest.mark.parametrize("drop_last", [True, False])
def test_device_computes_the_same_batches(drop_last: bool) -> None:
    """The step is a tensor on the device. Its result in place of a short batch is not used."""
    loader = Loader(store(), batch_size=5, seed=7, drop_last=drop_last)
    room = loader.batch(0)
    for step in [0, 1, 2, 3, 4, 5, 9, 2, 12]:
        loader.set_epoch_of(step)
        loader.fill_on_device(torch.tensor(step), room)
        expected = loader.batch(step)
        if len(expected.images) == 5:
            assert torch.equal(room.images, expected.images)
            assert torch.equal(room.index, expected.index)
            assert torch.equal(room.labels, expected.labels)


def test_device_uses_the_last_image_of_an_epoch_of_full_batches() -> None:
    images = torch.arange(10, dtype=torch.uint8).view(10, 1, 1, 1)
    loader = Loader(ImageStore(images, None, torch.arange(10)), batch_size=5, seed=7, drop_last=True)
    room = loader.batch(0)
    loader.set_epoch_of(1)
    loader.fill_on_device(torch.tensor(1), room)
    assert torch.equal(room.index, loader.batch(1).index)
