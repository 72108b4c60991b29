"""The augmented views of a batch, made in each step, in the memory format of the networks."""

import torch
from torch import Tensor

from twofold.data.augment import Augmenter
from twofold.train.memory_format import to_memory_format


class ViewMaker:
    def __init__(self, augment: Augmenter, small_crops: Augmenter | None, memory_format: torch.memory_format):
        self.augmenters = [augmenter for augmenter in (augment, small_crops) if augmenter is not None]
        self.memory_format = memory_format

    def make(self, images: Tensor, position: Tensor, step: Tensor) -> list[Tensor]:
        """The views [V, N, C, S, S] and, with multi-crop, the small crops [L, N, C, s, s]."""
        return [
            to_memory_format(augmenter(images, position, step), self.memory_format) for augmenter in self.augmenters
        ]
