"""Gathered rows of images are correct for any number of threads."""

import pytest
import torch

from twofold.data import gather as module
from twofold.data.gather import gather_rows


@pytest.mark.parametrize(("count", "least"), [(1, 0), (3, 0), (9, 0), (9, 2**20), (0, 0)])
def test_requested_rows_are_gathered(count: int, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_BYTES", least)  # 0: use several threads even for a few rows
    images = torch.randint(0, 256, (20, 3, 4, 5), dtype=torch.uint8)
    rows = torch.randint(0, 20, (count,))
    room = torch.zeros(12, 3, 4, 5, dtype=torch.uint8)
    found = gather_rows(images, rows, room[2 : 2 + count])
    assert torch.equal(found, images[rows])
    assert torch.equal(room[2 : 2 + count], images[rows])
    assert not room[:2].any()
    assert not room[2 + count :].any()
