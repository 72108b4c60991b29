"""The named datasets `cifar10` and `cifar100`, whose files are pickles."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twofold.data.array_split import ArraySplit, ArraySplits
from twofold.data.downloads import Remote, find_or_fetch
from twofold.data.readers.pickles import read_pickle
from twofold.errors import TwofoldError

# The objects keep their class when they are mirrored or cropped, so the default augmentation suits them.
DEFAULTS: dict[str, Any] = {"encoder": "resnet18", "stem": "small"}

CIFAR10_BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")
CIFAR10_FOLDER = "cifar-10-batches-py"
CIFAR10_REMOTES = (
    Remote(
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        "c58f30108f718f92721af3b95e74349a",
        tuple(f"{CIFAR10_FOLDER}/{name}" for name in (*CIFAR10_BATCHES, "batches.meta")),
    ),
)
CIFAR100_FOLDER = "cifar-100-python"
CIFAR100_REMOTES = (
    Remote(
        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        "eb9058c3a382ffc7106e4002c42a8d85",
        tuple(f"{CIFAR100_FOLDER}/{name}" for name in ("train", "test", "meta")),
    ),
)


def read_cifar10(data_dir: Path, download: bool) -> ArraySplits:
    files = find_or_fetch("cifar10", data_dir, CIFAR10_REMOTES, (CIFAR10_FOLDER, "."), download)
    classes = _read_classes(files["batches.meta"], "label_names")
    batches = [read_batch(files[name], "labels", len(classes)) for name in CIFAR10_BATCHES]
    train = ArraySplit(
        np.concatenate([images for images, _ in batches[:-1]]), np.concatenate([labels for _, labels in batches[:-1]])
    )
    return train, ArraySplit(*batches[-1]), classes


def read_cifar10_5k(data_dir: Path, download: bool) -> ArraySplits:
    """Return the first 500 training images of each class of CIFAR-10, and all test images."""
    return _first_of_each_class(read_cifar10(data_dir, download), [500] * 10)


def read_cifar10_long_tailed(data_dir: Path, download: bool) -> ArraySplits:
    """Return CIFAR-10-LT (Cui et al. 2019) with imbalance factor 100, and all test images, which are balanced.

    Class c has its first 5000 · 100^(−c/9) training images: 5000 of the first class, 50 of the last, 12,406 in total.
    """
    return _first_of_each_class(read_cifar10(data_dir, download), [int(5000 * 100 ** (-c / 9)) for c in range(10)])


def _first_of_each_class(splits: ArraySplits, counts: Sequence[int]) -> ArraySplits:
    train, test, classes = splits
    assert train.labels is not None
    rows = np.concatenate([np.flatnonzero(train.labels == label)[:count] for label, count in enumerate(counts)])
    rows.sort()
    return ArraySplit(train.images[rows], train.labels[rows]), test, classes


def read_cifar100(data_dir: Path, download: bool) -> ArraySplits:
    """Return CIFAR-100 with its 100 fine labels."""
    files = find_or_fetch("cifar100", data_dir, CIFAR100_REMOTES, (CIFAR100_FOLDER, "."), download)
    classes = _read_classes(files["meta"], "fine_label_names")
    train, test = (ArraySplit(*read_batch(files[part], "fine_labels", len(classes))) for part in ("train", "test"))
    return train, test, classes


def _read_classes(path: Path, key: str) -> tuple[str, ...]:
    try:
        return tuple(name.decode() if isinstance(name, bytes) else str(name) for name in read_pickle(path)[key])
    except (KeyError, TypeError, UnicodeDecodeError):
        raise TwofoldError(f"{path} has no {key}; download it again") from None


def read_batch(path: Path, key: str, classes: int) -> tuple[np.ndarray, np.ndarray]:
    batch = read_pickle(path)
    data, given = batch.get("data"), batch.get(key)
    # Each label is checked before numpy sees the list: nested lists can be tiny in a pickle and huge as an array.
    plain = isinstance(given, list) and all(type(label) is int and 0 <= label < classes for label in given)
    labels = np.array(given if plain else [], np.int64)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (3072,):
        raise TwofoldError(f"{path} has no CIFAR images (uint8 rows of 3072); download it again")
    if labels.shape != data.shape[:1]:
        raise TwofoldError(f"{path} has no {key} from 0 to {classes - 1} for every image; download it again")
    return data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels
