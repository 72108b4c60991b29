"""From a name, path, array or Dataset to decoded images: `open_source` says what is there, then `load` decodes it.

Between the two the configuration is settled: a source brings defaults that suit it, and what follows from its images.
A sample's stable index is its number in the source, training files or rows first, then those of its own test set.
"""

import difflib
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from twofold.config import Config
from twofold.data.decode import extensions
from twofold.data.items import UNKNOWN, Items
from twofold.data.readers import folder_sets, lists, named_sets, shards
from twofold.data.readers.arrays import ArraySplit, from_arrays, read_array_file
from twofold.data.readers.datasets import (
    as_pair,
    is_array_splits,
    is_arrays,
    is_dataset,
    is_splits,
    read_dataset,
    split_parts,
)
from twofold.data.readers.folder import NoImages, class_names, read_folder
from twofold.data.split import hold_out, hold_out_groups
from twofold.data.store import ImageStore
from twofold.data.work import Progress
from twofold.errors import TwofoldError

NAMES = (*named_sets.NAMED, "stl10", *folder_sets.FOLDER_SETS)
ARRAY = "array"  # the names of images that a program handed over: there is no way to find them again
DATASET = "dataset"
ENDINGS = ".npy, .npz, .csv, .tsv, .txt or .tar"
PACKED = (".zip", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar")
SIZES = (64, 96, 128, 160, 224)  # what images above the first of them are brought to

Split = ArraySplit | Items


@dataclass(frozen=True)
class Source:
    name: str
    location: str  # what `open_source` finds it by again, from any folder
    train: Split
    test: Split | None
    classes: tuple[str, ...] | None
    defaults: Mapping[str, Any]  # configuration keys that suit this source
    chosen: dict[str, Any]  # configuration keys that follow from its images
    fingerprint: str
    least: int = 2  # images that must be readable
    remark: str = ""  # on what is there and not used, or could be meant otherwise
    held: np.ndarray | None = None  # bool, of rows of `train`: the test set, where it is not for `load` to choose

    @property
    def labelled(self) -> bool:
        """Whether there is anything to tell apart."""
        return self.classes is not None and len(self.classes) > 1

    def __len__(self) -> int:
        return len(self.train) + (len(self.test) if self.test is not None else 0)

    def training_images(self, test_fraction: float) -> int:
        """How many there will be to train on, unless some turn out to be unreadable."""
        return len(trained_rows(self, test_fraction))


@dataclass(frozen=True)
class Skipped:
    path: str
    reason: str


@dataclass(frozen=True)
class Data:
    name: str
    train: ImageStore
    test: ImageStore | None
    classes: tuple[str, ...] | None
    skipped: tuple[Skipped, ...]
    fingerprint: str  # of content, image_size, channels and test_fraction: the same only for the same stores
    rest: ImageStore | None = None  # what is neither trained on nor tested, where it was asked for


@dataclass(frozen=True)
class _Part:
    """Rows of a split that make one store; `first` is the stable index of the split's row 0."""

    name: str
    split: Split
    rows: np.ndarray
    first: int


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
    only = () if class_list is None else class_names(class_list)
    name, (train, test, classes) = _read(data, Path(data_dir).expanduser(), download, only, progress)
    defaults = defaults_of(data) if isinstance(data, str) else {}
    least, readable = 2 if to_train else 1, len(train.readable())
    if readable < least:
        words = "one image that can be read; at least two are needed" if readable else "no image that can be read"
        raise TwofoldError(f"{name} has {words}")
    size = natural_size(train.side)
    chosen = {"image_size": size, "channels": train.channels, **network_for(size)}
    remark = _also_a_folder(data) or getattr(train, "remark", "")
    found = Source(name, location_of(data), train, test, classes, defaults, chosen, "", least, remark)
    plain = found
    if classes is not None and len(classes) == 1:
        unlabelled = None if test is None else replace(test, labels=None)
        plain = replace(found, train=replace(train, labels=None), test=unlabelled, classes=None)
    digests = [plain.train.digest(), b"" if plain.test is None else plain.test.digest()]
    fingerprint = _digest(*digests, repr(plain.classes).encode())
    return replace(plain if to_train else found, fingerprint=fingerprint)


def _also_a_folder(data: Any) -> str:
    if not isinstance(data, str) or data not in NAMES or not Path(data).is_dir():
        return ""
    return f"{data} is the set of that name; the folder here is ./{data}"


def find_again(config: Config) -> Source:
    """The images that a run was trained on."""
    if config.data in (ARRAY, DATASET):
        raise TwofoldError(
            "the run's images came from a program, and cannot be found again: give them, as for pretrain"
        )
    if config.data not in NAMES and not shards.is_pattern(config.data) and not Path(config.data).exists():
        raise TwofoldError(
            f"the run's images were in {config.data}, which is not there any more: say where they are now, as DATA"
        )
    return open_source(config.data, data_dir=config.data_dir, class_list=config.class_list)


def load_as(config: Config, source: Source, progress: Progress | None = None, *, rest: bool = False) -> Data:
    """The source's images as a run's configuration wants them."""
    assert config.image_size is not None
    assert config.channels is not None
    return load(
        source,
        image_size=config.image_size,
        channels=config.channels,
        test_fraction=config.test_fraction,
        progress=progress,
        rest=rest,
    )


def refuse_channels(source: Source, channels: int) -> None:
    have = source.train.channels
    if channels != have and not {channels, have} <= {1, 3}:
        raise TwofoldError(
            f"the images of {source.name} have {have} channels, of which channels={channels} cannot be made; "
            f"leave the key out, or give images of {channels} channels"
        )


def load(
    source: Source,
    *,
    image_size: int,
    channels: int,
    test_fraction: float,
    progress: Progress | None = None,
    rest: bool = False,
) -> Data:
    """Decode. Where there are labels and no test set, `test_fraction` of each class is held out as one, by whole groups
    where groups are known. `rest`: also what is for neither."""
    refuse_channels(source, channels)
    kind = repr((image_size, channels, test_fraction)) + (" by group" if source.train.groups is not None else "")
    held = () if source.held is None else (source.held.tobytes(),)
    fingerprint = _digest(source.fingerprint.encode(), kind.encode(), *held)
    parts = _parts(source, test_fraction, rest)
    total = sum(len(part.rows) for part in parts)
    stores: dict[str, ImageStore] = {}
    skipped = [
        Skipped(*item)
        for split in (source.train, source.test)
        if split is not None
        for item in split.unreadable.items()
    ]
    before = 0

    def advance(done: int, _: int) -> None:
        if progress is not None:
            progress(before + done, total)

    for part in parts:
        key = f"{fingerprint}-{part.name}"
        decoded = part.split.decode(part.rows, image_size, channels, key, advance)
        names = part.split.names(part.rows)
        for number, reason in decoded.skipped.items():
            skipped.append(Skipped(names[number] if names else f"item {part.rows[number]}", reason))
        stores[part.name] = _store(part, decoded.images, list(decoded.skipped))
        before += len(part.rows)
    train, test = stores["train"], stores.get("test")
    if len(train) < source.least:
        first = f"; {skipped[0].path}: {skipped[0].reason}" if skipped else ""
        raise TwofoldError(
            f"{source.name} has {len(train)} images that can be decoded, at least {source.least} are needed{first}"
        )
    test = test if test is not None and len(test) else None
    return Data(source.name, train, test, source.classes, tuple(skipped), fingerprint, stores.get("rest"))


def trained_rows(source: Source, test_fraction: float) -> np.ndarray:
    """Rows of the source's training files that are for training, unless they turn out to be unreadable."""
    return _parts(source, test_fraction)[0].rows


def sample(source: Source, count: int, *, image_size: int, channels: int) -> Data:
    """Training images, evenly spaced, decoded in memory: nothing is written. At least two, fewer where some fail."""
    rows = source.train.readable()
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), max(count, 2)), dtype=np.int64))]
    part = _Part("train", source.train, rows, 0)
    decoded = part.split.decode(rows, image_size, channels, None, None)
    store = _store(part, decoded.images, list(decoded.skipped))
    if len(store) < 2:
        raise TwofoldError(f"{source.name} has too few images that can be decoded among {len(rows)} looked at")
    return Data(source.name, store, None, source.classes, (), source.fingerprint)


