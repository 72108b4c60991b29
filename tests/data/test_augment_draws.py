"""Random draws of a view: their frequency, their distribution, and their independence."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from augmenting import at, augmenter, images_of, only
from twofold.config import Augment
from twofold.data import colour, resample


@pytest.mark.parametrize("size", [8, 5])
@pytest.mark.parametrize("crop_scale", [(1.0, 1.0), (0.999, 1.0)], ids=["no crop", "crop"])
def test_flips_have_the_given_probability_in_each_view(size: int, crop_scale: tuple[float, float]) -> None:
    n, probabilities = 4000, (0.2, 0.9)
    augment = only(flip=probabilities, crop_scale=crop_scale)
    image = images_of(1, 1, 8, 8)
    views = augmenter(augment, 1, size).pixels(image.expand(n, -1, -1, -1), torch.arange(n), at(3))
    still = resample.resize(image, size) / 255
    flipped = (views - still.flip(-1)).abs().amax((2, 3, 4)) < 1e-5
    assert torch.equal(~flipped, (views - still).abs().amax((2, 3, 4)) < 1e-5)
    for view, probability in enumerate(probabilities):
        assert abs(flipped[view].double().mean() - probability) < 4 * math.sqrt(probability * (1 - probability) / n)
    both = (flipped[0] & flipped[1]).double().mean()
    assert abs(both - probabilities[0] * probabilities[1]) < 4 * math.sqrt(0.18 * 0.82 / n)


def crop_boxes_of_views(augment: Augment, height: int, width: int, n: int) -> np.ndarray:
    """Return (top, left, height, width) of crops, measured on views of an image whose channels are coordinates."""
    rows, columns = torch.arange(height)[:, None].expand(-1, width), torch.arange(width).expand(height, -1)
    image = torch.stack([rows, columns]).to(torch.uint8)
    size = 36
    views = augmenter(augment, 2, size, views=1).pixels(image.expand(n, -1, -1, -1), torch.arange(n), at(2))[0]
    # Interpolation does not change a linear ramp, except at the borders.
    places = views.double().numpy() * 255 + 0.5
    first, last = places[:, [0, 1], 9, 9], places[:, [0, 1], 27, 27]
    extent = (last - first) / 18 * size
    start = first - extent * 9.5 / size
    boxes = np.concatenate([start, extent], axis=1)
    np.testing.assert_allclose(boxes, boxes.round(), atol=1e-3)
    return boxes.round().astype(int)


def random_resized_crops(
    height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float], n: int
) -> np.ndarray:
    """Crops with the same distribution, drawn one by one from numpy's generator."""
    rng = np.random.default_rng(7)
    boxes = []
    for _ in range(n):
        for _ in range(10):
            area, aspect = height * width * rng.uniform(*scale), math.exp(rng.uniform(*np.log(ratio)))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if w <= width and h <= height:
                boxes.append((rng.integers(0, height - h + 1), rng.integers(0, width - w + 1), h, w))
                break
        else:
            raise AssertionError("choose a range in which ten attempts suffice")
    return np.array(boxes)


@pytest.mark.parametrize("height, width, scale", [(32, 32, (0.2, 1.0)), (48, 30, (0.15, 0.6))])
def test_crops_have_the_distribution_of_random_resized_crop(
    height: int, width: int, scale: tuple[float, float]
) -> None:
    n, ratio = 4000, (3 / 4, 4 / 3)
    ours = crop_boxes_of_views(only(crop_scale=scale, crop_ratio=ratio), height, width, n)
    expected = random_resized_crops(height, width, scale, ratio, n)
    area = ours[:, 2] * ours[:, 3] / (height * width)
    half_pixel = 0.5 / height + 0.5 / width
    assert area.min() >= scale[0] - half_pixel
    assert area.max() <= scale[1] + half_pixel
    statistics = {
        "area": lambda box: box[:, 2] * box[:, 3],
        "ratio": lambda box: box[:, 3] / box[:, 2],
        "top": lambda box: box[:, 0],
        "left": lambda box: box[:, 1],
        "room above": lambda box: box[:, 0] / (height - box[:, 2] + 1),
        "room on the left": lambda box: box[:, 1] / (width - box[:, 3] + 1),
    }
    for name, statistic in statistics.items():
        assert stats.ks_2samp(statistic(ours), statistic(expected)).pvalue > 1e-3, name


