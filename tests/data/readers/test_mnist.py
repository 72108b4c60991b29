"""The IDX files of MNIST and Fashion-MNIST."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from standard_files import idx, mnist_contents
from twofold.data.readers.mnist import read_fashion_mnist, read_idx, read_mnist
from twofold.errors import TwofoldError


@pytest.mark.parametrize("folder", ["MNIST/raw", "mnist", "."])
@pytest.mark.parametrize("packed", [False, True])
def test_mnist_files_are_read(tmp_path: Path, folder: str, packed: bool) -> None:
    contents = mnist_contents()
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        path = tmp_path / folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(content) if packed else content)
    train, test, classes = read_mnist(tmp_path, download=False)
    assert train.images.tobytes() == contents["train-images-idx3-ubyte"][16:]
    assert (train.images.shape, test.images.shape) == ((6, 28, 28, 1), (3, 28, 28, 1))
    assert (train.labels.tolist(), test.labels.tolist()) == ([5, 0, 4, 1, 9, 2], [7, 2, 1])
    assert classes == tuple("0123456789")


@pytest.mark.parametrize("folder", ["FashionMNIST/raw", "fashion-mnist"])
@pytest.mark.parametrize("packed", [False, True])
def test_fashion_mnist_and_mnist_files_are_told_apart(tmp_path: Path, folder: str, packed: bool) -> None:
    digits, clothes = mnist_contents(), mnist_contents()
    (tmp_path / folder).mkdir(parents=True)
    for name, content in digits.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(TwofoldError, match=r"fashion-mnist needs train-images-idx3-ubyte.*FashionMNIST/raw"):
        read_fashion_mnist(tmp_path, download=False)
    for name, content in clothes.items():
        path = tmp_path / folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(content) if packed else content)
    train, test, classes = read_fashion_mnist(tmp_path, download=False)
    assert train.images.tobytes() == clothes["train-images-idx3-ubyte"][16:]
    assert test.images.tobytes() == clothes["t10k-images-idx3-ubyte"][16:]
    assert (train.labels.tolist(), test.labels.tolist()) == ([5, 0, 4, 1, 9, 2], [7, 2, 1])
    assert (len(classes), classes[0], classes[5], classes[9]) == (10, "T-shirt/top", "Sandal", "Ankle boot")
    assert read_mnist(tmp_path, download=False)[0].images.tobytes() == digits["train-images-idx3-ubyte"][16:]


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: content[:7],
        lambda _: b"",
        lambda content: b"\0\0\x0d\x03" + content[4:],
        lambda _: idx(np.zeros((5, 28, 28), np.uint8)),
    ],
)
def test_damaged_mnist_files_raise_an_error(tmp_path: Path, change) -> None:
    contents = mnist_contents()
    contents["train-images-idx3-ubyte"] = change(contents["train-images-idx3-ubyte"])
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(TwofoldError, match="train-images-idx3-ubyte"):
        read_mnist(tmp_path, download=False)


def test_damaged_gzip_files_raise_an_error(tmp_path: Path) -> None:
    for name, content in mnist_contents().items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    for content in (whole[:-20], whole[:200] + b"\0\0\0\0\0" + whole[205:], b"no gzip"):
        path.write_bytes(content)
        with pytest.raises(TwofoldError, match=r"t10k-images-idx3-ubyte\.gz"):
            read_mnist(tmp_path, download=False)


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("shape", [(0, 28, 28), (3, 0, 28), (2**32 - 1, 2, 1), (2**32 - 1, 2**32 - 1, 1)])
def test_sizes_that_an_idx_file_cannot_have_raise_an_error(tmp_path: Path, shape: tuple[int, ...], ending: str) -> None:
    """They led to errors of other types, or reserved memory for the size."""
    content = bytes((0, 0, 8, 3)) + np.array(shape, ">u4").tobytes()
    path = tmp_path / f"images{ending}"
    path.write_bytes(gzip.compress(content + bytes(10**6)) if ending else content)
    with pytest.raises(TwofoldError, match="not a complete IDX file"):
        read_idx(path, 3)
