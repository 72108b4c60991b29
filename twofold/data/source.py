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
from twofold.data.decode_options import USUAL, DecodeOptions
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

    data_dir: Path  # the folder with the files of named datasets
    download: bool  # whether to download missing files of named datasets
    class_list: tuple[str, ...]  # if not empty, only these classes of a folder are read
    progress: Progress | None  # called with the number of headers read and of all headers
    decode: DecodeOptions = USUAL


@dataclass(frozen=True)
class Source:
    """Images that were found but not decoded yet."""

    name: str  # the name in messages and reports
    location: str  # what `open_source` needs to find the source again, from any working folder
    train: Split  # the training images
    test: Split | None  # the test images, if the source has a test set
    classes: tuple[str, ...] | None  # the names of the classes, if there are labels
    defaults: Mapping[str, Any]  # configuration keys that suit this source
    fingerprint: str  # a hash by which a run recognises its images
    min_images: int = 2  # the number of images that must be readable
    remark: str = ""  # a note for the user, for example about images that are not used
    decode: DecodeOptions = USUAL  # with the range of pixels that was chosen for these images
    held_out: np.ndarray | None = None  # bool, the rows of `train` that are the test set, if chosen before

    @property
    def labelled(self) -> bool:
        """Whether there are at least two classes."""
        return self.classes is not None and len(self.classes) > 1

    def __len__(self) -> int:
        return len(self.train) + (len(self.test) if self.test is not None else 0)


@dataclass(frozen=True)
class Skipped:
    """An image that Twofold skips because it cannot be read."""

    path: str
    reason: str  # why the image cannot be read


@dataclass(frozen=True)
class Data:
    """The decoded images of a source, in the size and split of one run."""

    name: str  # the name in messages and reports
    train: ImageStore  # the training images
    test: ImageStore | None  # the test images, if there are any
    classes: tuple[str, ...] | None  # the names of the classes, if there are labels
    skipped: tuple[Skipped, ...]  # images that cannot be read
    fingerprint: str  # a hash of content, image_size, channels and test_fraction: equal only for equal images
    slow: tuple[tuple[str, float], ...] = ()  # images that were slow to decode this time, and the seconds
    rest: ImageStore | None = None  # images that are in neither set, if requested
    remark: str = ""  # the note of the source


def digest_of(*contents: bytes) -> str:
    """Hash several byte strings, each with its length, so that no two sequences collide by concatenation."""
    state = hashlib.blake2b(digest_size=16)
    for content in contents:
        state.update(len(content).to_bytes(8, "little") + content)
    return state.hexdigest()
