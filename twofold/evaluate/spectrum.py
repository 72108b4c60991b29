"""The spectrum of features and a verdict on it: what `twofold diagnose` measures, on embeddings of any origin.

Shapes: n rows, K features.
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

COMPARED = 2048  # uniformity compares at most this many evenly spaced rows
MEANINGS = {  # what each measure is, in words
    "effective_rank": "RankMe: exponential of the entropy of the singular values",
    "stable_rank": "sum of the eigenvalues divided by the largest",
    "dimensions_above": "number of singular values above a tenth of the largest",
    "condition_number": "first eigenvalue divided by the 14th (or the last, with fewer)",
    "shannon_entropy": "entropy of the eigenvalues, in nats",
    "norm": "root mean square length of the rows",
    "uniformity": "0: all rows point in one direction; -4: evenly spread",
}
MOMENT_NUMBERS = 2**22  # numbers in a block of `moments_in_blocks`


def measure_spectrum(
    features: Tensor, progress: Callable[[int, int], None] | None = None
) -> tuple[list[float], dict[str, float | None], Verdict]:
    """Return eigenvalues, measures and verdict of features [n, K], which may be a memory-mapped file.

    Measures that are not finite are None, because JSON has no infinity.
    """
    mean, covariance, broken = moments_in_blocks(features, progress)
    if broken:
        verdict = Verdict(
            "not finite",
            f"{broken:,} of {len(features):,} rows contain NaN or infinite values, so nothing can be measured.",
            remedy="Find their origin: a run that diverged, an overflow of half precision, or empty images.",
        )
        return [], {}, verdict
    # n centred rows span at most n − 1 dimensions.
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
    few = f" ({len(features)} rows have at most {len(spectrum)} dimensions)" if len(spectrum) < len(mean) else ""
    verdict = judge([Snapshot.of(spectrum, {"embedding_norm": norm, "uniformity": even}, "features", few)])
    finite = {name: value if math.isfinite(value) else None for name, value in measures.items()}
    return [float(f"{value:.5g}") for value in spectrum.tolist()], finite, verdict


@torch.no_grad()
def moments_in_blocks(
    features: Tensor, progress: Callable[[int, int], None] | None = None
) -> tuple[Tensor, Tensor, int]:
    """Return the mean `[K]` of rows, a matrix with the eigenvalues of their covariance, and how many are not finite.

    The matrix is the unbiased covariance `[K, K]`. With fewer rows than dimensions it is the smaller matrix of the
    inner products of centred rows `[n, n]`, divided by n − 1. Apart from zeros, both have the same eigenvalues, and so
    the same trace. Mean and matrix are float64 on the CPU. The features are read in blocks, because they may be a
    memory-mapped file, and twice, so that a large mean costs no precision.
    """
    rows, dimensions = features.shape
    size = max(1, MOMENT_NUMBERS // dimensions)
    total = torch.zeros(dimensions, dtype=torch.float64)
    broken = 0
    for block in features.split(size):
        total += block.cpu().double().sum(0)
        broken += int((~block.isfinite()).any(1).sum())
    mean = total / rows
    products = torch.zeros(2 * [min(rows, dimensions)], dtype=torch.float64)
    along = 0 if dimensions <= rows else 1  # a block has some of the rows, or some of the dimensions of all rows
    size = size if along == 0 else max(1, MOMENT_NUMBERS // rows)
    means = len(features.split(size, along)) * [mean] if along == 0 else mean.split(size)
    for number, (block, own_mean) in enumerate(zip(features.split(size, along), means, strict=True)):
        x = block.cpu().double() - own_mean
        products.addmm_(*((x.T, x) if along == 0 else (x, x.T)))
        if progress is not None:
            progress(min((number + 1) * size * rows // features.shape[along], rows), rows)
    return mean, products / max(rows - 1, 1), broken
