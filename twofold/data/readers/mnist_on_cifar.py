"""The synthetic datasets `mnist-on-cifar` and `mnist-on-cifar-masked` (S-DIET, section 6.1.1).

They contain CIFAR-10's images, each with an MNIST digit of the same label in a fourth channel.

The digit reveals the label and is augmented weakly, so a method that learns only the easiest feature learns nothing
about the picture. In the masked dataset, the digit's channel is black, so a probe measures only what the encoder
learnt from the picture.

The paper does not state which digit belongs to which image, nor how 28 pixels become 32. Here, each image has a
different digit as long as there are enough digits of its label; then the digits repeat in the same order. The
assignment is the same for all runs. The digits are enlarged to 32 pixels.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from twofold.data.array_split import ArraySplit, ArraySplits
from twofold.data.decode import crop_and_resize_array
from twofold.data.readers import cifar
from twofold.data.readers.mnist import read_mnist
from twofold.errors import TwofoldError

# S-DIET, appendix C.3, which does not state how often the digit is blurred.
DEFAULTS: dict[str, Any] = {**cifar.DEFAULTS, "augment.extra_scale": (0.75, 1.0), "augment.extra_blur": 0.5}


def read_mnist_on_cifar(
    data_dir: Path,
    download: bool,
    *,
    masked: bool = False,
    pictures: Callable[[Path, bool], ArraySplits] = cifar.read_cifar10,
) -> ArraySplits:
    """Combine training pictures with training digits and test pictures with test digits. The classes are CIFAR-10's."""
    train, test, classes = pictures(data_dir, download)
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
    """Return a row of `digit_labels` with the same label for each label, int64 [n].

    A digit repeats only after all digits of its label are used.
    """
    assert labels is not None
    assert digit_labels is not None
    import torch  # imported late, because this module is also imported to list the named sets

    from twofold import counter

    order = counter.permutation(counter.key(torch.arange(len(digit_labels)), f"mnist-on-cifar.{split}")).numpy()
    chosen = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        rows, (have,) = order[digit_labels[order] == label], np.nonzero(labels == label)
        if not len(rows):
            raise TwofoldError(f"there is no digit {label} among MNIST's {split} images; download its files again")
        chosen[have] = rows[np.arange(len(have)) % len(rows)]
    return chosen
