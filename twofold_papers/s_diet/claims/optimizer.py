"""Section 5.2.2: a step updates only the classifier rows of its batch, but with the result of updating all rows.

η is the learning rate, λ the weight decay, μ the momentum, and a = 1−ηλ.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from twofold.models import LazyAdamW, multistep_adamw, multistep_sgd
from twofold.objectives import batch_cross_entropy
from twofold_papers.s_diet.claims.linear import stack
from twofold_papers.verify.claim import Sides, claim
from twofold_papers.verify.numerics import randn

BETAS = (0.9, 0.999)
State = tuple[Tensor, Tensor, Tensor]  # θ, m and v


def _sgd_cases() -> Iterator[tuple[int, float, float, float]]:
    """t, η, λ, μ. The last case has a = μ."""
    yield from [(1, 0.1, 5e-4, 0.9), (7, 0.05, 0.4, 0.5), (195, 0.1, 1e-2, 0.95), (40, 0.1, 1.0, 0.9)]


@claim(
    "s-diet",
    "eq 7",
    "After t steps of eq 6 without gradient, m_t = μ^t m_0 and θ_t = a^t θ_0 − (a^t ημ − ημ^{t+1})/(a − μ) m_0. "
    "Checked: multistep_sgd of the library, and the steps one by one",
    tolerance=1e-12,
)
def sgd() -> Sides:
    found: list[Tensor] = []
    expected: list[Tensor] = []
    for t, lr, decay, momentum in _sgd_cases():
        theta, m = randn(4, 3), randn(4, 3)
        found += multistep_sgd(theta, m, t, lr, decay, momentum)
        for _ in range(t):
            m = momentum * m
            theta = (1 - lr * decay) * theta - lr * m
        expected += [theta, m]
    return Sides(stack(found), stack(expected))


@sgd.published("θ_t = a^t θ_0 + (a^t ημ − ημ^{t+1})/(a − μ) m_0, with a plus sign")
def _() -> Sides:
    found, expected = [], []
    for t, lr, decay, momentum in list(_sgd_cases())[:-1]:
        theta, m, kept = randn(4, 3), randn(4, 3), 1 - lr * decay
        expected.append(kept**t * theta + lr * momentum * (kept**t - momentum**t) / (kept - momentum) * m)
        found.append(multistep_sgd(theta, m, t, lr, decay, momentum)[0])
    return Sides(stack(found), stack(expected))


def _adamw_cases() -> Iterator[tuple[int, float, float, tuple[float, float]]]:
    """t, η, λ, β. The last case has a = β1/√β2."""
    yield from [
        (1, 1e-3, 0.05, BETAS),
        (30, 0.1, 0.5, (0.8, 0.9)),
        (195, 1e-2, 0.05, BETAS),
        (20, 0.2, 1.0, (0.72, 0.81)),
    ]


def _adamw_step(
    theta: Tensor,
    m: Tensor,
    v: Tensor,
    g: Tensor | float,
    lr: float,
    decay: float,
    betas: tuple[float, float],
    eps: float = 0.0,
) -> State:
    """One step of AdamW without bias correction."""
    m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
    return (1 - lr * decay) * theta - lr * m / (v.sqrt() + eps), m, v


@claim(
    "s-diet",
    "eq 8",
    "After t steps of AdamW without gradient and without bias correction, θ_t is that of eq 7 with μ = β1/√β2 and "
    "m_0/√v_0 instead of m_0. Checked: multistep_adamw of the library with eps = 0, and the steps one by one",
    tolerance=1e-12,
)
def adamw() -> Sides:
    found: list[Tensor] = []
    expected: list[Tensor] = []
    for t, lr, decay, betas in _adamw_cases():
        state = randn(4, 3), randn(4, 3), randn(4, 3).square()
        found += multistep_adamw(*state, t, lr, decay, betas, eps=0.0)
        for _ in range(t):
            state = _adamw_step(*state, 0.0, lr, decay, betas)
        expected += state
    return Sides(stack(found), stack(expected))


@adamw.published("θ_t = a^t θ_0 + (a^t ημ − ημ^{t+1})/(a − μ) m_0/√v_0, with a plus sign")
def _() -> Sides:
    found, expected = [], []
    for t, lr, decay, betas in list(_adamw_cases())[:-1]:
        theta, m, v = randn(4, 3), randn(4, 3), randn(4, 3).square()
        kept, mu = 1 - lr * decay, betas[0] / math.sqrt(betas[1])
        expected.append(kept**t * theta + lr * mu * (kept**t - mu**t) / (kept - mu) * m / v.sqrt())
        found.append(multistep_adamw(theta, m, v, t, lr, decay, betas, eps=0.0)[0])
    return Sides(stack(found), stack(expected))


@claim(
    "s-diet",
    "Listing 1",
    "Listing 1 moves a row by one step with the gradient and t−1 steps without: it subtracts alpha2 = (alpha1 η μ − "
    "η μ^t)/(a − μ) times m/(√v + eps). Checked: multistep_adamw of the library for t−1 steps, and the listing",
    tolerance=1e-12,
)
def listing() -> Sides:
    found: list[Tensor] = []
    expected: list[Tensor] = []
    for t, lr, decay, betas in list(_adamw_cases())[:-1]:
        theta, m, v, g = randn(4, 3), randn(4, 3), randn(4, 3).square(), randn(4, 3)
        theta, m, v = _adamw_step(theta, m, v, g, lr, decay, betas, eps=1e-8)
        found += multistep_adamw(theta, m, v, t - 1, lr, decay, betas, eps=1e-8)
        mu, kept = betas[0] / math.sqrt(betas[1]), 1 - lr * decay
        alpha1 = kept ** (t - 1)
        alpha2 = (alpha1 * lr * mu - lr * mu**t) / (kept - mu)
        head = alpha1 * theta - alpha2 * m / (v.sqrt() + 1e-8)
        expected += [head, betas[0] ** (t - 1) * m, betas[1] ** (t - 1) * v]
    return Sides(stack(found), stack(expected))


def _first_updates(steps: int) -> tuple[Tensor, Tensor]:
    """The sizes of AdamW's steps for gradient 1, without bias correction, and with it (by PyTorch)."""
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = torch.optim.AdamW([weight], lr=1.0, betas=BETAS, eps=0.0, weight_decay=0.0)
    zero = torch.zeros(1, dtype=torch.float64)
    state, places, corrected = (zero, zero, zero), [zero], [zero]
    for _ in range(steps):
        state = _adamw_step(*state, 1.0, 1.0, 0.0, BETAS)
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        places.append(state[0])
        corrected.append(weight.detach().clone())
    return -stack(places).diff(), -stack(corrected).diff()


