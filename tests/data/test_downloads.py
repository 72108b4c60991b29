import gzip
import hashlib
import io
import pickle
import tarfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from standard_files import cifar10_contents, cifar100_contents, mnist_contents
from twofold.data.downloads import Remote, fetch
from twofold.data.readers import cifar, mnist
from twofold.data.readers.cifar import read_cifar10, read_cifar100
from twofold.data.readers.mnist import read_fashion_mnist, read_mnist
from twofold.errors import TwofoldError


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the URL of a server for its files."""
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


def archive(contents: dict[str, dict[str, object]], folder: str = "cifar-10-batches-py", **others: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        members = {f"{folder}/{name}": pickle.dumps(record, 4) for name, record in contents.items()}
        for name, content in {**members, **others}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def serve(server: tuple[Path, str], name: str, content: bytes, files: tuple[str, ...]) -> Remote:
    (server[0] / name).write_bytes(content)
    return Remote(f"{server[1]}/{name}", hashlib.md5(content).hexdigest(), files)


CIFAR10_FILES = cifar.CIFAR10_REMOTES[0].files


def test_download_unpacks_only_the_expected_files(
    tmp_path: Path, server: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = cifar10_contents()
    packed = archive(contents, **{"../escaped": b"x", "cifar-10-batches-py/readme.html": b"x"})
    remote = serve(server, "cifar-10-python.tar.gz", packed, CIFAR10_FILES)
    monkeypatch.setattr(cifar, "CIFAR10_REMOTES", (remote,))
    train, _, _ = read_cifar10(tmp_path / "data", download=True)
    np.testing.assert_array_equal(train.images[0].transpose(2, 0, 1).ravel(), contents["data_batch_1"]["data"][0])
    written = {str(path.relative_to(tmp_path / "data")) for path in (tmp_path / "data").rglob("*") if path.is_file()}
    assert written == set(CIFAR10_FILES)
    assert not list(tmp_path.rglob("escaped"))
    (server[0] / "cifar-10-python.tar.gz").unlink()
    assert len(read_cifar10(tmp_path / "data", download=True)[0]) == 20  # existing files are not downloaded again


def test_download_of_mnist_fetches_only_missing_files(
    tmp_path: Path, server: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = mnist_contents()
    remotes = tuple(
        serve(server, f"{name}.gz", gzip.compress(content), (f"MNIST/raw/{name}",))
        for name, content in contents.items()
    )
    monkeypatch.setattr(mnist, "MNIST_REMOTES", remotes)
    present = "train-images-idx3-ubyte"
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / present).write_bytes(contents[present])
    train, test, _ = read_mnist(tmp_path, download=True)
    assert (len(train), len(test)) == (6, 3)
    assert sorted(path.name for path in (tmp_path / "MNIST/raw").iterdir()) == sorted(set(contents) - {present})


def test_cifar100_and_fashion_mnist_are_downloaded(
    tmp_path: Path, server: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = archive(cifar100_contents(), "cifar-100-python")
    files = tuple(f"cifar-100-python/{name}" for name in ("train", "test", "meta"))
    monkeypatch.setattr(cifar, "CIFAR100_REMOTES", (serve(server, "cifar-100-python.tar.gz", packed, files),))
    train, test, classes = read_cifar100(tmp_path, download=True)
    assert (len(train), len(test), len(classes)) == (7, 4, 3)
    remotes = tuple(
        serve(server, f"{name}.gz", gzip.compress(content), (f"FashionMNIST/raw/{name}",))
        for name, content in mnist_contents().items()
    )
    monkeypatch.setattr(mnist, "FASHION_MNIST_REMOTES", remotes)
    train, test, _ = read_fashion_mnist(tmp_path, download=True)
    assert (len(train), len(test)) == (6, 3)


def test_addresses_and_checksums_are_well_formed() -> None:
    """File names, paths, URLs, and the form of the checksums."""
    for remotes, count in ((cifar.CIFAR100_REMOTES, 3), (mnist.FASHION_MNIST_REMOTES, 4)):
        assert sum(len(remote.files) for remote in remotes) == count
        assert all(remote.url.startswith("https://") and len(remote.md5) == 32 for remote in remotes)
    assert cifar.CIFAR100_REMOTES[0].files == tuple(f"cifar-100-python/{n}" for n in ("train", "test", "meta"))
    for remote in mnist.FASHION_MNIST_REMOTES:
        assert remote.files == (f"FashionMNIST/raw/{Path(remote.url).stem}",)


def test_failed_downloads_raise_an_error_and_leave_no_files(tmp_path: Path, server: tuple[Path, str]) -> None:
    good = serve(server, "good.tar.gz", archive(cifar10_contents()), CIFAR10_FILES)
    lacking = cifar10_contents()
    del lacking["test_batch"]
    half = archive(cifar10_contents())
    cases = {
        "checksum": Remote(good.url, "0" * 32, CIFAR10_FILES),
        "404": Remote(f"{server[1]}/none.tar.gz", good.md5, CIFAR10_FILES),
        "refused": Remote("http://127.0.0.1:9/x.tar.gz", good.md5, CIFAR10_FILES),
        "file cifar-10-batches-py/test_batch": serve(server, "lacking.tar.gz", archive(lacking), CIFAR10_FILES),
        "cannot download": serve(server, "half.tar.gz", half[: len(half) // 2], CIFAR10_FILES),
        "cannot download .*": serve(server, "text.gz", b"no gzip", ("MNIST/raw/text",)),
    }
    for message, remote in cases.items():
        with pytest.raises(TwofoldError, match=message) as caught:
            fetch(remote, tmp_path / "data")
        assert remote.url in str(caught.value)
        assert "\n" not in str(caught.value)
        assert list((tmp_path / "data").iterdir()) == []


def test_error_for_missing_files_names_path_address_and_fix(tmp_path: Path) -> None:
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