def natural_size(side: int) -> int:
    """The image_size for images of this (median shorter) side: itself up to 64 pixels, else the nearest of SIZES."""
    return side if side <= SIZES[0] else min(SIZES, key=lambda size: abs(size - side))


def network_for(image_size: int) -> dict[str, Any]:
    """Encoder keys for an image size: 3x3 stem up to 48 pixels, then with max-pool up to 80; below 20 no ResNet."""
    stem = "small" if image_size <= 48 else "small-pool" if image_size <= 80 else "large"
    return {"stem": stem} if image_size >= 20 else {"stem": stem, "encoder": "conv"}


def _named_set_in(folder: Path) -> tuple[str, Path] | None:
    """The set with a name whose standard files are in this folder, and what is its data_dir then."""
    for name, remotes in {**named_sets.REMOTES, "stl10": folder_sets.STL10_REMOTES}.items():
        for root in (folder, *folder.parents[:2]):
            first = root / remotes[0].files[0]
            if first.is_relative_to(folder) and any(Path(f"{first}{ending}").is_file() for ending in ("", ".gz")):
                return name, root
    return None


def _described(data: Any) -> str:
    held = f" of {type(data[0]).__name__}" if isinstance(data, (list, tuple)) and data else ""
    return type(data).__name__ + held