@claim(
    "s-diet",
    "Section 5.2.2 (bias)",
    "Without bias correction, step j is longer by the factor (1−β1^j)/√(1−β2^j), which is 3 in the first step and at "
    "most 6.6. Checked: the sizes of 300 steps with gradient 1, without bias correction, and PyTorch's AdamW "
    "times this factor",
    tolerance=1e-10,
)
def no_warm_up() -> Sides:
    plain, corrected = _first_updates(300)
    factor = torch.tensor(
        [(1 - BETAS[0] ** j) / math.sqrt(1 - BETAS[1] ** j) for j in range(1, 301)], dtype=torch.float64
    )
    return Sides(plain, corrected * factor)


@no_warm_up.published(
    "the factor √(1−β2^t)/(1−β1^t) is removed, and 'this can be interpreted as a type of learning rate warmup'"
)
def _() -> Sides:
    plain, corrected = _first_updates(300)
    return Sides(plain, corrected, "≤")


@no_warm_up.holds_if(
    "'this' is the factor: it is below 1 in the first 6000 steps, and 1 later, to 1e-3",
    fails_if="'this' is its removal: without the factor, early steps are longer instead of shorter",
)
def _() -> Sides:
    steps = torch.arange(1, 10_001, dtype=torch.float64)
    factor = (1 - BETAS[1] ** steps).sqrt() / (1 - BETAS[0] ** steps)
    return Sides(torch.cat([factor[:6000], 1 - 1e-3 - factor[-3000:]]), torch.tensor([1.0] * 6000 + [0.0] * 3000), "≤")


def _rows(state: State, index: Tensor) -> State:
    theta, m, v = state
    return theta[index], m[index], v[index]


def _batch_gradient(z: Tensor, rows: Tensor) -> Tensor:
    rows = rows.detach().clone().requires_grad_()
    return torch.autograd.grad(batch_cross_entropy(z, rows, torch.arange(len(rows))).total, rows)[0]


