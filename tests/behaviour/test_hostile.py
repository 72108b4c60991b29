"""Damaged and malicious files: every reader returns the data or raises a `TwofoldError`.

`make test` tries a few changes of each kind of file; `make test-full` tries many.
"""

import contextlib
import gzip
import io
import json
import pickle
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from standard_files import cifar10_contents, idx
from twofold import config
from twofold.data.decode import decode_image, read_header
from twofold.data.decode_options import Unreadable
from twofold.data.readers.arrays import read_array_file
from twofold.data.readers.cifar import read_batch
from twofold.data.readers.lists import parse_list
from twofold.data.readers.mnist import read_idx
from twofold.data.readers.pickles import read_pickle
from twofold.data.readers.shards import members, read_shards
from twofold.errors import TwofoldError
from twofold.methods import schema_of_run
from twofold.models import build_encoder
from twofold.runs.weights import load_encoder, save_encoder
from twofold.verbs import pretrain

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 10, 3), dtype=np.uint8)


def image_bytes(kind: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, kind)
    return file.getvalue()


def array_bytes(save: Callable[..., None]) -> bytes:
    file = io.BytesIO()
    save(file, np.zeros((3, 8, 8), np.uint8))
    return file.getvalue()


def tar_bytes(form: int) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:", format=form) as tar:
        for name, content in {
            "a" * 120 + ".png": image_bytes("PNG"),
            "b.png": image_bytes("PNG"),
            "b.cls": b"3",
        }.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


def encoder_bytes(folder: Path) -> bytes:
    about = {"encoder": "conv", "stem": "small", "channels": 1, "image_size": 8, "mean": [0.5], "std": [0.5]}
    save_encoder(folder / "e", build_encoder("conv", channels=1, stem="small", image_size=8), about)
    return (folder / "e").read_bytes()


def read_image(path: Path) -> None:
    for read in (
        lambda: read_header(path),
        lambda: decode_image(path, 8, 3),
        lambda: decode_image(path.read_bytes(), 8, 1),
    ):
        try:
            read()
        except Unreadable as error:
            raise TwofoldError(str(error)) from error


def read_list(path: Path) -> None:
    text = path.read_bytes().decode("utf-8", "replace")
    for ending in (".csv", ".tsv", ".txt"):
        other = path.with_suffix(ending)
        other.write_bytes(text.encode())
        parse_list(other)


CONFIG = config.dump(pretrain.configure("digits", "frossl")[0]).encode()
READERS: dict[str, tuple[Callable[[Path], bytes], Callable[[Path], Any]]] = {
    **{
        f"image {kind}": (lambda _, kind=kind: image_bytes(kind), read_image)
        for kind in ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "TGA")
    },
    "npy": (lambda _: array_bytes(np.save), read_array_file),
    "npz": (lambda _: array_bytes(np.savez_compressed), read_array_file),
    "idx": (lambda _: idx(PIXELS), lambda path: read_idx(path, 3)),
    "idx.gz": (lambda _: gzip.compress(idx(PIXELS)), lambda path: read_idx(path, 3)),
    "cifar": (
        lambda _: pickle.dumps(cifar10_contents()["test_batch"], protocol=2),
        lambda path: read_batch(path, "labels", 3),
    ),
    "list": (lambda _: b'path,label,split\n"a,b.png",cat,train\nc.png,,test\n', read_list),
    "tar": (lambda _: tar_bytes(tarfile.PAX_FORMAT), members),
    "gnu tar": (lambda _: tar_bytes(tarfile.GNU_FORMAT), lambda path: read_shards(path)),
    "config": (lambda _: CONFIG, lambda path: config.load(path.read_bytes().decode("utf-8", "replace"), schema_of_run)),
    "encoder": (encoder_bytes, lambda path: load_encoder(path)),
}
ENDINGS = {"idx.gz": ".gz", "npz": ".npz", "npy": ".npy", "tar": ".tar", "gnu tar": ".tar"}

# Each change is (position from 0 to 1, number of bytes to remove, bytes to insert).
CHANGES = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.integers(0, 40),
        st.one_of(st.binary(max_size=20), st.sampled_from([b"\xff" * 4, b"\x7f\xff\xff\xff", b"9" * 11, b"\0" * 30])),
    ),
    min_size=1,
    max_size=4,
)


def changed(content: bytes, changes: list[tuple[float, int, bytes]]) -> bytes:
    for place, length, new in changes:
        start = int(place**3 * len(content))  # headers are changed more often than pixels
        content = content[:start] + new + content[start + length :]
    return content


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


def try_changes(name: str, folder: Path, examples: int) -> None:
    make, read = READERS[name]
    content = make(folder)
    path = folder / f"file{ENDINGS.get(name, '.bin')}"
    path.write_bytes(content)
    read(path)  # the unchanged file is readable

    @settings(max_examples=examples, database=None)
    @given(CHANGES)
    def attempt(changes: list[tuple[float, int, bytes]]) -> None:
        path.write_bytes(changed(content, changes))
        with contextlib.suppress(TwofoldError):
            read(path)

    attempt()


@pytest.mark.parametrize("name", READERS)
@pytest.mark.filterwarnings("ignore")
def test_damaged_files_are_read_or_raise_a_twofold_error(name: str, folder: Path) -> None:
    try_changes(name, folder, 20)


