"""Runs on a folder of two classes and on digits, shared by the tests of functions that use runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

import twofold
from running import small

CLASSES = ("ants", "bees")
BYOL = {"epochs": 2, "lr": 0.01, "batch_size": 64}


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos/ of two classes, and a run on them with held-out images."""
    here = tmp_path_factory.mktemp("workspace")
    generator = np.random.default_rng(0)
    for name in CLASSES:
        (here / "photos" / name).mkdir(parents=True)
        for number in range(15):
            pixels = generator.integers(0, 255, (12, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(here / "photos" / name / f"{number:02d}.png")
    twofold.pretrain(here / "photos", out=here / "run", **small("frossl", epochs=1, batch_size=8))
    return here


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 digits, of which 80 are held out."""
    path = tmp_path_factory.mktemp("images") / "images.npz"
    digits = load_digits()
    np.savez(path, x=(digits.images[:400] * 15).astype(np.uint8), y=digits.target[:400])
    return path


@pytest.fixture(scope="session")
def run(images: Path, measured_once: Any, tmp_path_factory: pytest.TempPathFactory) -> twofold.Run:
    out = tmp_path_factory.mktemp("probed") / "run"
    with measured_once.five_subsets():
        return twofold.pretrain(images, method="byol", out=out, **small("byol", **BYOL))
