"""Exact search for the rows of highest cosine similarity, in blocks, so that no matrix of all pairs is stored."""

import torch
from torch import Tensor
from torch.nn import functional


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
