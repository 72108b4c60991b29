import gzip
import hashlib
import io
import os
import pickle
import struct
import tarfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from twofold import config
from twofold.data import benchmarks
from twofold.data.benchmarks import Remote, fetch, read_cifar10, read_digits, read_mnist
from twofold.errors import TwofoldError

RNG = np.random.default_rng(0)
CLASSES = ["airplane", "automobile", "bird"]


def test_defaults_are_valid_configuration() -> None:
    for defaults in (benchmarks.DIGITS_DEFAULTS, benchmarks.MNIST_DEFAULTS, benchmarks.CIFAR10_DEFAULTS):
        # Widths are keys of methods; a source may set them for those that have them.
        widths = {"projector": config.Widths, "predictor_width": int}
        keys = config.RUN_KEYS | {name: config.Key(name, hint, None, "") for name, hint in widths.items()}
        resolved = config.flat(config.resolve(keys, {"data source": defaults}))
        assert {key: resolved[key] for key in defaults} == defaults


def test_digits_are_those_of_scikit_learn() -> None:
    train, test, classes = read_digits()
    reference = load_digits()
    np.testing.assert_allclose(train.images[..., 0] / 255 * 16, reference.images, atol=16 / 255 / 2)
    assert (train.images.min(), train.images.max(), train.images.dtype) == (0, 255, np.uint8)
    np.testing.assert_array_equal(train.labels, reference.target)
    assert (test, classes) == (None, tuple("0123456789"))


def cifar10_contents(per_batch: int = 4) -> dict[str, dict[str, object]]:
    names = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]
    contents: dict[str, dict[str, object]] = {
        name: {
            "batch_label": name,
            "labels": RNG.integers(0, 3, per_batch).tolist(),
            "data": RNG.integers(0, 256, (per_batch, 3072), dtype=np.uint8),
        }
        for name in names
    }
    return {**contents, "batches.meta": {"label_names": CLASSES, "num_vis": 3072}}


def as_bytes(record: dict[str, object]) -> dict[bytes, object]:
    """Keys and texts as bytes, as they are after a round trip through Python 3 with encoding="bytes"."""
    encoded = {key.encode(): value for key, value in record.items()}
    if b"label_names" in encoded:
        encoded[b"label_names"] = [name.encode() for name in CLASSES]
    return encoded


