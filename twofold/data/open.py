"""Find images and what is known of them without decoding: `open_source` for any data, `find_again` for those of a run.

The verbs call it before the configuration is complete: a source brings defaults that suit it, and the sizes of its
images decide others.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from twofold.config import Config
from twofold.data.parallel import Progress
from twofold.data.readers import shards
from twofold.data.readers.datasets import is_dataset_or_splits
from twofold.data.readers.folder import read_class_list
from twofold.data.registry import NAMED_SETS, read_splits
from twofold.data.source import ARRAY, DATASET, ReadOptions, Source, digest_of
from twofold.errors import TwofoldError


def open_source(
    data: Any,
    *,
    data_dir: str | Path = "data",
    download: bool = False,
    class_list: str | Path | None = None,
    progress: Progress | None = None,
    to_train: bool = True,
) -> Source:
    """Find the images and what is known of them without decoding: number, sizes, labels. `progress(done, total)`.

    `class_list`: a text file of class names; of a folder only their images are taken. Where they are not `to_train` on,
    one image will do, and a single class keeps its name.
    """
    classes_wanted = () if class_list is None else read_class_list(class_list)
    options = ReadOptions(Path(data_dir).expanduser(), download, classes_wanted, progress)
    name, (train, test, classes) = read_splits(data, options)
    min_images, readable = 2 if to_train else 1, len(train.readable())
    if readable < min_images:
        words = "one image that can be read; at least two are needed" if readable else "no image that can be read"
        raise TwofoldError(f"{name} has {words}")
    defaults = defaults_of(data) if isinstance(data, str) else {}
    remark = _also_a_folder(data) or getattr(train, "remark", "")
    found = Source(name, location_of(data), train, test, classes, defaults, "", min_images, remark)
    # A single class is no label: nothing can be learnt from it, or probed. The fingerprint is the same either way.
    without_single_class = found
    if classes is not None and len(classes) == 1:
        unlabelled = None if test is None else replace(test, labels=None)
        without_single_class = replace(found, train=replace(train, labels=None), test=unlabelled, classes=None)
    splits = without_single_class
    digests = [splits.train.digest(), b"" if splits.test is None else splits.test.digest()]
    fingerprint = digest_of(*digests, repr(splits.classes).encode())
    return replace(without_single_class if to_train else found, fingerprint=fingerprint)


def find_again(config: Config) -> Source:
    """The images that a run was trained on."""
    if config.data in (ARRAY, DATASET):
        raise TwofoldError(
            "the run's images came from a program, and cannot be found again: give them, as for pretrain"
        )
    if config.data not in NAMED_SETS and not shards.is_pattern(config.data) and not Path(config.data).exists():
        raise TwofoldError(
            f"the run's images were in {config.data}, which is not there any more: say where they are now, as DATA"
        )
    return open_source(config.data, data_dir=config.data_dir, class_list=config.class_list)


def defaults_of(data: str) -> Mapping[str, Any]:
    """Configuration keys that suit the set of this name; nothing for other data."""
    return NAMED_SETS[data].defaults if data in NAMED_SETS else {}


def location_of(data: Any) -> str:
    """What finds the data again: a name, or a path from the root; of objects only their kind."""
    if not isinstance(data, (str, Path)):
        return DATASET if is_dataset_or_splits(data) else ARRAY
    return str(data) if data in NAMED_SETS else str(Path(data).expanduser().resolve())


def _also_a_folder(data: Any) -> str:
    if not isinstance(data, str) or data not in NAMED_SETS or not Path(data).is_dir():
        return ""
    return f"{data} is the set of that name; the folder here is ./{data}"
