"""HEIC files, which pillow-heif decodes. The package is not installed for `make test`."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from twofold.data.decode import decode_image, read_header
from twofold.data.image_formats import extensions


@pytest.mark.extras
def test_a_heic_file_is_decoded_like_the_picture_that_it_was_made_from(tmp_path: Path) -> None:
    heif = pytest.importorskip("pillow_heif")
    ramp = np.linspace(0, 255, 64, dtype=np.uint8)
    pixels = np.stack([np.tile(ramp, (48, 1)), np.full((48, 64), 90, np.uint8), np.tile(ramp[::-1], (48, 1))], axis=2)
    heif.from_pillow(Image.fromarray(pixels)).save(tmp_path / "photo.heic", quality=95)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    assert ".heic" in extensions()
    header = read_header(tmp_path / "photo.heic")
    assert (header.side, header.longer, header.channels) == (48, 64, 3)
    heic, png = (decode_image(tmp_path / name, 32, 3).astype(int) for name in ("photo.heic", "photo.png"))
    assert heic.shape == (3, 32, 32)
    assert np.abs(heic - png).mean() < 3
