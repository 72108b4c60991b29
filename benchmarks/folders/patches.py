"""Whitened patches and k-means as Coates and Ng (2011) published them: features that need no training.

The encoder `conv-patches` has the same features in a shorter form, see `twofold/models/patches.py`.
"""

import torch
from torch import Tensor

from twofold.data.store import ImageStore
from twofold.models.patches import CPU_BLOCK, PatchFeatures
from twofold.runs.preprocess import Preprocess

CENTRES = 400


class PatchKMeans:
    """Distances of whitened patches to k-means centres, averaged over a 4 × 4 grid."""

    def __init__(self, images: ImageStore, *, seed: int = 0):
        channels, size = images.images.shape[1], images.images.shape[-1]
        mean, std = images.statistics()
        self.transform = Preprocess(size, channels, mean.tolist(), std.tolist())
        self.layer = PatchFeatures(channels, size, centres=CENTRES, stride=1)
        normalised = torch.cat([self.transform(block) for block in images.images.split(CPU_BLOCK)])
        self.layer.fit_centres(normalised, torch.Generator().manual_seed(seed))

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Features [N, 16 · CENTRES] of uint8 images [N, C, H, W]."""
        # The layer returns square roots, which the paper does not have.
        return torch.cat([self.layer.pooled(self.transform(block)).square() for block in images.split(CPU_BLOCK)])
