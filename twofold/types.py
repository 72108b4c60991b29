"""Frozen data classes that pass between layers, and a type check that does not import the library of a type.

In shapes, N is the number of samples, V the number of views of each, C the number of channels, H the height, W the
width, K the width of the features, and D the width of the embeddings. T is the number of full-size views. If there are
also small crops, they follow the full-size views, and V counts both; otherwise T = V.
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
    """A batch from the loader: stored pixels, and the identity of each sample."""

    # uint8 [N, C, H, W], the pixels; with sizes: [N, L, C, W], the lines of data/pictures.py. If samples have several
    # images: [N, F, …], the image of each of F views, and sizes [N, F, 2].
    images: Tensor
    index: Tensor  # int64 [N], the stable index of each sample in its source
    position: Tensor  # int64 [N], the position of each sample in the global batch; random numbers depend on it
    labels: Tensor | None  # int64 [N], the class of each sample; None without labels
    sizes: Tensor | None = None  # int64 [N, 2], height and width of each picture; None if all pixels are used


@dataclass(frozen=True)
class Embeddings:
    """The outputs of the networks for the views of a batch. An objective uses the fields that it needs."""

    features: Tensor  # [V, N, K], the encoder's output
    z: Tensor  # [V, N, D], the projector's output
    index: Tensor  # int64 [N], the stable index of each sample
    prediction: Tensor | None = None  # [V, N, D], the predictor's output
    target: Tensor | None = None  # [T, N, D], the output of the teacher's projector, without gradient


@dataclass(frozen=True)
class LossTerms:
    """The loss and its terms."""

    total: Tensor  # [], the loss that training minimises
    terms: Mapping[str, Tensor]  # the named terms of the loss, with their weights, for curves and messages


def is_of(value: Any, library: str, *names: str) -> bool:
    """Whether `value` has one of these types of a library.

    This does not import the library: as long as no one has imported it, no value can have its types.
    """
    types = (getattr(sys.modules.get(library), name, None) for name in names)
    return isinstance(value, tuple(each for each in types if each is not None))
