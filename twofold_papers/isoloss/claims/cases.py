"""Random pairs of views and their predictor, in the predictor's eigenbasis: the cases for the claims on losses."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from twofold_papers.isoloss.claims.siamese import Loss, orthogonal, predictor
from twofold_papers.verify.claim import Relation, Sides
from twofold_papers.verify.numerics import randn


@dataclass(frozen=True)
class Case:
    z: Tensor  # [V, n, M], the two views
    exponent: float
    eigenvalues: Tensor  # λ[M], of the predictor
    basis: Tensor  # U[M, M]

    @property
    def rotated(self) -> tuple[Tensor, Tensor]:
        """ẑ¹ and ẑ²[n, M], in the eigenbasis."""
        first, second = self.z @ self.basis
        return first, second

    @property
    def matrix(self) -> Tensor:
        return self.basis * self.eigenvalues @ self.basis.T

    def power(self, exponent: float) -> Tensor:
        return self.basis * self.eigenvalues**exponent @ self.basis.T


def cases(noise: float = 0.5) -> Iterator[Case]:
    """Views of anisotropic embeddings, with the eigenvalues of their correlation from `eigh`, not from the library."""
    for n, m, exponent in ((7, 2, 1.0), (20, 5, 0.5), (30, 10, 1.0), (30, 6, 2.0)):
        mix = orthogonal(m) * torch.linspace(0.5, 1.5, m, dtype=torch.float64)
        z = torch.stack([randn(n, m)] * 2) @ mix + noise * randn(2, n, m)
        rows = z.flatten(0, 1)
        values, basis = torch.linalg.eigh(rows.T @ rows / len(rows))
        yield Case(z, exponent, values**exponent, basis)


def gradients(value: Callable[[Tensor, Case], Tensor], case: Case) -> tuple[Tensor, Tensor]:
    """∂/∂ẑ¹ and ∂/∂ẑ² of the loss of each row; `value` is the mean of these losses over rows."""
    z = case.z.clone().requires_grad_()
    first, second = torch.autograd.grad(value(z, case), z)[0] * z.shape[1] @ case.basis
    return first, second


def gradient(loss: Loss, case: Case) -> Tensor:
    """∂L/∂ẑ¹[n, M] by autograd through the library's loss; without stop-gradient, ∂L/∂ẑ¹ + ∂L/∂ẑ²."""
    first, second = gradients(lambda z, _: loss(z, case.exponent), case)
    return first + second


def sides(pairs: Iterable[tuple[Tensor, Tensor]], relation: Relation = "=") -> Sides:
    """Both sides of a claim for many instances, as two vectors."""
    left, right = zip(*((a.flatten(), b.flatten()) for a, b in pairs), strict=True)
    return Sides(torch.cat(left), torch.cat(right), relation)


def library_matrix(case: Case) -> Tensor:
    return predictor(case.z, case.exponent)


def length(x: Tensor) -> Tensor:
    return x.square().sum(-1, keepdim=True).sqrt()


def dot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(-1, keepdim=True)
