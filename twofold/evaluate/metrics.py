"""What is measured of a representation without labels: how many dimensions it uses, how evenly, and how far apart.

N samples, V views, D embedding dimension. A spectrum is the eigenvalues `[D]` of a covariance, as `eigenvalues` returns
them; they are the squared singular values of the centred embeddings, up to a factor that no measure here depends on.
`alignment` and `uniformity` are of embeddings, and never wait for the device: they are part of the training step.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from twofold.linalg import full_precision, normalized

SHORTEST = 1e-8  # a row below it has no direction


def eigenvalues(covariance: Tensor) -> Tensor:
    """Eigenvalues of a symmetric `[D, D]` matrix: float64 on the CPU, descending, clamped at 0.

    They are taken where the matrix is, if that is a GPU: runs that share a machine's cores would hold each other up.
    Rounding of a float32 covariance leaves eigenvalues of about 1e-7 of the largest, which `effective_rank` counts by
    their square roots: for a spectrum that falls further than that, accumulate the covariance in float64.
    """
    return torch.linalg.eigvalsh(widened(covariance)).flip(0).clamp(min=0).cpu()


def widened(matrix: Tensor) -> Tensor:
    """In float64: where it is if that is a GPU, else on the CPU, as not every other device has float64."""
    return (matrix.detach() if matrix.is_cuda else matrix.detach().cpu()).double()


def effective_rank(spectrum: Tensor) -> float:
    """RankMe: exp of the Shannon entropy of the normalised singular values √λ. From 1 to D, and 0 when all are 0."""
    singular = spectrum.double().sqrt()
    return math.exp(shannon_entropy(singular)) if bool(singular.any()) else 0.0


def stable_rank(spectrum: Tensor) -> float:
    """‖Z‖²_F / ‖Z‖²_2 = Σλ / max λ. From 1 to D, and 0 when all are 0."""
    largest = spectrum.max().item()
    return spectrum.double().sum().item() / largest if largest > 0 else 0.0


def condition_number(spectrum: Tensor, k: int = 14) -> float:
    """λ_1 / λ_k, with k at most D; infinite where λ_k is 0."""
    ordered = spectrum.double().sort(descending=True).values
    smallest = ordered[min(k, len(ordered)) - 1].item()
    return ordered[0].item() / smallest if smallest > 0 else math.inf


def shannon_entropy(spectrum: Tensor) -> float:
    """−Σ p log p in nats, p = λ / Σλ. From 0 to log D, and 0 when all are 0."""
    positive = spectrum.double()[spectrum > 0]
    p = positive / positive.sum()
    return torch.special.entr(p).sum().item()


def dimensions_above(spectrum: Tensor, share: float = 0.1) -> int:
    """Singular values √λ above this share of the largest: the "learnt features" of S-DIET, section 5."""
    return int((spectrum.double() > share**2 * spectrum.double().max()).sum())


def saturation_step(steps: Sequence[int], values: Sequence[float], share: float = 0.9) -> int:
    """The first step from which an eigenvalue stays at or above this share of its last value (FroSSL, Figure 3)."""
    since = steps[-1]
    for step, value in zip(reversed(steps), reversed(values), strict=True):
        if value < share * values[-1]:
            break
        since = step
    return since


def eigenvector_alignment(predictor: Tensor, correlation: Tensor) -> tuple[Tensor, Tensor]:
    """How nearly a predictor `[D, D]` keeps the direction of each eigenvector u of the correlation `[D, D]` of z.

    |cos(u, Wu)| `[D]`, 1 where u is also an eigenvector of W, and the eigenvalues it goes with, descending. IsoLoss and
    DirectPred suppose that all are 1. For a predictor p that is not linear, E[p(z)zᵀ] stands for W: along u it is its
    best linear approximation, times u's eigenvalue.
    """
    values, vectors = torch.linalg.eigh(widened(correlation))
    moved = widened(predictor) @ vectors
    length = moved.norm(dim=0).clamp_min(torch.finfo(torch.float64).tiny)
    return ((vectors * moved).sum(0) / length).abs().flip(0).cpu(), values.flip(0).clamp(min=0).cpu()


@full_precision
def alignment(z_VND: Tensor) -> Tensor:
    """Mean squared distance of two views of an image, on the unit sphere (Wang and Isola 2020): 0 when all agree."""
    views = len(z_VND)
    # Σ_{v≠w} u_v·u_w = ‖Σ_v u_v‖² − V for unit vectors.
    together = normalized(z_VND).sum(0).square().sum(-1).mean()
    return 2 - 2 * (together - views) / (views * (views - 1))


@full_precision
def uniformity(z_ND: Tensor, t: float = 2.0) -> Tensor:
    """log of the mean of exp(−t‖u_i − u_j‖²) over pairs of different images (Wang and Isola 2020).

    0 when all are at one point, about −2t when they are spread over a sphere of many dimensions; lower is more even.
    A row of nearly no length stays near the centre of the sphere.
    """
    u = normalized(z_ND, SHORTEST)
    long = torch.linalg.vector_norm(z_ND, dim=1) >= SHORTEST
    square = u.square().sum(1).masked_fill(long, 1)  # exactly, where rounding would make it nearly that
    exponents = (2 * t * (u @ u.T - (square[:, None] + square) / 2)).fill_diagonal_(-math.inf)
    return exponents.flatten().logsumexp(0) - math.log(len(u) * (len(u) - 1))
