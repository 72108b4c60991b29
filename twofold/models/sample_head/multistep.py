"""Closed forms of many optimizer steps without gradient (S-DIET, section 5.2.2).

`multistep_sgd` and `multistep_adamw` are the closed forms of the paper, for a constant learning rate and without bias
correction. `LazyAdamW` is AdamW with any schedule, bias correction and any number of steps; `LazySGD` is the same for
SGD with momentum.

Shapes: R rows, D dimensions.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from twofold.errors import TwofoldError

BLOCK_NUMBERS = 2**15  # numbers from which on PyTorch divides one operation among threads


def multistep_sgd(
    theta: Tensor, m: Tensor, steps: int, lr: float, weight_decay: float, momentum: float
) -> tuple[Tensor, Tensor]:
    """SGD with momentum for `steps` steps of zero gradient: m ← μm, θ ← (1−ηλ)θ − ηm.

    This is S-DIET eq 7 with a sign corrected: the published equation adds the momentum term to θ.

    Parameters
    ----------
    theta : Tensor
        The weights θ.
    m : Tensor
        The momentum m, of the same shape.
    steps : int
        Number of steps.
    lr : float
        The learning rate η.
    weight_decay : float
        The weight decay λ.
    momentum : float
        The coefficient μ of the momentum.

    Returns
    -------
    tuple of Tensor
        θ and m after these steps.
    """
    kept = _kept(lr, weight_decay)
    _check_steps(steps, momentum)
    return kept**steps * theta - lr * _moved(kept, momentum, steps) * m, momentum**steps * m


def multistep_adamw(
    theta: Tensor,
    m: Tensor,
    v: Tensor,
    steps: int,
    lr: float,
    weight_decay: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> tuple[Tensor, Tensor, Tensor]:
    """AdamW for `steps` steps of zero gradient, without bias correction.

    This is S-DIET eq 8 with a sign corrected: the published equation adds the term of the moments. It is exact only if
    eps is negligible compared with √v: eps is added once, to the initial √v, although √v shrinks with every step.

    Parameters
    ----------
    theta : Tensor
        The weights θ.
    m : Tensor
        The first moment, of the same shape.
    v : Tensor
        The second moment, of the same shape.
    steps : int
        Number of steps.
    lr : float
        The learning rate.
    weight_decay : float
        The weight decay.
    betas : tuple of float
        Coefficients of the moments.
    eps : float
        Added to √v.

    Returns
    -------
    tuple of Tensor
        θ, m and v after these steps.
    """
    kept, (beta1, beta2) = _kept(lr, weight_decay), betas
    _check_steps(steps, beta1, beta2)
    if beta2 == 0:
        raise TwofoldError(f"betas={betas}: the second must be above 0")
    moved = lr * _moved(kept, beta1 / math.sqrt(beta2), steps)
    return kept**steps * theta - moved * _ratio(m, v.sqrt() + eps), beta1**steps * m, beta2**steps * v


class LazyAdamW:
    """AdamW on rows that are rarely used: the steps without a gradient are computed when a row is next used.

    Step j = 1, 2, … has the learning rate schedule[j−1]. For a row last used in step s, the weights after step k are
    θ_k = (P_k/P_s) θ_s − Σ_j (P_k/P_j) w_j μ^{j−s} m_s/√v_s, where P are the products of a_j = 1−η_jλ, w_j the
    bias-corrected learning rates and μ = β1/√β2. The sum comes from a table that is filled backwards,
    A_s = (μ/a_{s+1})(w_{s+1} + A_{s+1}). Prefix sums of w_j μ^j would lose all digits after a few hundred steps. Only
    eps is approximated, to second order in eps/√v.
    """

    def __init__(
        self,
        schedule: Sequence[float],
        weight_decay: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ):
        beta1, beta2 = betas
        if not (0 <= beta1 < beta2**1.5 < 1):
            raise TwofoldError(
                f"betas={betas}: rows are caught up exactly only where 0 ≤ β1 < β2^1.5 < 1; "
                "choose a smaller β1, or a β2 nearer to 1"
            )
        self.betas, self.eps, self.steps = betas, eps, len(schedule)
        kept = [_kept(lr, weight_decay) for lr in schedule]
        unbiased = [math.sqrt(1 - beta2**j) for j in range(1, self.steps + 1)]
        rates = [lr * u / (1 - beta1**j) for j, (lr, u) in enumerate(zip(schedule, unbiased, strict=True), start=1)]
        self._log_kept = torch.tensor([0.0] + [math.log(a) for a in kept], dtype=torch.float64).cumsum(0)
        # One table for 1/√v, and one for each of the next two orders in eps/√v.
        self._shrink = [beta1 / beta2 ** (order / 2) for order in (1, 2, 3)]
        self._tables = []
        for power, shrink in enumerate(self._shrink):
            pushes = [rate * u**power for rate, u in zip(rates, unbiased, strict=True)]
            self._tables.append(_backward_table(kept, pushes, shrink))

    def catch_up(self, theta: Tensor, m: Tensor, v: Tensor, since: Tensor, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the rows [R, D] after `step`, from their values after step since[R], without gradients in between."""
        rows = theta.clone(), m.clone(), v.clone()
        self.move(*rows, self.lag(since, step).to(theta))
        return rows

    def lag(self, since: Tensor, step: int) -> Tensor:
        """Return the coefficients that `move` needs for the steps in between: float64 [R, 6], on the CPU."""
        since = _checked(since, step, self.steps)
        elapsed = (step - since).double()
        kept = (self._log_kept[step] - self._log_kept[since]).exp()
        first, second, third = (
            kept * table[since] - shrink**elapsed * table[step]
            for table, shrink in zip(self._tables, self._shrink, strict=True)
        )
        moves = first > 0  # otherwise there was no step in between, or all had learning rate 0
        safe = torch.where(moves, first, 1.0)
        eps = torch.where(moves, self.eps * second / safe, self.eps)
        spread = torch.where(moves, self.eps**2 * third / safe, self.eps**2) - eps.square()
        (beta1, beta2), moved = self.betas, torch.where(moves, first, 0.0)
        return torch.stack((kept, moved, eps, spread, beta1**elapsed, beta2**elapsed), dim=1)

    @staticmethod
    def move(theta: Tensor, m: Tensor, v: Tensor, lag: Tensor) -> None:
        """Apply these steps to rows [R, D] in place, on the device of the rows and of `lag` [R, 6]."""
        for block in row_blocks(theta):
            weights, first_moment, second_moment = theta[block], m[block], v[block]
            kept, moved, eps, spread, less_m, less_v = lag[block, :, None].unbind(1)
            scale = host_sqrt(second_moment).add_(eps)
            direction = _ratio(first_moment, scale)
            direction.mul_(_ratio(spread, scale.square_()).add_(1)).mul_(moved)
            weights.mul_(kept).sub_(direction)
            first_moment.mul_(less_m)
            second_moment.mul_(less_v)


