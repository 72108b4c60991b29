"""Fixtures for tests of data: a temporary cache for each test, and a small folder of images."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Ten 12 x 12 images in each of two classes."""
    rng = np.random.default_rng(0)
    for number in range(20):
        path = tmp_path / "photos" / ("cat" if number < 10 else "dog") / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)).save(path)
    return tmp_path / "photos"
