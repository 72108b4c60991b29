"""Datasets that a program has already: PyTorch's (anything with a length and numbered items), and Hugging Face's.

Neither library is imported: an item is an image, a tuple (image, label, …) or a dict with such entries. Images are
Pillow's, arrays [H, W] or [H, W, C], or tensors [C, H, W]; uint8, or float from 0 to 1. A label below 0 is unknown.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from twofold.data.array_split import ROUNDING_ERROR, to_uint8
from twofold.data.decode import Unreadable, crop_and_resize, is_grey
from twofold.data.item_split import ItemSplit, ItemSplits
from twofold.data.parallel import Progress, with_progress
from twofold.data.readers.columns import Cell, number_labels, parse_label
from twofold.data.readers.splits import are_splits_of, train_and_test_of
from twofold.errors import TwofoldError
from twofold.types import is_of

ITEM_IMAGE_KEYS = ("image", "img", "images", "pixel_values", "picture", "jpg", "png")
ITEM_LABEL_KEYS = ("label", "labels", "fine_label", "target", "targets", "class", "cls", "y")
MAX_INSPECTED = 1024  # items of a dataset that knows its own fingerprint, and rows tried for a readable one


def is_dataset(data: Any) -> bool:
    """One with a length and items by number; not the other things that have those."""
    return (
        hasattr(data, "__getitem__")
        and hasattr(data, "__len__")
        and not isinstance(data, (type, str, bytes, Sequence, Mapping, np.ndarray))
        and not is_of(data, "torch", "Tensor")
    )


def is_splits(data: Any) -> bool:
    """A mapping with a training set, as Hugging Face's DatasetDict, or a pair (train, test), as random_split's list."""
    return are_splits_of(is_dataset, tuple(data) if isinstance(data, list) else data)


def is_dataset_or_splits(data: Any) -> bool:
    return is_dataset(data) or is_splits(data)


def read_dataset(data: Any, progress: Progress | None = None) -> ItemSplits:
    train, test = (data, None) if is_dataset(data) else train_and_test_of(data)
    readers = [_DatasetReader(train, "the training set")]
    if test is not None:
        readers.append(_DatasetReader(test, "the test set"))
    for reader in readers:
        reader.inspect(progress)
    labels, classes = number_labels(*(reader.labels for reader in readers))
    names = readers[0].class_names
    if names is not None and classes is not None and all(name.isdigit() and int(name) < len(names) for name in classes):
        classes = tuple(names[int(name)] for name in classes)
    splits = [reader.to_split(own) for reader, own in zip(readers, labels, strict=True)]
    return splits[0], splits[1] if len(splits) > 1 else None, classes


class _DatasetReader:
    """One dataset: where image and label are in its items, and what `inspect` finds out about them."""

    def __init__(self, data: Any, where: str) -> None:
        self.data, self.where = data, where
        if len(data) == 0:
            raise TwofoldError(f"{where} is empty")
        self.image_key, self.label_key = _find_keys(self.item(self.first_readable(self.item)), where)
        # Random transforms would make every epoch's images, and the cache's key, others.
        readable = self.first_readable(self.image)
        if self.bytes_of(readable) != self.bytes_of(readable):
            raise TwofoldError(
                f"{where} gives another image each time it is asked for the same one; leave out its random "
                "transforms: Twofold makes the views itself"
            )
        features = getattr(data, "features", None)
        label = features.get(self.label_key) if isinstance(features, Mapping) else None
        self.class_names: Sequence[str] | None = getattr(label, "names", None) or None
        self.labels: Sequence[Cell] = []
        self.sides: list[int] = []
        self.grey = True
        self.facts = b""

    def first_readable(self, read: Callable[[int], object]) -> int:
        reason = ""
        for row in range(min(len(self.data), MAX_INSPECTED)):
            try:
                read(row)
                return row
            except Unreadable as error:
                reason = reason or str(error)
        raise TwofoldError(f"the items of {self.where} cannot be read; {reason}")

    def item(self, row: int) -> Any:
        try:
            return self.data[row]
        except Exception as error:
            raise Unreadable(f"{type(error).__name__}: {' '.join(str(error).split())}") from error

    def image(self, row: int) -> Image.Image:
        return self.image_of(self.item(row))

    def image_of(self, item: Any) -> Image.Image:
        try:
            return _as_image(item if self.image_key is None else item[self.image_key])
        except (KeyError, IndexError, TypeError):
            raise Unreadable("an item without an image where others have one") from None

    def bytes_of(self, row: int) -> bytes:
        image = self.image(row)
        return repr((image.mode, image.size)).encode() + image.tobytes()

    def label(self, item: Any, row: int) -> Cell:
        try:
            value = None if self.label_key is None else item[self.label_key]
        except (KeyError, IndexError):  # others have one
            return None
        return parse_label(value, f"item {row} of {self.where}")

    def inspect(self, progress: Progress | None) -> None:
        """Sizes, labels and a hash of everything: of Hugging Face's datasets, which know theirs, from a sample."""
        fingerprint = getattr(self.data, "_fingerprint", None)
        known = isinstance(fingerprint, str) and hasattr(self.data, "column_names")
        if known and self.label_key is not None:
            column = list(self.data[self.label_key])
            self.labels = [parse_label(value, f"item {row} of {self.where}") for row, value in enumerate(column)]
        everything = np.arange(len(self.data))
        rows = np.unique(np.linspace(0, len(everything) - 1, MAX_INSPECTED, dtype=np.int64)) if known else everything
        state = hashlib.blake2b(str(fingerprint).encode() if known else b"", digest_size=16)
        labels: list[Cell] = []
        for row in with_progress(rows.tolist(), len(rows), progress):
            try:
                item = self.item(row)
                image = self.image_of(item)
            except Unreadable:
                state.update(b"unreadable")
                labels.append(None)
                continue
            self.sides.append(min(image.size))
            self.grey = self.grey and is_grey(image)
            state.update(repr((image.mode, image.size)).encode() + image.tobytes())
            labels.append(None if known else self.label(item, row))
        if not known:
            self.labels = labels
        elif self.label_key is None:
            self.labels = [None] * len(everything)
        if not self.sides:
            raise TwofoldError(f"no item of {self.where} is an image that can be read")
        self.facts = state.digest()

    def to_split(self, labels: np.ndarray | None) -> ItemSplit:
        return ItemSplit(
            fetch=lambda row, size, channels: crop_and_resize(self.image(row), size, channels),
            count=len(self.data),
            labels=labels,
            side=int(np.median(self.sides)),
            grey=self.grey,
            facts=self.facts,
            threads=1,  # a Dataset may hold one file open for all its items
        )


