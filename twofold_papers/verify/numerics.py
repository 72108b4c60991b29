"""Numerical tools for the claims: random numbers, derivatives, a general minimiser and an integrator, in float64.

None of them uses a result of the papers, so that they are an independent check.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Loss = Callable[..., Tensor]  # called with one tensor; further values are bound as default arguments


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def gradient(loss: Loss, at: Tensor) -> Tensor:
    at = at.detach().clone().requires_grad_()
    return torch.autograd.grad(loss(at), at)[0]


def descended(loss: Loss, start: Tensor, *, steps: int = 2000, flat: float = 1e-12) -> Tensor:
    """A local minimum by L-BFGS, which stops when no entry of the gradient is above `flat`."""
    x = start.clone().requires_grad_()
    solver = torch.optim.LBFGS(
        [x],
        max_iter=steps,
        max_eval=2 * steps,
        tolerance_grad=flat,
        tolerance_change=0,
        history_size=30,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        solver.zero_grad()
        value = loss(x)
        value.backward()
        return value

    solver.step(closure)
    return x.detach()


def rk4_step(rate: Callable[[Tensor], Tensor], y: Tensor, step: float) -> Tensor:
    """One step of the classical Runge–Kutta method."""
    a = rate(y)
    b = rate(y + step / 2 * a)
    c = rate(y + step / 2 * b)
    d = rate(y + step * c)
    return y + step / 6 * (a + 2 * b + 2 * c + d)


def rk4(rate: Callable[[Tensor], Tensor], start: Tensor, step: float, steps: int) -> list[Tensor]:
    """The states after 0, 1, …, `steps` steps."""
    states = [start]
    for _ in range(steps):
        states.append(rk4_step(rate, states[-1], step))
    return states
