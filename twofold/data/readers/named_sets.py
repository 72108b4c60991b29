"""The sets that come under a name: digits (with scikit-learn), CIFAR and MNIST ones (their standard files in data_dir).

`…_DEFAULTS` are configuration that suits a set: augmentation that keeps what an image shows, and an encoder.
"""

import gzip
import hashlib
import http.client
import math
import os
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from twofold.data.readers.arrays import ArraySplit, Splits
from twofold.data.readers.mnist_on_cifar import with_digits
from twofold.data.readers.pickles import read_pickle
from twofold.errors import TwofoldError

# Digits are read by shape and side: mirrored, cropped or turned far they are others, or none.
_SMALL_DISTORTIONS: dict[str, Any] = {
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
# Chosen on a held-out part of the training images. A minute on two cores: 600 steps of a small network.
DIGITS_DEFAULTS: dict[str, Any] = {
    "encoder": "conv",
    "epochs": 120,
    "optimizer": "adamw",
    "lr": 3e-3,
    "weight_decay": 1e-4,
    "projector": (512, 512, 64),
    "predictor_width": 512,
    "prototypes": 256,
    "queue": 1024,
    **_SMALL_DISTORTIONS,
    "augment.noise": 0.1,
}
MNIST_DEFAULTS: dict[str, Any] = {"encoder": "resnet18", "stem": "small", **_SMALL_DISTORTIONS}
# Things and clothes are the same mirrored or in part: the augmentation of every run will do.
CIFAR_DEFAULTS: dict[str, Any] = {"encoder": "resnet18", "stem": "small"}
FASHION_MNIST_DEFAULTS: dict[str, Any] = {"encoder": "resnet18", "stem": "small"}
# S-DIET, appendix C.3; how often the digit is blurred is not said there.
MNIST_ON_CIFAR_DEFAULTS: dict[str, Any] = {
    **CIFAR_DEFAULTS,
    "augment.extra_scale": (0.75, 1.0),
    "augment.extra_blur": 0.5,
}

TIMEOUT_SECONDS = 30
MOST_IDX_BYTES = 2**32  # EMNIST, the largest set of this kind, has 0.6 GB


@dataclass(frozen=True)
class Remote:
    """A file to fetch, and the files that come out of it."""

    url: str
    md5: str
    files: tuple[str, ...]  # below data_dir; for a .tar.gz also the names of its members


CIFAR10_BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")
CIFAR10_FOLDER = "cifar-10-batches-py"
CIFAR10_REMOTES = (
    Remote(
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        "c58f30108f718f92721af3b95e74349a",
        tuple(f"{CIFAR10_FOLDER}/{name}" for name in (*CIFAR10_BATCHES, "batches.meta")),
    ),
)
CIFAR100_FOLDER = "cifar-100-python"
CIFAR100_REMOTES = (
    Remote(
        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        "eb9058c3a382ffc7106e4002c42a8d85",
        tuple(f"{CIFAR100_FOLDER}/{name}" for name in ("train", "test", "meta")),
    ),
)
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
# The checksums are those of the set's README; the address there has no https, its repository has the same files.
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
REMOTES = {
    "cifar10": CIFAR10_REMOTES,
    "cifar100": CIFAR100_REMOTES,
    "mnist": MNIST_REMOTES,
    "fashion-mnist": FASHION_MNIST_REMOTES,
}
DIGIT_NAMES = tuple("0123456789")
CLOTHES_NAMES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip


def read_digits() -> Splits:
    """1797 images of 8 x 8 pixels, 0 to 16 in the original."""
    from sklearn.datasets import load_digits  # its import takes a second, and other sources do without

    digits = load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    return ArraySplit(images[..., None], digits.target.astype(np.int64)), None, DIGIT_NAMES


def read_cifar10(data_dir: Path, download: bool) -> Splits:
    files = located("cifar10", data_dir, CIFAR10_REMOTES, (CIFAR10_FOLDER, "."), download)
    classes = _cifar_classes(files["batches.meta"], "label_names")
    batches = [_cifar_batch(files[name], "labels", len(classes)) for name in CIFAR10_BATCHES]
    train = ArraySplit(
        np.concatenate([images for images, _ in batches[:-1]]), np.concatenate([labels for _, labels in batches[:-1]])
    )
    return train, ArraySplit(*batches[-1]), classes


def read_cifar100(data_dir: Path, download: bool) -> Splits:
    """With the hundred fine labels."""
    files = located("cifar100", data_dir, CIFAR100_REMOTES, (CIFAR100_FOLDER, "."), download)
    classes = _cifar_classes(files["meta"], "fine_label_names")
    train, test = (ArraySplit(*_cifar_batch(files[part], "fine_labels", len(classes))) for part in ("train", "test"))
    return train, test, classes


def read_mnist(data_dir: Path, download: bool) -> Splits:
    return *_idx_splits(located("mnist", data_dir, MNIST_REMOTES, (MNIST_FOLDER, "mnist", "."), download)), DIGIT_NAMES


def read_fashion_mnist(data_dir: Path, download: bool) -> Splits:
    # Not from data_dir itself: MNIST's files have the same names.
    folders = (FASHION_MNIST_FOLDER, "fashion-mnist")
    return *_idx_splits(located("fashion-mnist", data_dir, FASHION_MNIST_REMOTES, folders, download)), CLOTHES_NAMES


def read_mnist_on_cifar(data_dir: Path, download: bool, *, masked: bool = False) -> Splits:
    return with_digits(read_cifar10(data_dir, download), read_mnist(data_dir, download), masked)


# name → how it is read, from (data_dir, download), and its defaults
NAMED: dict[str, tuple[Callable[[Path, bool], Splits], dict[str, Any]]] = {
    "digits": (lambda *_: read_digits(), DIGITS_DEFAULTS),
    "cifar10": (read_cifar10, CIFAR_DEFAULTS),
    "cifar100": (read_cifar100, CIFAR_DEFAULTS),
    "mnist": (read_mnist, MNIST_DEFAULTS),
    "fashion-mnist": (read_fashion_mnist, FASHION_MNIST_DEFAULTS),
    "mnist-on-cifar": (read_mnist_on_cifar, MNIST_ON_CIFAR_DEFAULTS),
    "mnist-on-cifar-masked": (partial(read_mnist_on_cifar, masked=True), MNIST_ON_CIFAR_DEFAULTS),
}


def _cifar_classes(path: Path, key: str) -> tuple[str, ...]:
    try:
        return tuple(name.decode() if isinstance(name, bytes) else str(name) for name in read_pickle(path)[key])
    except (KeyError, TypeError, UnicodeDecodeError):
        raise TwofoldError(f"{path} has no {key}; fetch the file again") from None


def _cifar_batch(path: Path, key: str, classes: int) -> tuple[np.ndarray, np.ndarray]:
    batch = read_pickle(path)
    data, given = batch.get("data"), batch.get(key)
    # Looked at one by one: lists in lists can be small in a file and endless for numpy.
    plain = isinstance(given, list) and all(type(label) is int and 0 <= label < classes for label in given)
    labels = np.array(given if plain else [], np.int64)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (3072,):
        raise TwofoldError(f"{path} has no CIFAR images (uint8 rows of 3072); fetch the file again")
    if labels.shape != data.shape[:1]:
        raise TwofoldError(f"{path} has no {key} from 0 to {classes - 1} for every image; fetch the file again")
    return data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels


def _idx_splits(files: dict[str, Path]) -> tuple[ArraySplit, ArraySplit]:
    train, test = (
        _idx_split(files[f"{part}-images-idx3-ubyte"], files[f"{part}-labels-idx1-ubyte"]) for part in ("train", "t10k")
    )
    return train, test


def _idx_split(image_file: Path, label_file: Path) -> ArraySplit:
    images, labels = _read_idx(image_file, 3), _read_idx(label_file, 1)
    if len(images) != len(labels) or (labels > 9).any():
        raise TwofoldError(
            f"{label_file} does not have a label from 0 to 9 for each image of {image_file}; fetch both again"
        )
    return ArraySplit(images[..., None], labels.astype(np.int64))


def _read_idx(path: Path, dimensions: int) -> np.ndarray:
    """Big-endian: 0, 0, type 8 (uint8), number of dimensions, their sizes, the bytes."""
    start = 4 + 4 * dimensions
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            head = file.read(start).ljust(start, b"\0")
            shape = tuple(np.frombuffer(head[4:], ">u4").tolist())
            # One byte more than there should be, and no more: a small file can unpack to an endless one.
            whole = math.prod(shape) <= MOST_IDX_BYTES
            content = file.read(math.prod(shape) + 1) if whole else b""
    except (OSError, EOFError, zlib.error) as error:
        raise TwofoldError(f"{path} cannot be read: {error}; fetch the file again") from error
    if head[:4] != bytes((0, 0, 8, dimensions)) or not whole or len(content) != math.prod(shape):
        raise TwofoldError(f"{path} is not a complete IDX file of {dimensions} dimensions; fetch the file again")
    return np.frombuffer(content, np.uint8).reshape(shape)


def located(
    source: str,
    data_dir: Path,
    remotes: tuple[Remote, ...],
    folders: tuple[str, ...],
    download: bool,
) -> dict[str, Path]:
    """The source's files by their bare names, from the first folder below data_dir that has each.

    Fetched where they are missing and `download` allows it.
    """
    endings = ("",) if remotes[0].url.endswith(".tar.gz") else ("", ".gz")  # as they come from there will do

    def find(name: str) -> Path | None:
        places = (data_dir / folder / f"{name}{ending}" for folder in folders for ending in endings)
        return next((path for path in places if path.is_file()), None)

    missing = {remote: [name for name in remote.files if find(Path(name).name) is None] for remote in remotes}
    wanted = [remote for remote in remotes if missing[remote]]
    if wanted and not download:
        names = [Path(name).name for remote in wanted for name in missing[remote]]
        raise TwofoldError(
            f"{source} needs {', '.join(names)} in {data_dir / Path(wanted[0].files[0]).parent}; "
            f"set download=true, or put them there, unpacked from {' '.join(remote.url for remote in wanted)}"
        )
    for remote in wanted:
        fetch(remote, data_dir)
    names = [Path(name).name for remote in remotes for name in remote.files]
    return {name: path for name in names if (path := find(name)) is not None}


def fetch(remote: Remote, data_dir: Path) -> None:
    """Download, verify, unpack the expected files; nothing is left behind where any of it fails."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=data_dir) as aside:
            archive = Path(aside, "archive")
            found = _download(remote.url, archive)
            if found != remote.md5:
                raise TwofoldError(f"{remote.url} has checksum {found}, expected {remote.md5}: it was not kept")
            _unpack(remote, archive, Path(aside))
            for name in remote.files:
                target = data_dir / name
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(Path(aside, Path(name).name), target)
    except (OSError, EOFError, zlib.error, http.client.HTTPException, tarfile.TarError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise TwofoldError(f"cannot fetch {remote.url} into {data_dir}: {reason}") from error


def _download(url: str, target: Path) -> str:
    """The file's MD5, as published with these sets."""
    state = hashlib.md5(usedforsecurity=False)
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response, target.open("wb") as file:
        while block := response.read(2**20):
            state.update(block)
            file.write(block)
    return state.hexdigest()


def _unpack(remote: Remote, archive: Path, into: Path) -> None:
    if not remote.url.endswith(".tar.gz"):
        with gzip.open(archive) as content:
            _copy(content, into / Path(remote.files[0]).name)
        return
    with tarfile.open(archive) as tar:
        members = {member.name: member for member in tar if member.isfile()}
        for name in remote.files:
            if name not in members:
                raise TwofoldError(f"{remote.url} has no file {name}")
            member = tar.extractfile(members[name])
            assert member is not None  # as it is a file
            _copy(member, into / Path(name).name)


def _copy(content: IO[bytes] | gzip.GzipFile, target: Path) -> None:
    with target.open("wb") as file:
        while block := content.read(2**20):
            file.write(block)
