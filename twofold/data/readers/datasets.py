"""Read Dataset objects: PyTorch's (any object with a length and numbered items) and Hugging Face's.

An item is an image, a tuple (image, label, …), or a dict with an image and a label. An image is a Pillow image, an
array [H, W] or [H, W, C], or a tensor [C, H, W]. In place of the image, an item may have a list of images, which show
the same object: `([first, second], label)`. Pixels are uint8, or float from 0 to 1. A negative label means
unknown. Neither library is imported.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image

from twofold.data.array_split import ROUNDING_ERROR, to_uint8
from twofold.data.decode import COLOUR, GREY, is_grey, with_8_bits
from twofold.data.decode_options import USUAL, DecodeOptions, Unreadable
from twofold.data.item_split import ItemSplit, ItemSplits
from twofold.data.parallel import Progress, with_progress
from twofold.data.pixel_range import Extremes, choose_range, extremes_of, is_deep
from twofold.data.readers.columns import Cell, number_labels, parse_label
from twofold.data.readers.splits import are_splits_of, train_and_test_of
from twofold.errors import TwofoldError
from twofold.types import is_of

ITEM_IMAGE_KEYS = ("image", "img", "images", "pixel_values", "picture", "jpg", "png")
ITEM_LABEL_KEYS = ("label", "labels", "fine_label", "target", "targets", "class", "cls", "y")
MAX_INSPECTED = 1024  # items inspected if the dataset has a fingerprint, and items tried to find a readable one


def is_dataset(data: Any) -> bool:
    """Whether `data` has a length and numbered items, and is not a sequence, mapping, array or tensor."""
    return (
        hasattr(data, "__getitem__")
        and hasattr(data, "__len__")
        and not isinstance(data, (type, str, bytes, Sequence, Mapping, np.ndarray))
        and not is_of(data, "torch", "Tensor")
    )


def is_splits(data: Any) -> bool:
    """Whether `data` is a mapping with a training set, such as a DatasetDict, or a pair (train, test).

    The pair may be a list, as `torch.utils.data.random_split` returns.
    """
    return are_splits_of(is_dataset, tuple(data) if isinstance(data, list) else data)


def is_dataset_or_splits(data: Any) -> bool:
    return is_dataset(data) or is_splits(data)


def read_dataset(data: Any, progress: Progress | None = None, options: DecodeOptions = USUAL) -> ItemSplits:
    train, test = (data, None) if is_dataset(data) else train_and_test_of(data)
    train, test = one_image_each(train), None if test is None else one_image_each(test)
    readers = [_DatasetReader(train, "the training set")]
    if test is not None:
        readers.append(_DatasetReader(test, "the test set"))
    for reader in readers:
        reader.inspect(progress)
    labels, classes = number_labels(*(reader.labels for reader in readers))
    names = readers[0].class_names
    if names is not None and classes is not None and all(name.isdigit() and int(name) < len(names) for name in classes):
        classes = tuple(names[int(name)] for name in classes)
    if options.pixel_range == "auto":
        options = replace(options, pixel_range=choose_range(each for reader in readers for each in reader.extremes))
    splits = [reader.to_split(own, options) for reader, own in zip(readers, labels, strict=True)]
    return splits[0], splits[1] if len(splits) > 1 else None, classes


def one_image_each(data: Any) -> Any:
    """Return the dataset, or the images of its items one by one if the first item has a list of images."""
    try:
        first = _image_value(data[0]) if len(data) else None
    except Exception:  # _DatasetReader looks for an item that can be read
        return data
    return ImagesOfItems(data) if isinstance(first, (list, tuple)) and first and _is_image(first[0]) else data


def _image_value(item: Any) -> Any:
    """Return the image of an item, or its list of images."""
    if isinstance(item, Mapping):
        return next((item[key] for key in ITEM_IMAGE_KEYS if key in item), None)
    return item[0] if isinstance(item, (tuple, list)) and item else item


class ImagesOfItems:
    """The images of a dataset whose items have several. `objects` has the number of the item of each image."""

    def __init__(self, data: Any) -> None:
        self.data, self.features = data, getattr(data, "features", None)
        counts = [self._count(number) for number in range(len(data))]
        self.objects = np.repeat(np.arange(len(counts)), counts)
        self.places = np.concatenate([np.arange(count) for count in counts])
        self._last: tuple[int, Any] | None = None  # an item is read once for its images in a row

    def _count(self, number: int) -> int:
        try:
            images = _image_value(self.data[number])
        except Exception:  # the item counts as an unreadable image
            return 1
        return len(images) if isinstance(images, (list, tuple)) else 1

    def __len__(self) -> int:
        return len(self.objects)

    def __getitem__(self, row: int) -> Any:
        """Return an item with one image in place of the list."""
        number = int(self.objects[row])
        if self._last is None or self._last[0] != number:
            self._last = number, self.data[number]
        item = self._last[1]
        images = _image_value(item)
        image = images[self.places[row]] if isinstance(images, (list, tuple)) else images
        if isinstance(item, Mapping):
            key = next(key for key in ITEM_IMAGE_KEYS if key in item)
            return {**item, key: image}
        return (image, *item[1:]) if isinstance(item, (tuple, list)) else image


class _DatasetReader:
    """One dataset: the keys of image and label in its items, and the facts that `inspect` collects."""

    def __init__(self, data: Any, where: str) -> None:
        self.data, self.where = data, where
        if len(data) == 0:
            raise TwofoldError(f"{where} is empty")
        self.image_key, self.label_key = _find_keys(self.item(self.first_readable(self.item)), where)
        # With random transforms, the images and the cache key would change at each access.
        readable = self.first_readable(self.image)
        if self.bytes_of(readable) != self.bytes_of(readable):
            raise TwofoldError(
                f"{where} returns a different image each time the same item is read; remove its random transforms, "
                "because Twofold creates the views itself"
            )
        features = getattr(data, "features", None)
        label = features.get(self.label_key) if isinstance(features, Mapping) else None
        self.class_names: Sequence[str] | None = getattr(label, "names", None) or None
        self.labels: Sequence[Cell] = []
        self.sides: list[tuple[int, int]] = []
        self.channels = GREY
        self.extremes: list[Extremes] = []  # of images of more than 8 bits
        self.facts = b""

    def first_readable(self, read: Callable[[int], object]) -> int:
        reason = ""
        for row in range(min(len(self.data), MAX_INSPECTED)):
            try:
                read(row)
                return row
            except Unreadable as error:
                reason = reason or str(error)
        raise TwofoldError(f"the items of {self.where} cannot be read: {reason}")

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
            raise Unreadable("the item has no image, but others have") from None

    def bytes_of(self, row: int) -> bytes:
        image = self.image(row)
        return repr((image.mode, image.size)).encode() + image.tobytes()

    def label(self, item: Any, row: int) -> Cell:
        try:
            value = None if self.label_key is None else item[self.label_key]
        except (KeyError, IndexError):  # this item has no label, but others have
            return None
        return parse_label(value, f"item {row} of {self.where}")

    def inspect(self, progress: Progress | None) -> None:
        """Collect sizes, labels and a hash of the content.

        A Hugging Face dataset has a fingerprint of its content, so only a sample of its images is read.
        """
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
            self.sides.append((min(image.size), max(image.size)))
            self.channels = max(self.channels, GREY if is_grey(image) else COLOUR)
            if is_deep(image):
                self.extremes.append(extremes_of(image))
            state.update(repr((image.mode, image.size)).encode() + image.tobytes())
            labels.append(None if known else self.label(item, row))
        if not known:
            self.labels = labels
        elif self.label_key is None:
            self.labels = [None] * len(everything)
        if not self.sides:
            raise TwofoldError(f"no inspected item of {self.where} is an image that can be read")
        self.facts = state.digest()

    def to_split(self, labels: np.ndarray | None, options: DecodeOptions) -> ItemSplit:
        objects = self.data.objects if isinstance(self.data, ImagesOfItems) else None
        return ItemSplit(
            groups=objects,  # so that the images of an object are never on both sides of a split
            objects=objects,
            fetch=lambda row, _, use: use(with_8_bits(self.image(row), options)),
            count=len(self.data),
            labels=labels,
            sides=np.array(self.sides),
            channels=self.channels,
            facts=self.facts + options.changes_pixels,
            options=options,
            threads=1,  # a Dataset may read all items through one open file
        )


def _find_keys(item: Any, where: str) -> tuple[Any, Any]:
    """Return the keys of the image and of the label in an item.

    The first is None if the item itself is the image, the second if there is no label.
    """
    if isinstance(item, Mapping):
        image = next((key for key in (*ITEM_IMAGE_KEYS, *item) if key in item and _is_image(item[key])), None)
        if image is None:
            raise TwofoldError(
                f"the items of {where} have the keys {', '.join(map(str, item))}, and none of them is an image; "
                f"add the image as {ITEM_IMAGE_KEYS[0]}"
            )
        return image, next((key for key in ITEM_LABEL_KEYS if key in item), None)
    if isinstance(item, (tuple, list)):
        if not item or not _is_image(item[0]):
            raise TwofoldError(f"the items of {where} are tuples that do not start with an image; put the image first")
        # A second entry that could be a label is read as one, or refused. Masks, boxes and the like are ignored.
        other = len(item) < 2 or isinstance(item[1], (Mapping, list, tuple)) or _is_image(item[1])
        return 0, None if other else 1
    if not _is_image(item):
        raise TwofoldError(
            f"the items of {where} are of type {type(item).__name__}; "
            "return an image, a tuple (image, label) or a dict with an image"
        )
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
        raise Unreadable(f"an array of shape {pixels.shape} is not an image; use [H, W], [H, W, 3] or [3, H, W]")
    if pixels.dtype.kind == "f":
        if not (pixels.min() >= -ROUNDING_ERROR and pixels.max() <= 1 + ROUNDING_ERROR):  # also false for NaN
            raise Unreadable(
                f"float pixels from {pixels.min():g} to {pixels.max():g}, but only 0 to 1 is supported; remove "
                "Normalize, because Twofold normalises the images itself"
            )
    elif pixels.dtype != np.uint8:
        raise Unreadable(f"pixels of type {pixels.dtype}, but only uint8 and float from 0 to 1 are supported")
    return Image.fromarray(to_uint8(pixels))
