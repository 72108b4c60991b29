"""Projection onto the simplex, and Newton's method with a fixed number of steps."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from torch import Tensor

from twofold.linalg import newton_root, simplex_projection


def assert_is_projection(x: Tensor, p: Tensor, tolerance: float) -> None:
    """p is on the simplex, and (x − p)·(q − p) ≤ 0 for every corner q, which characterizes the nearest point."""
    assert (p >= 0).all()
    torch.testing.assert_close(p.sum(dim=-1), torch.ones_like(p[..., 0]), rtol=0, atol=tolerance)
    towards_corners = (x - p) - ((x - p) * p).sum(dim=-1, keepdim=True)
    assert towards_corners.max() <= tolerance * (1 + x.abs().max())


@settings(max_examples=40)
@given(
    size=st.integers(1, 60),
    scale=st.sampled_from([0.0, 1e-4, 0.1, 1.0, 1e4]),
    offset=st.sampled_from([0.0, -30.0, 1e3]),
    seed=st.integers(0, 1000),
)
def test_projection_is_the_nearest_point(size: int, scale: float, offset: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = scale * torch.randn(4, size, dtype=torch.float64, generator=generator) + offset
    assert_is_projection(x, simplex_projection(x), 1e-12)


def test_projection_equals_values_computed_by_hand() -> None:
    x = torch.tensor([[0.5, 0.5, -1.0], [2.0, 0.0, 0.0], [0.3, 0.3, 0.3], [0.9, 0.5, 0.0]], dtype=torch.float64)
    expected = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.7, 0.3, 0.0]])
    torch.testing.assert_close(simplex_projection(x), expected.double(), rtol=1e-7, atol=1e-7)


def test_points_of_the_simplex_are_unchanged() -> None:
    p = torch.rand(3, 5, 9, dtype=torch.float64).softmax(dim=-1)
    torch.testing.assert_close(simplex_projection(p), p, rtol=1e-12, atol=1e-14)


def test_entries_of_minus_infinity_are_ignored() -> None:
    x = 0.3 * torch.randn(6, 8, dtype=torch.float64)
    padded = torch.cat([x, torch.full((6, 3), -torch.inf, dtype=torch.float64)], dim=1).requires_grad_()
    found = simplex_projection(padded)
    torch.testing.assert_close(found[:, :8], simplex_projection(x), rtol=1e-12, atol=1e-14)
    assert (found[:, 8:] == 0).all()
    found.square().sum().backward()
    assert padded.grad is not None
    assert padded.grad.isfinite().all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_rows_without_a_nearest_point_are_nan(value: float) -> None:
    assert simplex_projection(torch.full((2, 3), value)).isnan().all()
    if value != -torch.inf:
        rows = simplex_projection(torch.tensor([[0.5, value, 0.1], [0.9, 0.5, 0.0]]))
        assert rows[0].isnan().all()
        torch.testing.assert_close(rows[1], torch.tensor([0.7, 0.3, 0.0]))


def test_projection_of_thousands_of_entries_is_accurate_in_float32() -> None:
    x = (-0.4 * torch.rand(3, 8000, dtype=torch.float64)).float()
    found = simplex_projection(x)
    torch.testing.assert_close(found.double(), simplex_projection(x.double()), rtol=1e-4, atol=1e-7)
    assert (found.sum(dim=-1) - 1).abs().max() < 1e-5


def test_gradient_of_the_projection_equals_finite_differences() -> None:
    x = (0.4 * torch.randn(3, 6, dtype=torch.float64)).requires_grad_()
    assert (simplex_projection(x) == 0).any()
    assert torch.autograd.gradcheck(simplex_projection, x)


@pytest.mark.parametrize("power", [2.0, 3.0, 10.0])
def test_newton_finds_the_root_of_a_convex_decreasing_function(power: float) -> None:
    """x^{−p} = c on [1e-3, 1e3], starting from the left. The root is c^{−1/p}, and its derivative is checked, too."""
    c = torch.tensor([1e-4, 0.5, 1.0, 700.0], dtype=torch.float64, requires_grad=True)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.pow(-power) - c, -power * x.pow(-power - 1)

    start = torch.full_like(c, 0.1)
    root = newton_root(function, start, start / 100, start * 1e4, 60)
    torch.testing.assert_close(root, c.pow(-1 / power), rtol=1e-12, atol=0)
    (found,) = torch.autograd.grad(root.sum(), c)
    torch.testing.assert_close(found, -c.detach().pow(-1 / power - 1) / power, rtol=1e-10, atol=0)


def test_bounds_limit_steps_that_would_leave_them() -> None:
    """Without bounds, Newton's method on tanh diverges from 1.5. brentq gives the reference root."""
    shift = torch.tensor([0.2], dtype=torch.float64)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tanh(x) - shift, 1 - torch.tanh(x) ** 2

    start = torch.tensor([1.5], dtype=torch.float64)
    free = newton_root(function, start, start - 1e9, start + 1e9, 10)
    bounded = newton_root(function, start, torch.zeros_like(start), start, 10)
    expected = brentq(lambda x: float(function(torch.tensor([x], dtype=torch.float64))[0]), -1, 1, xtol=1e-14)
    assert not abs(free.item() - expected) < 1e-3
    assert bounded.item() == pytest.approx(expected, abs=1e-12)
