"""Sinkhorn–Knopp compared with plain multiplications, and running moments with sums."""

import numpy as np
import pytest
import torch
from torch import Tensor

from twofold.linalg import running_moments, sinkhorn


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def naive(scores: np.ndarray, iterations: int, weights: np.ndarray) -> np.ndarray:
    """As in SwAV's code: columns (prototypes) and rows (samples) are normalized alternately."""
    shares = np.exp(scores) * weights[:, None]
    for _ in range(iterations):
        shares = shares / shares.sum(axis=0) / shares.shape[1]
        shares = shares / shares.sum(axis=1, keepdims=True) * weights[:, None] / weights.sum()
    return shares / shares.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("iterations", [1, 2, 3, 10])
@pytest.mark.parametrize("weighted", [False, True])
def test_sinkhorn_equals_the_formula(iterations: int, weighted: bool) -> None:
    scores, weights = 3 * randn(7, 4), torch.rand(7, dtype=torch.float64) + 0.1
    found = sinkhorn(scores, iterations, weights if weighted else None)
    expected = naive(scores.numpy(), iterations, weights.numpy() if weighted else np.ones(7))
    torch.testing.assert_close(found, torch.from_numpy(expected), rtol=1e-11, atol=0)


def test_rows_and_columns_have_the_required_sums() -> None:
    found = sinkhorn(randn(3, 12, 5), 200)
    torch.testing.assert_close(found.sum(dim=-1), torch.ones(3, 12, dtype=torch.float64), rtol=1e-12, atol=0)
    torch.testing.assert_close(found.sum(dim=-2), torch.full((3, 5), 12 / 5, dtype=torch.float64), rtol=1e-8, atol=0)


def test_sinkhorn_is_invariant_to_shifts_of_columns() -> None:
    scores = randn(6, 4)
    torch.testing.assert_close(sinkhorn(scores + 50 * randn(4), 3), sinkhorn(scores, 3), rtol=1e-10, atol=1e-14)


def test_rows_with_weight_0_have_no_influence() -> None:
    scores = randn(9, 4)
    weights = torch.tensor([1, 1, 1, 1, 1, 0, 0, 0, 0])
    torch.testing.assert_close(sinkhorn(scores, 3, weights)[:5], sinkhorn(scores[:5], 3), rtol=1e-12, atol=0)
    assert torch.isfinite(sinkhorn(scores, 3, weights)).all()


def test_large_scores_do_not_overflow() -> None:
    scores = (20 * randn(8, 5)).float() * 100
    assert torch.isfinite(sinkhorn(scores, 3)).all()
    torch.testing.assert_close(sinkhorn(scores, 3).sum(dim=-1), torch.ones(8), rtol=1e-5, atol=0)


def test_running_moments_are_centred_at_the_new_mean() -> None:
    x, before = randn(2, 6, 3), randn(2, 3, 3)
    mean_before = randn(2, 3)
    covariance, mean = running_moments(x, before, mean_before, 0.3)
    for v in range(2):
        expected_mean = 0.3 * mean_before[v] + 0.7 * sum(x[v]) / 6
        outer = sum(torch.outer(row - expected_mean, row - expected_mean) for row in x[v])
        torch.testing.assert_close(mean[v], expected_mean, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(covariance[v], 0.3 * before[v] + 0.7 * outer / 6, rtol=1e-12, atol=1e-14)
