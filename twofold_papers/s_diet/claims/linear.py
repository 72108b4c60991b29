"""A linear encoder and its data, for section 4 and appendices A.2, B.1 and B.2.

Rows are samples: x[N, d] are V views of each of n images, y[N, n] are one-hot labels; encoder W[m, d], classifier
W_H[n, m]. M = E[xxᵀ] and M_pos = E[x x'ᵀ · same image]. λ_i and v_i are the eigenvalues and M-orthonormal eigenvectors
of M†M_pos.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor

from twofold.objectives import orthogonal_head
from twofold_papers.s_diet.claims.solver import minimise, stationary
from twofold_papers.verify.claim import Sides
from twofold_papers.verify.numerics import randn


@dataclass(frozen=True)
class Data:
    z_VNd: Tensor
    m: int

    @cached_property
    def x(self) -> Tensor:
        return self.z_VNd.transpose(0, 1).flatten(0, 1)

    @cached_property
    def y(self) -> Tensor:
        views, images, _ = self.z_VNd.shape
        return torch.eye(images, dtype=torch.float64).repeat_interleave(views, dim=0)

    @cached_property
    def second_moment(self) -> Tensor:
        return self.x.T @ self.x / len(self.x)

    @cached_property
    def positive_moment(self) -> Tensor:
        means = self.z_VNd.mean(dim=0)  # the mean over pairs of an image is the outer product of its mean
        return means.T @ means / len(means) ** 2

    @cached_property
    def spectrum(self) -> tuple[Tensor, Tensor]:
        """λ, descending, and v as columns, without those outside the image of M."""
        values, vectors = torch.linalg.eigh(self.second_moment)
        inside = values > 1e-10 * values.max()
        root = vectors[:, inside] / values[inside].sqrt()
        eigenvalues, rotation = torch.linalg.eigh(root.T @ self.positive_moment @ root)
        return eigenvalues.flip(0).clamp_min(0), (root @ rotation).flip(1)

    def top(self) -> Tensor:
        """[M†M_pos]_m."""
        eigenvalues, v = self.spectrum
        return (v * eigenvalues)[:, : self.m] @ v[:, : self.m].T @ self.second_moment

    def scl(self, w: Tensor) -> Tensor:
        """Eq 2, pair by pair."""
        scores, same = self.x @ w.T @ w @ self.x.T, self.y @ self.y.T
        return -(same * scores).mean() + scores.square().mean() / 2

    def diet(self, w: Tensor, head: Tensor) -> Tensor:
        """Eq 3 with a squared loss, sample by sample."""
        return (self.x @ w.T @ head.T - self.y).square().sum(dim=1).mean() / 2

    def diet_of(self, packed: Tensor) -> Tensor:
        return self.diet(*self.unpack(packed))

    def unpack(self, packed: Tensor) -> tuple[Tensor, Tensor]:
        d, n = self.x.shape[1], self.y.shape[1]
        w, head = packed.split([self.m * d, n * self.m])
        return w.view(self.m, d), head.view(n, self.m)

    def encoder(self, scale: float = 1.0) -> Tensor:
        return scale * randn(self.m, self.x.shape[1])

    def model(self, scale: float = 1.0) -> Tensor:
        """W and W_H, packed."""
        return scale * randn(self.m * (self.x.shape[1] + self.y.shape[1]))

    def models(self, *scales: float) -> list[Tensor]:
        with fixed_seed():
            return [self.model(scale) for scale in scales]

    def encoders(self, *scales: float) -> list[Tensor]:
        return [self.unpack(model)[0] for model in self.models(*scales)]

    @cached_property
    def best_scl(self) -> Tensor:
        return minimise(self.scl, *self.encoders(1.0, 1.0))

    @cached_property
    def best_diet(self) -> tuple[Tensor, Tensor]:
        return self.unpack(minimise(self.diet_of, *self.models(0.5, 0.5)))

    @cached_property
    def stationary_scl(self) -> list[Tensor]:
        return stationary(self.scl, *self.encoders(0.1, 0.3, 0.6))

    @cached_property
    def stationary_diet(self) -> list[tuple[Tensor, Tensor]]:
        """Critical points with an isometric W_H, by Lemma 4.2. A singular W_H need not give a critical point."""
        found = [self.unpack(x) for x in stationary(self.diet_of, *self.models(0.2, 0.5))]
        return [isometric(w, head) for w, head in found if torch.linalg.svdvals(head).min() > 1e-3]

    def best_isometric_loss(self, w: Tensor) -> Tensor:
        """The minimum of L_diet over all isometric W_H for this W, by the library."""
        return orthogonal_head(self.x @ w.T, self.y).total / 2


@contextmanager
def fixed_seed() -> Iterator[None]:
    """Draw cached values with a fixed seed, so that no claim depends on the claims before it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@cache
def datasets() -> tuple[Data, ...]:
    """Data with n images, V views, d inputs that span `rank` dimensions, and m outputs.

    They are always the same, so that each minimum is computed once. Some have m = n, m > d, or a rank below d, so that
    M is singular.
    """
    with fixed_seed():
        sizes = [(6, 4, 5, 5, 3), (5, 3, 7, 4, 3), (4, 5, 4, 4, 4), (5, 3, 3, 3, 4)]
        return tuple(
            Data((randn(n, rank) + 0.5 * randn(views, n, rank)) @ torch.linalg.qr(randn(d, rank))[0].T, m)
            for n, views, d, rank, m in sizes
        )


def stack(parts: Sequence[Tensor]) -> Tensor:
    """All parts as one vector."""
    return torch.cat([part.reshape(-1) for part in parts])


def sides(pair: Callable[[Data], tuple[Tensor, Tensor]]) -> Sides:
    """Both sides of a claim for all datasets."""
    left, right = zip(*(pair(data) for data in datasets()), strict=True)
    return Sides(stack(left), stack(right))


def isometric(w: Tensor, head: Tensor) -> tuple[Tensor, Tensor]:
    """The model of Lemma 4.2 with the same outputs and an isometric W_H."""
    u, s, vt = torch.linalg.svd(head, full_matrices=False)
    return s[:, None] * vt @ w, u


def built(data: Data, chosen: Sequence[int]) -> Tensor:
    """W = Q diag(√λ_i) v_iᵀ over the chosen eigenvectors; Q has orthonormal columns."""
    eigenvalues, v = data.spectrum
    index = list(chosen)
    q = torch.linalg.qr(randn(data.m, len(index)))[0]
    return q @ (v[:, index] * eigenvalues[index].sqrt()).T
