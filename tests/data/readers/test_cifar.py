import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from standard_files import CLASSES, cifar10_contents, cifar100_contents, python2_pickle
from twofold.data.readers.cifar import read_cifar10, read_cifar100
from twofold.errors import TwofoldError


def as_bytes(record: dict[str, object]) -> dict[bytes, object]:
    """Keys and texts as bytes, as they are after a round trip through Python 3 with encoding="bytes"."""
    encoded = {key.encode(): value for key, value in record.items()}
    for key in (b"label_names", b"fine_label_names"):
        if key in encoded:
            encoded[key] = [name.encode() for name in encoded[key]]
    return encoded


WRITERS = {
    "protocol 2 by Python 2": python2_pickle,
    "protocol 2": lambda record: pickle.dumps(record, protocol=2),
    "protocol 4": lambda record: pickle.dumps(record, protocol=4),
    "bytes keys": lambda record: pickle.dumps(as_bytes(record), protocol=4),
}


@pytest.mark.parametrize("folder", ["cifar-10-batches-py", "."])
@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_cifar10_files_are_read(tmp_path: Path, folder: str, writer) -> None:
    contents = cifar10_contents()
    (tmp_path / folder).mkdir(exist_ok=True)
    for name, record in contents.items():
        (tmp_path / folder / name).write_bytes(writer(record))
    train, test, classes = read_cifar10(tmp_path, download=False)
    assert classes == tuple(CLASSES)
    data = np.concatenate([contents[f"data_batch_{number}"]["data"] for number in range(1, 6)])
    np.testing.assert_array_equal(train.images.transpose(0, 3, 1, 2).reshape(20, 3072), data)
    labels = [label for number in range(1, 6) for label in contents[f"data_batch_{number}"]["labels"]]
    assert train.labels.tolist() == labels
    np.testing.assert_array_equal(test.images[..., 2].reshape(4, -1), contents["test_batch"]["data"][:, 2048:])
    assert test.labels.tolist() == contents["test_batch"]["labels"]


@pytest.mark.parametrize("folder", ["cifar-100-python", "."])
@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_cifar100_files_are_read_with_fine_labels(tmp_path: Path, folder: str, writer) -> None:
    contents = cifar100_contents()
    (tmp_path / folder).mkdir(exist_ok=True)
    for name, record in contents.items():
        (tmp_path / folder / name).write_bytes(writer(record))
    train, test, classes = read_cifar100(tmp_path, download=False)
    assert classes == ("apple", "beaver", "cup")
    for split, name in ((train, "train"), (test, "test")):
        planes = split.images.transpose(0, 3, 1, 2).reshape(len(split), 3072)
        np.testing.assert_array_equal(planes, contents[name]["data"])
        assert split.labels.tolist() == contents[name]["fine_labels"]


@pytest.mark.parametrize(
    "name, change",
    [
        ("train", lambda record: record.pop("fine_labels")),
        ("train", lambda record: record.update(fine_labels=[0, 1, 2, 3, 0, 1, 2])),
        ("test", lambda record: record.update(data=record["data"][:3])),
        ("meta", lambda record: record.pop("fine_label_names")),
        ("meta", lambda record: record.update(fine_label_names=3)),
        ("train", lambda record: record.update(data=CallsFunction(os.getcwd))),
    ],
)
def test_cifar100_files_with_wrong_content_raise_an_error(tmp_path: Path, name: str, change) -> None:
    contents = cifar100_contents()
    change(contents[name])
    for file, record in contents.items():
        (tmp_path / file).write_bytes(pickle.dumps(record, protocol=4))
    with pytest.raises(TwofoldError, match=str(tmp_path / name)):
        read_cifar100(tmp_path, download=False)


class CallsFunction:
    def __init__(self, function: object, *arguments: str) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("function", [os.system, eval, getattr, np.load, pickle.loads], ids=lambda f: f.__name__)
def test_pickles_cannot_run_code(tmp_path: Path, protocol: int, function: object) -> None:
    for name, record in cifar10_contents().items():
        (tmp_path / name).write_bytes(pickle.dumps(record, protocol=4))
    evil = CallsFunction(function, f"touch {tmp_path / 'ran'}")
    (tmp_path / "data_batch_3").write_bytes(pickle.dumps({"data": evil}, protocol=protocol))
    with pytest.raises(TwofoldError, match=r"data_batch_3 cannot be read: it refers to") as caught:
        read_cifar10(tmp_path, download=False)
    assert not (tmp_path / "ran").exists()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.update(data=record["data"].astype(np.int64)),
        lambda record: record.update(data=record["data"][:, :100]),
        lambda record: record.update(data=[1, 2, 3]),
        lambda record: record.update(labels=record["labels"][1:]),
        lambda record: record.update(labels=[0, 1, 2, 3]),
        lambda record: record.update(labels=["a", "b", "c", "d"]),
        lambda record: record.pop("labels"),
    ],
)
def test_cifar10_files_with_wrong_content_raise_an_error(tmp_path: Path, change) -> None:
    contents = cifar10_contents()
    change(contents["data_batch_2"])
    for name, record in contents.items():
        (tmp_path / name).write_bytes(pickle.dumps(record, protocol=4))
    with pytest.raises(TwofoldError, match="data_batch_2"):
        read_cifar10(tmp_path, download=False)


def test_truncated_cifar10_files_raise_an_error(tmp_path: Path) -> None:
    contents = {name: pickle.dumps(record, protocol=4) for name, record in cifar10_contents().items()}
    for name in ("data_batch_4", "batches.meta"):
        for length in (0, 1, 30, len(contents[name]) - 1):
            for other, content in contents.items():
                (tmp_path / other).write_bytes(content[:length] if other == name else content)
            with pytest.raises(TwofoldError, match=name):
                read_cifar10(tmp_path, download=False)
