"""Relations between samples, G[rows, rows], for the objectives of relational.py.

N samples of a batch, V views of each. Rows are ordered view by view: row v·N + n is view v of sample n. A graph belongs
to one batch: it is built from what is known of the batch's samples, such as `groups[index]`, never for the whole set.
"""

import torch
from torch import Tensor

from twofold.errors import TwofoldError
from twofold.linalg import full_precision

ROWS_AT_ONCE = 1024  # of a distance matrix


def view_graph(
    samples: int, views: int, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """G[VN, VN]: 1 where two rows are views of one sample, i mod N = j mod N (Proposition 1)."""
    return across_views(torch.eye(samples, device=device, dtype=dtype), views)


def across_views(graph: Tensor, views: int) -> Tensor:
    """G[N, N] between samples, carried over to all views of them: [VN, VN]. The identity gives `view_graph`."""
    return graph.tile(views, views)


def label_graph(labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """G = Y diag(weights) Yᵀ: for class numbers, the class's weight (or 1) where two rows share a class.

    A negative number is an unknown class: that row is a class of its own, of weight 1. So `across_views` of the graph
    of partly known labels joins all views of a sample, and all samples that are known to be alike.
    """
    if _is_matrix(labels):
        y = labels if labels.is_floating_point() else labels.to(torch.get_default_dtype())
        return (y if weights is None else y * weights.to(y)) @ y.T
    same = _same_class(labels)
    if weights is None:
        return same.to(torch.get_default_dtype())
    weight = torch.where(labels >= 0, weights[labels.clamp_min(0).long()], 1)
    return same * weight


def label_matrix(labels: Tensor) -> Tensor:
    """Y with YYᵀ = `label_graph(labels)`: a matrix as it is, or one-hot rows for class numbers.

    The number of classes is not known without asking the host, so there are as many columns as rows, and a class has
    the column of its first row; the others are empty.
    """
    if _is_matrix(labels):
        return labels
    columns = torch.arange(len(labels), device=labels.device)
    first = _same_class(labels).to(torch.uint8).argmax(dim=1)
    return (first[:, None] == columns).to(torch.get_default_dtype())


def _is_matrix(labels: Tensor) -> bool:
    if labels.dim() == 2:
        return True
    if labels.dim() == 1 and not labels.is_floating_point():
        return False
    raise TwofoldError(
        f"labels must be integer class numbers [N] or a matrix [N, C], not {labels.dtype} of shape {list(labels.shape)}"
    )


def _same_class(labels: Tensor) -> Tensor:
    """bool [N, N]; the diagonal is always True."""
    identity = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    return ((labels[:, None] == labels) & (labels >= 0)) | identity


def group_graph(index: Tensor, groups: Tensor, weights: Tensor | None = None) -> Tensor:
    """G[N, N] for the samples `index` of a set: 1 where both are of one group (patient, video, burst, duplicates).

    `groups[n]` has the group's number for every sample of the set, negative for those of none.
    """
    return label_graph(groups.index_select(0, index), weights)


def balanced_weights(labels: Tensor, classes: int) -> Tensor:
    """[classes]: n/(classes · count), n and count of known labels only: against imbalance. An empty class has 0."""
    known = (labels >= 0).to(torch.get_default_dtype())
    counts = torch.zeros(classes, dtype=known.dtype, device=labels.device)
    counts = counts.index_add(0, labels.clamp_min(0), known)
    return torch.where(counts > 0, known.sum() / (classes * counts.clamp_min(1)), 0)


def combine(*graphs: Tensor) -> Tensor:
    """The union of relations: the larger entry of each."""
    result = graphs[0]
    for graph in graphs[1:]:
        result = torch.maximum(result, graph)
    return result


def knn_graph(features: Tensor, k: int) -> Tensor:
    """G[N, N]: 1 where either row is among the k nearest others of the other (Euclidean), and on the diagonal."""
    index = torch.arange(len(features), device=features.device)
    return neighbour_graph(index, nearest_neighbours(features, k))


def neighbour_graph(index: Tensor, neighbours: Tensor) -> Tensor:
    """G[N, N] for the samples `index` of a set: 1 where either is a neighbour of the other, and on the diagonal.

    `neighbours[n, k]` has the numbers of the neighbours of every sample of the set, as `nearest_neighbours` gives them.
    """
    related = index[:, None] == index
    for column in neighbours.index_select(0, index).unbind(dim=1):
        related = related | (column[:, None] == index)
    return (related | related.T).to(torch.get_default_dtype())


@torch.no_grad()
@full_precision
def nearest_neighbours(features: Tensor, k: int) -> Tensor:
    """int64 [n, k]: the k nearest other rows of each row, nearest first."""
    n = len(features)
    if not 1 <= k < n:
        raise TwofoldError(f"{n} rows have no {k} nearest neighbours: k must be from 1 to {n - 1}")
    found = []
    for start in range(0, n, ROWS_AT_ONCE):
        rows = features[start : start + ROWS_AT_ONCE]
        # Differences, not products: those of far-off rows would drown the distances between neighbours.
        distance = torch.cdist(rows, features, compute_mode="donot_use_mm_for_euclid_dist")
        distance.diagonal(offset=start).fill_(torch.inf)
        found.append(distance.topk(k, dim=1, largest=False).indices)
    return torch.cat(found)
