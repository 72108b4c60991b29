"""Colour operations compared with Pillow's ImageEnhance and ImageOps, colorsys, and float64 formulas."""

import colorsys
import itertools

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from twofold.data import colour

ENHANCE = {"brightness": ImageEnhance.Brightness, "contrast": ImageEnhance.Contrast, "saturation": ImageEnhance.Color}


def noise_image(*shape: int, seed: int = 0) -> np.ndarray:
    """Return uint8 `[..., H, W, C]` that includes pure colours and greys."""
    image = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    image[..., 0, :3, :] = [[[0], [255], [128]][k] for k in range(3)]
    if shape[-1] == 3:
        image[..., 1, :3, :] = np.eye(3, dtype=np.uint8) * 255
        image[..., 2, :3, :] = 255 - np.eye(3, dtype=np.uint8) * 255
    return image


def as_batch(image: np.ndarray) -> Tensor:
    return torch.from_numpy(image).permute(2, 0, 1)[None].float() / 255


def changed(image: Tensor, **factors: float) -> Tensor:
    given = {name: torch.tensor([value]) for name, value in factors.items()}
    order = {name: torch.tensor([float(k)]) for k, name in enumerate(factors)}
    return colour.jitter(image, given, order)


@pytest.mark.parametrize("name", ENHANCE)
@pytest.mark.parametrize("factor", [0.0, 0.3, 0.8, 1.0, 1.4, 2.5])
def test_blends_equal_pillow(name: str, factor: float) -> None:
    image = noise_image(12, 9, 3)
    expected = np.asarray(ENHANCE[name](Image.fromarray(image)).enhance(factor)).astype(float)
    ours = changed(as_batch(image), **{name: factor})[0].permute(1, 2, 0).numpy() * 255
    # Pillow rounds the grey that it blends with to half a level, and truncates the result.
    assert np.abs(ours - expected).max() <= 1 + 0.5 * abs(1 - factor) + 0.01


@pytest.mark.parametrize("name", ["brightness", "contrast"])
@pytest.mark.parametrize("factor", [0.3, 1.7])
def test_blends_of_grey_images_equal_pillow(name: str, factor: float) -> None:
    image = noise_image(12, 9, 1)
    expected = np.asarray(ENHANCE[name](Image.fromarray(image[..., 0])).enhance(factor)).astype(float)
    ours = changed(as_batch(image), **{name: factor})[0, 0].numpy() * 255
    assert np.abs(ours - expected).max() <= 1 + 0.5 * abs(1 - factor) + 0.01


@pytest.mark.parametrize("turn", [-0.5, -0.31, -0.1, 0.0, 0.07, 1 / 6, 1 / 3, 0.5])
def test_hue_equals_colorsys(turn: float) -> None:
    image = noise_image(16, 16, 3)
    expected = np.zeros((16, 16, 3))
    for i, j in itertools.product(range(16), range(16)):
        h, s, v = colorsys.rgb_to_hsv(*(image[i, j] / 255.0))
        expected[i, j] = colorsys.hsv_to_rgb((h + turn) % 1, s, v)
    ours = colour.turn_hue(as_batch(image), torch.tensor([turn]))[0].permute(1, 2, 0)
    np.testing.assert_allclose(ours.numpy(), expected, atol=1e-5)


def reference_step(x: np.ndarray, name: str, value: float) -> np.ndarray:
    """One operation on `[H, W, 3]` in float64."""
    if name == "hue":
        hsv = [colorsys.rgb_to_hsv(*pixel) for pixel in x.reshape(-1, 3)]
        return np.array([colorsys.hsv_to_rgb((h + value) % 1, s, v) for h, s, v in hsv]).reshape(x.shape)
    grey = x @ [0.299, 0.587, 0.114]
    other = {"brightness": 0.0, "contrast": grey.mean(), "saturation": grey[..., None]}[name]
    return np.clip(value * x + (1 - value) * other, 0, 1)


def test_each_sample_applies_the_operations_in_its_own_order() -> None:
    names = ["brightness", "contrast", "saturation", "hue"]
    orders = list(itertools.permutations(names))
    rng = np.random.default_rng(0)
    images = noise_image(len(orders), 6, 6, 3)
    # Strong factors clip most pixels at some step, so that the order matters.
    values = {name: rng.uniform(0.4, 2.2, len(orders)).astype(np.float32) for name in names[:3]}
    values["hue"] = rng.uniform(-0.5, 0.5, len(orders)).astype(np.float32)
    place = {name: torch.tensor([float(order.index(name)) for order in orders]) / 4 for name in names}
    batch = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    ours = colour.jitter(batch, {name: torch.from_numpy(value) for name, value in values.items()}, place)
    for sample, order in enumerate(orders):
        expected = images[sample] / 255.0
        for name in order:
            expected = reference_step(expected, name, float(values[name][sample]))
        np.testing.assert_allclose(ours[sample].permute(1, 2, 0).numpy(), expected, atol=3e-5, err_msg=str(order))


def test_ties_in_the_order_still_apply_every_operation_once() -> None:
    image = as_batch(noise_image(5, 5, 3))
    factors = {"brightness": torch.tensor([0.5]), "contrast": torch.tensor([1.5]), "saturation": torch.tensor([0.2])}
    tied = colour.jitter(image, factors, {name: torch.tensor([0.25]) for name in factors})
    first_named_first = colour.jitter(image, factors, {name: torch.tensor([k / 4]) for k, name in enumerate(factors)})
    assert torch.equal(tied, first_named_first)


def test_neutral_factors_change_nothing() -> None:
    image = as_batch(noise_image(9, 9, 3))
    assert torch.equal(changed(image, brightness=1.0, contrast=1.0, saturation=1.0, hue=0.0), image)


def test_contrast_with_other_channel_counts_uses_the_mean_of_all_channels() -> None:
    x = torch.rand(1, 4, 5, 5, generator=torch.Generator().manual_seed(0))
    expected = np.clip(0.5 * x.double().numpy() + 0.5 * x.double().numpy().mean(), 0, 1)
    np.testing.assert_allclose(changed(x, contrast=0.5).numpy(), expected, atol=1e-6)


def test_grayscale_equals_pillow() -> None:
    image = noise_image(10, 10, 3)
    grey = np.asarray(Image.fromarray(image).convert("L"))
    ours = colour.grayscale(as_batch(image))
    assert ours.shape == (1, 3, 10, 10)
    assert all(np.abs(channel.numpy() * 255 - grey).max() <= 0.51 for channel in ours[0])  # Pillow rounds


def test_solarize_equals_pillow_where_applied() -> None:
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    batch = as_batch(levels).repeat(2, 1, 1, 1)
    ours = colour.solarize(batch, torch.tensor([True, False]))
    expected = np.asarray(ImageOps.solarize(Image.fromarray(levels[..., 0]), threshold=128))
    np.testing.assert_allclose(ours[0, 0].numpy() * 255, expected, atol=1e-4)
    assert torch.equal(ours[1], batch[1])
