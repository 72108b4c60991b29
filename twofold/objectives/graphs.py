"""Graphs G[rows, rows] that state which samples are related, for the objectives in relational.py.

Shapes: N samples in the batch, V views of each. Rows are ordered view by view: row v·N + n is view v of sample n. A
graph is built for one batch, for example from `groups[index]`, never for the whole data set.
"""

import torch
from torch import Tensor

from twofold.errors import TwofoldError
from twofold.linalg import full_precision

ROWS_AT_ONCE = 1024  # rows of the distance matrix that are computed together


def view_graph(
    samples: int, views: int, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """The graph of self-supervised learning: two rows are related if they are views of the same sample.

    This is Proposition 1 of "The birth of self supervised learning": rows i and j with i mod N = j mod N.

    Parameters
    ----------
    samples : int
        The number N of samples.
    views : int
        The number V of views of each sample.
    device : torch.device or str, optional
        The device of the result.
    dtype : torch.dtype, optional
        The type of the result.

    Returns
    -------
    Tensor [V·N, V·N]
        1 for related rows, else 0.
    """
    return across_views(torch.eye(samples, device=device, dtype=dtype), views)


def across_views(graph: Tensor, views: int) -> Tensor:
    """Extend a graph between samples to a graph between all views of these samples.

    Parameters
    ----------
    graph : Tensor [N, N]
        A graph between samples; the identity gives `view_graph`.
    views : int
        The number V of views of each sample.

    Returns
    -------
    Tensor [V·N, V·N]
        The graph between all views.
    """
    return graph.tile(views, views)


def label_graph(labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """The graph G = Y diag(weights) Yᵀ of labels: rows of the same class are related.

    Parameters
    ----------
    labels : int64 Tensor [N] or Tensor [N, C]
        Class numbers, or a matrix Y. A negative class number means unknown: the row is its own class with weight 1. You
        can therefore use partly known labels: `across_views(label_graph(labels), views)` relates all views of a sample
        and all samples with the same known label.
    weights : Tensor [C], optional
        Weight of each class. Default: 1.

    Returns
    -------
    Tensor [N, N]
        For class numbers, the weight of the class for two rows of the same class, else 0.
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
    """Y with YYᵀ = `label_graph(labels)`: one-hot rows for class numbers; a matrix is returned unchanged.

    Counting the classes would make the host wait for the device. Therefore Y has as many columns as rows: a class has
    the column of its first row, and the other columns are 0.
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
        f"labels are {labels.dtype} of shape {list(labels.shape)}: give integer class numbers [N] or a matrix [N, C]"
    )


def _same_class(labels: Tensor) -> Tensor:
    """bool [N, N]: whether two rows have the same known class. The diagonal is always True."""
    identity = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    return ((labels[:, None] == labels) & (labels >= 0)) | identity


def group_graph(index: Tensor, groups: Tensor, weights: Tensor | None = None) -> Tensor:
    """The graph of groups (patient, video, burst, duplicates): two samples are related if they share a group.

    Parameters
    ----------
    index : int64 Tensor [N]
        Indices of the batch's samples in the data set.
    groups : int64 Tensor
        The group number of every sample in the data set; negative for a sample without a group.
    weights : Tensor, optional
        Weight of each group. Default: 1.

    Returns
    -------
    Tensor [N, N]
    """
    return label_graph(groups.index_select(0, index), weights)


def balanced_weights(labels: Tensor, classes: int) -> Tensor:
    """Class weights that compensate for imbalanced classes: n/(classes · count).

    Parameters
    ----------
    labels : int64 Tensor [N]
        Class numbers; negative ones are unknown and are not counted.
    classes : int
        Number of classes.

    Returns
    -------
    Tensor [classes]
        The weights; n is the number of known labels, count that of the class. A class without labels has weight 0.
    """
    known = (labels >= 0).to(torch.get_default_dtype())
    counts = torch.zeros(classes, dtype=known.dtype, device=labels.device)
    counts = counts.index_add(0, labels.clamp_min(0), known)
    return torch.where(counts > 0, known.sum() / (classes * counts.clamp_min(1)), 0)


def combine(*graphs: Tensor) -> Tensor:
    """The union of graphs [N, N]: their elementwise maximum."""
    result = graphs[0]
    for graph in graphs[1:]:
        result = torch.maximum(result, graph)
    return result


def knn_graph(features: Tensor, k: int) -> Tensor:
    """The graph of nearest neighbours: two rows are related if either is among the k nearest rows of the other.

    Parameters
    ----------
    features : Tensor [N, K]
        Compared by Euclidean distance.
    k : int
        Number of neighbours of each row.

    Returns
    -------
    Tensor [N, N]
        1 for related rows and on the diagonal, else 0.
    """
    index = torch.arange(len(features), device=features.device)
    return neighbour_graph(index, nearest_neighbours(features, k))


def neighbour_graph(index: Tensor, neighbours: Tensor) -> Tensor:
    """The graph of known neighbours: two samples are related if either is a neighbour of the other.

    Parameters
    ----------
    index : int64 Tensor [N]
        Indices of the batch's samples in the data set.
    neighbours : int64 Tensor [n, k]
        Indices of the k neighbours of every sample in the data set, for example from `nearest_neighbours`.

    Returns
    -------
    Tensor [N, N]
        1 for related samples and on the diagonal, else 0.
    """
    related = index[:, None] == index
    for column in neighbours.index_select(0, index).unbind(dim=1):
        related = related | (column[:, None] == index)
    return (related | related.T).to(torch.get_default_dtype())


@torch.no_grad()
@full_precision
def nearest_neighbours(features: Tensor, k: int) -> Tensor:
    """The k nearest other rows of each row of features[n, K] by Euclidean distance: int64 [n, k], nearest first."""
    n = len(features)
    if not 1 <= k < n:
        raise TwofoldError(f"k={k} is too many or too few neighbours for {n} rows: k must be from 1 to {n - 1}")
    found = []
    for start in range(0, n, ROWS_AT_ONCE):
        rows = features[start : start + ROWS_AT_ONCE]
        # From differences: with matrix products, rows far from the origin would lose the digits of small distances.
        distance = torch.cdist(rows, features, compute_mode="donot_use_mm_for_euclid_dist")
        distance.diagonal(offset=start).fill_(torch.inf)
        found.append(distance.topk(k, dim=1, largest=False).indices)
    return torch.cat(found)
