"""Colour jitter for a CPU, compared with `data/colour.py` to the last bit."""

import pytest
import torch
from torch import Tensor

from twofold.data import colour, colour_cpu


def random_images(levels: int | None) -> Tensor:
    """Return images `[24, 3, 17, 16]`. With few levels, channels are often equal."""
    images = torch.rand(24, 3, 17, 16, generator=torch.Generator().manual_seed(0))
    return images if levels is None else (images * levels).round() / levels


@pytest.mark.parametrize(
    "names", [("brightness", "contrast", "saturation", "hue"), ("contrast", "saturation"), ("hue",)]
)
def test_jitter_is_bit_identical(names: tuple[str, ...]) -> None:
    random = torch.Generator().manual_seed(0)
    images = 1.2 * torch.rand(96, 3, 9, 7, generator=random) - 0.1  # cropping may leave pixels that are not clamped yet
    draw = torch.rand(2, len(names), 96, generator=random)
    order = {name: (3 * values).floor() for name, values in zip(names, draw[0], strict=True)}  # with ties
    factors = {
        name: (values - 0.5 if name == "hue" else 2 * values) for name, values in zip(names, draw[1], strict=True)
    }
    for name in names:
        factors[name][::3] = 0.0 if name == "hue" else 1.0  # samples that do not change
    factors[names[-1]][1::3] = 0.0 if names[-1] == "hue" else 1.0  # and samples without the last operation
    before, expected = images.clone(), colour.jitter(images, factors, order)
    assert torch.equal(colour_cpu.jitter(images, factors, order), expected)
    assert torch.equal(images, before)
    assert not torch.equal(expected[::3], expected[1::3])


@pytest.mark.parametrize("levels", [None, 255, 2])
@pytest.mark.parametrize("largest", [0.1, 0.5, 3.0])
def test_hue_is_bit_identical(levels: int | None, largest: float) -> None:
    images, turn = random_images(levels), torch.linspace(-largest, largest, 24)
    expected = colour.turn_hue(images, turn)
    colour_cpu.turn_hue_(images, turn)
    assert torch.equal(images, expected)
    assert torch.equal(images.signbit(), expected.signbit())


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation", "hue"])
def test_an_operation_may_have_no_sample(name: str) -> None:
    images, factor = random_images(None), torch.full((24,), 0.0 if name == "hue" else 1.0)
    assert torch.equal(colour_cpu.jitter(images, {name: factor}, {name: factor}), images)


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_luma_is_bit_identical(channels: int) -> None:
    images = torch.rand(3, channels, 7, 9, generator=torch.Generator().manual_seed(0))
    assert torch.equal(colour_cpu.luma(images), colour.luma(images))
