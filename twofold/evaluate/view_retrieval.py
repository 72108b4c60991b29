"""A score of features without labels: do views of an image find each other among the views of all other images?

Compare scores only if they come from the same images and the same views. The features must be those of images that the
encoder was not trained on, because training brings views of its own images together.

Shapes: V views, n images, C channels, S side of the views, K features.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from math import sqrt

import torch
from torch import Tensor

from twofold.config import Augment
from twofold.data.augment import Augmenter
from twofold.evaluate.features import ImageRows
from twofold.evaluate.metrics import effective_rank, eigenvalues
from twofold.evaluate.neighbours import unit

BATCH = 128  # images of which views are made at a time
BLOCK = 4096  # queries that are compared at a time
FIRST_STEP = -1  # views are drawn for step -1, -2, …: no step of training has these numbers


@dataclass(frozen=True)
class Estimate:
    """A mean over images and its standard error."""

    mean: float
    standard_error: float

    @classmethod
    def of(cls, per_image: Tensor) -> "Estimate":
        """Return the mean of one value for each image, `[n]`, or of paired differences."""
        values = per_image.double()
        error = values.std().item() / sqrt(len(values)) if len(values) > 1 else float("inf")
        return cls(values.mean().item(), error)


@torch.no_grad()
def view_retrieval(features: Tensor) -> Tensor:
    """Return the mean reciprocal rank of each image, float64 `[n]` on the CPU.

    Each view of an image asks for another view of that image. All images answer with that view, ordered by the cosine
    similarity of the features. An image at rank r counts 1/r, and equal similarities share their mean rank. The result
    is the mean over all ordered pairs of views: 1 if each view finds its image first, about (ln n + 0.6)/n for random
    features, 2/(n + 1) if all features are equal.

    Parameters
    ----------
    features : Tensor
        The features `[V, n, K]` of at least two views of each image. The mean is not subtracted here.

    Examples
    --------
    >>> views = torch.eye(4).expand(2, 4, 4)
    >>> view_retrieval(views)
    tensor([1., 1., 1., 1.], dtype=torch.float64)
    """
    rows = [unit(view) for view in features]
    pairs = list(permutations(range(len(rows)), 2))
    total = sum(reciprocal_ranks(rows[asking], rows[answering]) for asking, answering in pairs)
    assert isinstance(total, Tensor)
    return total / len(pairs)


def reciprocal_ranks(queries: Tensor, answers: Tensor) -> Tensor:
    """Return 1/rank of the answer of the same number for each query, float64 `[n]`; both are unit rows `[n, K]`."""
    found = []
    for start in range(0, len(queries), BLOCK):
        similarity = queries[start : start + BLOCK] @ answers.T
        own = similarity.diagonal(start).unsqueeze(1)
        # Features that are not numbers are worse than all others, so they get the last rank.
        not_below = (~(similarity < own)).sum(1)
        tied = (similarity == own).sum(1).clamp(min=1) - 1
        found.append(1 / (not_below.double() - tied.double() / 2))
    return torch.cat(found).cpu()


@dataclass(frozen=True, eq=False)
class ViewScore:
    """How well views of held-out images find each other, and how many dimensions their features use."""

    retrieval: Tensor  # float64 [n], see `view_retrieval`
    rank: float  # the effective rank of the features of all views; 0 if they are not finite

    @property
    def mean(self) -> float:
        return self.retrieval.mean().item()


def mild(augment: Augment) -> Augment:
    """Return the augmentation by which encoders are scored, which is the same for all runs except for flips.

    It is mild, because views that show little of an image are found by features that are useless for it. And it is not
    the run's own, because training learns to ignore whatever its augmentation changes, such as colours.
    """
    return Augment(
        crop_scale=(0.4, 1.0), flip=augment.flip, brightness=0.2, contrast=0.2, saturation=0.2, hue=0.05, grayscale=0.0
    )


def score_views(
    augment: Augmenter, images: ImageRows, represent: Callable[[Tensor], Tensor], device: torch.device | None = None
) -> ViewScore:
    """Score a representation by two views of each image; for the parameters, see `features_of_views`."""
    features = features_of_views(augment, images, represent, device=device)
    rows = features.flatten(0, 1).double().cpu()
    rank = effective_rank(eigenvalues(torch.cov(rows.T).view(rows.shape[1], -1))) if rows.isfinite().all() else 0.0
    return ViewScore(view_retrieval(features), rank)


@torch.no_grad()
def features_of_views(
    augment: Augmenter,
    images: ImageRows,
    represent: Callable[[Tensor], Tensor],
    *,
    rounds: int = 1,
    device: torch.device | None = None,
) -> Tensor:
    """Return the features of random views, float32 `[V, n, K]`.

    A view depends only on the seed of the augmentation, the number of the image and the number of the view. So all
    representations get the same views, and so does a resumed run.

    Parameters
    ----------
    augment : Augmenter
        The augmentation of the run.
    images : ImageRows
        The images, of which all are used.
    represent : callable
        Maps pixels from 0 to 1, float32 `[n, C, S, S]`, to features `[n, K]`.
    rounds : int
        The number of times that the augmentation makes its views. V is this number times the views of the run.
    device : torch.device, optional
        Where views are made; by default, the device of the images.
    """
    rows = torch.arange(len(images))
    found = []
    for number in range(rounds):
        step = torch.tensor(FIRST_STEP - number)
        parts = []
        for part in rows.split(BATCH):
            pixels = images.take(part)[0]
            pixels = pixels if device is None else pixels.to(device)
            views = augment.pixels(pixels, part.to(pixels.device), step.to(pixels.device))
            parts.append(torch.stack([represent(view).float() for view in views]))
        found.append(torch.cat(parts, 1))
    return torch.cat(found)
