"""The spectrum of features, and what it says of them: what `diagnose` measures, of embeddings of any origin.

n rows, K features.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from twofold.evaluate.metrics import (
    condition_number,
    dimensions_above,
    effective_rank,
    eigenvalues,
    shannon_entropy,
    stable_rank,
    uniformity,
)
from twofold.evaluate.verdict import Snapshot, Verdict, judge

COMPARED = 2048  # rows, evenly taken, that uniformity compares with each other
MEANINGS = {  # of the measures, in words
    "effective_rank": "RankMe: exp of the entropy of the singular values",
    "stable_rank": "sum of the eigenvalues over the largest",
    "dimensions_above": "singular values above 0.1 of the largest",
    "condition_number": "first eigenvalue over the 14th, or the last",
    "shannon_entropy": "of the eigenvalues, in nats",
    "norm": "root of the mean squared length",
    "uniformity": "0: all point the same way; -4: evenly spread",
}
MOMENT_NUMBERS = 2**22  # in a block of `moments_in_blocks`


def measure_spectrum(
    features: Tensor, progress: Callable[[int, int], None] | None = None
) -> tuple[list[float], dict[str, float | None], Verdict]:
    """Eigenvalues, measures and verdict of features [n, K], which may lie in a mapped file."""
    mean, covariance, broken = moments_in_blocks(features, progress)
    if broken:
        verdict = Verdict(
            "not finite",
            f"{broken:,} of {len(features):,} rows hold NaN or infinite values.",
            remedy="Look for where they come from: a run that diverged, half precision that overflowed, empty images.",
        )
        return [], {}, verdict
    # n rows, centred, have at most n − 1 directions.
    spectrum = eigenvalues(covariance)[: max(len(features) - 1, 1)]
    norm = (covariance.diagonal().sum() * (len(features) - 1) / len(features) + mean.square().sum()).sqrt().item()
    rows = features[:: -(-len(features) // COMPARED)].float()
    even = uniformity(rows).item() if len(rows) > 1 else 0.0
    measures = {
        "effective_rank": effective_rank(spectrum),
        "stable_rank": stable_rank(spectrum),
        "dimensions_above": dimensions_above(spectrum),
        "condition_number": condition_number(spectrum),
        "shannon_entropy": shannon_entropy(spectrum),
        "norm": norm,
        "uniformity": even,
    }
    verdict = judge([Snapshot.of(spectrum, {"embedding_norm": norm, "uniformity": even})])
    finite = {name: value if math.isfinite(value) else None for name, value in measures.items()}  # JSON has no ∞
    return [float(f"{value:.5g}") for value in spectrum.tolist()], finite, verdict


@torch.no_grad()
def moments_in_blocks(
    features: Tensor, progress: Callable[[int, int], None] | None = None
) -> tuple[Tensor, Tensor, int]:
    """Mean `[K]` and unbiased covariance `[K, K]` of rows, in float64 on the CPU, and how many rows are not finite.

    In blocks: the features may lie in a mapped file. Two passes, so that a large mean costs no digits.
    """
    size = max(1, MOMENT_NUMBERS // features.shape[1])
    total = torch.zeros(features.shape[1], dtype=torch.float64)
    broken = 0
    for block in features.split(size):
        total += block.cpu().double().sum(0)
        broken += int((~block.isfinite()).any(1).sum())
    mean = total / len(features)
    products = torch.zeros(len(mean), len(mean), dtype=torch.float64)
    for number, block in enumerate(features.split(size)):
        x = block.cpu().double() - mean
        products.addmm_(x.T, x)
        if progress is not None:
            progress(min((number + 1) * size, len(features)), len(features))
    return mean, products / max(len(features) - 1, 1), broken
