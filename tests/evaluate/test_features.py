"""Raw pixels as features, compared with numpy, and the views whose features are averaged."""

import numpy as np
import pytest
import torch
from torch import Tensor

from twofold.errors import TwofoldError
from twofold.evaluate.features import fixed_views, pixels


class Images:
    def __init__(self, count: int, channels: int = 3, height: int = 8, width: int = 8) -> None:
        self.images = torch.from_numpy(
            np.random.default_rng(0).integers(0, 256, (count, channels, height, width), dtype=np.uint8)
        )

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        assert rows.dtype == torch.int64
        return self.images[rows], None


@pytest.mark.parametrize("batch_size", [2, 256])
def test_small_images_keep_all_pixels(batch_size):
    store = Images(5, channels=2, height=7, width=32)
    expected = store.images.numpy().reshape(5, -1).astype(np.float64) / 255
    result = pixels(store, batch_size=batch_size)
    assert result.dtype == torch.float32
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-7)


def test_large_images_are_averaged_to_32_pixels():
    store = Images(3, channels=3, height=64, width=128)
    blocks = store.images.numpy().astype(np.float64).reshape(3, 3, 32, 2, 32, 4) / 255
    np.testing.assert_allclose(pixels(store).numpy(), blocks.mean((3, 5)).reshape(3, -1), atol=1e-6)


def test_only_the_long_side_is_averaged():
    store = Images(2, channels=1, height=5, width=64)
    blocks = store.images.numpy().astype(np.float64).reshape(2, 5, 32, 2) / 255
    np.testing.assert_allclose(pixels(store).numpy(), blocks.mean(3).reshape(2, -1), atol=1e-6)


def test_an_empty_set_is_refused():
    with pytest.raises(TwofoldError, match="no images"):
        pixels(Images(0))


def test_fixed_views_are_the_middle_square_and_its_corners() -> None:
    images = torch.arange(2 * 3 * 10 * 14).reshape(2, 3, 10, 14)
    square, *corners = fixed_views(images, 5)
    assert torch.equal(square, images[:, :, :, 2:12])
    expected = [images[:, :, top : top + 8, left : left + 8] for top in (0, 2) for left in (2, 4)]
    assert all(torch.equal(view, other) for view, other in zip(corners, expected, strict=True))
    assert fixed_views(images, 1)[0] is images
    assert [view.shape for view in fixed_views(images[:, :, :1, :1], 5)] == [(2, 3, 1, 1)] * 5
    with pytest.raises(TwofoldError, match="views=2 is not possible"):
        fixed_views(images, 2)
