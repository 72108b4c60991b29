"""How the readers recognise training and test images: by names of folders and columns, or by a mapping or pair."""

from collections.abc import Callable, Mapping
from typing import Any

from twofold.errors import TwofoldError

# The order matters: if a folder has several test folders, the first in this order that has classes is used.
TRAIN_NAMES = ("train", "training")
TEST_NAMES = ("test", "testing", "val", "valid", "validation", "eval", "dev")
TRAIN_KEY = "train"


def are_splits_of(is_part: Callable[[Any], bool], data: Any) -> bool:
    """Whether `data` is a mapping with a training set or a pair (train, test), and `is_part` holds for each part."""
    if isinstance(data, Mapping):
        return TRAIN_KEY in data and all(is_part(part) for part in data.values())
    return isinstance(data, tuple) and len(data) == 2 and all(is_part(part) for part in data)


def train_and_test_of(data: Any) -> tuple[Any, Any]:
    """Return the training set and the test set (or None) of data that `are_splits_of` accepts."""
    if isinstance(data, Mapping):
        others = [name for name in data if name not in (TRAIN_KEY, *TEST_NAMES)]
        if others and data.keys().isdisjoint(TEST_NAMES):  # with a training and a test set, other splits are ignored
            names = ", ".join(map(repr, others))
            raise TwofoldError(
                f"the data have the keys '{TRAIN_KEY}' and {names}; rename the test set to one of "
                f"{', '.join(TEST_NAMES)}, and remove other keys"
            )
        return data[TRAIN_KEY], next((data[name] for name in TEST_NAMES if name in data), None)
    train, test = data
    return train, test