def _read(
    data: Any, data_dir: Path, download: bool, only: tuple[str, ...], progress: Progress | None
) -> tuple[str, tuple[Split, Split | None, tuple[str, ...] | None]]:
    if only and not isinstance(data, (str, Path)):
        raise TwofoldError("class_list is for folders of images; leave it out, and give the images you want")
    if is_arrays(data):
        return ARRAY, from_arrays("the array", *as_pair(data))
    if is_array_splits(data):
        train, test = split_parts(data)
        return ARRAY, from_arrays("the array", *as_pair(train), *as_pair(test))
    if is_dataset(data) or is_splits(data):
        return DATASET, read_dataset(data, progress)
    if not isinstance(data, (str, Path)):
        raise TwofoldError(
            f"data is a {_described(data)}; give a name, a path, a numpy array, a pair (images, labels) of arrays, "
            "such a pair for training and one for tests, or a Dataset with a length and numbered items. numpy.stack "
            "makes an array of a list of images; files are named in a .txt or .csv"
        )
    if isinstance(data, str) and data in folder_sets.FOLDER_SETS:
        return data, folder_sets.read_folder_set(data, data_dir, progress)
    if data == "stl10":
        return data, folder_sets.read_stl10(data_dir, download)
    if isinstance(data, str) and data in named_sets.NAMED:
        read, _ = named_sets.NAMED[data]
        return data, read(data_dir, download)
    if not str(data).strip():
        raise TwofoldError("the name of the data is empty; . is the folder where you are")
    path = Path(data).expanduser()
    if path.is_dir() and not _holds_shards(path):
        try:
            return path.resolve().name or str(path), read_folder(path, progress, only=only)
        except NoImages:
            if (found := _named_set_in(path.resolve())) is None:
                raise
            name, root = found
            raise TwofoldError(
                f"no images in {path}, but the files of {name}: train on {name}, data_dir={root}"
            ) from None
    if only:
        raise TwofoldError("class_list is for folders of images; leave it out, or list the files you want in a CSV")
    if path.is_dir() or (path.suffix.lower() == ".tar" and (path.is_file() or shards.is_pattern(str(path)))):
        return re.sub(r"[^\w.]*\{.*", "", path.stem) or path.parent.name, shards.read_shards(path, progress)
    if path.suffix.lower() in lists.ENDINGS and path.is_file():
        return path.stem, lists.read_list(path, progress)
    if path.suffix.lower() in (".npy", ".npz") and path.is_file():
        return path.stem, read_array_file(path)
    raise TwofoldError(_nothing_there(path))


