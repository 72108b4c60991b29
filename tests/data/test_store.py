from pathlib import Path

import numpy as np
import pytest
import torch

from twofold.data import store as store_module
from twofold.data.loader import Loader
from twofold.data.store import ImageStore, readonly_tensor

RNG = np.random.default_rng(0)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def store(count: int = 12, channels: int = 3, labelled: bool = True) -> ImageStore:
    images = torch.from_numpy(RNG.integers(0, 256, (count, channels, 5, 5), dtype=np.uint8))
    return ImageStore(images, torch.arange(count) % 3 if labelled else None, torch.arange(count) + 7)


def test_take_gathers_rows() -> None:
    whole = store()
    images, labels = whole.take(torch.tensor([4, 0, 4, 11]))
    assert torch.equal(images, whole.images[[4, 0, 4, 11]])
    assert labels.tolist() == [1, 0, 1, 2]
    assert store(labelled=False).take(torch.tensor([1]))[1] is None
    assert len(whole) == 12


@pytest.mark.parametrize("channels", [1, 3])
def test_statistics_equal_numpy_for_any_block_size(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = store(17, channels)
    unit = whole.images.numpy() / np.float64(255)
    for block in (1, 5 * 5 * channels * 4, 2**26):
        monkeypatch.setattr(store_module, "BLOCK_BYTES", block)
        mean, std = whole.statistics()
        np.testing.assert_allclose(mean.numpy(), unit.mean((0, 2, 3)), rtol=1e-7)
        np.testing.assert_allclose(std.numpy(), unit.std((0, 2, 3)), rtol=1e-7)
        assert (mean.dtype, std.dtype) == (torch.float32, torch.float32)


def test_standard_deviation_of_a_constant_channel_is_not_zero() -> None:
    images = torch.full((4, 3, 5, 5), 255, dtype=torch.uint8)
    images[:, 1] = 0
    mean, std = ImageStore(images, None, torch.arange(4)).statistics()
    assert mean.tolist() == [1, 0, 1]
    assert std.tolist() == pytest.approx([1 / 255] * 3)


def test_memory_mapped_images_can_be_used(tmp_path: Path) -> None:
    pixels = RNG.integers(0, 256, (6, 3, 4, 4), dtype=np.uint8)
    pixels.tofile(tmp_path / "a.u8")
    whole = ImageStore(
        readonly_tensor(np.memmap(tmp_path / "a.u8", np.uint8, "r", shape=pixels.shape)), None, torch.arange(6)
    )
    assert torch.equal(whole.take(torch.tensor([5, 2]))[0], torch.from_numpy(pixels[[5, 2]]))
    np.testing.assert_allclose(whole.statistics()[0].numpy(), pixels.mean((0, 2, 3)) / 255, rtol=1e-6)


def test_place_on_the_cpu_returns_the_same_store() -> None:
    whole = store()
    assert whole.place("cpu") is whole


@pytest.mark.parametrize("room, fits", [(1.01, True), (0.99, False)])
def test_images_move_to_the_device_only_if_they_fit_into_its_free_memory(
    room: float, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The meta device stands for a GPU. It has shapes and devices but no memory."""
    whole = store()
    free = room * whole.images.numel() / store_module.DEVICE_SHARE
    monkeypatch.setattr(store_module, "free_memory", lambda _: free)
    placed = whole.place("meta")
    assert placed.images.device.type == ("meta" if fits else "cpu")
    assert (placed.labels.device.type, placed.index.device.type) == ("meta", "meta")
    images, labels = placed.take(torch.tensor([1, 2], device=placed.images.device))
    assert (images.device.type, labels.device.type, images.shape) == ("meta", "meta", (2, 3, 5, 5))
    assert whole.images.device.type == "cpu"


@needs_cuda
@pytest.mark.parametrize("fits", [True, False])
def test_batches_on_cuda_equal_those_on_the_cpu(fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not fits:
        monkeypatch.setattr(store_module, "free_memory", lambda _: 0)
    whole = store(200)
    placed = whole.place("cuda")
    assert placed.images.is_cuda == fits
    here = Loader(whole, batch_size=32, seed=1, drop_last=True)
    there = Loader(placed, batch_size=32, seed=1, drop_last=True)
    for step in range(14):
        for name in ("images", "index", "position", "labels"):
            moved = getattr(there.batch(step), name)
            assert moved.is_cuda
            assert torch.equal(moved.cpu(), getattr(here.batch(step), name))
    for one, other in zip(whole.statistics(), placed.statistics(), strict=True):
        assert torch.equal(one, other)


@needs_cuda
def test_batch_on_the_device_does_not_synchronize() -> None:
    loader = Loader(store(200).place("cuda"), batch_size=32, seed=1, drop_last=True)
    loader.batch(0)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert loader.batch(1).images.is_cuda
        assert loader.batch(loader.steps_per_epoch).images.is_cuda
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_labelled_subset_keeps_its_groups() -> None:
    images = torch.zeros(4, 1, 2, 2, dtype=torch.uint8)
    store = ImageStore(images, torch.tensor([0, -1, 1, -1]), torch.arange(4), groups=torch.tensor([5, 6, 7, 8]))
    assert store.labelled().groups.tolist() == [5, 7]