def python2_pickle(record: dict[str, object]) -> bytes:
    """The opcodes that Python 2 wrote into the original files: byte strings, and arrays from numpy.core."""

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value

    def integer(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    def put(value: object) -> bytes:
        if isinstance(value, str):
            return text(value.encode())
        if isinstance(value, int):
            return integer(value)
        if isinstance(value, list):
            return b"](" + b"".join(map(put, value)) + b"e"
        assert isinstance(value, np.ndarray)
        empty = (
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + integer(0) + b"\x85" + text(b"b") + b"\x87R"
        )
        kind = b"cnumpy\ndtype\n" + text(b"u1") + integer(0) + integer(1) + b"\x87R"
        state = b"(" + integer(3) + text(b"|") + b"NNN" + integer(-1) + integer(-1) + integer(0) + b"tb"
        shape = integer(value.shape[0]) + integer(value.shape[1]) + b"\x86"
        return empty + b"(" + integer(1) + shape + kind + state + b"\x89" + text(value.tobytes()) + b"tb"

    return b"\x80\x02}(" + b"".join(put(key) + put(value) for key, value in record.items()) + b"u."


WRITERS = {
    "protocol 2 by Python 2": python2_pickle,
    "protocol 2": lambda record: pickle.dumps(record, protocol=2),
    "protocol 4": lambda record: pickle.dumps(record, protocol=4),
    "bytes keys": lambda record: pickle.dumps(as_bytes(record), protocol=4),
}


@pytest.mark.parametrize("folder", ["cifar-10-batches-py", "."])
@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_cifar10_files(tmp_path: Path, folder: str, writer) -> None:
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


class Evil:
    def __init__(self, function: object, *arguments: str) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("function", [os.system, eval, getattr, np.load, pickle.loads], ids=lambda f: f.__name__)
def test_a_pickle_cannot_run_code(tmp_path: Path, protocol: int, function: object) -> None:
    for name, record in cifar10_contents().items():
        (tmp_path / name).write_bytes(pickle.dumps(record, protocol=4))
    evil = Evil(function, f"touch {tmp_path / 'ran'}")
    (tmp_path / "data_batch_3").write_bytes(pickle.dumps({"data": evil}, protocol=protocol))
    with pytest.raises(TwofoldError, match=r"data_batch_3 cannot be read: it asks for") as caught:
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
def test_cifar10_files_with_other_content(tmp_path: Path, change) -> None:
    contents = cifar10_contents()
    change(contents["data_batch_2"])
    for name, record in contents.items():
        (tmp_path / name).write_bytes(pickle.dumps(record, protocol=4))
    with pytest.raises(TwofoldError, match="data_batch_2"):
        read_cifar10(tmp_path, download=False)


def test_truncated_cifar10_files(tmp_path: Path) -> None:
    contents = {name: pickle.dumps(record, protocol=4) for name, record in cifar10_contents().items()}
    for name in ("data_batch_4", "batches.meta"):
        for length in (0, 1, 30, len(contents[name]) - 1):
            for other, content in contents.items():
                (tmp_path / other).write_bytes(content[:length] if other == name else content)
            with pytest.raises(TwofoldError, match=name):
                read_cifar10(tmp_path, download=False)


def idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def mnist_contents() -> dict[str, bytes]:
    return {
        "train-images-idx3-ubyte": idx(RNG.integers(0, 256, (6, 28, 28), dtype=np.uint8)),
        "train-labels-idx1-ubyte": idx(np.array([5, 0, 4, 1, 9, 2], np.uint8)),
        "t10k-images-idx3-ubyte": idx(RNG.integers(0, 256, (3, 28, 28), dtype=np.uint8)),
        "t10k-labels-idx1-ubyte": idx(np.array([7, 2, 1], np.uint8)),
    }


@pytest.mark.parametrize("folder", ["MNIST/raw", "mnist", "."])
@pytest.mark.parametrize("packed", [False, True])
def test_mnist_files(tmp_path: Path, folder: str, packed: bool) -> None:
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
def test_damaged_mnist_files(tmp_path: Path, change) -> None:
    contents = mnist_contents()
    contents["train-images-idx3-ubyte"] = change(contents["train-images-idx3-ubyte"])
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(TwofoldError, match="train-images-idx3-ubyte"):
        read_mnist(tmp_path, download=False)


def test_a_damaged_gzip_file(tmp_path: Path) -> None:
    for name, content in mnist_contents().items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    for content in (whole[:-20], whole[:200] + b"\0\0\0\0\0" + whole[205:], b"no gzip"):
        path.write_bytes(content)
        with pytest.raises(TwofoldError, match=r"t10k-images-idx3-ubyte\.gz"):
            read_mnist(tmp_path, download=False)


def test_missing_files_are_named_with_place_address_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(TwofoldError) as caught:
        read_cifar10(tmp_path, download=False)
    message = str(caught.value)
    for part in ("data_batch_1", "batches.meta", str(tmp_path / "cifar-10-batches-py"), "download=true"):
        assert part in message
    assert "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz" in message
    assert "\n" not in message
    contents = mnist_contents()
    for name in list(contents)[:3]:
        (tmp_path / name).write_bytes(contents[name])
    with pytest.raises(TwofoldError, match=r"t10k-labels-idx1-ubyte.*mnist/t10k-labels-idx1-ubyte\.gz") as caught:
        read_mnist(tmp_path, download=False)
    assert "images" not in str(caught.value)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the address under which its files can be fetched."""
    folder = tmp_path / "www"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(folder))

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield folder, f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


def archive(contents: dict[str, dict[str, object]], **others: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        members = {f"cifar-10-batches-py/{name}": pickle.dumps(record, 4) for name, record in contents.items()}
        for name, content in {**members, **others}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def serve(server: tuple[Path, str], name: str, content: bytes, files: tuple[str, ...]) -> Remote:
    (server[0] / name).write_bytes(content)
    return Remote(f"{server[1]}/{name}", hashlib.md5(content).hexdigest(), files)


CIFAR10_FILES = benchmarks.CIFAR10_REMOTES[0].files


def test_download_unpacks_the_expected_files_alone(
    tmp_path: Path, server: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = cifar10_contents()
    packed = archive(contents, **{"../escaped": b"x", "cifar-10-batches-py/readme.html": b"x"})
    remote = serve(server, "cifar-10-python.tar.gz", packed, CIFAR10_FILES)
    monkeypatch.setattr(benchmarks, "CIFAR10_REMOTES", (remote,))
    train, _, _ = read_cifar10(tmp_path / "data", download=True)
    np.testing.assert_array_equal(train.images[0].transpose(2, 0, 1).ravel(), contents["data_batch_1"]["data"][0])
    written = {str(path.relative_to(tmp_path / "data")) for path in (tmp_path / "data").rglob("*") if path.is_file()}
    assert written == set(CIFAR10_FILES)
    assert not list(tmp_path.rglob("escaped"))
    (server[0] / "cifar-10-python.tar.gz").unlink()
    assert len(read_cifar10(tmp_path / "data", download=True)[0]) == 20  # what is there is not fetched again


def test_download_of_mnist_fetches_what_is_missing(
    tmp_path: Path, server: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = mnist_contents()
    remotes = tuple(
        serve(server, f"{name}.gz", gzip.compress(content), (f"MNIST/raw/{name}",))
        for name, content in contents.items()
    )
    monkeypatch.setattr(benchmarks, "MNIST_REMOTES", remotes)
    present = "train-images-idx3-ubyte"
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / present).write_bytes(contents[present])
    train, test, _ = read_mnist(tmp_path, download=True)
    assert (len(train), len(test)) == (6, 3)
    assert sorted(path.name for path in (tmp_path / "MNIST/raw").iterdir()) == sorted(set(contents) - {present})


def test_failed_downloads_are_one_line_and_leave_nothing(tmp_path: Path, server: tuple[Path, str]) -> None:
    good = serve(server, "good.tar.gz", archive(cifar10_contents()), CIFAR10_FILES)
    lacking = cifar10_contents()
    del lacking["test_batch"]
    half = archive(cifar10_contents())
    cases = {
        "checksum": Remote(good.url, "0" * 32, CIFAR10_FILES),
        "404": Remote(f"{server[1]}/none.tar.gz", good.md5, CIFAR10_FILES),
        "refused": Remote("http://127.0.0.1:9/x.tar.gz", good.md5, CIFAR10_FILES),
        "no file cifar-10-batches-py/test_batch": serve(server, "lacking.tar.gz", archive(lacking), CIFAR10_FILES),
        "cannot fetch": serve(server, "half.tar.gz", half[: len(half) // 2], CIFAR10_FILES),
        "cannot fetch .*": serve(server, "text.gz", b"no gzip", ("MNIST/raw/text",)),
    }
    for message, remote in cases.items():
        with pytest.raises(TwofoldError, match=message) as caught:
            fetch(remote, tmp_path / "data")
        assert remote.url in str(caught.value)
        assert "\n" not in str(caught.value)
        assert list((tmp_path / "data").iterdir()) == []