def _find_keys(item: Any, where: str) -> tuple[Any, Any]:
    """What the image and the label are found by in an item; None: the item is the image, or has no label."""
    if isinstance(item, Mapping):
        image = next((key for key in (*ITEM_IMAGE_KEYS, *item) if key in item and _is_image(item[key])), None)
        if image is None:
            raise TwofoldError(f"the items of {where} have {', '.join(map(str, item))}, and none of them is an image")
        return image, next((key for key in ITEM_LABEL_KEYS if key in item), None)
    if isinstance(item, (tuple, list)):
        if not item or not _is_image(item[0]):
            raise TwofoldError(f"the items of {where} are tuples that do not begin with an image")
        # What may be a label is read as one, and refused where it is none; masks, boxes and the like are left alone.
        other = len(item) < 2 or isinstance(item[1], (Mapping, list, tuple)) or _is_image(item[1])
        return 0, None if other else 1
    if not _is_image(item):
        raise TwofoldError(f"the items of {where} are {type(item).__name__}, not images, tuples or dicts with an image")
    return None, None


def _is_image(value: Any) -> bool:
    return isinstance(value, Image.Image) or (hasattr(value, "shape") and len(value.shape) in (2, 3))


def _as_image(value: Any) -> Image.Image:
    if isinstance(value, Image.Image):
        return value
    pixels = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    if pixels.ndim == 3 and pixels.shape[0] in (1, 3) and pixels.shape[2] not in (1, 3):
        pixels = pixels.transpose(1, 2, 0)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if pixels.size == 0 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3):
        raise Unreadable(f"an array of shape {pixels.shape} is no image")
    if pixels.dtype.kind == "f":
        if not (pixels.min() >= -ROUNDING_ERROR and pixels.max() <= 1 + ROUNDING_ERROR):  # also false for NaN
            raise Unreadable(
                f"float pixels from {pixels.min():g} to {pixels.max():g}, and only 0 to 1 is understood: leave out "
                "Normalize, Twofold does that itself"
            )
    elif pixels.dtype != np.uint8:
        raise Unreadable(f"pixels of type {pixels.dtype}; uint8 and float from 0 to 1 are understood")
    return Image.fromarray(to_uint8(pixels))
