"""What an optimizer does to a row in many steps without gradient, all at once (S-DIET, section 5.2.2).

R rows, D dimension. `multistep_sgd` and `multistep_adamw` are the paper's closed forms, for a constant learning rate
and without bias correction. `LazyAdamW` is AdamW itself: any schedule, bias correction, and as many steps as there are;
`LazySGD` is SGD with momentum likewise.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from twofold.errors import TwofoldError

BLOCK_NUMBERS = 2**15  # from which on torch shares the work of one operation out to threads


def multistep_sgd(
    theta: Tensor, m: Tensor, steps: int, lr: float, weight_decay: float, momentum: float
) -> tuple[Tensor, Tensor]:
    """`steps` times m ← μm, θ ← (1−ηλ)θ − ηm (eq 7, with the minus that it needs). Gives θ and m."""
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
    """`steps` AdamW steps of zero gradient without bias correction (eq 8, with its minus). Gives θ, m and v.

    Exact where eps is negligible beside √v: it is added once, to the √v given, though √v shrinks on the way.
    """
    kept, (beta1, beta2) = _kept(lr, weight_decay), betas
    _check_steps(steps, beta1, beta2)
    if beta2 == 0:
        raise TwofoldError("betas: the second is above 0, since the first is divided by its root")
    moved = lr * _moved(kept, beta1 / math.sqrt(beta2), steps)
    return kept**steps * theta - moved * _ratio(m, v.sqrt() + eps), beta1**steps * m, beta2**steps * v


class LazyAdamW:
    """AdamW on rows that are seldom used: a row is caught up over its steps of zero gradient when it is next needed.

    With step j = 1, 2, … at learning rate schedule[j−1], a row last touched in step s stands after step k at
    θ_k = (P_k/P_s) θ_s − Σ_j (P_k/P_j) w_j μ^{j−s} m_s/√v_s, P the products of 1−ηλ, w_j the bias-corrected rates,
    μ = β1/√β2. The sum comes from a table that is filled backwards, A_s = (μ/a_{s+1})(w_{s+1} + A_{s+1}); prefix sums
    of w_j μ^j would lose every digit after some hundred steps. Only eps is approximated, to second order in eps/√v.
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
        # One table for 1/√v and one for each of the two next orders in eps/√v.
        self._shrink = [beta1 / beta2 ** (order / 2) for order in (1, 2, 3)]
        self._tables = []
        for power, shrink in enumerate(self._shrink):
            pushes = [rate * u**power for rate, u in zip(rates, unbiased, strict=True)]
            self._tables.append(_backward_table(kept, pushes, shrink))

    def catch_up(self, theta: Tensor, m: Tensor, v: Tensor, since: Tensor, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Rows [R, D] as they stood after step since[R], as they stand after `step`, with no gradient in between."""
        rows = theta.clone(), m.clone(), v.clone()
        self.move(*rows, self.lag(since, step).to(theta))
        return rows

    def lag(self, since: Tensor, step: int) -> Tensor:
        """What `move` needs to know of the steps between: float64 [R, 6], on the host."""
        since = _checked(since, step, self.steps)
        elapsed = (step - since).double()
        kept = (self._log_kept[step] - self._log_kept[since]).exp()
        first, second, third = (
            kept * table[since] - shrink**elapsed * table[step]
            for table, shrink in zip(self._tables, self._shrink, strict=True)
        )
        moves = first > 0  # else no step lies between, or all were of learning rate 0
        safe = torch.where(moves, first, 1.0)
        eps = torch.where(moves, self.eps * second / safe, self.eps)
        spread = torch.where(moves, self.eps**2 * third / safe, self.eps**2) - eps.square()
        (beta1, beta2), moved = self.betas, torch.where(moves, first, 0.0)
        return torch.stack((kept, moved, eps, spread, beta1**elapsed, beta2**elapsed), dim=1)

    @staticmethod
    def move(theta: Tensor, m: Tensor, v: Tensor, lag: Tensor) -> None:
        """Catch rows [R, D] up, in place, wherever they and `lag` [R, 6] lie."""
        for block in blocks(theta):
            weights, first_moment, second_moment = theta[block], m[block], v[block]
            kept, moved, eps, spread, less_m, less_v = lag[block, :, None].unbind(1)
            scale = host_sqrt(second_moment).add_(eps)
            direction = _ratio(first_moment, scale)
            direction.mul_(_ratio(spread, scale.square_()).add_(1)).mul_(moved)
            weights.mul_(kept).sub_(direction)
            first_moment.mul_(less_m)
            second_moment.mul_(less_v)


class LazySGD:
    """SGD with momentum and decoupled decay (eq 6: m ← μm + g, θ ← (1−ηλ)θ − ηm) on rows that are seldom used.

    As `LazyAdamW`, with the rates themselves in place of the bias-corrected ones; nothing is approximated.
    """

    def __init__(self, schedule: Sequence[float], weight_decay: float, momentum: float = 0.9):
        if not 0 <= momentum < 1:
            raise TwofoldError(f"momentum={momentum}: use a number from 0 to below 1")
        self.momentum, self.steps = momentum, len(schedule)
        kept = [_kept(lr, weight_decay) for lr in schedule]
        self._log_kept = torch.tensor([0.0] + [math.log(a) for a in kept], dtype=torch.float64).cumsum(0)
        self._table = _backward_table(kept, schedule, momentum)

    def catch_up(self, theta: Tensor, m: Tensor, since: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Rows [R, D] as they stood after step since[R], as they stand after `step`, with no gradient in between."""
        rows = theta.clone(), m.clone()
        self.move(*rows, self.lag(since, step).to(theta))
        return rows

    def lag(self, since: Tensor, step: int) -> Tensor:
        """What `move` needs to know of the steps between: float64 [R, 3], on the host."""
        since = _checked(since, step, self.steps)
        shrunk = self.momentum ** (step - since).double()
        kept = (self._log_kept[step] - self._log_kept[since]).exp()
        return torch.stack((kept, kept * self._table[since] - shrunk * self._table[step], shrunk), dim=1)

    @staticmethod
    def move(theta: Tensor, m: Tensor, lag: Tensor) -> None:
        """Catch rows [R, D] up, in place, wherever they and `lag` [R, 3] lie."""
        for block in blocks(theta):
            kept, moved, shrunk = lag[block, :, None].unbind(1)
            theta[block].mul_(kept).sub_(moved * m[block])
            m[block].mul_(shrunk)


def blocks(rows: Tensor) -> Iterator[slice]:
    """Of rows [R, D]: on the host so small that torch works on one in the calling thread, and a cache holds it."""
    count, dim = rows.shape
    size = max(1, (BLOCK_NUMBERS - 1) // dim) if rows.device.type == "cpu" else max(1, count)
    return (slice(at, at + size) for at in range(0, count, size))


def host_sqrt(x: Tensor) -> Tensor:
    """By numpy on the host: torch shares this one out to threads however small it is."""
    return torch.from_numpy(np.sqrt(x.numpy())) if x.device.type == "cpu" else x.sqrt()


def _backward_table(kept: Sequence[float], pushes: Sequence[float], shrink: float) -> Tensor:
    """A_M = 0, A_s = (shrink/a_{s+1})(push_{s+1} + A_{s+1}), float64 [M + 1]."""
    table, following = [0.0], 0.0
    for a, push in zip(reversed(kept), reversed(pushes), strict=True):
        following = shrink / a * (push + following)
        table.append(following)
    return torch.tensor(table[::-1], dtype=torch.float64)


def _checked(since: Tensor, step: int, steps: int) -> Tensor:
    if not 0 <= step <= steps:
        raise TwofoldError(f"step {step} is outside the schedule, which has {steps}")
    since = since.to("cpu", torch.int64)
    if since.numel() and not 0 <= int(since.min()) <= int(since.max()) <= step:
        raise TwofoldError(f"rows last touched in steps {since.min()} to {since.max()} cannot be caught up to {step}")
    return since


def _kept(lr: float, weight_decay: float) -> float:
    """What a step's weight decay leaves of a weight."""
    kept = 1 - lr * weight_decay
    if not kept > 0:
        raise TwofoldError(f"lr {lr:g} times weight_decay {weight_decay:g} must be below 1: choose a smaller one")
    return kept


def _check_steps(steps: int, *momenta: float) -> None:
    if steps < 0:
        raise TwofoldError(f"steps={steps}: give the number of steps without gradient, at least 0")
    if not all(0 <= momentum < 1 for momentum in momenta):
        raise TwofoldError(f"momentum or betas of {', '.join(map(str, momenta))}: give numbers from 0 to below 1")


def _moved(kept: float, momentum: float, steps: int) -> float:
    """Σ_{j=1..t} a^{t−j} μ^j, to full precision also where a and μ are nearly or exactly equal."""
    if steps == 0 or momentum == 0:
        return 0.0
    larger, smaller = max(kept, momentum), min(kept, momentum)
    rate = math.log(smaller / larger)
    terms = math.expm1(steps * rate) / math.expm1(rate) if rate < 0 else steps
    return momentum * larger ** (steps - 1) * terms


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """0 for 0/0: a row that never had a gradient stays where it is, whatever eps is."""
    return numerator / denominator.clamp_min(torch.finfo(denominator.dtype).tiny)
