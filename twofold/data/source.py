"""The two classes through which the rest of the package sees images: an opened `Source`, and its decoded `Data`.

`data/open.py` makes a Source, and `data/load.py` turns it into Data, for the verbs and the trainer. The stable index of
a sample is its position in the source: first the training files or rows, then those of the test set, if there is one.
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

# The location of images that are objects of a program. They cannot be found again.
ARRAY = "array"
DATASET = "dataset"

Split = ArraySplit | ItemSplit
Splits = tuple[Split, Split | None, tuple[str, ...] | None]  # train, test, class names


@dataclass(frozen=True)
class ReadOptions:
    """The options of a reader."""

    data_dir: Path  # contains the standard files of named datasets
    download: bool  # whether missing standard files are downloaded
    class_list: tuple[str, ...]  # if not empty, only these classes of a folder are read
    progress: Progress | None


@dataclass(frozen=True)
class Source:
    """Images that were found but not decoded yet."""

    name: str
    location: str  # `open_source` finds the source again by it, from any working folder
    train: Split
    test: Split | None
    classes: tuple[str, ...] | None
    defaults: Mapping[str, Any]  # configuration keys that suit this source
    fingerprint: str
    min_images: int = 2  # the number of images that must be readable
    remark: str = ""  # a note for the user, for example about images that are not used
    held_out: np.ndarray | None = None  # bool, over the rows of `train`: a test set that was chosen before loading

    @property
    def labelled(self) -> bool:
        """Whether there are at least two classes."""
        return self.classes is not None and len(self.classes) > 1

    def __len__(self) -> int:
        return len(self.train) + (len(self.test) if self.test is not None else 0)


@dataclass(frozen=True)
class Skipped:
    """An image that is skipped because it cannot be read."""

    path: str
    reason: str


@dataclass(frozen=True)
class Data:
    """The decoded images of a source, in the size and split of one run."""

    name: str
    train: ImageStore
    test: ImageStore | None
    classes: tuple[str, ...] | None
    skipped: tuple[Skipped, ...]
    fingerprint: str  # a hash of content, image_size, channels and test_fraction: equal only for equal stores
    rest: ImageStore | None = None  # images that are in neither set, if requested (see `hold_out.parts_of`)


def digest_of(*contents: bytes) -> str:
    """Hash several byte strings, each with its length, so that no two sequences collide by concatenation."""
    state = hashlib.blake2b(digest_size=16)
    for content in contents:
        state.update(len(content).to_bytes(8, "little") + content)
    return state.hexdigest()
