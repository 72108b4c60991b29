"""Groups of images that are nearly the same, by their features.

Features of one class resemble each other, and a plain cosine takes that for sameness. So features are centred and
whitened first: what all images have in common, or vary in together, counts little, and what tells one image from
another counts much. Images at least `threshold` similar are linked, and a group is what hangs together by links.

n images, K feature dimension.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from twofold.errors import TwofoldError
from twofold.evaluate.neighbours import pairs_above
from twofold.runs.preprocess import Preprocess

# Chosen on digits and CIFAR-10 with planted copies: nothing false above it, and at 0.9 more of both.
THRESHOLD = 0.95
RIDGE = 0.1  # of the mean eigenvalue: directions that hardly vary are noise, and stay small
FLAT = 1 / 255  # deviation of pixels from 0 to 1
BLOCK = 2048  # rows; pairs of two blocks are held at a time, at most 100 MB


@dataclass(frozen=True)
class Group:
    rows: tuple[int, ...]  # ascending
    similarities: tuple[float, ...]  # of each to the most similar other


def near_duplicates(
    features: Tensor,
    threshold: float = THRESHOLD,
    *,
    block: int = BLOCK,
    progress: Callable[[int, int], None] | None = None,
) -> list[Group]:
    """Groups of rows of features[n, K], largest first. Exact: all pairs are compared, block by block.

    Beside the features there is one whitened copy of them, and `block`² similarities.
    """
    check_threshold(threshold)
    rows = whitened_features(features)
    parent = np.arange(len(rows))
    closest = torch.full((len(rows),), -1.0, device=rows.device)
    for first, second, similarity in pairs_above(rows, threshold, block, progress):
        for end in (first, second):
            closest.scatter_reduce_(0, end, similarity, "amax")
        _link(parent, first.cpu().numpy(), second.cpu().numpy())
    (linked,) = (closest > 0).cpu().numpy().nonzero()
    roots = _roots(parent, linked)
    members: dict[int, list[int]] = {}
    for row, root in zip(linked.tolist(), roots.tolist(), strict=True):
        members.setdefault(root, []).append(row)
    similar = closest.cpu().clamp(max=1.0).tolist()
    groups = [Group(tuple(found), tuple(similar[row] for row in found)) for found in members.values()]
    return sorted(groups, key=lambda group: (-len(group.rows), -min(group.similarities), group.rows))


def check_threshold(threshold: float) -> None:
    if not 0 < threshold <= 1:
        raise TwofoldError(f"threshold={threshold:g} is no similarity of copies: use one above 0, up to 1")


def whitened_features(features: Tensor) -> Tensor:
    """Unit rows [n, K], float32, whose cosines tell images apart. Equal features have equal rows."""
    if features.ndim != 2 or len(features) < 2:
        raise TwofoldError(
            f"features of shape {tuple(features.shape)} cannot be compared: give at least two rows [n, K]"
        )
    n, K = features.shape
    parts = features.split(BLOCK)
    mean = torch.stack([part.double().sum(0) for part in parts]).sum(0) / n
    spread = torch.zeros(K, K, dtype=torch.float64, device=features.device)
    for part in parts:
        centred = part.double() - mean
        spread += centred.T @ centred
    if not spread.isfinite().all():
        raise TwofoldError("some features are not finite: they cannot be compared")
    values, vectors = torch.linalg.eigh(spread / n)
    # Of fewer rows than dimensions the mean is over the directions in which they can differ.
    scale = values.clamp(min=0).sum() / min(K, n - 1)
    rows = torch.ones(n, K, device=features.device)
    if scale > torch.finfo(torch.float32).eps ** 2 * mean.square().mean():  # else all are the same
        ridge = RIDGE * max(1.0, K / n) * scale  # a few images say little of how images vary
        weights = vectors * (values.clamp(min=0) + ridge).rsqrt()
        for part, target in zip(parts, rows.split(BLOCK), strict=True):
            target.copy_((part.double() - mean) @ weights)
    return functional.normalize(rows, dim=1, out=rows)


def levelled(pixels: Tensor) -> Tensor:
    """Each of the images [N, C, H, W] with mean 0 and deviation 1: a copy that is only brighter or flatter is the same.

    Not channel by channel, which would take away colours. An image of one grey level keeps it, from −1 to 1: there
    is nothing else to tell a white page from a black frame.
    """
    mean = pixels.mean(dim=(1, 2, 3), keepdim=True)
    std = pixels.std(dim=(1, 2, 3), keepdim=True)
    level = (2 * mean - 1) * (std < FLAT)
    return (pixels - mean) / std.clamp(min=FLAT) + level


class Levelled:
    """Pixels as the encoder takes them, after every image was brought to one brightness and contrast."""

    def __init__(self, preprocess: Preprocess):
        self.preprocess = preprocess

    def __call__(self, images: Tensor) -> Tensor:
        mean, std = self.preprocess.mean.view(-1, 1, 1), self.preprocess.std.view(-1, 1, 1)
        level = levelled(self.preprocess(images) * std + mean)
        return (level * std.mean() + mean.mean() - mean) / std


def _link(parent: np.ndarray, first: np.ndarray, second: np.ndarray) -> None:
    """Join the groups of both ends of each pair; a group is known by its least row, which is its own parent."""
    while True:
        one, other = _roots(parent, first), _roots(parent, second)
        apart = one != other
        if not apart.any():
            return
        first, second = one[apart], other[apart]
        np.minimum.at(parent, np.maximum(first, second), np.minimum(first, second))


def _roots(parent: np.ndarray, rows: np.ndarray) -> np.ndarray:
    above = parent[rows]
    while True:
        higher = parent[above]
        if (higher == above).all():
            parent[rows] = above
            return above
        above = higher
