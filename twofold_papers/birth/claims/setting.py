"""Random features, labels and heads, and solvers that use no closed form of the paper."""

from collections.abc import Iterator

import torch
from torch import Tensor

from twofold_papers.verify.numerics import Loss, randn

SIZES = [(12, 4, 3), (5, 9, 4), (7, 7, 2), (30, 6, 10)]  # samples N, features K, classes C
RIDGES = [1e-2, 0.3, 2.0]


def instances() -> Iterator[tuple[Tensor, Tensor, float]]:
    """F[N, K], Y[N, C] and λ. Neither F nor Y is centred."""
    for N, K, C in SIZES:
        for ridge in RIDGES:
            yield randn(N, K) + 2, randn(N, C) - 1, ridge


def centring(N: int) -> Tensor:
    return torch.eye(N, dtype=torch.float64) - 1 / N


def orthonormal(rows: int, columns: int) -> Tensor:
    return torch.linalg.qr(randn(rows, columns)).Q


def centred_orthonormal(rows: int, columns: int) -> Tensor:
    """Columns that are orthonormal and orthogonal to the vector of ones."""
    return torch.linalg.qr(centring(rows) @ randn(rows, columns)).Q


def absolute_loss(features: Tensor, labels: Tensor, head: Tensor, bias: Tensor, ridge: float) -> Tensor:
    """Eq 1 for a given head and bias."""
    wrong = features @ head + bias - labels
    return wrong.square().sum() / len(features) + ridge * head.square().sum()


def quadratic_minimum(loss: Loss, size: int) -> Tensor:
    """The minimum of a quadratic function: one step of Newton's method, with derivatives from autograd."""
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


def stacked(values: list[Tensor]) -> Tensor:
    """The values of all instances in one vector."""
    return torch.cat([value.detach().reshape(-1) for value in values])
