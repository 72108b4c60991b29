"""The nearest rows by cosine similarity: exact, in blocks, so that no matrix of all pairs is ever held."""

import torch
from torch import Tensor
from torch.nn import functional


def nearest(query: Tensor, bank: Tensor, k: int, block: int) -> tuple[Tensor, Tensor]:
    """The k largest similarities of each query (rows of unit length), descending, and their rows in the bank."""
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
    return functional.normalize(features.to(torch.promote_types(features.dtype, torch.float32)), dim=1)
