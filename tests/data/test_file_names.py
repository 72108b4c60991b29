import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from twofold.data import file_names
from twofold.data.file_names import FileNames
from twofold.data.open import open_source
from twofold.data.readers.folder import find_image_files

NAMES = ["a.png", "", "b/ä.jpg", "a.png2", "png", os.fsdecode(b"\xff.png"), "with\nnewline", "b/b", "b"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_names, "BLOCK", 2)


def test_names_are_those_of_a_list() -> None:
    found = FileNames.of(iter(NAMES))
    assert list(found) == NAMES
    assert [found[row] for row in range(-len(NAMES), len(NAMES))] == NAMES + NAMES
    assert found[np.int64(2)] == NAMES[2]
    assert list(found[1:7:2]) == NAMES[1:7:2]
    assert found == tuple(NAMES)
    assert found == FileNames.of(NAMES)
    assert found != NAMES[:-1]
    assert found != FileNames.of([*NAMES[:-1], "c"])
    for row in (len(NAMES), -len(NAMES) - 1):
        with pytest.raises(IndexError):
            found[row]


def test_taken_rows_are_in_the_requested_order() -> None:
    rows = np.array([7, 0, 0, 5, 1])
    assert FileNames.of(NAMES).take(rows) == [NAMES[row] for row in rows]
    assert FileNames.of(NAMES).take(np.arange(len(NAMES))) == NAMES
    assert len(FileNames.of(NAMES).take(np.arange(0))) == 0


def test_index_finds_whole_names_only() -> None:
    found = FileNames.of(NAMES)
    for row, name in enumerate(NAMES):
        assert found.index(name) == row
        assert name in found
    for name in ("a", "newline", "b/", ".png", "a.png\0", "ä.jpg", "c"):
        with pytest.raises(ValueError, match="not among the names"):
            found.index(name)
    assert FileNames.of(["x", "y", "x"]).index("x", 1) == 2
    with pytest.raises(ValueError, match="not among"):
        FileNames.of([]).index("x")


def test_joined_names_are_split_again() -> None:
    joined = FileNames.of(NAMES).joined
    assert joined == b"\0".join(map(os.fsencode, NAMES))
    assert FileNames(joined) == NAMES
    with_null = FileNames.of(["a\0b", "c"])  # in a list of files that does not exist on any disk
    assert list(with_null) == ["a\0b", "c"]
    assert with_null.index("c") == 1
    with pytest.raises(ValueError, match="not among"):
        with_null.index("b")


def test_listing_a_folder_keeps_only_the_names(tmp_path: Path) -> None:
    """A list of directory entries would need 250 bytes for each file."""
    count = 4000
    for number in range(count):
        (tmp_path / f"{number:07d}.jpg").touch()
    find_image_files(tmp_path)  # Pillow loads its formats
    tracemalloc.start()
    try:
        found, _, _ = find_image_files(tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == count
    assert peak / count < 120


def test_opened_folder_needs_few_bytes_for_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """52 are in the index, 8 are the sides, and 21 are the name."""
    from PIL import Image

    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(file_names, "BLOCK", 4096)
    root = tmp_path / "images"
    root.mkdir()
    Image.new("RGB", (4, 4)).save(root / "first.jpg")
    count = 3000
    for number in range(count):
        os.link(root / "first.jpg", root / f"{number:07d}.jpg")
    open_source(root)
    tracemalloc.start()
    try:
        source = open_source(root)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(source) == count + 1
    assert held / count < 130
