"""Sheets of pictures: every tile is at its position, and the size of a sheet is limited."""

import base64

import numpy as np
import pytest
import torch
from PIL import Image

from browser import opened, tile_at
from twofold.report import pictures
from twofold.report.pictures import sheet, squares


@pytest.mark.parametrize("count", [1, 2, 7, 12])
@pytest.mark.parametrize("channels, shown", [(1, 1), (2, 1), (3, 3), (5, 3)])
def test_small_sheets_keep_every_pixel(count: int, channels: int, shown: int) -> None:
    pictures = torch.randint(0, 256, (count, channels, 6, 6), dtype=torch.uint8)
    made = sheet(squares(pictures, 6))
    assert opened(made)[0] == "data:image/png"
    for number in range(count):
        expected = pictures[number, :shown].permute(1, 2, 0).squeeze(-1).numpy()
        assert np.array_equal(tile_at(made, number), expected)


def test_squares_are_resized_like_pillow() -> None:
    picture = torch.randint(0, 256, (1, 3, 24, 24), dtype=torch.uint8)
    small = squares(picture, 10)[0].permute(1, 2, 0).numpy()
    expected = np.asarray(
        Image.fromarray(picture[0].permute(1, 2, 0).numpy()).resize((10, 10), Image.Resampling.BILINEAR)
    )
    assert np.abs(small.astype(int) - expected.astype(int)).max() <= 1


def test_large_sheets_are_compressed_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "EXACT_BYTES", 20_000)
    monkeypatch.setattr(pictures, "MOST_BYTES", 30_000)
    smooth = torch.linspace(0, 255, 32).to(torch.uint8).expand(64, 3, 32, 32)
    noise = (torch.rand(64, 1, 1, 1) * 200 + 55 * torch.rand(64, 3, 32, 32)).to(torch.uint8)
    assert opened(sheet(smooth))[0] == "data:image/png"
    made = sheet(noise)
    kind, _ = opened(made)
    assert kind == "data:image/webp"
    assert len(base64.b64decode(made["address"].partition(",")[2])) <= 30_000
    for number in (0, 31, 63):
        assert tile_at(made, number).mean() == pytest.approx(noise[number].float().mean().item(), abs=8)
