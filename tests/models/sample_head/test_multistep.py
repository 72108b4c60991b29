"""Many steps without gradient at once, compared with single steps and with torch's AdamW on all rows."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from twofold.errors import TwofoldError
from twofold.models import LazyAdamW, multistep_adamw, multistep_sgd

STEPS = [0, 1, 2, 7, 195, 3000]


def assert_all_close(found: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


# In the last two cases a = 1 − ηλ is equal to μ, exactly and nearly. In the case before, μ is larger than a.
@pytest.mark.parametrize(
    "lr, weight_decay, momentum",
    [(0.1, 5e-4, 0.9), (1e-3, 0.05, 0.0), (0.5, 0.4, 0.95), (0.1, 1.0, 0.9), (0.1, 1.0, 0.9 + 1e-13)],
)
@pytest.mark.parametrize("steps", STEPS)
def test_multistep_sgd_equals_single_steps(steps: int, lr: float, weight_decay: float, momentum: float) -> None:
    theta, m = randn(5, 3), randn(5, 3)
    found = multistep_sgd(theta, m, steps, lr, weight_decay, momentum)
    for _ in range(steps):
        m = momentum * m
        theta = (1 - lr * weight_decay) * theta - lr * m
    assert_all_close(found[0], theta)
    assert_all_close(found[1], m)


@pytest.mark.parametrize(
    "lr, weight_decay, betas",
    [(1e-3, 0.05, (0.9, 0.999)), (0.02, 5.0, (0.9 * math.sqrt(0.98), 0.98)), (0.1, 0, (0, 0.9))],
)
@pytest.mark.parametrize("steps", STEPS)
def test_multistep_adamw_equals_single_steps(
    steps: int, lr: float, weight_decay: float, betas: tuple[float, float]
) -> None:
    theta, m, v = randn(5, 3), randn(5, 3), randn(5, 3).square()
    found = multistep_adamw(theta, m, v, steps, lr, weight_decay, betas, eps=0.0)
    ratio = m / v.sqrt()  # m and √v themselves underflow after some thousand steps
    expected_m, expected_v = m * betas[0] ** steps, v * betas[1] ** steps
    for _ in range(steps):
        ratio = ratio * betas[0] / math.sqrt(betas[1])
        theta = (1 - lr * weight_decay) * theta - lr * ratio
    for value, expected in zip(found, (theta, expected_m, expected_v), strict=True):
        assert_all_close(value, expected)


def test_eps_is_added_to_the_given_scale() -> None:
    theta, m, v = randn(4, 3), randn(4, 3), randn(4, 3).square()
    near, _, _ = multistep_adamw(theta, m, v, 9, 1e-3, 0.05, eps=0.5)
    assert_all_close(near, multistep_adamw(theta, m, (v.sqrt() + 0.5).square(), 9, 1e-3, 0.05, eps=0.0)[0])


def test_row_without_gradients_only_decays() -> None:
    theta, zero = randn(4, 3), torch.zeros(4, 3, dtype=torch.float64)
    assert_all_close(multistep_adamw(theta, zero, zero, 9, 1e-3, 0.05, eps=0.0)[0], (1 - 5e-5) ** 9 * theta)
    lazy = LazyAdamW([1e-3] * 9, 0.05, eps=0.0)
    assert_all_close(lazy.catch_up(theta, zero, zero, torch.zeros(4, dtype=torch.int64), 9)[0], (1 - 5e-5) ** 9 * theta)


def trained_lazily_and_densely(eps: float, schedule: list[float], betas: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Train 12 rows, 3 in each step: with lazy updates, and with torch.optim.AdamW on all rows."""
    rows, weight_decay = 12, 0.05
    dense = torch.nn.Parameter(randn(rows, 4))
    optimizer = torch.optim.AdamW([dense], lr=1.0, weight_decay=weight_decay, betas=betas, eps=eps)
    lazy = LazyAdamW(schedule, weight_decay, betas, eps)
    theta, m, v = dense.detach().clone(), torch.zeros(rows, 4).double(), torch.zeros(rows, 4).double()
    touched = torch.zeros(rows, dtype=torch.int64)
    for step, lr in enumerate(schedule, start=1):
        index = torch.randperm(rows - 1)[:3]  # the last row is never used
        gradient = randn(3, 4) * torch.rand(3, 1).double().pow(4)
        dense.grad = torch.zeros_like(dense)
        dense.grad[index] = gradient
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()

        t, a, b = lazy.catch_up(theta[index], m[index], v[index], touched[index], step - 1)
        a, b = betas[0] * a + (1 - betas[0]) * gradient, betas[1] * b + (1 - betas[1]) * gradient**2
        scale = b.sqrt() / math.sqrt(1 - betas[1] ** step) + eps
        t = (1 - lr * weight_decay) * t - lr / (1 - betas[0] ** step) * a / scale
        theta[index], m[index], v[index], touched[index] = t, a, b, step
    return lazy.catch_up(theta, m, v, touched, len(schedule))[0], dense.detach()


