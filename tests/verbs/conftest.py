"""A run on a folder of two classes, shared by what is done with runs."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import twofold
from running import small

CLASSES = ("ants", "bees")


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/ with two classes, and a run on them that held some out."""
    here = tmp_path_factory.mktemp("desk")
    generator = np.random.default_rng(0)
    for name in CLASSES:
        (here / "photos" / name).mkdir(parents=True)
        for number in range(15):
            pixels = generator.integers(0, 255, (12, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(here / "photos" / name / f"{number:02d}.png")
    twofold.pretrain(here / "photos", out=here / "run", **small("frossl", epochs=1, batch_size=8))
    return here
