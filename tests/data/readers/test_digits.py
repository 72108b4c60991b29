"""The dataset `digits`."""

import numpy as np
from sklearn.datasets import load_digits

from twofold.data.readers.digits import read_digits


def test_digits_equal_those_of_scikit_learn() -> None:
    train, test, classes = read_digits()
    reference = load_digits()
    np.testing.assert_allclose(train.images[..., 0] / 255 * 16, reference.images, atol=16 / 255 / 2)
    assert (train.images.min(), train.images.max(), train.images.dtype) == (0, 255, np.uint8)
    np.testing.assert_array_equal(train.labels, reference.target)
    assert (test, classes) == (None, tuple("0123456789"))
