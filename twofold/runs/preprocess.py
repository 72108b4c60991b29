"""`Preprocess`, the module that turns images into an encoder's input; every encoder that Twofold loads has one.

`load_encoder` attaches it, users call it as `encoder.preprocess`, and `twofold.evaluate` feeds encoders with it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from twofold.data.augment import EvalTransform
from twofold.data.decode import Unreadable, crop_and_resize
from twofold.errors import TwofoldError


class Preprocess(nn.Module):
    """Images as people have them → the tensor that the encoder takes.

    A Pillow image or a list of them, or uint8 pixels [N, C, H, W] (or one image [C, H, W]), on any device. As in
    training, the middle square is taken, brought to size and normalised.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, image_size: int, channels: int, mean: Sequence[float], std: Sequence[float]):
        super().__init__()
        self.image_size, self.channels = image_size, channels
        self.register_buffer("mean", torch.tensor(mean), persistent=False)
        self.register_buffer("std", torch.tensor(std), persistent=False)

    def extra_repr(self) -> str:
        return f"{self.image_size}, {self.channels}, mean={self.mean.tolist()}, std={self.std.tolist()}"

    def forward(self, images: Any) -> Tensor:
        if isinstance(images, Image.Image):
            images = [images]
        if isinstance(images, (list, tuple)):
            images = self._stacked(images)
        if isinstance(images, np.ndarray) and (not images.flags.writeable or min(images.strides, default=0) < 0):
            images = images.copy()  # torch warns of what is read alone, and cannot read backwards
        try:
            pixels = torch.as_tensor(images, device=self.mean.device)
        except (TypeError, ValueError, RuntimeError):
            raise self._refused(f"a {type(images).__name__}") from None
        if pixels.ndim == 3:
            pixels = pixels[None]
        if pixels.dtype != torch.uint8 or pixels.ndim != 4 or pixels.shape[1] != self.channels:
            raise self._refused(f"{pixels.dtype} {tuple(pixels.shape)}")
        height, width = pixels.shape[2:]
        side = min(height, width)
        top, left = (height - side) // 2, (width - side) // 2
        square = pixels[:, :, top : top + side, left : left + side]
        return EvalTransform(self.image_size, self.mean, self.std)(square)

    def _stacked(self, images: Sequence[Any]) -> np.ndarray:
        if not images:
            raise TwofoldError("preprocess was given no images: give one at least")
        for image in images:
            if not isinstance(image, Image.Image):
                raise self._refused(f"a list with a {type(image).__name__} in it")
        if self.channels not in (1, 3):
            raise TwofoldError(
                f"this encoder takes images of {self.channels} channels, and Pillow's are grey or coloured: "
                f"give uint8 pixels [N, {self.channels}, H, W]"
            )
        try:
            return np.stack([crop_and_resize(image, self.image_size, self.channels) for image in images])
        except Unreadable as error:
            raise TwofoldError(f"preprocess was given an image that cannot be used: {error}") from None

    def _refused(self, given: str) -> TwofoldError:
        return TwofoldError(
            f"preprocess takes Pillow images or uint8 pixels [N, {self.channels}, H, W], not {given}; "
            "open files with PIL.Image.open"
        )


class Chain(nn.Sequential):
    """Layers in order, and a `.preprocess` that is none of them: a plain Sequential would run it as its last layer."""

    def __iter__(self) -> Iterator[nn.Module]:
        return (module for module in super().__iter__() if not isinstance(module, Preprocess))


def preprocess_of(encoder: nn.Module) -> Preprocess:
    """The `.preprocess` of an encoder that Twofold loaded."""
    preprocess = encoder.preprocess
    assert isinstance(preprocess, Preprocess)
    return preprocess