@claim(
    "s-diet",
    "Section 5.2.2 (multistep)",
    "If batches come in a fixed order and each use moves a row T−1 steps ahead, the classifier is the same as if every "
    "row made every step. Checked: the rows after 6 epochs with both procedures",
    tolerance=1e-11,
)
def fixed_order() -> Sides:
    rows, b, dim, lr, decay, epochs = 24, 4, 5, 0.02, 0.05, 6
    ahead = randn(rows, dim), torch.zeros(rows, dim).double(), torch.full((rows, dim), 1e-30).double()
    dense = ahead[0].clone(), ahead[1].clone(), ahead[2].clone()
    ahead[0].mul_((1 - lr * decay) ** (torch.arange(rows).double() // b)[:, None])  # a row decays until its first use
    for step in range(epochs * rows // b):
        index = torch.arange(b) + step * b % rows
        z = randn(b, dim)
        visited = _adamw_step(*_rows(ahead, index), _batch_gradient(z, ahead[0][index]), lr, decay, BETAS)
        for kept, new in zip(ahead, multistep_adamw(*visited, rows // b - 1, lr, decay, BETAS, eps=0.0), strict=True):
            kept[index] = new
        gradient = torch.zeros(rows, dim, dtype=torch.float64)
        gradient[index] = _batch_gradient(z, dense[0][index])
        dense = _adamw_step(*dense, gradient, lr, decay, BETAS)
    # `ahead` has each row as it will be at its next use, so the dense rows must still make the steps until then.
    expected = []
    for batch in range(rows // b):
        index = torch.arange(b) + batch * b
        expected.append(multistep_adamw(*_rows(dense, index), batch, lr, decay, BETAS, eps=0.0)[0])
    return Sides(ahead[0], torch.cat(expected))


def _trained_head(eps: float) -> Sides:
    """A classifier of 60 rows after 250 steps with 8 random rows each, a warm-up and a cosine schedule."""
    rows, b, dim, decay, steps = 60, 8, 6, 0.05, 250
    schedule = [0.02 * min(j / 10, (1 + math.cos(math.pi * j / steps)) / 2) for j in range(steps)]
    dense = torch.nn.Parameter(randn(rows, dim))
    optimizer = torch.optim.AdamW([dense], lr=1.0, weight_decay=decay, betas=BETAS, eps=eps)
    lazy, touched = LazyAdamW(schedule, decay, BETAS, eps), torch.zeros(rows, dtype=torch.int64)
    head, m, v = dense.detach().clone(), torch.zeros(rows, dim).double(), torch.zeros(rows, dim).double()
    for step, lr in enumerate(schedule, start=1):
        index, z = torch.randperm(rows)[:b], randn(b, dim)
        optimizer.param_groups[0]["lr"] = lr
        dense.grad = torch.zeros_like(dense)
        dense.grad[index] = _batch_gradient(z, dense[index])
        optimizer.step()
        here = lazy.catch_up(head[index], m[index], v[index], touched[index], step - 1)
        # Bias correction changes the learning rate and eps of a step, but not its weight decay.
        unbiased = math.sqrt(1 - BETAS[1] ** step)
        moved, new_m, new_v = _adamw_step(*here, _batch_gradient(z, here[0]), 1.0, 0.0, BETAS, eps * unbiased)
        update = (moved - here[0]) * lr * unbiased / (1 - BETAS[0] ** step)
        head[index], m[index], v[index] = (1 - lr * decay) * here[0] + update, new_m, new_v
        touched[index] = step
    return Sides(lazy.catch_up(head, m, v, touched, steps)[0], dense.detach())


@claim(
    "s-diet",
    "Section 5.2.2 (exact)",
    "Rows that are caught up over their actual steps without gradient are those of AdamW on all rows, as eps → 0. "
    "Checked: LazyAdamW of the library, and PyTorch's AdamW on all rows, eps = 1e-30, 250 steps",
    tolerance=1e-11,
)
def exact() -> Sides:
    return _trained_head(1e-30)


@claim(
    "s-diet",
    "Section 5.2.2 (eps)",
    "The same holds for eps = 1e-8, which LazyAdamW approximates to second order. Checked: LazyAdamW of the library, "
    "and PyTorch's AdamW on all rows, 250 steps",
    tolerance=1e-10,
)
def exact_with_eps() -> Sides:
    return _trained_head(1e-8)
