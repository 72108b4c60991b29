"""Norms of Gram matrices compared with loops over entries, and their derivatives with finite differences."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from twofold.linalg import distance_from_orthonormal, gram_norm_squared, off_diagonal_norm_squared

Norm = Callable[[Tensor], Tensor]
SHAPES = [(5, 3), (3, 5), (4, 4), (2, 5, 3), (2, 3, 5), (1, 3), (3, 1)]


def unchanged(entry: float, same: bool) -> float:  # noqa: ARG001
    return entry


def off_diagonal(entry: float, same: bool) -> float:
    return 0.0 if same else entry


def from_identity(entry: float, same: bool) -> float:
    return entry - 1 if same else entry


NORMS: dict[Norm, Callable[[float, bool], float]] = {
    gram_norm_squared: unchanged,
    off_diagonal_norm_squared: off_diagonal,
    distance_from_orthonormal: from_identity,
}


def naive(x: np.ndarray, entry: Callable[[float, bool], float]) -> float:
    D = x.shape[1]
    return sum(entry(x[:, i] @ x[:, j], i == j) ** 2 for i in range(D) for j in range(D))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("norm", NORMS)
def test_norms_equal_loops_over_entries(norm: Norm, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=torch.float64)
    expected = [naive(matrix, NORMS[norm]) for matrix in x.reshape(-1, *shape[-2:]).numpy()]
    assert norm(x).shape == shape[:-2]
    np.testing.assert_allclose(norm(x).reshape(-1).numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("norm", NORMS)
def test_first_and_second_derivatives_equal_finite_differences(norm: Norm, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(norm, x)
    assert torch.autograd.gradgradcheck(norm, x)


def test_off_diagonal_norm_is_accurate_next_to_a_large_diagonal() -> None:
    x = torch.eye(6, 3) * 1000
    x[:, 1] += 1e-3 * x[:, 0]  # float32: 1e6 on the diagonal, 1e3 next to it
    x[3:, 2] = 1e-4
    exact = naive(x.double().numpy(), off_diagonal)
    assert off_diagonal_norm_squared(x).item() == pytest.approx(exact, rel=1e-6)
