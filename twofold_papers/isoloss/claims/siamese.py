"""The paper's linear Siamese network z = Wx, trained by gradient flow on the library's losses.

There are n samples, V = 2 views, N inputs and M outputs: x[V, n, N], W[M, N]. The eigenvalues of E[zzᵀ] are s, those
of W_P are λ = s^α.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from twofold import models, objectives
from twofold.objectives.predictive import Distance
from twofold_papers.verify.numerics import randn, rk4

NOISE = 0.1  # σ, the augmentation of the paper's section 3
Encode = Callable[[Tensor, Tensor], Tensor]  # x, W → z


@dataclass(frozen=True)
class Loss:
    """A row of Table 1."""

    distance: Distance
    stop_gradient: bool = True
    predictor: bool = True
    isotropic: bool = False
    predictor_of_first_view: bool = False

    def __call__(self, z: Tensor, exponent: float = 1.0) -> Tensor:
        """d(W_P z¹, sg(z²)), where W_P is computed from the correlation of z[V, n, M], or of z¹ alone."""
        seen = z[:1] if self.predictor_of_first_view else z
        return self.of(z, predictor(seen, exponent) if self.predictor else None)

    def of(self, z: Tensor, matrix: Tensor | None) -> Tensor:
        """The loss with a given W_P."""
        if self.isotropic and matrix is not None:
            return objectives.isoloss(z[0], z[1], matrix, distance=self.distance).total
        return objectives.asymmetric(z[0], z[1], matrix, distance=self.distance, stop_gradient=self.stop_gradient).total


EUCLIDEAN = Loss("euclidean")
EUCLIDEAN_NO_STOP = Loss("euclidean", stop_gradient=False)
EUCLIDEAN_NO_PREDICTOR = Loss("euclidean", predictor=False)
EUCLIDEAN_ISO = Loss("euclidean", isotropic=True)
COSINE = Loss("cosine")
COSINE_NO_STOP = Loss("cosine", stop_gradient=False)
COSINE_NO_PREDICTOR = Loss("cosine", predictor=False)
COSINE_ISO = Loss("cosine", isotropic=True)


def in_notebook(loss: Loss) -> Loss:
    """The loss as in the authors' notebook: W_P is computed from the first view, which has no noise."""
    return replace(loss, predictor_of_first_view=True)


# Conditions of published statements on the noise in the views.
TARGET_NOISE = "the noise is in the target view alone, as in the authors' notebook"
BOTH_NOISE = "the noise is in both views, as section 3 of the paper suggests"


def predictor(z: Tensor, exponent: float) -> Tensor:
    """W_P = E[zzᵀ]^α of eq 1, without the running mean and the division by the largest eigenvalue of DirectPred."""
    direct = models.DirectPredictor(z.shape[-1], exponent, momentum=0.0, normalize=False)
    direct.update(z.detach())
    return direct.matrix()


def orthogonal(n: int) -> Tensor:
    return torch.linalg.qr(randn(n, n)).Q


def white_views(samples: int, inputs: int, noise: float = NOISE, *, target_only: bool = False) -> Tensor:
    """x + σε and x + σε' for Gaussian x, ε, ε' that are whitened together, so that E[xxᵀ] = I exactly.

    With `target_only`, the first view is x itself, as in the notebook of the paper's authors.
    """
    drawn = randn(samples, 3 * inputs)
    root = torch.linalg.cholesky(drawn.T @ drawn / samples)
    x, first, second = torch.linalg.solve_triangular(root, drawn.T, upper=False).T.chunk(3, dim=-1)
    return torch.stack([x if target_only else x + noise * first, x + noise * second])


