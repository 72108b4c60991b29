"""The named datasets `mnist` and `fashion-mnist`, whose images and labels are in IDX files."""

import gzip
import math
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from twofold.array_files import is_bomb
from twofold.data.array_split import ArraySplit, ArraySplits
from twofold.data.downloads import Remote, find_or_fetch
from twofold.errors import TwofoldError
from twofold.files import open_regular

# A digit that is mirrored, cropped or rotated a lot becomes a different digit or none.
SMALL_DISTORTIONS: dict[str, Any] = {
    "augment.flip": 0.0,
    "augment.crop_scale": (1.0, 1.0),
    "augment.crop_ratio": (1.0, 1.0),
    "augment.jitter": 0.0,
    "augment.grayscale": 0.0,
    "augment.blur": 0.0,
    "augment.solarize": 0.0,
    "augment.rotate": 15.0,
    "augment.shear": 15.0,
    "augment.shift": 0.12,
    "augment.scale": (0.85, 1.15),
}
MNIST_DEFAULTS: dict[str, Any] = {"encoder": "resnet18", "stem": "small", **SMALL_DISTORTIONS}
# Clothes keep their class when they are mirrored or cropped, so the default augmentation suits them.
FASHION_MNIST_DEFAULTS: dict[str, Any] = {"encoder": "resnet18", "stem": "small"}

READ_BYTES = 2**24  # read at a time
MNIST_FOLDER = "MNIST/raw"
FASHION_MNIST_FOLDER = "FashionMNIST/raw"
IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def _idx_remotes(address: str, folder: str, md5s: tuple[str, ...]) -> tuple[Remote, ...]:
    return tuple(
        Remote(f"{address}/{name}.gz", md5, (f"{folder}/{name}",)) for name, md5 in zip(IDX_FILES, md5s, strict=True)
    )


MNIST_REMOTES = _idx_remotes(
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    MNIST_FOLDER,
    (
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
)
# The checksums are those of the dataset's README. Its download address does not support https, so the files come from
# its repository.
FASHION_MNIST_REMOTES = _idx_remotes(
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    FASHION_MNIST_FOLDER,
    (
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
)
DIGIT_NAMES = tuple("0123456789")
CLOTHES_NAMES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip


def read_mnist(data_dir: Path, download: bool) -> ArraySplits:
    files = find_or_fetch("mnist", data_dir, MNIST_REMOTES, (MNIST_FOLDER, "mnist", "."), download)
    return *_idx_splits(files), DIGIT_NAMES


def read_fashion_mnist(data_dir: Path, download: bool) -> ArraySplits:
    # data_dir itself is not searched, because MNIST's files have the same names.
    folders = (FASHION_MNIST_FOLDER, "fashion-mnist")
    files = find_or_fetch("fashion-mnist", data_dir, FASHION_MNIST_REMOTES, folders, download)
    return *_idx_splits(files), CLOTHES_NAMES


def _idx_splits(files: dict[str, Path]) -> tuple[ArraySplit, ArraySplit]:
    train, test = (
        _idx_split(files[f"{part}-images-idx3-ubyte"], files[f"{part}-labels-idx1-ubyte"]) for part in ("train", "t10k")
    )
    return train, test


def _idx_split(image_file: Path, label_file: Path) -> ArraySplit:
    images, labels = read_idx(image_file, 3), read_idx(label_file, 1)
    if len(images) != len(labels) or (labels > 9).any():
        raise TwofoldError(
            f"{label_file} does not have a label from 0 to 9 for each image of {image_file}; download both again"
        )
    return ArraySplit(images[..., None], labels.astype(np.int64))


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """Read an IDX file of uint8 values.

    The format is big-endian: 0, 0, type (8 for uint8), number of dimensions, size of each dimension, values.
    """
    start = 4 + 4 * dimensions
    try:
        with open_regular(path) as plain, gzip.open(plain) if path.suffix == ".gz" else plain as file:
            head = file.read(start).ljust(start, b"\0")
            shape = tuple(np.frombuffer(head[4:], ">u4").tolist())
            size = math.prod(shape)
            content = None if is_bomb(path.stat().st_size, size) else _read_exactly(file, size)
    except (OSError, EOFError, zlib.error) as error:
        raise TwofoldError(f"{path} cannot be read: {error}; download it again") from error
    if head[:4] != bytes((0, 0, 8, dimensions)) or 0 in shape or content is None:
        raise TwofoldError(f"{path} is not a complete IDX file of {dimensions} dimensions; download it again")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _read_exactly(file: IO[bytes] | gzip.GzipFile, size: int) -> bytearray | None:
    """Return the rest of a file, or None if it does not have this size.

    The size comes from the file itself, so it reserves no memory. A small compressed file can unpack to a huge one.
    """
    content = bytearray()
    while len(content) <= size:
        block = file.read(min(READ_BYTES, size + 1 - len(content)))
        if not block:
            break
        content += block
    return content if len(content) == size else None
