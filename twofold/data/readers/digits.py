"""The named dataset `digits` from scikit-learn: images of 8 x 8 pixels, for tests and first experiments."""

from typing import Any

import numpy as np

from twofold.data.array_split import ArraySplit, ArraySplits
from twofold.data.readers.mnist import DIGIT_NAMES, SMALL_DISTORTIONS

# Chosen on a validation set taken from the training images. Training takes one minute on two CPU cores: 600 steps of a
# small network.
DEFAULTS: dict[str, Any] = {
    "encoder": "conv",
    "epochs": 120,
    "optimizer": "adamw",
    "lr": 3e-3,
    "weight_decay": 1e-4,
    "projector": (512, 512, 64),
    "predictor_width": 512,
    "prototypes": 256,
    "queue": 1024,
    **SMALL_DISTORTIONS,
    "augment.noise": 0.1,
}


def read_digits() -> ArraySplits:
    """Return 1,797 images of 8 x 8 pixels. The original values from 0 to 16 are scaled to 0 to 255."""
    from sklearn.datasets import load_digits  # imported late: this takes a second, and other sources do not need it

    digits = load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    return ArraySplit(images[..., None], digits.target.astype(np.int64)), None, DIGIT_NAMES
