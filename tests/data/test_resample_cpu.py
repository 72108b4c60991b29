"""Blur for a CPU, compared with `data/resample.py` to the last bit."""

import pytest
import torch

from twofold.data import resample, resample_cpu


@pytest.mark.parametrize("side", [1, 2, 3, 5, 9, 17, 32, 96])
@pytest.mark.parametrize("largest", [0.1, 0.5, 2.0, 7.0])
def test_gaussian_weights_are_bit_identical(side: int, largest: float) -> None:
    sigma = torch.linspace(0.05, largest, 7)
    ours = resample_cpu.gaussian_weights(sigma, side, largest)
    assert torch.equal(ours, resample.gaussian_weights(sigma, side, largest))


def test_blur_is_bit_identical() -> None:
    images, sigma = torch.rand(5, 3, 20, 20, generator=torch.Generator().manual_seed(0)), torch.linspace(0.1, 2, 5)
    assert torch.equal(resample_cpu.blur(images, sigma, 2.0), resample.blur(images, sigma, 2.0))