def captured(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[tuple[Any, ...]]:
    """Record the arguments of all further calls of a function."""
    calls: list[tuple[Any, ...]] = []
    original = getattr(module, name)

    def record(*arguments: Any) -> Tensor:
        calls.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(module, name, record)
    return calls


def assert_uniform(values: Tensor, low: float, high: float) -> None:
    assert stats.kstest(values.double().numpy(), "uniform", (low, high - low)).pvalue > 1e-3


def assert_uncorrelated(*values: Tensor) -> None:
    correlation = np.corrcoef([value.double().numpy() for value in values]) - np.eye(len(values))
    assert abs(correlation).max() < 4.5 / math.sqrt(len(values[0]))


def test_jitter_draws_factors_and_order_for_each_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = captured(monkeypatch, colour, "jitter")
    n, probabilities = 6000, (0.8, 0.5)
    augment = only(jitter=probabilities, brightness=0.4, contrast=1.5, saturation=0.2, hue=0.1)
    augmenter(augment, size=2).pixels(images_of(n, 3, 2, 2), torch.arange(n), at(0))
    [(_, factors, order)] = calls
    on = factors["brightness"] != 1
    assert torch.equal(on, factors["hue"] != 0)
    for view, probability in enumerate(probabilities):
        share = on.view(2, n)[view].double().mean()
        assert abs(share - probability) < 4 * math.sqrt(probability * (1 - probability) / n)
    limits = {"brightness": (0.6, 1.4), "contrast": (0.0, 2.5), "saturation": (0.8, 1.2), "hue": (-0.1, 0.1)}
    assert list(factors) == list(order) == list(limits)
    for name, limit in limits.items():
        assert_uniform(factors[name][on], *limit)
    assert_uncorrelated(*(factors[name][on] for name in limits), *(order[name][on] for name in limits))
    permutations = torch.stack(list(order.values())).argsort(0)
    counts = torch.unique(permutations, dim=1, return_counts=True)[1]
    assert len(counts) == 24
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_affine_parameters_are_uniform_within_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = captured(monkeypatch, resample, "affine")
    n = 3000
    augment = only(rotate=15.0, shear=10.0, shift=0.1, scale=(0.8, 1.5))
    augmenter(augment, 1, 2).pixels(images_of(n, 1, 2, 2), torch.arange(n), at(0))
    [(_, *parameters)] = calls
    for values, limits in zip(parameters, [(-15, 15), (-10, 10), (0.8, 1.5), (-0.1, 0.1), (-0.1, 0.1)], strict=True):
        assert_uniform(values, *limits)
    assert_uncorrelated(*parameters)


def test_blur_draws_sigma_and_is_applied_with_the_given_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = captured(monkeypatch, resample, "blur")
    n = 3000
    images = images_of(n, 1, 4, 4)
    views = augmenter(only(blur=(0.0, 0.7), blur_sigma=(0.5, 2.0)), 1, 4).pixels(images, torch.arange(n), at(0))
    [(_, sigma, largest)] = calls
    assert largest == 2.0
    assert_uniform(sigma, 0.5, 2.0)
    assert torch.equal(views[0], images / 255)
    unchanged = (views[1] == images / 255).flatten(1).all(1)
    assert abs(unchanged.double().mean() - 0.3) < 4 * math.sqrt(0.3 * 0.7 / n)


@pytest.mark.parametrize("name", ["grayscale", "solarize"])
def test_grayscale_and_solarize_have_the_given_probability(name: str) -> None:
    n, probabilities = 4000, (0.25, 0.0)
    images = images_of(n, 3, 4, 4)
    views = augmenter(only(**{name: probabilities}), size=4).pixels(images, torch.arange(n), at(0))
    done = colour.grayscale(images / 255) if name == "grayscale" else colour.solarize(images / 255, torch.ones(n) > 0)
    changed = (views[0] == done).flatten(1).all(1)
    assert torch.equal(views[0][~changed], images[~changed] / 255)
    assert abs(changed.double().mean() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / n)
    assert torch.equal(views[1], images / 255)


def test_noise_is_normal_and_independent_in_every_pixel() -> None:
    n, sigma = 2000, 0.05
    images = torch.full((n, 3, 4, 4), 128, dtype=torch.uint8)
    views = augmenter(only(noise=sigma), size=4).pixels(images, torch.arange(n), at(0))
    noise = (views - 128 / 255) / sigma
    assert stats.kstest(noise.flatten().double().numpy(), "norm").pvalue > 1e-3
    columns = noise.transpose(0, 1).reshape(n, -1)  # view, channel and pixel
    assert_uncorrelated(*columns.T)
