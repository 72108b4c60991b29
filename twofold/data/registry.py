"""The registry of all kinds of data: how Twofold recognises, reads and names each. `data/open.py` uses it.

To add a kind of data, write its reader in `data/readers/` and add one entry to a table below: OBJECT_READERS for
objects of a program, NAMED_SETS for datasets with a name, PATH_READERS for files and folders. In OBJECT_READERS and
PATH_READERS, the first entry that recognises the data reads it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from twofold.data.downloads import Remote
from twofold.data.image_formats import extensions
from twofold.data.readers import cifar, digits, folder_sets, lists, mnist, mnist_on_cifar, shards, stl10
from twofold.data.readers.arrays import (
    ARRAY_FILE_SUFFIXES,
    is_array_splits,
    is_arrays,
    read_array_file,
    read_array_splits,
    read_arrays,
)
from twofold.data.readers.datasets import is_dataset_or_splits, read_dataset
from twofold.data.readers.folder import NoImages, read_folder
from twofold.data.source import ARRAY, DATASET, ReadOptions, Splits
from twofold.errors import TwofoldError, close_to, path_close_to

FILE_SUFFIXES = ".npy, .npz, .csv, .tsv, .txt or .tar"  # as messages list them
PACKED = (".zip", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar")


@dataclass(frozen=True)
class Reader:
    """A kind of data, which is an entry of OBJECT_READERS (for objects of a program) or of PATH_READERS (for paths)."""

    recognises: Callable[[Any], bool]  # whether this reader reads the object or path
    read: Callable[[Any, ReadOptions], Splits]  # returns training images, test images or None, and class names or None
    name_of: Callable[[Any], str]  # the name of the source in messages and reports
    takes_class_list: bool = False  # whether `class_list` applies


@dataclass(frozen=True)
class NamedSet:
    """A dataset that users select by its name."""

    read: Callable[[ReadOptions], Splits]  # as in Reader
    defaults: Mapping[str, Any]  # configuration keys that suit the dataset
    remotes: tuple[Remote, ...] = ()  # its files; Twofold recognises a folder that contains them


def _from_files(read: Callable[[Path, bool], Splits]) -> Callable[[ReadOptions], Splits]:
    return lambda options: read(options.data_dir, options.download)


NAMED_SETS: dict[str, NamedSet] = {
    "digits": NamedSet(lambda _: digits.read_digits(), digits.DEFAULTS),
    "cifar10": NamedSet(_from_files(cifar.read_cifar10), cifar.DEFAULTS, cifar.CIFAR10_REMOTES),
    "cifar10-5k": NamedSet(_from_files(cifar.read_cifar10_5k), cifar.DEFAULTS),
    "cifar10-long-tailed": NamedSet(_from_files(cifar.read_cifar10_long_tailed), cifar.DEFAULTS),
    "cifar100": NamedSet(_from_files(cifar.read_cifar100), cifar.DEFAULTS, cifar.CIFAR100_REMOTES),
    "mnist": NamedSet(_from_files(mnist.read_mnist), mnist.MNIST_DEFAULTS, mnist.MNIST_REMOTES),
    "fashion-mnist": NamedSet(
        _from_files(mnist.read_fashion_mnist), mnist.FASHION_MNIST_DEFAULTS, mnist.FASHION_MNIST_REMOTES
    ),
    "mnist-on-cifar": NamedSet(_from_files(mnist_on_cifar.read_mnist_on_cifar), mnist_on_cifar.DEFAULTS),
    "mnist-on-cifar-masked": NamedSet(
        _from_files(partial(mnist_on_cifar.read_mnist_on_cifar, masked=True)), mnist_on_cifar.DEFAULTS
    ),
    "mnist-on-cifar-5k": NamedSet(
        _from_files(partial(mnist_on_cifar.read_mnist_on_cifar, pictures=cifar.read_cifar10_5k)),
        mnist_on_cifar.DEFAULTS,
    ),
    "mnist-on-cifar-5k-masked": NamedSet(
        _from_files(partial(mnist_on_cifar.read_mnist_on_cifar, masked=True, pictures=cifar.read_cifar10_5k)),
        mnist_on_cifar.DEFAULTS,
    ),
    "stl10": NamedSet(_from_files(stl10.read_stl10), stl10.DEFAULTS, stl10.REMOTES),
    **{
        name: NamedSet(partial(folder_sets.read_folder_set, name), folder_set.defaults)
        for name, folder_set in folder_sets.FOLDER_SETS.items()
    },
}

OBJECT_READERS = (
    Reader(is_arrays, lambda data, _: read_arrays(data), lambda _: ARRAY),
    Reader(is_array_splits, lambda data, _: read_array_splits(data), lambda _: ARRAY),
    Reader(
        is_dataset_or_splits,
        lambda data, options: read_dataset(data, options.progress, options.decode),
        lambda _: DATASET,
    ),
)


def _read_image_folder(path: Path, options: ReadOptions) -> Splits:
    try:
        return read_folder(path, options.progress, only=options.class_list, options=options.decode)
    except NoImages:
        if (found := _named_set_in(path.resolve())) is None:
            raise
        name, root = found
        raise TwofoldError(
            f"{path} contains the files of {name} instead of images; use {name} as data, and set data_dir={root}"
        ) from None


def _named_set_in(folder: Path) -> tuple[str, Path] | None:
    """Return the named dataset whose standard files are in this folder, and the data_dir that finds them, or None."""
    for name, named_set in NAMED_SETS.items():
        if not named_set.remotes:
            continue
        for root in (folder, *folder.parents[:2]):
            first = root / named_set.remotes[0].files[0]
            if first.is_relative_to(folder) and any(Path(f"{first}{ending}").is_file() for ending in ("", ".gz")):
                return name, root
    return None


PATH_READERS = (
    Reader(
        shards.is_shards,
        lambda path, options: shards.read_shards(path, options.progress, options.decode),
        lambda path: re.sub(r"[^\w.]*\{.*", "", path.stem) or path.parent.name,
    ),
    Reader(
        Path.is_dir,
        _read_image_folder,
        lambda path: path.resolve().name or str(path),
        takes_class_list=True,
    ),
    Reader(
        lambda path: path.suffix.lower() in lists.LIST_SUFFIXES and path.is_file(),
        lambda path, options: lists.read_list(path, options.progress, options.decode),
        lambda path: path.stem,
    ),
    Reader(
        lambda path: path.suffix.lower() in ARRAY_FILE_SUFFIXES and path.is_file(),
        lambda path, _: read_array_file(path),
        lambda path: path.stem,
    ),
)


def read_splits(data: Any, options: ReadOptions) -> tuple[str, Splits]:
    """Find the reader that recognises the data, and return the name of the data and their splits.

    Names come before paths: `cifar10` is the named dataset, and `./cifar10` is the folder.
    """
    if not isinstance(data, (str, Path)):
        return _read_object(data, options)
    if isinstance(data, str) and data in NAMED_SETS:
        return data, NAMED_SETS[data].read(options)
    if not str(data).strip():
        raise TwofoldError("the name of the data is empty; for the current folder, write .")
    path = Path(data).expanduser()
    reader = next((reader for reader in PATH_READERS if reader.recognises(path)), None)
    if options.class_list and (reader is None or not reader.takes_class_list):
        raise TwofoldError(
            "class_list is only for folders of images; remove it, or list the files that you want in a CSV"
        )
    if reader is None:
        raise TwofoldError(_why_unrecognised(path))
    return reader.name_of(path), reader.read(path, options)


def _read_object(data: Any, options: ReadOptions) -> tuple[str, Splits]:
    if options.class_list:
        raise TwofoldError(
            "class_list is only for folders of images; remove it, and pass only the images that you want"
        )
    reader = next((reader for reader in OBJECT_READERS if reader.recognises(data)), None)
    if reader is None:
        items = f" of {type(data[0]).__name__}" if isinstance(data, (list, tuple)) and data else ""
        raise TwofoldError(
            f"data is a {type(data).__name__}{items}; pass the name of a dataset, a path, a numpy array, a pair "
            "(images, labels) of arrays, two such pairs (training and test), or a Dataset with a length and numbered "
            "items. Turn a list of images into an array with numpy.stack; list files in a .txt or .csv"
        )
    return reader.name_of(data), reader.read(data, options)


def _why_unrecognised(path: Path) -> str:
    if path.suffix.lower() in extensions() and path.is_file():
        return f"{path} is a single image; pass the folder that contains it"
    if path.suffix.lower() in PACKED and path.is_file():
        return f"{path} is a compressed archive; unpack it, and pass the folder (a plain .tar can be read directly)"
    if path.exists():
        return f"{path} is neither a folder of images nor a file that ends in {FILE_SUFFIXES}"
    if str(path) in (ARRAY, DATASET):
        return f"'{path}' in a configuration stands for objects of a program; pass these objects as data"
    close = close_to(str(path), NAMED_SETS, cutoff=0.8) or path_close_to(path) or close_to(str(path), NAMED_SETS)
    hint = (
        f"did you mean '{close}'?"
        if close
        else f"pass a folder, a file that ends in {FILE_SUFFIXES}, or one of {', '.join(NAMED_SETS)}"
    )
    return f"'{path}' does not exist; {hint}"
