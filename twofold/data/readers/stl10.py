"""The named dataset `stl10`: binary files of labelled and unlabelled images."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from twofold.data.downloads import Remote, find_or_fetch
from twofold.data.item_split import UNKNOWN, ItemSplit, ItemSplits
from twofold.data.readers.folder_sets import BLURRED
from twofold.errors import TwofoldError

DEFAULTS: dict[str, Any] = {"encoder": "resnet18", "stem": "large", **BLURRED}

FOLDER = "stl10_binary"
SHAPE = (3, 96, 96)
FILES = ("train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin", "unlabeled_X.bin", "class_names.txt")
REMOTES = (
    Remote(
        "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
        "91f7769df0f17e558f3565bffb0c7dfb",
        tuple(f"{FOLDER}/{name}" for name in FILES),
    ),
)


def read_stl10(data_dir: Path, download: bool) -> ItemSplits:
    """Return 105,000 training images, of which 5,000 have labels, and 8,000 test images.

    The labelled images come first, so their stable index is their row in train_X.bin.
    """
    files = find_or_fetch("stl10", data_dir, REMOTES, (FOLDER, "."), download)
    classes = tuple(files["class_names.txt"].read_text(encoding="utf-8", errors="replace").split())
    labelled, test, unlabelled = (_map_pixels(files[f"{part}_X.bin"]) for part in ("train", "test", "unlabeled"))
    train_labels = _read_labels(files["train_y.bin"], len(labelled), len(classes))
    unknown = np.full(len(unlabelled), UNKNOWN)
    train = _item_split([labelled, unlabelled], np.concatenate([train_labels, unknown]), files)
    return train, _item_split([test], _read_labels(files["test_y.bin"], len(test), len(classes)), files), classes


def _map_pixels(path: Path) -> np.ndarray:
    """Map the file as [n, C, W, H]; the images are stored column by column."""
    images, rest = divmod(path.stat().st_size, int(np.prod(SHAPE)))
    if rest or not images:
        raise TwofoldError(f"{path} does not contain complete images of 96 x 96 pixels; download it again")
    return np.memmap(path, np.uint8, "r", shape=(images, *SHAPE))


def _read_labels(path: Path, images: int, classes: int) -> np.ndarray:
    labels = np.fromfile(path, np.uint8).astype(np.int64) - 1
    if labels.shape != (images,) or not ((labels >= 0) & (labels < classes)).all():
        raise TwofoldError(f"{path} does not have a label from 1 to {classes} for each image; download it again")
    return labels


def _item_split(parts: list[np.ndarray], labels: np.ndarray, files: dict[str, Path]) -> ItemSplit:
    def fetch(row: int, _size: int, use: Callable[[Image.Image], Any]) -> Any:
        for images in parts:
            if row < len(images):
                return use(Image.fromarray(np.ascontiguousarray(images[row].transpose(2, 1, 0))))
            row -= len(images)
        raise IndexError(row)

    facts = [(name, path.stat().st_size, path.stat().st_mtime_ns) for name, path in sorted(files.items())]
    count = sum(len(images) for images in parts)
    return ItemSplit(fetch, count, labels, sides=np.array([SHAPE[1:]]), channels=3, facts=repr(facts).encode())
