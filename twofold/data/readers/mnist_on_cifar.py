"""The sets `mnist-on-cifar` and `mnist-on-cifar-masked`, which are synthetic: S-DIET, section 6.1.1.

They are CIFAR-10's images, each with an MNIST digit of its label in channel four.

The digit gives the label away and is augmented weakly, so a method that learns only what is easiest learns nothing of
the picture. Masked, the digit's channel is black: what then is left to a probe was learnt from the picture.

The paper leaves open which digit goes with which image, and how 28 pixels become 32. Here every image has a digit of
its own where there are enough of its label (else they are used again in the same order), drawn once for all runs, and
digits are enlarged.
"""

from pathlib import Path
from typing import Any

import numpy as np

from twofold.data.array_split import ArraySplit, ArraySplits
from twofold.data.decode import crop_and_resize_array
from twofold.data.readers import cifar
from twofold.data.readers.mnist import read_mnist
from twofold.errors import TwofoldError

# S-DIET, appendix C.3; how often the digit is blurred is not said there.
DEFAULTS: dict[str, Any] = {**cifar.DEFAULTS, "augment.extra_scale": (0.75, 1.0), "augment.extra_blur": 0.5}


def read_mnist_on_cifar(data_dir: Path, download: bool, *, masked: bool = False) -> ArraySplits:
    """Training pictures with training digits, test pictures with test digits; the classes are the pictures'."""
    train, test, classes = cifar.read_cifar10(data_dir, download)
    train_digits, test_digits, _ = read_mnist(data_dir, download)
    assert test is not None
    assert test_digits is not None
    return _add_digits(train, train_digits, "train", masked), _add_digits(test, test_digits, "test", masked), classes


def _add_digits(pictures: ArraySplit, digits: ArraySplit, split: str, masked: bool) -> ArraySplit:
    count, height, width, colours = pictures.images.shape
    images = np.zeros((count, height, width, colours + 1), np.uint8)
    images[..., :colours] = pictures.images
    if not masked:
        chosen = choose_digits(pictures.labels, digits.labels, split)
        enlarged = {row: crop_and_resize_array(digits.images[row], height, 1)[0] for row in np.unique(chosen)}
        for number, row in enumerate(chosen):
            images[number, ..., colours] = enlarged[row]
    return ArraySplit(images, pictures.labels)


def choose_digits(labels: np.ndarray | None, digit_labels: np.ndarray | None, split: str) -> np.ndarray:
    """For each label the row of a digit that has it, int64 [n]; no digit twice before all of its label are used."""
    assert labels is not None
    assert digit_labels is not None
    import torch  # late: the names of sets are read where no tensor is needed

    from twofold import counter

    order = counter.permutation(counter.key(torch.arange(len(digit_labels)), f"mnist-on-cifar.{split}")).numpy()
    chosen = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        rows, (have,) = order[digit_labels[order] == label], np.nonzero(labels == label)
        if not len(rows):
            raise TwofoldError(f"there is no digit {label} among MNIST's {split} images; fetch its files again")
        chosen[have] = rows[np.arange(len(have)) % len(rows)]
    return chosen
