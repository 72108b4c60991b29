"""Numbers that are computed from those in a record."""

from typing import Any

import pytest
import torch
from torch import Tensor

from twofold_papers.reproduce.readings import DISTINCT, UNCENTRED, distinct_uncentred, whole_spectrum
from twofold_papers.reproduce.record import RANKS, spectrum_summary


def record_of(z: Tensor) -> dict[str, Any]:
    """The record that a run with these embeddings would have."""
    eigenvalues = torch.linalg.eigvalsh(torch.cov(z.T, correction=0)).flip(0)
    line = {"step": 1, "eigenvalues": eigenvalues.tolist()}
    return {"spectrum": spectrum_summary([line]), "last": {"embedding_norm": z.square().sum(-1).mean().sqrt().item()}}


def embeddings(mean: float, dim: int = 300) -> Tensor:
    """Embeddings whose variances fall as a power of the rank, with a mean in a random direction."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(5_000, dim, dtype=torch.float64, generator=generator) * torch.arange(1, dim + 1) ** -0.6
    return z + mean * torch.nn.functional.normalize(torch.rand(dim, dtype=torch.float64, generator=generator), dim=0)


def above_a_tenth(z: Tensor) -> int:
    values = torch.linalg.svdvals(z)
    return int((values > values[0] / 10).sum())


@pytest.mark.parametrize("mean, few", [(0.0, False), (0.3, False), (1.5, True), (6.0, True)])
def test_uncentred_singular_values_follow_from_the_covariance_and_the_mean(mean: float, few: bool) -> None:
    z = embeddings(mean)
    exact, record = above_a_tenth(z), record_of(z)
    assert len(record["spectrum"]["eigenvalues"]) <= RANKS + 1  # a record keeps only some of them
    least, most = distinct_uncentred(record)
    assert least - 1 <= exact <= most + 1  # 1 for the interpolation between the ranks in the record
    assert UNCENTRED.read(record) == pytest.approx(exact, rel=0.2)
    # Without the mean, the count does not depend on it; with a large mean, small singular values do not count.
    assert DISTINCT.read(record) == above_a_tenth(z - z.mean(dim=0)) == 46
    assert (exact < 30) == few


def test_eigenvalues_between_the_recorded_ranks_are_interpolated() -> None:
    values = torch.arange(1, 301, dtype=torch.float64) ** -1.5  # a straight line on log scales
    line = {"step": 1, "eigenvalues": values.tolist()}
    found = whole_spectrum({"spectrum": spectrum_summary([line])})
    torch.testing.assert_close(found, values, rtol=1e-3, atol=0)  # a record keeps four digits


@pytest.mark.parametrize("record", [{}, {"spectrum": {}}, {"spectrum": {"step": [1]}, "failed": "not finite"}])
def test_without_a_spectrum_the_count_is_none(record: dict[str, Any]) -> None:
    assert UNCENTRED.read(record) is None
