"""Find images and their facts without decoding: `open_source` opens any data, `find_again` the data of a run.

The verbs call it before the configuration is complete, because a source has defaults of its own, and the sizes of its
images determine others.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from twofold.config import Config
from twofold.data.decode_options import USUAL, DecodeOptions
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
    decode: DecodeOptions = USUAL,
) -> Source:
    """Find the images and their number, sizes and labels, without decoding them.

    Parameters
    ----------
    data
        The name of a dataset, a path, an array, a pair (images, labels), or a Dataset.
    data_dir
        The folder with the files of named datasets.
    download
        Whether to download missing files of named datasets.
    class_list
        A text file of class names. Only these classes of a folder are used.
    progress
        Called as `progress(done, total)` while headers are read.
    to_train
        Whether the images are for training. If not, a single image is enough, and a single class keeps its name.
    decode
        How image files are read. The range of pixels is chosen here if it is `auto`.
    """
    classes_wanted = () if class_list is None else read_class_list(class_list)
    options = ReadOptions(Path(data_dir).expanduser(), download, classes_wanted, progress, decode)
    name, (train, test, classes) = read_splits(data, options)
    min_images, readable = 2 if to_train else 1, len(train.readable())
    if readable < min_images:
        words = "only one readable image; training needs at least two" if readable else "no readable images"
        raise TwofoldError(f"{name} has {words}")
    defaults = defaults_of(data) if isinstance(data, str) else {}
    remark = _also_a_folder(data) or getattr(train, "remark", "")
    found = Source(
        name,
        location_of(data),
        train,
        test,
        classes,
        defaults,
        "",
        min_images,
        remark,
        getattr(train, "options", decode),
    )
    # With a single class, labels carry no information, so training drops them. The fingerprint is the same either way.
    without_single_class = found
    if classes is not None and len(classes) == 1:
        unlabelled = None if test is None else replace(test, labels=None)
        without_single_class = replace(found, train=replace(train, labels=None), test=unlabelled, classes=None)
    splits = without_single_class
    digests = [splits.train.digest(), b"" if splits.test is None else splits.test.digest()]
    fingerprint = digest_of(*digests, repr(splits.classes).encode())
    return replace(without_single_class if to_train else found, fingerprint=fingerprint)


def open_to_use(data: Any, of_run: Config | Mapping[str, Any] | None, progress: Progress | None = None) -> Source:
    """Open images that an encoder is used on, not trained on.

    `of_run` has the keys of the encoder's run, if there is one: named datasets are in its `data_dir`, and its
    `class_list` applies to its own images.
    """
    named = isinstance(data, (str, Path))
    values = {} if of_run is None else of_run if isinstance(of_run, Mapping) else vars(of_run)
    own = named and values.get("data") in (str(data), str(Path(data).expanduser().resolve()))
    return open_source(
        str(data) if named else data,
        data_dir=values.get("data_dir", "data"),
        class_list=values.get("class_list") if own else None,
        progress=progress,
        to_train=False,
        decode=USUAL if of_run is None else DecodeOptions.of(of_run),
    )


def find_again(config: Config) -> Source:
    """Open the images that a run was trained on."""
    if not config.data:
        raise TwofoldError("this encoder has no images of its own: give DATA, the images")
    if config.data in (ARRAY, DATASET):
        raise TwofoldError("the images of this run were objects of a program; pass the same objects again, as data")
    if config.data not in NAMED_SETS and not shards.is_pattern(config.data) and not Path(config.data).exists():
        raise TwofoldError(
            f"the images of this run were in {config.data}, which no longer exists; pass their new path as DATA"
        )
    return open_as(config, config.data)


def open_as(config: Config, data: Any, *, class_list: bool = True) -> Source:
    """Open images to train on, as a run with this configuration reads them, with its list of classes or without."""
    classes = config.class_list if class_list else None
    return open_source(data, data_dir=config.data_dir, class_list=classes, decode=DecodeOptions.of(config))


def defaults_of(data: str) -> Mapping[str, Any]:
    """Return the configuration keys that suit the named dataset, or an empty mapping for other data."""
    return NAMED_SETS[data].defaults if data in NAMED_SETS else {}


def location_of(data: Any) -> str:
    """Return what finds the data again: a name or an absolute path. For objects, return only their kind."""
    if not isinstance(data, (str, Path)):
        return DATASET if is_dataset_or_splits(data) else ARRAY
    return str(data) if data in NAMED_SETS else str(Path(data).expanduser().resolve())


def _also_a_folder(data: Any) -> str:
    if not isinstance(data, str) or data not in NAMED_SETS or not Path(data).is_dir():
        return ""
    return f"{data} is the named dataset; to use the folder of the same name, pass ./{data}"
