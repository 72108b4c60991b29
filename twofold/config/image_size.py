"""Defaults that depend on the size of the images: `image_size`, the encoder and its stem.

`pretrain` uses them for keys that the user did not set, and `diagnose` uses them for encoders from elsewhere.
"""

from typing import Any

SIZES = (64, 96, 128, 160, 224)  # images larger than the first size are resized to one of these


def default_image_size(side: int) -> int:
    """The `image_size` for images with this median shorter side: the same up to 64 pixels, else the nearest size."""
    return side if side <= SIZES[0] else min(SIZES, key=lambda size: abs(size - side))


def default_encoder_keys(image_size: int) -> dict[str, Any]:
    """The stem and, below 20 pixels, the encoder.

    The stem has 3x3 convolutions up to 48 pixels, in addition max-pool up to 80 pixels, and 7x7 convolutions above.
    Below 20 pixels the encoder is `conv` instead of a ResNet.
    """
    stem = "small" if image_size <= 48 else "small-pool" if image_size <= 80 else "large"
    return {"stem": stem} if image_size >= 20 else {"stem": stem, "encoder": "conv"}
