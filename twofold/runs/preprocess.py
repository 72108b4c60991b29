"""`Preprocess`, the module that converts images to the input of an encoder.

`load_encoder` adds it to the encoder, and users call it as `encoder.preprocess`. `twofold.evaluate` calls it, too.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from twofold.data.decode import crop_and_resize, with_8_bits
from twofold.data.decode_options import DecodeOptions, PixelRange, Unreadable
from twofold.data.eval_transform import EvalTransform
from twofold.errors import TwofoldError


class Preprocess(nn.Module):
    """Crop the central square of each image, resize it and normalise it. The evaluations of a run do the same.

    Parameters
    ----------
    image_size : int
        The side of the result in pixels.
    channels : int
        The number of channels.
    mean, std : sequence of float
        The mean and standard deviation of each channel, for pixels between 0 and 1.
    pixel_range
        The key of this name of the run, for images of more than 8 bits. `auto`, for other encoders, chooses it from the
        images that they are used on.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        image_size: int,
        channels: int,
        mean: Sequence[float],
        std: Sequence[float],
        pixel_range: PixelRange = "auto",
    ):
        super().__init__()
        self.decode = DecodeOptions.of({"pixel_range": pixel_range})
        self.image_size, self.channels = image_size, channels
        self.register_buffer("mean", torch.tensor(mean), persistent=False)
        self.register_buffer("std", torch.tensor(std), persistent=False)

    def extra_repr(self) -> str:
        return f"{self.image_size}, {self.channels}, mean={self.mean.tolist()}, std={self.std.tolist()}"

    def forward(self, images: Any) -> Tensor:
        """Convert images to the input of the encoder.

        Parameters
        ----------
        images
            A Pillow image, a list of Pillow images, or uint8 pixels `[N, C, H, W]` or `[C, H, W]` on any device.

        Returns
        -------
        Tensor
            The input, float32 `[N, C, image_size, image_size]`, on the device of this module.
        """
        if isinstance(images, Image.Image):
            images = [images]
        if isinstance(images, (list, tuple)):
            images = self._stack(images)
        if isinstance(images, np.ndarray) and (not images.flags.writeable or min(images.strides, default=0) < 0):
            images = images.copy()  # torch warns of read-only arrays, and does not support negative strides
        try:
            pixels = torch.as_tensor(images, device=self.mean.device)
        except (TypeError, ValueError, RuntimeError):
            raise self._invalid_input(f"a {type(images).__name__}") from None
        if pixels.ndim == 3:
            pixels = pixels[None]
        if pixels.dtype != torch.uint8 or pixels.ndim != 4 or pixels.shape[1] != self.channels:
            raise self._invalid_input(f"{pixels.dtype} {tuple(pixels.shape)}")
        height, width = pixels.shape[2:]
        side = min(height, width)
        top, left = (height - side) // 2, (width - side) // 2
        square = pixels[:, :, top : top + side, left : left + side]
        return EvalTransform(self.image_size, self.mean, self.std)(square)

    def _stack(self, images: Sequence[Any]) -> np.ndarray:
        """Crop and resize Pillow images, and return them as uint8 `[N, C, H, W]`."""
        if not images:
            raise TwofoldError("preprocess received no images: pass at least one")
        for image in images:
            if not isinstance(image, Image.Image):
                raise self._invalid_input(f"a list with a {type(image).__name__} in it")
        if self.channels not in (1, 3):
            raise TwofoldError(
                f"this encoder needs images with {self.channels} channels, but Pillow images have 1 or 3: pass uint8 "
                f"pixels [N, {self.channels}, H, W]"
            )
        try:
            converted = [with_8_bits(image, self.decode) for image in images]
            return np.stack([crop_and_resize(image, self.image_size, self.channels) for image in converted])
        except Unreadable as error:
            raise TwofoldError(
                f"preprocess received an image that cannot be used: {error}; leave it out or convert it"
            ) from None

    def _invalid_input(self, given: str) -> TwofoldError:
        return TwofoldError(
            f"preprocess needs Pillow images or uint8 pixels [N, {self.channels}, H, W], not {given}; "
            "open files with PIL.Image.open"
        )


class Chain(nn.Sequential):
    """An `nn.Sequential` that does not run its module `preprocess`. A plain one would run it as the last layer."""

    def __iter__(self) -> Iterator[nn.Module]:
        return (module for module in super().__iter__() if not isinstance(module, Preprocess))


def preprocess_of(encoder: nn.Module) -> Preprocess:
    """Return the `preprocess` module of an encoder that `load_encoder` returned."""
    preprocess = encoder.preprocess
    assert isinstance(preprocess, Preprocess)
    return preprocess
