"""The map: neighbours stay neighbours, and invalid features are refused."""

import pytest
import torch
from sklearn.manifold import trustworthiness

from twofold.errors import TwofoldError
from twofold.evaluate.projection import project


def blobs(each: int, centres: int, dimension: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    middle = torch.randn(centres, 1, dimension, generator=generator)
    rows = middle + 0.2 * torch.randn(centres, each, dimension, generator=generator)
    return rows.flatten(0, 1), torch.arange(centres).repeat_interleave(each)


def test_neighbours_stay_neighbours() -> None:
    rows, group = blobs(20, 4, 16)
    made = project(rows)
    assert made is not None
    distance = torch.cdist(made.points, made.points).fill_diagonal_(torch.inf)
    assert (group[distance.argmin(dim=1)] == group).all()
    unit = rows / rows.norm(dim=1, keepdim=True)
    assert trustworthiness(unit.numpy(), made.points.numpy(), n_neighbors=10) > 0.9
    assert made.perplexity == pytest.approx(79 / 3)
    assert made.divergence > 0


def test_the_map_fills_its_frame_and_ignores_the_length_of_rows() -> None:
    rows, _ = blobs(10, 3, 8)
    made = project(rows)
    assert made is not None
    low, high = made.points.amin(dim=0), made.points.amax(dim=0)
    assert torch.allclose(low, -high, atol=1e-6)
    assert high[0] == pytest.approx(1)
    assert high[1] <= high[0]
    # Powers of two do not change rounding, and t-SNE is sensitive to the last digit.
    again = project(rows * 2.0 ** (torch.arange(30) % 7)[:, None])
    assert again is not None
    assert torch.equal(made.points, again.points)


@pytest.mark.parametrize("broken", [torch.ones(20, 4), torch.zeros(20, 4), torch.full((20, 4), torch.nan)])
def test_equal_or_not_finite_rows_have_no_map(broken: torch.Tensor) -> None:
    assert project(broken) is None


@pytest.mark.parametrize("count", [9, 5001])
def test_too_few_or_too_many_points_are_refused(count: int) -> None:
    with pytest.raises(TwofoldError, match="needs 10 to 5,000 images"):
        project(torch.zeros(count, 2))
