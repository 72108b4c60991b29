"""Frozen records that pass between layers, and how to tell what a value is without importing its library.

N samples, V views of each, C channels, H height, W width, K feature dimension, D embedding dimension. Where there are
small crops beside the views, V is the number of both, and T that of the views alone, which come first; else T = V.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """What the loader hands to the trainer: pixels as stored, and who they are."""

    images: Tensor  # uint8 [N, C, H, W]
    index: Tensor  # int64 [N], the sample's stable number in its source
    position: Tensor  # int64 [N], its place in the global batch: what random draws are keyed by
    labels: Tensor | None  # int64 [N]


@dataclass(frozen=True)
class Embeddings:
    """What the network made of the views; an objective reads what it needs."""

    features: Tensor  # [V, N, K] encoder output
    z: Tensor  # [V, N, D] projector output
    index: Tensor  # int64 [N], the samples' stable numbers
    prediction: Tensor | None = None  # [V, N, D] predictor output
    target: Tensor | None = None  # [T, N, D] teacher's projector output, without gradient


@dataclass(frozen=True)
class LossTerms:
    """`total` is minimised; `terms` are its named parts as they enter the total, for curves and messages."""

    total: Tensor
    terms: Mapping[str, Tensor]


def is_of(value: Any, library: str, *names: str) -> bool:
    """Whether `value` has one of these types of torch or numpy. As long as nobody has imported the library, no value
    has, and it need not be imported to know that."""
    types = (getattr(sys.modules.get(library), name, None) for name in names)
    return isinstance(value, tuple(each for each in types if each is not None))
