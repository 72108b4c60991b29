"""Gaussian blur for a CPU: the same pixels as `data/resample.py`, to the last bit.

Images are float32 `[B, C, S, S]`, and parameters are `[B]`.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from twofold.data import resample


def blur(images: Tensor, sigma: Tensor, largest_sigma: float) -> Tensor:
    """Return the same as `resample.blur`."""
    weights = gaussian_weights(sigma, images.shape[-1], largest_sigma)[:, None]
    return resample.separable(images, weights, weights)[0]


def gaussian_weights(sigma: Tensor, size: int, largest_sigma: float) -> Tensor:
    """Return the same as `resample.gaussian_weights`, by copying rows instead of looking up each element.

    Each row is a part of the same mirrored kernel. Only corners have pixels that the border mirrors.
    """
    radius = min(math.ceil(4 * largest_sigma), size - 1)
    kernel = torch.exp(-0.5 * (torch.arange(radius + 1) / sigma[:, None]) ** 2)
    kernel = kernel / (2 * kernel.sum(1, keepdim=True) - 1)
    one_side = F.pad(kernel, (0, size - 1 - radius))
    both_sides = torch.cat([one_side.flip(1), one_side[:, 1:]], dim=1)
    weights = both_sides.unfold(1, size, 1).flip(1)
    if radius > 0:
        corner = F.pad(kernel[:, 1:], (0, radius - 1)).unfold(1, radius, 1)
        weights[:, :radius, 1 : radius + 1] += corner
        weights[:, -radius:, -radius - 1 : -1] += corner.flip(1, 2)
    return weights
