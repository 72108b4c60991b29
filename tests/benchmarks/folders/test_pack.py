"""Packed folders have the same files and pixels after unpacking."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.folders import pack
from benchmarks.folders.datasets import Split

RNG = np.random.default_rng(0)


def written(folder: Path) -> Split:
    """Write grey and colour PNG files of two sizes, a copy of one of them, and a JPEG file."""
    for part, count in (("fit", 5), ("score", 2)):
        (folder / part / "a").mkdir(parents=True)
        for row in range(count):
            shape = (8, 8) if row % 2 else (12, 12, 3)
            Image.fromarray(RNG.integers(0, 256, shape, dtype=np.uint8)).save(folder / part / "a" / f"{row}.png")
    (folder / "score/a/copy.png").write_bytes((folder / "fit/a/0.png").read_bytes())
    Image.fromarray(RNG.integers(0, 256, (40, 50, 3), dtype=np.uint8)).save(folder / "fit/a/photo.jpg")
    return Split("made", 0, folder / "fit", folder / "score")


def test_unpacked_folders_are_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "PER_STRIP", 2)
    monkeypatch.setattr(pack, "split", lambda name, _sources, work, seed, _part: written(work / f"{name}-{seed}"))
    kept = tmp_path / "kept"
    monkeypatch.setattr(pack.tempfile, "TemporaryDirectory", lambda: Kept(kept))
    pack.pack(tmp_path / "packed.zip", ["made"], [0], tmp_path, "test")
    pack.unpack(tmp_path / "packed.zip", tmp_path / "work")
    files = sorted(path.relative_to(kept) for path in kept.glob("*/*/*/*"))
    assert len(files) == 9
    for path in files:
        with Image.open(kept / path) as before, Image.open(tmp_path / "work" / path) as after:
            assert before.mode == after.mode
            assert np.array_equal(np.asarray(before), np.asarray(after))
    assert (tmp_path / "work/made-0/complete").exists()
    assert sum(name.endswith(".webp") for name in zipfile.ZipFile(tmp_path / "packed.zip").namelist()) == 4


class Kept:
    """A folder that stays, in place of a temporary one."""

    def __init__(self, path: Path):
        self.path = path

    def __enter__(self) -> str:
        self.path.mkdir()
        return str(self.path)

    def __exit__(self, *_: object) -> None: ...
