import json
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from twofold.checksums import KEY, seal
from twofold.cli.cache import cache as command
from twofold.data import cache
from twofold.data.readers.folder import read_folder
from twofold.errors import TwofoldError
from twofold.files import cache_folder

SHAPE = (3, 4, 4)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def rows() -> list[np.ndarray | str]:
    rng = np.random.default_rng(0)
    return ["bad header", *rng.integers(0, 256, (5, *SHAPE), dtype=np.uint8), "truncated"]


def test_written_set_is_read_back(rows: list[np.ndarray | str], folder: Path) -> None:
    assert cache.read_set("key", SHAPE) is None
    kept = cache.write_set("key", SHAPE, rows)
    for decoded in (kept, cache.read_set("key", SHAPE)):
        np.testing.assert_array_equal(decoded.images, np.stack(rows[1:-1]))
        assert decoded.skipped == {0: "bad header", 6: "truncated"}
    assert cache.read_set("other", SHAPE) is None
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".marks", ".u8"]


def hashes_of(*names: str) -> list[bytes]:
    return [name.encode().ljust(cache.ROW_HASH_BYTES) for name in names]


@pytest.mark.usefixtures("folder")
def test_rows_are_found_by_their_hashes_in_any_set(rows: list[np.ndarray | str]) -> None:
    cache.write_set("one", SHAPE, rows, row_hashes=hashes_of("bad", *"abcde", "cut"))
    cache.write_set("two", SHAPE, rows[3:5], row_hashes=hashes_of("x", "y"))
    found = cache.find_rows(SHAPE, hashes_of("y", "bad", "e", "new", "a", "cut"))
    assert found.missing.tolist() == [1, 3, 5]
    for number, row in ((0, rows[4]), (2, rows[5]), (4, rows[1])):
        np.testing.assert_array_equal(found[number], row)
    assert found[1] is None
    assert cache.find_rows((1, 2, 2), hashes_of("a", "b")).missing.tolist() == [0, 1]


@pytest.mark.usefixtures("folder")
def test_hashes_are_compared_with_all_their_bytes(rows: list[np.ndarray | str]) -> None:
    hashes = [b"a" * 16, b"a" * 15 + b"\0", b"\0" * 16, b"\0" * 15 + b"a", b"b" + b"\0" * 15]
    cache.write_set("one", SHAPE, rows[1:-1], row_hashes=hashes)
    found = cache.find_rows(SHAPE, [*reversed(hashes), b"a" * 14 + b"\0\0", b"c" * 16])
    assert found.missing.tolist() == [5, 6]
    for number, row in enumerate(reversed(rows[1:-1])):
        np.testing.assert_array_equal(found[number], row)
    assert cache.find_rows(SHAPE, []).missing.tolist() == []


@pytest.mark.usefixtures("folder")
def test_rows_of_the_set_that_was_used_last_come_first(rows: list[np.ndarray | str]) -> None:
    hashes = hashes_of("a", "b")
    for number, (key, own) in enumerate((("old", rows[1:3]), ("new", rows[3:5]))):
        cache.write_set(key, SHAPE, own, row_hashes=hashes)
        os.utime(cache.paths_of(key)[1], (number, number))
    found = cache.find_rows(SHAPE, hashes)
    np.testing.assert_array_equal([found[0], found[1]], rows[3:5])
    assert len(found.sets) == 1


@pytest.mark.parametrize("damage", ["pixels", "marks", "no marks"])
def test_rows_of_a_damaged_set_are_not_used(rows: list[np.ndarray | str], folder: Path, damage: str) -> None:
    cache.write_set("one", SHAPE, rows[1:-1], row_hashes=hashes_of(*"abcde"))
    assert cache.find_rows(SHAPE, hashes_of("a")).missing.tolist() == []
    path = next(folder.glob("*.u8" if damage == "pixels" else "*.marks"))
    content = path.read_bytes()
    if damage == "no marks":
        path.unlink()
    else:
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:] if damage == "pixels" else content[:-1])
    assert cache.find_rows(SHAPE, hashes_of("a")).missing.tolist() == [0]


def test_images_are_memory_mapped(rows: list[np.ndarray | str], folder: Path) -> None:
    images = cache.write_set("key", SHAPE, rows).images
    with next(folder.glob("*.u8")).open("r+b") as file:
        file.write(b"\x07")
    assert images[0, 0, 0, 0] == 7


@pytest.mark.parametrize("change", ["truncate", "extend", "remove", "sidecar", "sidecar-fields"])
def test_incomplete_set_is_not_used(rows: list[np.ndarray | str], folder: Path, change: str) -> None:
    cache.write_set("key", SHAPE, rows)
    pixels, sidecar = next(folder.glob("*.u8")), next(folder.glob("*.json"))
    if change == "truncate":
        os.truncate(pixels, pixels.stat().st_size - 1)
    elif change == "extend":
        os.truncate(pixels, pixels.stat().st_size + 1)
    elif change == "remove":
        pixels.unlink()
    elif change == "sidecar":
        sidecar.write_text(sidecar.read_text()[:-3])
    else:
        sidecar.write_text(json.dumps([1, 2]))
    assert cache.read_set("key", SHAPE) is None
    cache.write_set("key", SHAPE, rows)
    assert cache.read_set("key", SHAPE) is not None


