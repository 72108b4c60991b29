"""`EvalTransform`: the input of an encoder without augmentation. Training normalises its views in the same way."""

from dataclasses import dataclass

import torch
from torch import Tensor

from twofold.data import resample


@dataclass(frozen=True)
class EvalTransform:
    """Prepares images for evaluation: resizes the uncropped image and normalises it.

    Parameters
    ----------
    image_size
        The side S of the result.
    mean
        The mean of each channel `[C]`, for pixels from 0 to 1.
    std
        The standard deviation of each channel `[C]`, for pixels from 0 to 1.
    """

    image_size: int
    mean: Tensor
    std: Tensor

    def __call__(self, images: Tensor) -> Tensor:
        """Turn uint8 images `[N, C, H, W]` into float32 `[N, C, S, S]`."""
        return self.normalise(resample.resize(images, self.image_size) / 255)

    def normalise(self, pixels: Tensor) -> Tensor:
        """Normalise pixels from 0 to 1, `[..., C, S, S]`."""
        return (pixels - self.mean.view(-1, 1, 1)) / self.std.view(-1, 1, 1)

    def to(self, device: torch.device | str) -> "EvalTransform":
        return EvalTransform(self.image_size, self.mean.to(device), self.std.to(device))
