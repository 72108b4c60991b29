"""The index of a folder: which files are opened again, and which are not."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from twofold.data.decode import Header
from twofold.data.decode_options import DecodeOptions
from twofold.data.readers import file_index
from twofold.data.readers.folder import read_folder

RNG = np.random.default_rng(0)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))
    for number in range(12):
        draw(tmp_path / "photos" / ("train" if number < 8 else "test") / "ab"[number % 2] / f"{number:02d}.bmp")
    return tmp_path / "photos"


def draw(path: Path, side: int = 8) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(RNG.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(path)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    original = file_index.inspect_file

    def watched(path: Path, options: DecodeOptions) -> tuple[int, Header | str]:
        names.append(path.name)
        return original(path, options)

    monkeypatch.setattr(file_index, "inspect_file", watched)
    return names


def test_second_start_opens_no_file_and_finds_the_same_data(root: Path, opened: list[str]) -> None:
    first = read_folder(root)
    assert len(opened) == 12
    opened.clear()
    second = read_folder(root)
    assert opened == []
    for one, other in zip(first[:2], second[:2], strict=True):
        assert one.digest() == other.digest()
        assert (one.files, one.side, one.channels) == (other.files, other.side, other.channels)


def test_only_changed_files_are_opened(root: Path, opened: list[str]) -> None:
    before = read_folder(root)[0].digest()
    opened.clear()
    draw(root / "train/a/new.bmp", side=30)
    (root / "train/b/01.bmp").unlink()
    draw(root / "train/b/03.bmp", side=9)
    train, _, _ = read_folder(root)
    assert sorted(opened) == ["03.bmp", "new.bmp"]
    assert train.digest() != before
    fresh = file_index.index_files(root, train.files, of=root / "an index of its own")
    assert [row.tolist() for row in fresh.rows] == [
        row.tolist() for row in file_index.load_index(root).part(slice(0, 8)).rows
    ]


def test_replaced_file_of_the_same_size_and_time_is_opened(root: Path, opened: list[str]) -> None:
    before = read_folder(root)[0].digest()
    opened.clear()
    path = root / "train/a/00.bmp"
    status = path.stat()
    draw(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size
    train, _, _ = read_folder(root)
    assert opened == ["00.bmp"]
    assert train.digest() != before


def test_unreadable_files_are_opened_again(root: Path, opened: list[str]) -> None:
    (root / "train/a/00.bmp").write_bytes(b"no image")
    for _ in range(2):
        opened.clear()
        assert dict(read_folder(root)[0].unreadable) == {"train/a/00.bmp": "not an image that Pillow can read"}
        assert "00.bmp" in opened
    assert opened == ["00.bmp"]


@pytest.mark.parametrize("damage", ["cut", "text", "empty", "rows"])
def test_damaged_index_is_rebuilt(root: Path, opened: list[str], damage: str) -> None:
    digest = read_folder(root)[0].digest()
    path = file_index.index_path(root)
    if damage == "rows":
        np.savez(path, names=np.frombuffer(b"a\0b", np.uint8), rows=np.zeros(3, file_index.INDEX_DTYPE))
    else:
        path.write_bytes({"cut": path.read_bytes()[:-100], "text": b"text", "empty": b""}[damage])
    opened.clear()
    assert read_folder(root)[0].digest() == digest
    assert len(opened) == 12


def test_folder_is_read_if_the_index_cannot_be_written(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "file" / "cache"))
    assert len(read_folder(root)[0]) == 8
