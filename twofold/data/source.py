"""What the rest of the package sees of images: an opened `Source`, and its decoded `Data`.

`data/open.py` makes a Source, `data/load.py` makes Data of it; verbs, runs and the trainer take them. A sample's stable
index is its number in the source: training files or rows first, then those of a test set of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twofold.data.array_split import ArraySplit
from twofold.data.item_split import ItemSplit
from twofold.data.parallel import Progress

if TYPE_CHECKING:
    from twofold.data.store import ImageStore

# The location of images that a program handed over: there is no way to find them again.
ARRAY = "array"
DATASET = "dataset"

Split = ArraySplit | ItemSplit
Splits = tuple[Split, Split | None, tuple[str, ...] | None]  # train, test, class names


@dataclass(frozen=True)
class ReadOptions:
    """What a reader may need to know apart from the data."""

    data_dir: Path  # below it lie the standard files of named sets
    download: bool  # whether missing standard files are fetched
    class_list: tuple[str, ...]  # of a folder only these classes, where there are any
    progress: Progress | None


@dataclass(frozen=True)
class Source:
    """Images that were found and not decoded yet."""

    name: str
    location: str  # what `open_source` finds it by again, from any folder
    train: Split
    test: Split | None
    classes: tuple[str, ...] | None
    defaults: Mapping[str, Any]  # configuration keys that suit this source
    fingerprint: str
    min_images: int = 2  # that must be readable
    remark: str = ""  # on what is there and not used, or could be meant otherwise
    held_out: np.ndarray | None = None  # bool, of rows of `train`: the test set, where it is not for `load` to choose

    @property
    def labelled(self) -> bool:
        """Whether there is anything to tell apart."""
        return self.classes is not None and len(self.classes) > 1

    def __len__(self) -> int:
        return len(self.train) + (len(self.test) if self.test is not None else 0)


@dataclass(frozen=True)
class Skipped:
    """An image that is left out because it cannot be read."""

    path: str
    reason: str


@dataclass(frozen=True)
class Data:
    """The decoded images of a source, as one run uses them."""

    name: str
    train: ImageStore
    test: ImageStore | None
    classes: tuple[str, ...] | None
    skipped: tuple[Skipped, ...]
    fingerprint: str  # of content, image_size, channels and test_fraction: the same only for the same stores
    rest: ImageStore | None = None  # what is neither trained on nor tested, where it was asked for


def digest_of(*contents: bytes) -> str:
    """One hash of several byte strings, of which each is preceded by its length."""
    state = hashlib.blake2b(digest_size=16)
    for content in contents:
        state.update(len(content).to_bytes(8, "little") + content)
    return state.hexdigest()
