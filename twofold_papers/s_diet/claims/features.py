"""The model of section 5.1 and appendix B.3: DIET learns the feature with less noise, normalised DIET learns both.

x = (1+ε1) u_c + (1+ε2) v_c + ξ for C concepts. ε1 and ε2 are symmetric with variances σ1², σ2² and bounds ν1, ν2. ξ has
variance φ²/d in all directions except u_c and v_c. Expectations are sums over a product of discrete symmetric
distributions, with Gauss–Hermite points for ξ. They are exact if only symmetry and variances matter.

Shapes: G points of the noise, n examples, W[m, d], W_H[n, m] with W_HᵀW_H = I.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from numpy.polynomial.hermite_e import hermegauss
from torch import Tensor

from twofold.linalg import normalized


@dataclass(frozen=True)
class Setting:
    concepts: int
    examples: int  # of each concept
    d: int
    m: int
    bounds: tuple[float, float]  # ν1 and ν2; ε is ±ν, or 0 with the probability `still`
    phi: float
    still: tuple[float, float] = (0.0, 0.0)
    order: int = 3  # points for each component of ξ

    @property
    def n(self) -> int:
        return self.concepts * self.examples

    @property
    def variances(self) -> tuple[float, float]:
        first, second = ((1 - still) * nu**2 for nu, still in zip(self.bounds, self.still, strict=True))
        return first, second

    @cached_property
    def basis(self) -> Tensor:
        """Rows: u_1 … u_C, v_1 … v_C, and the directions orthogonal to all of them."""
        return torch.linalg.qr(torch.randn(self.d, self.d, dtype=torch.float64))[0]

    @property
    def u(self) -> Tensor:
        return self.basis[: self.concepts]

    @property
    def v(self) -> Tensor:
        return self.basis[self.concepts : 2 * self.concepts]

    @cached_property
    def head(self) -> Tensor:
        return torch.linalg.qr(torch.randn(self.n, self.m, dtype=torch.float64))[0]

    @cached_property
    def r(self) -> Tensor:
        """r_c = Σ W_Hᵀe_i over the examples of concept c, [C, m]."""
        return self.head.unflatten(0, (self.concepts, self.examples)).sum(dim=1)

    @cached_property
    def noise(self) -> tuple[Tensor, Tensor]:
        """Points [G, d] of ε1, ε2 and ξ (first along the features of other concepts), and probabilities [G]."""
        axes = []
        for nu, still in zip(self.bounds, self.still, strict=True):
            moved = (1 - still) / 2
            pairs = ((-nu, 0.0, nu), (moved, still, moved)) if still else ((-nu, nu), (0.5, 0.5))
            axes.append(torch.tensor(pairs, dtype=torch.float64))
        along = 2 * (self.concepts - 1)
        for count, order in ((along, self.order), (self.d - 2 - along, 2)):
            values, weights = (torch.from_numpy(numbers) for numbers in hermegauss(order))
            axes += [torch.stack([self.phi / self.d**0.5 * values, weights / weights.sum()])] * count
        points = torch.cartesian_prod(*(values for values, _ in axes))
        probabilities = torch.cartesian_prod(*(weights for _, weights in axes))
        return points, probabilities.prod(dim=1)

    @cached_property
    def x(self) -> Tensor:
        """All augmentations of an example of each concept, [C, G, d]."""
        points, _ = self.noise
        others = [
            [k for k in range(self.d) if k % self.concepts != c or k >= 2 * self.concepts] for c in range(self.concepts)
        ]
        return torch.stack(
            [
                torch.outer(1 + points[:, 0], self.u[c])
                + torch.outer(1 + points[:, 1], self.v[c])
                + points[:, 2:] @ self.basis[others[c]]
                for c in range(self.concepts)
            ]
        )

    def mean(self, values_G: Tensor) -> Tensor:
        """The expectation over augmentations."""
        return values_G @ self.noise[1]

    def loss(self, w: Tensor, normalise: bool) -> Tensor:
        """Eq 4, or the same loss with representations of unit length."""
        z = self.x @ w.T
        outputs = (normalized(z) if normalise else z) @ self.head.T  # [C, G, n]
        labels = torch.eye(self.n, dtype=torch.float64).view(self.concepts, self.examples, 1, self.n)
        return self.mean((outputs[:, None] - labels).square().sum(dim=-1)).mean() / 2

    def trained(self, normalise: bool, steps: int, lr: float) -> list[Tensor]:
        """W after each step of gradient descent from W = 0. There, norm(0) = 0 with the Jacobian I (A.3)."""
        w = torch.zeros(self.m, self.d, dtype=torch.float64)
        path = []
        for step in range(steps):
            w = w.detach().requires_grad_()
            w = w - lr * torch.autograd.grad(self.loss(w, normalise and step > 0), w)[0]
            path.append(w.detach())
        return path

    def ratio(self, w: Tensor) -> Tensor:
        """‖Wv_c‖/‖Wu_c‖ for each concept."""
        return (self.v @ w.T).norm(dim=1) / (self.u @ w.T).norm(dim=1)

    def coefficients(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """a_c and b_c with Wu_c = a_c r_c and Wv_c = b_c r_c."""
        squares = self.r.square().sum(dim=1)
        return ((self.u @ w.T) * self.r).sum(dim=1) / squares, ((self.v @ w.T) * self.r).sum(dim=1) / squares

    def encoder(self, a: Tensor, b: Tensor) -> Tensor:
        """W with these coefficients, and Wp = 0 for every p orthogonal to the features."""
        return self.r.T @ (a[:, None] * self.u + b[:, None] * self.v)