def balanced_views(draws: int, inputs: int, outputs: int, noise: float = NOISE) -> Tensor:
    """Gaussian draws, reflected in the axes and in the noise, and shifted cyclically along the first M axes.

    These inputs have the symmetries of isotropic inputs exactly: no mode is coupled to the input of another, equal
    eigenvalues have equal rates, and terms of first order in the noise are 0. n = 64 · M · draws, for N up to 15.
    """
    drawn = randn(draws, 3, inputs)  # x and the noise of each view
    shifts = [torch.cat([drawn[..., :outputs].roll(k, -1), drawn[..., outputs:]], -1) for k in range(outputs)]
    characters = torch.tensor([[(i & k).bit_count() % 2 for k in range(16)] for i in range(16)])
    signs = 1.0 - 2.0 * characters.double()  # Walsh functions: columns are orthogonal
    noises = torch.cartesian_prod(*[torch.tensor([1.0, -1.0], dtype=signs.dtype)] * 2)
    noises = torch.cat([torch.ones_like(noises[:, :1]), noises], dim=-1)
    images = torch.cat(shifts)[:, None, None] * signs[:, None, None, 1 : inputs + 1] * noises[:, :, None]
    views = images.reshape(-1, 3, inputs)
    x, first, second = (views / views[..., :outputs].square().mean((0, 2), keepdim=True).sqrt()).unbind(1)
    return torch.stack([x + noise * first, x + noise * second])


def weights(s: Tensor, inputs: int, *, aligned: bool = False) -> Tensor:
    """W[M, N] in a random basis, where WWᵀ has the eigenvalues s. `aligned`: the input modes are the first M axes."""
    right = torch.eye(inputs, dtype=s.dtype) if aligned else orthogonal(inputs)
    return orthogonal(len(s)) * s.sqrt() @ right[: len(s)]


def linear(x: Tensor, w: Tensor) -> Tensor:
    return x @ w.T


def relu(x: Tensor, w: Tensor) -> Tensor:
    return linear(x, w).relu()


def eigenvalues(x: Tensor, w: Tensor, encode: Encode = linear) -> Tensor:
    """The eigenvalues of E[zzᵀ] over both views, in ascending order."""
    z = encode(x, w).flatten(0, 1)
    return torch.linalg.eigvalsh(z.T @ z / len(z))


def velocity(loss: Loss, x: Tensor, w: Tensor, exponent: float = 1.0, encode: Encode = linear) -> Tensor:
    """dW/dt = −∂L/∂W, with η = 1."""
    w = w.detach().requires_grad_()
    return -torch.autograd.grad(loss(encode(x, w), exponent), w)[0]


def flow(
    loss: Loss, x: Tensor, w: Tensor, step: float, steps: int, exponent: float = 1.0, encode: Encode = linear
) -> list[Tensor]:
    """Weights along the gradient flow."""
    return rk4(lambda w: velocity(loss, x, w, exponent, encode), w, step, steps)


def spectra(x: Tensor, path: list[Tensor], encode: Encode = linear) -> Tensor:
    """s[time, M] along a path."""
    return torch.stack([eigenvalues(x, w, encode) for w in path])


def learnt_predictor(loss: Loss, x: Tensor, w: Tensor, step: float, steps: int) -> list[Tensor]:
    """[W | W_P] along the gradient flow of both; the predictor starts from small random weights."""
    outputs, inputs = w.shape

    def rate(both: Tensor) -> Tensor:
        both = both.detach().requires_grad_()
        encoder, predictor = both.split([inputs, outputs], dim=1)
        first, second = linear(x, encoder)
        value = objectives.asymmetric(first @ predictor.T, second, distance=loss.distance).total
        return -torch.autograd.grad(value, both)[0]

    return rk4(rate, torch.cat([w, randn(outputs, outputs) / (3 * outputs**0.5)], dim=1), step, steps)


def alignment(x: Tensor, both: Tensor) -> Tensor:
    """cos(u, W_P u) for each eigenvector u of E[zzᵀ], in the order of ascending eigenvalues."""
    encoder, predictor = both.split([x.shape[-1], len(both)], dim=1)
    z = linear(x, encoder).flatten(0, 1)
    basis = torch.linalg.eigh(z.T @ z).eigenvectors
    moved = predictor @ basis
    return (basis * moved).sum(0) / moved.norm(dim=0)
