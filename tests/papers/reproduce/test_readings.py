"""Numbers that a record does not hold, but that follow from what it holds."""

from typing import Any

import pytest
import torch
from torch import Tensor

from twofold_papers.reproduce.readings import DISTINCT, UNCENTRED, distinct_uncentred, whole_spectrum
from twofold_papers.reproduce.record import RANKS, spectrum_summary


def record_of(z: Tensor) -> dict[str, Any]:
    """As a run with these embeddings would leave it."""
    eigenvalues = torch.linalg.eigvalsh(torch.cov(z.T, correction=0)).flip(0)
    line = {"step": 1, "eigenvalues": eigenvalues.tolist()}
    return {"spectrum": spectrum_summary([line]), "last": {"embedding_norm": z.square().sum(-1).mean().sqrt().item()}}


def embeddings(mean: float, dim: int = 300) -> Tensor:
    """Variances that fall as a power of the rank, and a mean in a direction of no meaning."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(5_000, dim, dtype=torch.float64, generator=generator) * torch.arange(1, dim + 1) ** -0.6
    return z + mean * torch.nn.functional.normalize(torch.rand(dim, dtype=torch.float64, generator=generator), dim=0)


def above_a_tenth(z: Tensor) -> int:
    values = torch.linalg.svdvals(z)
    return int((values > values[0] / 10).sum())


@pytest.mark.parametrize("mean, few", [(0.0, False), (0.3, False), (1.5, True), (6.0, True)])
def test_singular_values_that_are_not_centred_follow_from_the_covariance_and_the_mean(mean: float, few: bool) -> None:
    z = embeddings(mean)
    exact, record = above_a_tenth(z), record_of(z)
    assert len(record["spectrum"]["eigenvalues"]) <= RANKS + 1  # far from all
    least, most = distinct_uncentred(record)
    assert least - 1 <= exact <= most + 1  # 1: lines between the ranks that are kept
    assert UNCENTRED.read(record) == pytest.approx(exact, rel=0.2)
    # Taken out, the mean changes nothing; left in, it hides what is small beside it.
    assert DISTINCT.read(record) == above_a_tenth(z - z.mean(dim=0)) == 46
    assert (exact < 30) == few


def test_a_spectrum_is_whole_again_between_the_ranks_that_are_kept() -> None:
    values = torch.arange(1, 301, dtype=torch.float64) ** -1.5  # a line on log scales
    line = {"step": 1, "eigenvalues": values.tolist()}
    found = whole_spectrum({"spectrum": spectrum_summary([line])})
    torch.testing.assert_close(found, values, rtol=1e-3, atol=0)  # four digits are kept


@pytest.mark.parametrize("record", [{}, {"spectrum": {}}, {"spectrum": {"step": [1]}, "failed": "not finite"}])
def test_there_is_nothing_to_read_without_a_spectrum(record: dict[str, Any]) -> None:
    assert UNCENTRED.read(record) is None