def test_set_without_images_is_not_stored(folder: Path) -> None:
    decoded = cache.write_set("key", SHAPE, ["bad", "bad"])
    assert decoded.images.shape == (0, *SHAPE)
    assert decoded.images.dtype == np.uint8
    assert decoded.skipped == {0: "bad", 1: "bad"}
    assert list(folder.iterdir()) == []


def test_interrupted_write_leaves_no_files(rows: list[np.ndarray | str], folder: Path) -> None:
    def failing() -> Iterator[np.ndarray | str]:
        yield from rows
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.write_set("key", SHAPE, failing())
    assert list(folder.iterdir()) == []


def test_full_disk_raises_an_error_and_leaves_no_files(folder: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    rows = (np.zeros(SHAPE, np.uint8) for _ in range(1000))
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(TwofoldError, match="TWOFOLD_CACHE") as caught:
            cache.write_set("key", SHAPE, rows)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(folder.iterdir()) == []


def test_cache_folder_that_cannot_be_created_raises_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(TwofoldError, match="TWOFOLD_CACHE"):
        cache.write_set("key", SHAPE, [np.zeros(SHAPE, np.uint8)])


def test_partial_files_of_killed_processes_are_removed_after_a_day(rows: list[np.ndarray | str], folder: Path) -> None:
    folder.mkdir()
    old, running = folder / ".old.u8.part", folder / ".running.u8.part"
    for path, age in ((old, 25), (running, 1)):
        path.write_bytes(b"pixels")
        os.utime(path, (time.time() - age * 3600,) * 2)
    cache.write_set("key", SHAPE, rows)
    assert (old.exists(), running.exists()) == (False, True)


def test_default_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TWOFOLD_CACHE")
    assert cache_folder() == Path.home() / ".cache" / "twofold"


def test_changed_byte_is_detected_anywhere(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(cache, "CHECKSUM_BYTES", 100)
    rows = list(np.random.default_rng(1).integers(0, 256, (200, *SHAPE), dtype=np.uint8))
    cache.write_set("key", SHAPE, rows)
    pixels = next(folder.glob("*.u8"))
    before, times = pixels.read_bytes(), pixels.stat()
    for place in (0, 1234, 5555, len(before) - 1):
        changed = bytearray(before)
        changed[place] ^= 1
        pixels.write_bytes(changed)
        os.utime(pixels, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert cache.read_set("key", SHAPE) is None
    pixels.write_bytes(before)
    np.testing.assert_array_equal(cache.read_set("key", SHAPE).images, np.stack(rows))


@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.full)])
def test_flipped_bits_of_the_metadata_are_never_used(every: int, rows: list[np.ndarray | str], folder: Path) -> None:
    cache.write_set("key", SHAPE, rows)
    expected, sidecar = cache.read_set("key", SHAPE), next(folder.glob("*.json"))
    before = sidecar.read_bytes()
    for bit in range(0, 8 * len(before), every):
        changed = bytearray(before)
        changed[bit // 8] ^= 1 << bit % 8
        sidecar.write_bytes(changed)
        found = cache.read_set("key", SHAPE)
        assert found is None or (found.skipped == expected.skipped and np.array_equal(found.images, expected.images))


def test_large_damage_with_unchanged_time_is_detected(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(cache, "CHECKSUM_BYTES", 100)
    cache.write_set("key", SHAPE, [np.zeros(SHAPE, np.uint8)] * 200)
    pixels = next(folder.glob("*.u8"))
    status = pixels.stat()
    with pixels.open("r+b") as file:  # like after a crash: the second half was not written
        file.seek(status.st_size // 2)
        file.write(b"\x01" * (status.st_size // 2))
    os.utime(pixels, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert cache.read_set("key", SHAPE) is None


def test_least_recently_used_set_is_removed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    row = np.zeros((1, 100, 100), np.uint8)
    monkeypatch.setenv("TWOFOLD_CACHE_GB", "25e-6")  # room for two sets of one row
    for number, name in enumerate(("old", "older", "new")):
        if name == "new":
            assert cache.read_set("old", row.shape) is not None  # makes "older" the least recently used set
        cache.write_set(name, row.shape, [row], expected=1)
        if name != "new":
            sidecar = next(cache_folder().glob(f"{name}-*.json"))
            os.utime(sidecar, (1000 + number, 1000 + number))
    assert [name for name in ("old", "older", "new") if cache.read_set(name, row.shape) is not None] == ["old", "new"]
    assert len(list(cache_folder().glob("*.u8"))) == 2


def test_set_above_the_limit_replaces_all_and_set_above_the_disk_raises_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = np.zeros((1, 100, 100), np.uint8)
    monkeypatch.setenv("TWOFOLD_CACHE_GB", "1e-6")
    cache.write_set("first", row.shape, [row], expected=1)
    cache.write_set("second", row.shape, [row], expected=1)
    assert (cache.read_set("first", row.shape), len(cache.cached_sets())) == (None, 1)
    with pytest.raises(TwofoldError, match=r"need 1[0-9]+.* GB .*TWOFOLD_CACHE"):
        cache.write_set("huge", row.shape, iter(()), expected=10**15)
    monkeypatch.setenv("TWOFOLD_CACHE_GB", "much")
    with pytest.raises(TwofoldError, match="TWOFOLD_CACHE_GB=much"):
        cache.write_set("third", row.shape, [row], expected=1)


def test_command_lists_and_clears_decoded_sets(
    rows: list[np.ndarray | str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache.write_set("one", SHAPE, rows)
    cache.write_set("two", SHAPE, rows)
    command()
    shown = capsys.readouterr().out
    assert "2 decoded sets" in shown
    assert "one-" in shown
    command(clear=True)
    assert "removed" in capsys.readouterr().out
    assert list(folder.glob("*.u8")) == []


def test_command_lists_and_clears_indexes(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(2):
        Image.new("RGB", (8, 8)).save(tmp_path / "photos" / f"{number}.png")
    read_folder(tmp_path / "photos")
    command()
    assert "1 index of folders and lists" in " ".join(capsys.readouterr().out.split())
    command(clear=True)
    assert "1 index of" in " ".join(capsys.readouterr().out.split())
    assert [path for path in folder.rglob("*") if path.is_file()] == []


def test_command_counts_and_clears_incomplete_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "index").mkdir(parents=True)
    for left in (folder / ".key.u8.0a1b2c3d.part", folder / "index" / ".a.npz.0a1b2c3d.part"):
        left.write_bytes(bytes(10**6))
        os.utime(left, (time.time() - 100,) * 2)
    (folder / ".used.u8.0a1b2c3d.part").write_bytes(bytes(10**6))  # a process is writing it
    command()
    assert "3 incomplete files of stopped or running processes, 3.0 MB, in the same folder" in capsys.readouterr().out
    command(clear=True)
    assert "2.0 MB, removed from the same folder" in capsys.readouterr().out
    assert [path.name for path in cache.incomplete_files()] == [".used.u8.0a1b2c3d.part"]


def test_training_set_is_not_removed_for_its_own_test_set(monkeypatch: pytest.MonkeyPatch) -> None:
    row = np.zeros((1, 100, 100), np.uint8)
    monkeypatch.setenv("TWOFOLD_CACHE_GB", "15e-6")
    for key in ("other-train", "one-train", "one-test"):
        cache.write_set(key, row.shape, [row], expected=1)
    kept = [key for key in ("other-train", "one-train", "one-test") if cache.read_set(key, row.shape) is not None]
    assert kept == ["one-train", "one-test"]


def test_the_list_of_sets_names_their_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(2):
        Image.fromarray(np.full((4, 4, 3), number, np.uint8)).save(tmp_path / "photos" / f"{number}.png")
    train, _, _ = read_folder(tmp_path / "photos")
    train.decode(np.arange(2), 4, 3, "0123-train", None, 4)
    command(clear=False)
    lines = [line for line in capsys.readouterr().out.splitlines() if "used" in line]
    assert sorted(line.split()[-1] for line in lines if "recently" not in line) == ["(train)", "(train.4)"]
    assert all(str(tmp_path / "photos") in line for line in lines if "recently" not in line)


@pytest.mark.parametrize(
    "change",
    [
        {"count": 7, "bytes": 5 * 48},
        {"count": "5"},
        {"count": 10**300},
        {"skipped": [[float("inf"), "a"]]},
        {"skipped": [[99, "a"]]},
        {"skipped": [[-1, "a"]]},
        {"skipped": 1},
        {"checksums": {"0": 1}},
    ],
    ids=str,
)
def test_sets_with_a_damaged_description_are_decoded_again(
    rows: list[np.ndarray | str], change: dict[str, object]
) -> None:
    cache.write_set("key", SHAPE, rows)
    _, sidecar = cache.paths_of("key")
    described = json.loads(sidecar.read_text()) | change
    described.pop(KEY, None)
    sidecar.write_text(json.dumps(seal(described)))
    assert cache.read_set("key", SHAPE) is None
    assert cache.find_rows(SHAPE, [b"a" * 16]).missing.tolist() == [0]
    for content in (b"\xff", b"[" * 99_999, b"null"):
        sidecar.write_bytes(content)
        assert cache.read_set("key", SHAPE) is None
    assert cache.cached_sets()[0].source == ""
