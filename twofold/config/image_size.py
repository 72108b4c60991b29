"""What follows from the size of the images where nobody asked for something else: `image_size`, encoder and stem.

`pretrain`, the choices of a run, and `diagnose` for encoders of others call these.
"""

from typing import Any

SIZES = (64, 96, 128, 160, 224)  # what images above the first of them are brought to


def default_image_size(side: int) -> int:
    """The image_size for images of this (median shorter) side: itself up to 64 pixels, else the nearest of SIZES."""
    return side if side <= SIZES[0] else min(SIZES, key=lambda size: abs(size - side))


def default_encoder_keys(image_size: int) -> dict[str, Any]:
    """Stem and, below 20 pixels, encoder: 3x3 stem up to 48 pixels, then with max-pool up to 80; below 20 no ResNet."""
    stem = "small" if image_size <= 48 else "small-pool" if image_size <= 80 else "large"
    return {"stem": stem} if image_size >= 20 else {"stem": stem, "encoder": "conv"}
