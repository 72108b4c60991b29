"""Random features, labels and heads, and solvers that know nothing of closed forms."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

Loss = Callable[..., Tensor]  # of one tensor; the others of a loop are held by their defaults

SIZES = [(12, 4, 3), (5, 9, 4), (7, 7, 2), (30, 6, 10)]  # samples N, features K, classes C
RIDGES = [1e-2, 0.3, 2.0]


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def instances() -> Iterator[tuple[Tensor, Tensor, float]]:
    """F[N, K], Y[N, C] and λ; neither F nor Y is centred."""
    for N, K, C in SIZES:
        for ridge in RIDGES:
            yield randn(N, K) + 2, randn(N, C) - 1, ridge


def centring(N: int) -> Tensor:
    return torch.eye(N, dtype=torch.float64) - 1 / N


def orthonormal(rows: int, columns: int) -> Tensor:
    return torch.linalg.qr(randn(rows, columns)).Q


def centred_orthonormal(rows: int, columns: int) -> Tensor:
    """Columns at right angles to each other and to the vector of ones."""
    return torch.linalg.qr(centring(rows) @ randn(rows, columns)).Q


def absolute_loss(features: Tensor, labels: Tensor, head: Tensor, bias: Tensor, ridge: float) -> Tensor:
    """eq 1, as printed: no minimum is taken."""
    wrong = features @ head + bias - labels
    return wrong.square().sum() / len(features) + ridge * head.square().sum()


def quadratic_minimum(loss: Loss, size: int) -> Tensor:
    """Where a quadratic function is least: one step of Newton's, with derivatives by autograd."""
    start = torch.zeros(size, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(loss(start), start, create_graph=True)
    curvature = torch.stack([torch.autograd.grad(s, start, retain_graph=True)[0] for s in slope])
    return -torch.linalg.solve(curvature, slope.detach())


def solved_head(features: Tensor, labels: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """W[K, C] and b[C] that minimise eq 1."""
    K, C = features.shape[1], labels.shape[1]

    def split(x: Tensor) -> tuple[Tensor, Tensor]:
        return x[: K * C].view(K, C), x[K * C :]

    return split(quadratic_minimum(lambda x: absolute_loss(features, labels, *split(x), ridge), (K + 1) * C))


def descended(loss: Loss, start: Tensor) -> Tensor:
    """A local minimum of any function, by L-BFGS."""
    x = start.clone().requires_grad_()
    options = {"max_iter": 2000, "max_eval": 4000, "tolerance_grad": 1e-12, "tolerance_change": 1e-16}
    solver = torch.optim.LBFGS([x], history_size=30, line_search_fn="strong_wolfe", **options)  # type: ignore[arg-type]

    def closure() -> float:
        solver.zero_grad()
        value = loss(x)
        value.backward()
        return value.item()

    solver.step(closure)
    return x.detach()


def gradient(loss: Loss, at: Tensor) -> Tensor:
    at = at.detach().clone().requires_grad_()
    return torch.autograd.grad(loss(at), at)[0]


def stacked(values: list[Tensor]) -> Tensor:
    """Scalars and vectors of many instances, one after the other."""
    return torch.cat([value.detach().reshape(-1) for value in values])
