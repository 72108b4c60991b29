"""Read images from arrays: objects of a program, or a .npy or .npz file.

The accepted layouts are [n, H, W], [n, H, W, C] and [n, C, H, W], where n is the number of images, H the height, W the
width and C the number of channels. The pixels are uint8, or float from 0 to 1.
"""

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from twofold.array_files import names_of, read_array, read_member
from twofold.data.array_split import ROUNDING_ERROR, ArraySplit, ArraySplits, blocks_of
from twofold.data.item_split import UNKNOWN
from twofold.data.readers.columns import Cell, parse_label
from twofold.data.readers.splits import are_splits_of, train_and_test_of
from twofold.errors import TwofoldError
from twofold.types import is_of

ARRAY_FILE_SUFFIXES = (".npy", ".npz")

MOST_NAMED = 20  # arrays in a message
NPZ_IMAGE_KEYS = ("images", "x", "x_train", "train_images", "arr_0")
NPZ_LABEL_KEYS = ("labels", "y", "y_train", "train_labels", "arr_1")
NPZ_TEST_IMAGE_KEYS = ("x_test", "test_images")
NPZ_TEST_LABEL_KEYS = ("y_test", "test_labels")


def is_arrays(data: Any) -> bool:
    """Whether `data` are an array of images or a pair (images, labels), from numpy or torch."""
    if isinstance(data, tuple) and len(data) == 2:
        return is_array(data[0]) and getattr(data[1], "ndim", 1) < 3
    return is_array(data)


def is_array(data: Any) -> bool:
    return isinstance(data, np.ndarray) or is_of(data, "torch", "Tensor")


def is_array_splits(data: Any) -> bool:
    """Whether `data` are a training and a test set that each satisfy `is_arrays`.

    A pair of arrays is not: it is read as images and labels.
    """
    return not is_arrays(data) and are_splits_of(is_arrays, data)


def to_numpy(array: Any) -> Any:
    """Turn a tensor into an array, and return anything else unchanged. numpy has no bfloat16, so it becomes float32."""
    if not is_of(array, "torch", "Tensor"):
        return array
    import torch  # imported late, because this module is also imported to list the named sets

    array = array.detach().cpu()
    return (array.float() if array.dtype == torch.bfloat16 else array).numpy()


def read_arrays(data: Any) -> ArraySplits:
    """Read data that satisfy `is_arrays`."""
    return from_arrays("the array", *_images_and_labels(data))


def read_array_splits(data: Any) -> ArraySplits:
    """Read data that satisfy `is_array_splits`."""
    train, test = train_and_test_of(data)
    return from_arrays("the array", *_images_and_labels(train), *_images_and_labels(test))


def _images_and_labels(arrays: Any) -> tuple[Any, Any]:
    images, labels = arrays if isinstance(arrays, tuple) else (arrays, None)
    return to_numpy(images), to_numpy(labels)


def read_array_file(path: Path) -> ArraySplits:
    try:
        content = read_array(path)
        if content is not None:
            return from_arrays(str(path), content)
        names = {name.lower(): name for name in names_of(path)}
        found = [
            next((read_member(path, names[key]) for key in keys if key in names), None)
            for keys in (NPZ_IMAGE_KEYS, NPZ_LABEL_KEYS, NPZ_TEST_IMAGE_KEYS, NPZ_TEST_LABEL_KEYS)
        ]
    except ValueError as error:
        raise TwofoldError(f"{path} cannot be read: {error}; write it with numpy.save or numpy.savez") from error
    images, labels, test_images, test_labels = found
    if images is None:
        raise TwofoldError(
            f"{path} contains no array of images, only {', '.join(islice(names.values(), MOST_NAMED)) or 'nothing'}; "
            f"save the images under one of these names: {', '.join(NPZ_IMAGE_KEYS)}"
        )
    return from_arrays(str(path), images, labels, test_images, test_labels)


def from_arrays(
    where: str,
    images: np.ndarray,
    labels: Any = None,
    test_images: np.ndarray | None = None,
    test_labels: Any = None,
) -> ArraySplits:
    """Check arrays and bring them to one layout. `where` is the name of the source in messages."""
    train_pixels = _channels_last(where, images)
    test_pixels = None if test_images is None else _channels_last(f"test of {where}", test_images)
    train_names = None if labels is None else _label_column(where, labels, len(train_pixels))
    test_names = None
    if test_pixels is not None and test_labels is not None:
        test_names = _label_column(f"test of {where}", test_labels, len(test_pixels))
    values = _distinct_values([names for names in (train_names, test_names) if names is not None])
    train = ArraySplit(train_pixels, _class_numbers(values, train_names))
    test = None if test_pixels is None else ArraySplit(test_pixels, _class_numbers(values, test_names))
    return train, test, None if values is None else tuple(str(value) for value in values)


