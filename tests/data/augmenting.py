"""Augmenters and images for the tests of views."""

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor

from twofold.config import Augment
from twofold.data.augment import Augmenter

NOTHING = Augment(crop_scale=(1, 1), crop_ratio=(1, 1), flip=0, jitter=0, grayscale=0)
EVERYTHING = Augment(
    flip=(0.5, 0.3), rotate=20, shear=10, shift=0.1, scale=(0.8, 1.2), brightness=0.8, saturation=0.8, hue=0.2,
    blur=(0.9, 0.1), solarize=(0.0, 0.2), noise=0.05,
)  # fmt: skip


def augmenter(augment: Augment, channels: int = 3, size: int = 8, views: int = 2, seed: int = 0) -> Augmenter:
    mean, std = torch.linspace(0.3, 0.6, channels), torch.linspace(0.2, 0.3, channels)
    return Augmenter(augment, views=views, image_size=size, mean=mean, std=std, seed=seed)


def images_of(*shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))


def only(**changes: Any) -> Augment:
    return dataclasses.replace(NOTHING, **changes)


def at(step: int) -> Tensor:
    return torch.tensor(step)
