"""What a spectrum says about a representation: how many dimensions it uses, and how evenly.

D embedding dimension. A spectrum is the eigenvalues `[D]` of a covariance, as `eigenvalues` returns them; they are the
squared singular values of the centred embeddings, up to a factor that none of the measures below depends on.
"""

import math

import torch
from torch import Tensor


def eigenvalues(covariance: Tensor) -> Tensor:
    """Eigenvalues of a symmetric `[D, D]` matrix: float64 on the CPU, descending, clamped at 0.

    Rounding of a float32 covariance leaves eigenvalues of about 1e-7 of the largest, which `effective_rank` counts by
    their square roots: for a spectrum that falls further than that, accumulate the covariance in float64.
    """
    matrix = covariance.detach().to(device="cpu", dtype=torch.float64)
    return torch.linalg.eigvalsh(matrix).flip(0).clamp(min=0)


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
