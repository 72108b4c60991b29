"""Whitened patches and k-means (Coates and Ng 2011): features that are learnt from the images in seconds.

N is the number of images, C the number of channels, P the number of values of a patch, M the number of centres.
"""

import torch
from torch import Tensor
from torch.nn import functional

PATCH, CENTRES, SAMPLES, ROUNDS, GRID, BATCH = 6, 400, 100_000, 20, 4, 64


class PatchKMeans:
    """Distances of whitened patches to k-means centres, averaged over a 4 × 4 grid."""

    def __init__(self, images: Tensor, *, seed: int = 0):
        generator = torch.Generator().manual_seed(seed)
        size = min(PATCH, images.shape[-1] // 2)
        self.size = size
        rows = torch.randint(len(images), (SAMPLES,), generator=generator)
        top, left = (torch.randint(images.shape[-1] - size + 1, (SAMPLES,), generator=generator) for _ in range(2))
        offsets = torch.arange(size)
        patches = images[
            rows[:, None, None], :, (top[:, None] + offsets)[:, :, None], (left[:, None] + offsets)[:, None]
        ]
        patches = normalised(patches.permute(0, 3, 1, 2).flatten(1).float())
        self.mean = patches.mean(0)
        values, vectors = torch.linalg.eigh(torch.cov(patches.T))
        self.whiten = vectors @ torch.diag((values + 0.1 * values.mean()).rsqrt()) @ vectors.T
        self.centres = k_means((patches - self.mean) @ self.whiten, generator)

    def __call__(self, images: Tensor) -> Tensor:
        """Features [N, 16 M] of uint8 images [N, C, H, W]."""
        return torch.cat([self._features(batch.float()) for batch in images.split(BATCH)])

    def _features(self, images: Tensor) -> Tensor:
        side = images.shape[-1] - self.size + 1
        patches = functional.unfold(images, self.size).transpose(1, 2)  # [N, positions, P]
        distances = torch.cdist((normalised(patches) - self.mean) @ self.whiten, self.centres)
        activation = (distances.mean(-1, keepdim=True) - distances).clamp(min=0)
        return functional.adaptive_avg_pool2d(activation.transpose(1, 2).unflatten(2, (side, side)), GRID).flatten(1)


def normalised(patches: Tensor) -> Tensor:
    """Each patch with mean 0 and variance 1; 10 keeps noise in flat patches small."""
    centred = patches - patches.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 10).sqrt()


def k_means(points: Tensor, generator: torch.Generator) -> Tensor:
    centres = points[torch.randperm(len(points), generator=generator)[:CENTRES]]
    for _ in range(ROUNDS):
        nearest = torch.cat([torch.cdist(block, centres).argmin(1) for block in points.split(10_000)])
        sums = torch.zeros_like(centres).index_add_(0, nearest, points)
        counts = torch.bincount(nearest, minlength=len(centres)).unsqueeze(1)
        centres = torch.where(counts > 0, sums / counts.clamp(min=1), centres)
    return centres
