"""A map of representations: every row as a point of the plane, near the rows that it is near to.

n rows, K feature dimension.
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
ITERATIONS = 500  # with PCA as the start; twice as many took 2 % off the divergence of 1,000 digits


@dataclass(frozen=True)
class Projection:
    points: Tensor  # float32 [n, 2]: x from −1 to 1, y within
    perplexity: float  # how many neighbours of a row count, roughly
    divergence: float  # Kullback–Leibler, of the neighbourhoods on the map from those of the rows


def project(features: Tensor, *, seed: int = 0) -> Projection | None:
    """t-SNE (van der Maaten & Hinton 2008, by scikit-learn) of rows brought to unit length, as kNN compares them.

    None where there is nothing to draw: rows that are not finite, or that are all the same.
    """
    if not FEWEST_POINTS <= len(features) <= MOST_POINTS:
        raise TwofoldError(f"a map has from {FEWEST_POINTS} to {MOST_POINTS:,} points, not {len(features):,}")
    import torch  # late, as a page needs no more than the numbers above

    from twofold.evaluate.neighbours import unit

    rows = unit(features.detach().cpu())
    # Scaled to unit length, rows that differ by rounding alone would be drawn as if they differed.
    spread = (rows - rows.mean(dim=0)).square().sum(dim=1).mean().sqrt()
    if not torch.isfinite(rows).all() or spread < 1e-6:
        return None

    from sklearn.manifold import TSNE  # a second to import

    perplexity = min(PERPLEXITY, (len(rows) - 1) / 3)
    fitted = TSNE(perplexity=perplexity, init="pca", max_iter=ITERATIONS, random_state=seed % 2**32)
    points = torch.from_numpy(fitted.fit_transform(rows.numpy())).float()
    points = points - (points.amax(dim=0) + points.amin(dim=0)) / 2
    if points[:, 0].abs().max() < points[:, 1].abs().max():  # pages are wide; a map has no right way up
        points = points.flip(1)
    return Projection(points / points.abs().max().clamp(min=1e-12), perplexity, float(fitted.kl_divergence_))
