import json
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from twofold.data import cache
from twofold.errors import TwofoldError

SHAPE = (3, 4, 4)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def rows() -> list[np.ndarray | str]:
    rng = np.random.default_rng(0)
    return ["bad header", *rng.integers(0, 256, (5, *SHAPE), dtype=np.uint8), "truncated"]


def test_what_is_recorded_is_recalled(rows: list[np.ndarray | str], folder: Path) -> None:
    assert cache.recall("key", SHAPE) is None
    kept = cache.record("key", SHAPE, rows)
    for decoded in (kept, cache.recall("key", SHAPE)):
        np.testing.assert_array_equal(decoded.images.numpy(), np.stack(rows[1:-1]))
        assert decoded.skipped == {0: "bad header", 6: "truncated"}
    assert cache.recall("other", SHAPE) is None
    assert len(list(folder.iterdir())) == 2


def test_images_are_mapped_not_read(rows: list[np.ndarray | str], folder: Path) -> None:
    images = cache.record("key", SHAPE, rows).images
    with next(folder.glob("*.u8")).open("r+b") as file:
        file.write(b"\x07")
    assert images[0, 0, 0, 0] == 7


@pytest.mark.parametrize("change", ["truncate", "extend", "remove", "sidecar", "sidecar-fields"])
def test_an_incomplete_cache_is_not_taken(rows: list[np.ndarray | str], folder: Path, change: str) -> None:
    cache.record("key", SHAPE, rows)
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
    assert cache.recall("key", SHAPE) is None
    cache.record("key", SHAPE, rows)
    assert cache.recall("key", SHAPE) is not None


def test_no_rows_at_all_keep_nothing(folder: Path) -> None:
    decoded = cache.record("key", SHAPE, ["bad", "bad"])
    assert decoded.images.shape == (0, *SHAPE)
    assert decoded.images.dtype == torch.uint8
    assert decoded.skipped == {0: "bad", 1: "bad"}
    assert list(folder.iterdir()) == []


def test_a_failing_row_leaves_nothing_behind(rows: list[np.ndarray | str], folder: Path) -> None:
    def failing() -> Iterator[np.ndarray | str]:
        yield from rows
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.record("key", SHAPE, failing())
    assert list(folder.iterdir()) == []


def test_a_full_disk_is_one_line_and_leaves_nothing_behind(folder: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    rows = (np.zeros(SHAPE, np.uint8) for _ in range(1000))
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(TwofoldError, match="TWOFOLD_CACHE") as caught:
            cache.record("key", SHAPE, rows)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(folder.iterdir()) == []


def test_a_cache_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(TwofoldError, match="TWOFOLD_CACHE"):
        cache.record("key", SHAPE, [np.zeros(SHAPE, np.uint8)])


def test_what_a_killed_process_left_is_removed_after_a_day(rows: list[np.ndarray | str], folder: Path) -> None:
    folder.mkdir()
    old, running = folder / "old.partial", folder / "running.partial"
    for partial, age in ((old, 25), (running, 1)):
        partial.write_bytes(b"pixels")
        os.utime(partial, (time.time() - age * 3600,) * 2)
    cache.record("key", SHAPE, rows)
    assert (old.exists(), running.exists()) == (False, True)


def test_the_default_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TWOFOLD_CACHE")
    assert cache.folder() == Path.home() / ".cache" / "twofold"