@pytest.mark.full
@pytest.mark.parametrize("name", READERS)
@pytest.mark.filterwarnings("ignore")
def test_many_damaged_files_are_read_or_raise_a_twofold_error(name: str, folder: Path) -> None:
    try_changes(name, folder, 2000)


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=30)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_any_json_loads_as_configuration_or_raises_a_twofold_error(value: Any) -> None:
    whole = json.loads(CONFIG)
    values = whole["values"]
    records = (
        value,
        {**whole, "values": value},
        {**whole, "origin": value},
        {**whole, "values": {**values, "method": value}},
        {**whole, "values": {**values, "lr": value, "augment.flip": value}},
    )
    for record in records:
        with contextlib.suppress(TwofoldError):
            config.load(json.dumps(record), schema_of_run)


def test_deeply_nested_json_raises_an_error() -> None:
    with pytest.raises(TwofoldError, match="not a configuration"):
        config.load("[" * 200_000, schema_of_run)


class Attack:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call


def test_pickles_cannot_run_code(tmp_path: Path) -> None:
    path, mark = tmp_path / "batch", tmp_path / "mark"
    attacks = [
        Attack(Path.touch, mark),
        Attack(eval, f"open({str(mark)!r}, 'w')"),
        Attack(np.fromfile, str(mark)),
        Attack(np.load, str(mark), None, True),
        Attack(getattr, "text", "join"),
        {"data": Attack(exec, f"open({str(mark)!r}, 'w')")},
    ]
    for attack in attacks:
        for protocol in (0, 2, 4):
            path.write_bytes(pickle.dumps(attack, protocol=protocol))
            with pytest.raises(TwofoldError, match=r"refers to .*which CIFAR files do not need"):
                read_pickle(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02]r\xff\xff\xff\x7f.",  # a memo index of about 2 billion
        pickle.dumps({"data": np.array([{}], object)}, protocol=2),
        pickle.dumps({"data": np.zeros(2, [("a", "i4"), ("b", "O")])}, protocol=2),
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",  # 2⁶³ bytes
    ],
)
def test_pickles_with_objects_or_huge_sizes_raise_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "batch").write_bytes(content)
    with pytest.raises(TwofoldError, match="cannot be read"):
        read_pickle(tmp_path / "batch")


def test_nested_lists_as_labels_raise_an_error(tmp_path: Path) -> None:
    nested: list[Any] = [0]
    for _ in range(60):
        nested = [nested] * 10
    (tmp_path / "batch").write_bytes(
        pickle.dumps({"data": np.zeros((10, 3072), np.uint8), "labels": nested}, protocol=2)
    )
    with pytest.raises(TwofoldError, match="has no labels"):
        read_batch(tmp_path / "batch", "labels", 3)


def test_decompression_bombs_raise_an_error_with_the_file_name(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images.npy", b"")
    content = bytearray((tmp_path / "bomb.npz").read_bytes())
    place = content.index(b"PK\x01\x02") + 24  # the uncompressed size in the central directory
    content[place : place + 4] = (2**31).to_bytes(4, "little")
    (tmp_path / "bomb.npz").write_bytes(content)
    with pytest.raises(TwofoldError, match=r"bomb\.npz cannot be read: it would unpack images\.npy .*2,147,483,648"):
        read_array_file(tmp_path / "bomb.npz")

    head = bytes((0, 0, 8, 3)) + np.array([10, 10, 10], ">u4").tobytes()
    (tmp_path / "train.gz").write_bytes(gzip.compress(head + bytes(2**26)))
    with pytest.raises(TwofoldError, match="not a complete IDX file"):
        read_idx(tmp_path / "train.gz", 3)
    huge = bytes((0, 0, 8, 3)) + np.array([2**32 - 1] * 3, ">u4").tobytes()
    (tmp_path / "train").write_bytes(huge)
    with pytest.raises(TwofoldError, match="not a complete IDX file"):
        read_idx(tmp_path / "train", 3)


def test_images_with_too_many_pixels_are_rejected_before_decoding(tmp_path: Path) -> None:
    content = bytearray(image_bytes("PNG"))
    content[16:24] = (60_000).to_bytes(4, "big") * 2
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    (tmp_path / "bomb.png").write_bytes(content)
    with pytest.raises(Unreadable, match=r"60000 x 60000 pixels|decompression bomb|exceeds limit"):
        read_header(tmp_path / "bomb.png")


def test_encoder_files_with_wrong_metadata_raise_an_error(tmp_path: Path) -> None:
    good = encoder_bytes(tmp_path)
    size = int.from_bytes(good[:8], "little")
    header = json.loads(good[8 : 8 + size])
    about = json.loads(header["__metadata__"]["twofold"])
    for change in ({"channels": 10**12}, {"encoder": ["conv"]}, {"mean": "x"}, {"encoder": "resnet18"}):
        header["__metadata__"]["twofold"] = json.dumps({**about, **change})
        text = json.dumps(header).encode()
        (tmp_path / "f").write_bytes(len(text).to_bytes(8, "little") + text + good[8 + size :])
        with pytest.raises(TwofoldError):
            load_encoder(tmp_path / "f")
    assert isinstance(load_encoder(tmp_path / "e"), torch.nn.Module)
