"""Measures of a representation that need no labels: rank, entropy, alignment and uniformity.

Shapes: N samples, V views, D embedding dimension. A spectrum is the eigenvalues `[D]` of a covariance, as `eigenvalues`
returns them. They are the squared singular values of the centred embeddings, up to a factor on which no measure here
depends. `alignment` and `uniformity` take embeddings. They run in the training step, so they never wait for the GPU.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from twofold.linalg import full_precision, normalized

SHORTEST = 1e-8  # a shorter row has no direction


def eigenvalues(covariance: Tensor) -> Tensor:
    """Return the eigenvalues of a symmetric matrix `[D, D]`: float64 on the CPU, descending, clamped at 0.

    If the matrix is on a CUDA GPU, that GPU computes the eigenvalues, so that runs do not compete for CPU cores.
    Rounding errors of a float32 covariance add eigenvalues of about 1e-7 of the largest one, and `effective_rank`
    counts their square roots. If the true eigenvalues are smaller, accumulate the covariance in float64.
    """
    return torch.linalg.eigvalsh(widened(covariance)).flip(0).clamp(min=0).cpu()


def widened(matrix: Tensor) -> Tensor:
    """Convert to float64, on a CUDA GPU if the matrix is there, else on the CPU. Other devices may lack float64."""
    return (matrix.detach() if matrix.is_cuda else matrix.detach().cpu()).double()


def effective_rank(spectrum: Tensor) -> float:
    """Return RankMe: the exponential of the Shannon entropy of the normalised singular values √λ.

    It is between 1 and D, or 0 if all eigenvalues are 0.

    Parameters
    ----------
    spectrum : Tensor
        Eigenvalues `[D]` of a covariance.

    Examples
    --------
    >>> round(effective_rank(torch.ones(64)), 6)
    64.0
    """
    singular = spectrum.double().sqrt()
    return math.exp(shannon_entropy(singular)) if bool(singular.any()) else 0.0


def stable_rank(spectrum: Tensor) -> float:
    """Return ‖Z‖²_F / ‖Z‖²_2 = Σλ / max λ. It is between 1 and D, or 0 if all eigenvalues are 0."""
    largest = spectrum.max().item()
    return spectrum.double().sum().item() / largest if largest > 0 else 0.0


def condition_number(spectrum: Tensor, k: int = 14) -> float:
    """Return λ_1 / λ_k. If k is larger than D, the last eigenvalue replaces λ_k. The result is infinite if λ_k is 0."""
    ordered = spectrum.double().sort(descending=True).values
    smallest = ordered[min(k, len(ordered)) - 1].item()
    return ordered[0].item() / smallest if smallest > 0 else math.inf


def shannon_entropy(spectrum: Tensor) -> float:
    """Return −Σ p log p in nats with p = λ / Σλ. It is between 0 and log D, and 0 if all eigenvalues are 0."""
    positive = spectrum.double()[spectrum > 0]
    p = positive / positive.sum()
    return torch.special.entr(p).sum().item()


def dimensions_above(spectrum: Tensor, share: float = 0.1) -> int:
    """Count the singular values √λ above `share` times the largest: the "learnt features" of S-DIET, section 5."""
    return int((spectrum.double() > share**2 * spectrum.double().max()).sum())


def saturation_step(steps: Sequence[int], values: Sequence[float], share: float = 0.9) -> int:
    """Return the first step since which an eigenvalue is at least `share` of its last value (FroSSL, Figure 3)."""
    since = steps[-1]
    for step, value in zip(reversed(steps), reversed(values), strict=True):
        if value < share * values[-1]:
            break
        since = step
    return since


def eigenvector_alignment(predictor: Tensor, correlation: Tensor) -> tuple[Tensor, Tensor]:
    """Return |cos(u, Wu)| for each eigenvector u of a correlation, and the eigenvalues of the correlation.

    A cosine is 1 if u is also an eigenvector of the predictor W. IsoLoss and DirectPred assume that all are 1. For a
    nonlinear predictor p, pass E[p(z)zᵀ] as W: along u, it is the best linear approximation of p times the eigenvalue
    of u.

    Parameters
    ----------
    predictor : Tensor
        W `[D, D]`.
    correlation : Tensor
        E[zzᵀ] `[D, D]`.

    Returns
    -------
    tuple of Tensor
        Cosines `[D]` and eigenvalues `[D]`, both by descending eigenvalue.
    """
    values, vectors = torch.linalg.eigh(widened(correlation))
    moved = widened(predictor) @ vectors
    length = moved.norm(dim=0).clamp_min(torch.finfo(torch.float64).tiny)
    return ((vectors * moved).sum(0) / length).abs().flip(0).cpu(), values.flip(0).clamp(min=0).cpu()


@full_precision
def alignment(z_VND: Tensor) -> Tensor:
    """Return the mean squared distance of two views of an image on the unit sphere (Wang and Isola 2020).

    It is 0 if all views of each image agree.

    Parameters
    ----------
    z_VND : Tensor
        Embeddings `[V, N, D]`.
    """
    views = len(z_VND)
    # Σ_{v≠w} u_v·u_w = ‖Σ_v u_v‖² − V for unit vectors.
    squared_sum = normalized(z_VND).sum(0).square().sum(-1).mean()
    return 2 - 2 * (squared_sum - views) / (views * (views - 1))


@full_precision
def uniformity(z_ND: Tensor, t: float = 2.0) -> Tensor:
    """Return the log of the mean of exp(−t‖u_i − u_j‖²) over pairs of different images (Wang and Isola 2020).

    It is 0 if all embeddings are at one point, and about −2t if they are spread evenly over a sphere of many
    dimensions. A row shorter than 1e-8 stays near the centre of the sphere.

    Parameters
    ----------
    z_ND : Tensor
        Embeddings `[N, D]`. They are scaled to unit length u.
    """
    u = normalized(z_ND, SHORTEST)
    long = torch.linalg.vector_norm(z_ND, dim=1) >= SHORTEST
    square = u.square().sum(1).masked_fill(long, 1)  # exactly 1, without rounding errors
    exponents = (2 * t * (u @ u.T - (square[:, None] + square) / 2)).fill_diagonal_(-math.inf)
    return exponents.flatten().logsumexp(0) - math.log(len(u) * (len(u) - 1))