def cosine(steps: int, peak: float = 0.05) -> list[float]:
    """A cosine schedule with a warm-up from 0."""
    down = [peak * (1 + math.cos(math.pi * j / steps)) / 2 for j in range(steps + 1)]
    return [peak * j / 10 for j in range(10)] + down


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.8, 0.9)])
@pytest.mark.parametrize("steps", [5, 1500])
def test_lazy_adamw_equals_dense_adamw(steps: int, betas: tuple[float, float]) -> None:
    lazy, dense = trained_lazily_and_densely(1e-30, cosine(steps), betas)
    assert_all_close(lazy, dense, 1e-12)


@pytest.mark.parametrize("eps, tolerance", [(1e-8, 1e-10), (1e-3, 3e-4)])
def test_lazy_adamw_accounts_for_eps(eps: float, tolerance: float) -> None:
    """√v is about 0.01 here. In the second case, eps is a tenth of it."""
    torch.manual_seed(0)
    lazy, dense = trained_lazily_and_densely(eps, cosine(400), (0.9, 0.999))
    assert (lazy - dense).abs().max() < tolerance
    torch.manual_seed(0)
    without, _ = trained_lazily_and_densely(1e-30, cosine(400), (0.9, 0.999))
    assert (without - dense).abs().max() > 10 * tolerance


def test_eps_is_accurate_to_second_order() -> None:
    """Halving eps reduces the error to an eighth."""
    schedule, betas = cosine(60), (0.9, 0.95)
    theta, m, v = randn(6, 4), randn(6, 4), 1 + torch.rand(6, 4).double()
    since, errors = torch.full((6,), 20), []
    for eps in (0.1, 0.05):
        expected = theta
        for j in range(21, 41):
            scale = (v * betas[1] ** (j - 20) / (1 - betas[1] ** j)).sqrt() + eps
            lr = schedule[j - 1]
            expected = (1 - lr * 0.05) * expected - lr * m * betas[0] ** (j - 20) / (1 - betas[0] ** j) / scale
        found, _, _ = LazyAdamW(schedule, 0.05, betas, eps).catch_up(theta, m, v, since, 40)
        errors.append((found - expected).abs().max().item())
    assert 6 < errors[0] / errors[1] < 10
    assert errors[1] < 1e-6


def test_catching_up_in_two_parts_equals_one_part() -> None:
    lazy = LazyAdamW(cosine(300), 0.05, eps=0.0)
    state, since = (randn(5, 3), randn(5, 3), randn(5, 3).square()), torch.tensor([0, 3, 40, 99, 100])
    half = lazy.catch_up(*state, since, 100)
    twice = lazy.catch_up(*half, torch.full((5,), 100), 250)
    for found, expected in zip(twice, lazy.catch_up(*state, since, 250), strict=True):
        assert_all_close(found, expected)


def test_lazy_adamw_keeps_the_dtype_of_the_rows() -> None:
    lazy, since = LazyAdamW([1e-3] * 20, 0.05), torch.zeros(5, dtype=torch.int64)
    narrow = [torch.randn(5, 3), torch.randn(5, 3), torch.rand(5, 3)]
    found = lazy.catch_up(*narrow, since, 20)
    for value, wide in zip(found, lazy.catch_up(*(x.double() for x in narrow), since, 20), strict=True):
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), wide, rtol=1e-6, atol=1e-6)


def test_invalid_arguments_raise_errors() -> None:
    x, since = randn(2, 3), torch.tensor([3, 5])
    for broken in (
        lambda: multistep_sgd(x, x, -1, 0.1, 0.1, 0.9),
        lambda: multistep_sgd(x, x, 1, 0.1, 10.0, 0.9),
        lambda: multistep_adamw(x, x, x**2, 1, 0.1, 11.0),
        lambda: multistep_sgd(x, x, 1, 0.1, 0.1, -0.5),
        lambda: multistep_adamw(x, x, x**2, 1, 0.1, 0.1, betas=(1.2, 0.9)),
        lambda: multistep_adamw(x, x, x**2, 1, 0.1, 0.1, betas=(0.9, 0.0)),
        lambda: LazyAdamW([0.1], 0.1, betas=(0.9, 0.9)),
        lambda: LazyAdamW([0.1, 20.0], 0.05),
        lambda: LazyAdamW([0.1] * 9, 0.05).catch_up(x, x, x**2, since, 4),
        lambda: LazyAdamW([0.1] * 9, 0.05).catch_up(x, x, x**2, since, 10),
    ):
        with pytest.raises(TwofoldError):
            broken()


def test_many_steps_do_not_overflow() -> None:
    x = randn(2, 3)
    for steps, momentum in itertools.product([10**4, 10**6], [0.5, 0.9999, 0.99999999]):
        theta, m = multistep_sgd(x, x, steps, 0.1, 0.01, momentum)
        assert torch.isfinite(theta).all()
        assert torch.isfinite(m).all()


def test_betas_that_prevent_exact_updates_raise_an_error() -> None:
    LazyAdamW([0.1] * 3, 0.0, (0.99, 0.995))
    with pytest.raises(TwofoldError, match="caught up exactly only where"):
        LazyAdamW([0.1] * 3, 0.0, (0.995, 0.996))