def _holds_shards(folder: Path) -> bool:
    """Tar files, and no images beside them."""
    return any(folder.glob("*.tar")) and not any(path.suffix.lower() in extensions() for path in folder.iterdir())


def defaults_of(data: str) -> Mapping[str, Any]:
    """Configuration keys that suit the set of this name; nothing for other data."""
    if data == "stl10":
        return folder_sets.STL10_DEFAULTS
    if data in folder_sets.FOLDER_SETS:
        return folder_sets.FOLDER_SETS[data].defaults
    return named_sets.NAMED[data][1] if data in named_sets.NAMED else {}


def location_of(data: Any) -> str:
    if not isinstance(data, (str, Path)):
        return DATASET if is_dataset(data) or is_splits(data) else ARRAY
    return data if data in NAMES else str(Path(data).expanduser().resolve())


def _nothing_there(path: Path) -> str:
    if path.suffix.lower() in extensions() and path.is_file():
        return f"{path} is a single image; give the folder it is in"
    if path.suffix.lower() in PACKED and path.is_file():
        return f"{path} is packed: unpack it, and give the folder (a plain .tar is read as it is)"
    if path.exists():
        return f"{path} is not a folder of images, nor a file that ends in {ENDINGS}"
    if str(path) in (ARRAY, DATASET):
        return f"there is no '{path}', which in a configuration stands for images of a program: give them as data"
    close = difflib.get_close_matches(str(path).lower(), NAMES, n=1, cutoff=0.5)
    hint = (
        f"did you mean '{close[0]}'?"
        if close
        else f"give a folder, a file that ends in {ENDINGS}, or {', '.join(NAMES)}"
    )
    return f"there is no '{path}'; {hint}"


def _parts(source: Source, test_fraction: float, rest: bool = False) -> list[_Part]:
    """Images without a label, among others that have one, are not held out: a test of them would say nothing. Of a
    group that is held out they are left out: nothing of it may be trained on. They are the `rest`, if asked for."""
    rows = source.train.readable()
    if source.test is not None:
        test = _Part("test", source.test, source.test.readable(), len(source.train))
        return [_Part("train", source.train, rows, 0), test]
    if source.held is not None:
        labels = source.train.labels
        known = np.ones(len(rows), bool) if labels is None else labels[rows] != UNKNOWN
        chosen, others = source.held[rows] & known, source.held[rows] & ~known & rest
        return _of_one(source.train, rows, chosen, others, rest)
    if source.train.labels is None or not source.labelled or test_fraction == 0:
        return [_Part("train", source.train, rows, 0)]
    known = source.train.labels[rows] != UNKNOWN
    classes = torch.from_numpy(source.train.labels[rows[known]])
    held, left_out = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    index = torch.from_numpy(rows[known])
    if source.train.groups is None or not known.any():
        held[known] = hold_out(index, classes, test_fraction).numpy()
    else:
        groups = source.train.groups[rows]
        held[known] = hold_out_groups(index, classes, torch.from_numpy(groups[known]), test_fraction).numpy()
        left_out = ~held & (groups != UNKNOWN) & np.isin(groups, groups[held])
    return _of_one(source.train, rows, held, left_out, rest)


def _of_one(split: Split, rows: np.ndarray, test: np.ndarray, left_out: np.ndarray, rest: bool) -> list[_Part]:
    chosen = {"train": ~test & ~left_out, "test": test} | ({"rest": left_out} if rest and left_out.any() else {})
    return [_Part(name, split, rows[which], 0) for name, which in chosen.items()]


def _store(part: _Part, images: Tensor, missing: list[int]) -> ImageStore:
    rows = np.delete(part.rows, missing)
    labels, groups = (
        None if column is None else torch.from_numpy(column[rows]) for column in (part.split.labels, part.split.groups)
    )
    return ImageStore(images, labels, torch.from_numpy(rows + part.first), part.split.names(rows), groups)


def _digest(*contents: bytes) -> str:
    state = hashlib.blake2b(digest_size=16)
    for content in contents:
        state.update(len(content).to_bytes(8, "little") + content)
    return state.hexdigest()
