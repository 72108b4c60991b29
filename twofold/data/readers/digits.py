"""The set `digits`, which scikit-learn has in its package: images of 8 x 8 pixels, for tests and first tries."""

from typing import Any

import numpy as np

from twofold.data.array_split import ArraySplit, ArraySplits
from twofold.data.readers.mnist import DIGIT_NAMES, SMALL_DISTORTIONS

# Chosen on a held-out part of the training images. A minute on two cores: 600 steps of a small network.
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
    """1797 images of 8 x 8 pixels, 0 to 16 in the original."""
    from sklearn.datasets import load_digits  # its import takes a second, and other sources do without

    digits = load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    return ArraySplit(images[..., None], digits.target.astype(np.int64)), None, DIGIT_NAMES
