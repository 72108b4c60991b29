"""A map of representations: each row is a point of the plane, and similar rows are close together.

Shapes: n rows, K feature dimension.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from twofold.errors import TwofoldError

if TYPE_CHECKING:
    from torch import Tensor

MOST_POINTS = 5000
FEWEST_POINTS = 10
PERPLEXITY = 30.0
ITERATIONS = 500  # starting from PCA; twice as many lower the divergence for 1,000 digits by only 2 %


@dataclass(frozen=True)
class Projection:
    """A map: the positions of the rows, and how well they agree with the features."""

    points: Tensor  # float32 [n, 2]: x spans −1 to 1, y stays within
    perplexity: float  # roughly the number of neighbours of each row
    divergence: float  # Kullback–Leibler divergence between neighbourhoods of the rows and on the map


def project(features: Tensor, *, seed: int = 0) -> Projection | None:
    """Compute a map with t-SNE (van der Maaten & Hinton 2008), using scikit-learn.

    Rows are scaled to unit length first, as for kNN.

    Parameters
    ----------
    features : Tensor
        Features `[n, K]`, with n from 10 to 5,000.
    seed : int
        Seed of t-SNE.

    Returns
    -------
    Projection or None
        None if some rows are not finite or if all are equal.
    """
    if not FEWEST_POINTS <= len(features) <= MOST_POINTS:
        raise TwofoldError(f"a map needs {FEWEST_POINTS} to {MOST_POINTS:,} images, got {len(features):,}")
    import torch  # imported here, because pages use the constants above without torch

    from twofold.evaluate.neighbours import unit

    rows = unit(features.detach().cpu())
    # t-SNE ignores scale, so it would draw rows that differ by rounding errors as if they were different.
    spread = (rows - rows.mean(dim=0)).square().sum(dim=1).mean().sqrt()
    if not torch.isfinite(rows).all() or spread < 1e-6:
        return None

    from sklearn.manifold import TSNE  # imported here, because it takes a second

    perplexity = min(PERPLEXITY, (len(rows) - 1) / 3)
    fitted = TSNE(perplexity=perplexity, init="pca", max_iter=ITERATIONS, random_state=seed % 2**32)
    points = torch.from_numpy(fitted.fit_transform(rows.numpy())).float()
    points = points - (points.amax(dim=0) + points.amin(dim=0)) / 2
    if points[:, 0].abs().max() < points[:, 1].abs().max():  # a page is wide, and the rotation of a map is arbitrary
        points = points.flip(1)
    return Projection(points / points.abs().max().clamp(min=1e-12), perplexity, float(fitted.kl_divergence_))
