"""Hand-made features, compared with loops over pixels and with what they must not depend on."""

import math

import numpy as np
import pytest
import torch

from twofold.evaluate.handmade import CLIP, LEVELS, colours, handmade_features, hog_and_colour, oriented_gradients


class Store:
    """The smallest object that the features accept."""

    def __init__(self, images: torch.Tensor):
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: torch.Tensor) -> tuple[torch.Tensor, None]:
        return self.images[rows], None


def random_images(count: int, channels: int, side: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (count, channels, side, side), generator=torch.Generator().manual_seed(seed)).byte()


def gradients_by_loops(image: np.ndarray) -> np.ndarray:
    """Histograms of one image [C, H, W], pixel by pixel, in float64."""
    channels, height, width = image.shape
    cells = 8
    histograms = np.zeros((9, cells, cells))
    for y in range(height):
        for x in range(width):
            best = (-1.0, 0.0, 0.0)
            for c in range(channels):
                right, left = image[c, y, min(x + 1, width - 1)], image[c, y, max(x - 1, 0)]
                below, above = image[c, min(y + 1, height - 1), x], image[c, max(y - 1, 0), x]
                squared = (right - left) ** 2 + (below - above) ** 2
                if squared > best[0]:
                    best = (squared, right - left, below - above)
            angle = math.atan2(best[2], best[1]) % math.pi
            place = angle / math.pi * 9 - 0.5
            lower = math.floor(place)
            for bin_, weight in ((lower, lower + 1 - place), (lower + 1, place - lower)):
                histograms[bin_ % 9, y * cells // height, x * cells // width] += weight * math.sqrt(best[0])
    histograms /= (height // cells) * (width // cells)
    out = np.zeros((36, cells - 1, cells - 1))
    for y in range(cells - 1):
        for x in range(cells - 1):
            block = np.concatenate([histograms[:, y + i, x + j] for i in (0, 1) for j in (0, 1)])
            block = np.minimum(block / (np.linalg.norm(block) + 1e-3), CLIP)
            out[:, y, x] = block / max(np.linalg.norm(block), 1e-6)
    return out.ravel()


@pytest.mark.parametrize("channels", [1, 3])
def test_gradients_equal_those_of_a_loop_over_pixels(channels: int) -> None:
    images = random_images(2, channels, 32).double() / 255
    expected = np.stack([gradients_by_loops(image) for image in images.numpy()])
    np.testing.assert_allclose(oriented_gradients(images).numpy(), expected, atol=1e-9)


def test_colours_count_the_pixels_of_each_quarter() -> None:
    image = torch.zeros(1, 3, 4, 4)
    image[0, 0, :2, 2:] = 1.0  # the upper right quarter is red
    histogram = colours(image).view(4, LEVELS, LEVELS, LEVELS)
    assert histogram[1, LEVELS - 1, 0, 0] == 0.5
    assert all(histogram[quarter, 0, 0, 0] == 0.5 for quarter in (0, 2, 3))
    assert torch.allclose(histogram.square().sum(), torch.tensor(1.0))


def test_features_do_not_depend_on_the_batch() -> None:
    images = random_images(300, 3, 16)
    one_by_one = torch.cat([hog_and_colour(image.unsqueeze(0)) for image in images])
    assert torch.allclose(handmade_features(Store(images)), one_by_one, atol=1e-6)


@pytest.mark.parametrize(("channels", "side"), [(1, 8), (1, 28), (3, 5), (4, 40), (3, 200)])
def test_images_of_any_size_and_channels_have_finite_features(channels: int, side: int) -> None:
    features = hog_and_colour(random_images(3, channels, side))
    assert features.isfinite().all()
    assert torch.allclose(features.norm(dim=1), torch.tensor(2.0 if channels == 3 else 1.0).sqrt(), atol=1e-4)


def test_a_black_image_has_no_gradients() -> None:
    assert not oriented_gradients(torch.zeros(1, 3, 16, 16)).any()
