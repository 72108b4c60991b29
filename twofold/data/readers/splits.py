"""How training and test images are told apart: names of folders and columns, and mappings or pairs in Python.

The readers of folders, lists, shards, arrays and Datasets share it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from twofold.errors import TwofoldError

# In this order: where a folder has several test folders, the first of these with classes is taken.
TRAIN_NAMES = ("train", "training")
TEST_NAMES = ("test", "testing", "val", "valid", "validation", "eval", "dev")
TRAIN_KEY = "train"


def are_splits_of(is_part: Callable[[Any], bool], data: Any) -> bool:
    """Whether data are a mapping with a training set, or a pair (train, test), and each part is as asked."""
    if isinstance(data, Mapping):
        return TRAIN_KEY in data and all(is_part(part) for part in data.values())
    return isinstance(data, tuple) and len(data) == 2 and all(is_part(part) for part in data)


def train_and_test_of(data: Any) -> tuple[Any, Any]:
    """The parts of what `are_splits_of` accepts; None where there is no test set."""
    if isinstance(data, Mapping):
        others = [name for name in data if name not in (TRAIN_KEY, *TEST_NAMES)]
        if others and data.keys().isdisjoint(TEST_NAMES):  # a third split beside both is left alone
            names = ", ".join(map(repr, others))
            raise TwofoldError(
                f"the data have '{TRAIN_KEY}' and {names}: call the test set {' or '.join(TEST_NAMES)}, and leave "
                "others out"
            )
        return data[TRAIN_KEY], next((data[name] for name in TEST_NAMES if name in data), None)
    train, test = data
    return train, test