def _channels_last(where: str, images: np.ndarray) -> np.ndarray:
    shape = "x".join(map(str, images.shape))
    if images.ndim == 3 and images.shape[2] in (1, 3, 4):
        raise TwofoldError(f"{where} has shape {shape}, which looks like one image; stack them as [n, H, W, C]")
    if images.ndim == 3:
        pixels = images[..., None]
    elif images.ndim == 4:
        first, last = images.shape[1] in (1, 3), images.shape[3] in (1, 3)
        if first and last:
            raise TwofoldError(
                f"{where} has shape {shape}, which could be [n, H, W, C] or [n, C, H, W]; "
                "pass greyscale images as [n, H, W], and enlarge images that are 3 pixels wide or less"
            )
        if not first and not last:  # neither greyscale nor RGB: fewer channels than rows and columns of pixels
            first, last = images.shape[1] < min(images.shape[2:]), images.shape[3] < min(images.shape[1:3])
        if not first and not last:
            raise TwofoldError(
                f"{where} has shape {shape}, which is neither [n, H, W, C] nor [n, C, H, W]: images have 1 or 3 "
                "channels, or fewer channels than rows and columns of pixels; remove channels, or enlarge the images"
            )
        pixels = images if last else images.transpose(0, 2, 3, 1)
    else:
        raise TwofoldError(f"{where} has shape {shape}; images are [n, H, W], [n, H, W, C] or [n, C, H, W]")
    if images.size and images.dtype.kind == "f":
        low, high = (extreme([extreme(block) for block in blocks_of(images)]) for extreme in (np.min, np.max))
        if np.isnan(low):
            raise TwofoldError(f"{where} has pixels that are NaN; remove or repair those images")
        if not (low >= -ROUNDING_ERROR and high <= 1 + ROUNDING_ERROR):
            raise TwofoldError(f"{where} has float pixels from {low:g} to {high:g}; scale them to the range 0 to 1")
    elif images.dtype != np.uint8:
        raise TwofoldError(f"{where} has pixels of type {images.dtype}; give uint8 (0 to 255) or float (0 to 1)")
    if images.size == 0:
        raise TwofoldError(f"{where} has shape {shape} and contains no images")
    return pixels


def _label_column(where: str, labels: Any, count: int) -> np.ndarray:
    if np.ma.isMaskedArray(labels):
        labels = labels.tolist()  # with None where the mask is
    column = np.asarray(labels)
    if column.dtype.kind == "U" and not isinstance(labels, np.ndarray):
        column = np.asarray(labels, dtype=object)  # otherwise numpy turns NaN into the text "nan"
    if column.shape == (count, 1):
        column = column[:, 0]
    if column.ndim == 2 and len(column) == count:  # one-hot rows; `parse_label` refuses others
        column = np.array([parse_label(row, f"row {number} of {where}") for number, row in enumerate(column)])
    if column.shape != (count,):
        raise TwofoldError(
            f"{where} has {count} images and labels of shape {column.shape}; pass one label for each image"
        )
    if column.dtype == object:
        column = _fill_unknown(where, [parse_label(label, f"row {row} of {where}") for row, label in enumerate(column)])
    if column.dtype.kind == "f":
        column = np.where(np.isnan(column), UNKNOWN, column)
        column = column.astype(np.int64) if (column == np.rint(column)).all() else column
    if column.dtype.kind == "S":
        column = np.char.decode(column, "utf-8", "replace")
    if column.dtype.kind not in "iubU":
        raise TwofoldError(
            f"{where} has labels of type {column.dtype}; use integers (-1 if unknown) or text (empty if unknown)"
        )
    return column


def _fill_unknown(where: str, cells: list[Cell]) -> np.ndarray:
    """Return the labels as text or integers; an unknown label becomes an empty text or UNKNOWN."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds == {str, int}:
        raise TwofoldError(f"{where} has labels that are text and labels that are numbers; use only one of the two")
    unknown: Cell = "" if kinds == {str} else UNKNOWN
    return np.array([unknown if cell is None else cell for cell in cells])


def _distinct_values(columns: list[np.ndarray]) -> np.ndarray | None:
    if len({column.dtype.kind == "U" for column in columns}) == 2:
        raise TwofoldError("the training and the test set have labels of different types; use text or numbers in both")
    found = [column[_is_known(column)] for column in columns]
    return np.unique(np.concatenate(found)) if sum(map(len, found)) else None


def _class_numbers(values: np.ndarray | None, names: np.ndarray | None) -> np.ndarray | None:
    if values is None or names is None or not _is_known(names).any():
        return None
    return np.where(_is_known(names), np.searchsorted(values, names), UNKNOWN).astype(np.int64)


def _is_known(column: np.ndarray) -> np.ndarray:
    """Return which labels are known, bool [n]. A negative number or an empty text means unknown."""
    return column != "" if column.dtype.kind == "U" else column >= 0
