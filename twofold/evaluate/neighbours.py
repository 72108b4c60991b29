"""Exact search for the rows of highest cosine similarity, in blocks, so that no matrix of all pairs is stored."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import functional

ALMOST_ONE = 1 - 1e-6  # a unit row in float32 may have this similarity with itself


def nearest_rows(query: Tensor, bank: Tensor, k: int, block: int) -> tuple[Tensor, Tensor]:
    """Return the k largest similarities of each query, descending, and their row numbers in the bank.

    The queries must have unit length; the rows of the bank are normalised here.
    """
    similarity = query.new_empty(len(query), 0)
    neighbour = torch.empty(len(query), 0, dtype=torch.int64, device=query.device)
    for start in range(0, len(bank), block):
        here = query @ unit(bank[start : start + block]).to(query.dtype).T
        value, column = here.topk(min(k, here.shape[1]))
        similarity = torch.cat([similarity, value], 1)
        neighbour = torch.cat([neighbour, column + start], 1)
        similarity, kept = similarity.topk(min(k, similarity.shape[1]))
        neighbour = neighbour.gather(1, kept)
    return similarity, neighbour


def unit(features: Tensor) -> Tensor:
    """Scale rows to unit length, at least in float32."""
    return functional.normalize(features.to(torch.promote_types(features.dtype, torch.float32)), dim=1)


def pairs_above(
    rows: Tensor, threshold: float, block: int, progress: Callable[[int, int], None] | None = None
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield all pairs of unit rows that are at least this similar, in blocks: first, second > first, similarity."""
    for start in range(0, len(rows), block):
        query = rows[start : start + block]
        for other in range(start, len(rows), block):
            here = query @ rows[other : other + block].T
            close = here >= min(threshold, ALMOST_ONE)
            if other == start:
                close = close.triu(diagonal=1)
            first, second = close.nonzero(as_tuple=True)
            if len(first):
                yield first + start, second + other, here[first, second]
        if progress is not None:
            progress(start + len(query), len(rows))