class LazySGD:
    """SGD with momentum and decoupled decay (S-DIET eq 6: m ← μm + g, θ ← (1−ηλ)θ − ηm) on rows that are rarely used.

    It works like `LazyAdamW`, but has no bias correction and is exact.
    """

    def __init__(self, schedule: Sequence[float], weight_decay: float, momentum: float = 0.9):
        if not 0 <= momentum < 1:
            raise TwofoldError(f"momentum={momentum} is out of range: use a number from 0 to below 1")
        self.momentum, self.steps = momentum, len(schedule)
        kept = [_kept(lr, weight_decay) for lr in schedule]
        self._log_kept = torch.tensor([0.0] + [math.log(a) for a in kept], dtype=torch.float64).cumsum(0)
        self._table = _backward_table(kept, schedule, momentum)

    def catch_up(self, theta: Tensor, m: Tensor, since: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Return the rows [R, D] after `step`, from their values after step since[R], without gradients in between."""
        rows = theta.clone(), m.clone()
        self.move(*rows, self.lag(since, step).to(theta))
        return rows

    def lag(self, since: Tensor, step: int) -> Tensor:
        """Return the coefficients that `move` needs for the steps in between: float64 [R, 3], on the CPU."""
        since = _checked(since, step, self.steps)
        shrunk = self.momentum ** (step - since).double()
        kept = (self._log_kept[step] - self._log_kept[since]).exp()
        return torch.stack((kept, kept * self._table[since] - shrunk * self._table[step], shrunk), dim=1)

    @staticmethod
    def move(theta: Tensor, m: Tensor, lag: Tensor) -> None:
        """Apply these steps to rows [R, D] in place, on the device of the rows and of `lag` [R, 3]."""
        for block in row_blocks(theta):
            kept, moved, shrunk = lag[block, :, None].unbind(1)
            theta[block].mul_(kept).sub_(moved * m[block])
            m[block].mul_(shrunk)


def row_blocks(rows: Tensor) -> Iterator[slice]:
    """Slices of rows [R, D]. On a CPU they are small enough for the calling thread alone and for its cache."""
    count, dim = rows.shape
    size = max(1, (BLOCK_NUMBERS - 1) // dim) if rows.device.type == "cpu" else max(1, count)
    return (slice(at, at + size) for at in range(0, count, size))


def host_sqrt(x: Tensor) -> Tensor:
    """√x, with NumPy on a CPU: PyTorch divides this operation among threads even for small tensors."""
    return torch.from_numpy(np.sqrt(x.numpy())) if x.device.type == "cpu" else x.sqrt()


def _backward_table(kept: Sequence[float], pushes: Sequence[float], shrink: float) -> Tensor:
    """A_s = (shrink/a_{s+1})(push_{s+1} + A_{s+1}) with A_M = 0 for M steps, float64 [M + 1]."""
    table, following = [0.0], 0.0
    for a, push in zip(reversed(kept), reversed(pushes), strict=True):
        following = shrink / a * (push + following)
        table.append(following)
    return torch.tensor(table[::-1], dtype=torch.float64)


def _checked(since: Tensor, step: int, steps: int) -> Tensor:
    if not 0 <= step <= steps:
        raise TwofoldError(f"step {step} is outside the schedule of {steps} steps")
    since = since.to("cpu", torch.int64)
    if since.numel() and not 0 <= int(since.min()) <= int(since.max()) <= step:
        raise TwofoldError(f"rows last used in steps {since.min()} to {since.max()} cannot be caught up to step {step}")
    return since


def _kept(lr: float, weight_decay: float) -> float:
    """The factor 1 − ηλ by which weight decay shrinks a weight in one step."""
    kept = 1 - lr * weight_decay
    if not kept > 0:
        raise TwofoldError(f"lr={lr:g} times weight_decay={weight_decay:g} must be below 1: reduce one of them")
    return kept


def _check_steps(steps: int, *momenta: float) -> None:
    if steps < 0:
        raise TwofoldError(f"steps={steps} is negative: give the number of steps without gradient")
    if not all(0 <= momentum < 1 for momentum in momenta):
        raise TwofoldError(
            f"momentum or betas {', '.join(map(str, momenta))} are out of range: use numbers from 0 to below 1"
        )


def _moved(kept: float, momentum: float, steps: int) -> float:
    """Σ_{j=1..t} a^{t−j} μ^j, to full precision even if a and μ are equal or nearly equal."""
    if steps == 0 or momentum == 0:
        return 0.0
    larger, smaller = max(kept, momentum), min(kept, momentum)
    rate = math.log(smaller / larger)
    terms = math.expm1(steps * rate) / math.expm1(rate) if rate < 0 else steps
    return momentum * larger ** (steps - 1) * terms


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """The ratio, with 0/0 = 0, so that a row that never had a gradient does not move even if eps is 0."""
    return numerator / denominator.clamp_min(torch.finfo(denominator.dtype).tiny)
