"""From what is known about images to the graph of a batch: G as a function of sample indices, never n×n."""

import csv
import hashlib
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from twofold import counter
from twofold.config import Graph
from twofold.data.store import ImageStore
from twofold.errors import TwofoldError, nearest
from twofold.objectives import (
    across_views,
    balanced_weights,
    label_graph,
    nearest_neighbours,
    neighbour_graph,
)

Relation = Callable[[Tensor, int], Tensor]  # (index[N], views) → something of the V·N rows of a batch


def graph_of(graph: Graph, images: ImageStore) -> Relation:
    """(index[N], views) → G[VN, VN], the graph of a batch from its samples' stable indices."""
    if graph.source == "neighbours":
        return _among_neighbours(graph, images)
    groups = group_numbers(graph, images)
    known = int(groups.max()) + 1
    weights = balanced_weights(groups, known).to(images.device) if graph.balance and known > 0 else None
    members = looked_up(groups, images)

    def of(index: Tensor, views: int) -> Tensor:
        return across_views(label_graph(members(index), weights), views)

    return of


def classes_of(graph: Graph, images: ImageStore) -> Relation:
    """(index[N], views) → class numbers [VN]: the group of each row's image, or a number that only its views share."""
    if graph.source == "neighbours" or graph.balance:
        raise TwofoldError(
            "this method needs classes of images: neighbours are no classes, and weights have no meaning"
        )
    groups = group_numbers(graph, images)
    known = int(groups.max()) + 1
    members = looked_up(groups, images)

    def of(index: Tensor, views: int) -> Tensor:
        groups_N = members(index)
        alone_N = known + torch.arange(len(index), device=index.device)
        return torch.where(groups_N >= 0, groups_N, alone_N).repeat(views)

    return of


def looked_up(values: Tensor, images: ImageStore) -> Callable[[Tensor], Tensor]:
    """index[N] → the values[n] of those images of the store."""
    values, own = values.to(images.device), images.index.to(images.device)
    return lambda index: values.index_select(0, torch.searchsorted(own, index))


def group_numbers(graph: Graph, images: ImageStore) -> Tensor:
    """int64 [n]: the group of each image of the store; −1: nothing is known, it is related to itself alone."""
    if graph.source == "views":
        return torch.full((len(images),), -1)
    if graph.source == "labels":
        if images.labels is None:
            raise TwofoldError("graph.source=labels needs labelled images; these have none")
        labels = images.labels.cpu().clone()
        # The same images for every seed: runs with different seeds then know the same labels.
        kept = counter.uniform(counter.key(images.index.cpu(), "graph.labelled")) < graph.labelled_fraction
        return labels.masked_fill(~kept, -1)
    if graph.source == "groups":
        if images.groups is None:
            raise TwofoldError("graph.source=groups needs images with groups: a CSV list with a column called group")
        return images.groups.cpu().clone()
    return _groups_of_file(Path(graph.source), images)


def file_fingerprint(graph: Graph) -> str:
    """A hash of the file of groups; empty where there is none."""
    path = Path(graph.source)
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest() if path.is_file() else ""


def _among_neighbours(graph: Graph, images: ImageStore) -> Relation:
    pixels = images.images.flatten(1).float() / 255
    neighbours = nearest_neighbours(pixels.to(images.device), graph.neighbours)
    own = images.index.to(images.device)

    def of(index: Tensor, views: int) -> Tensor:
        return across_views(neighbour_graph(torch.searchsorted(own, index), neighbours), views)

    return of


def _groups_of_file(path: Path, images: ImageStore) -> Tensor:
    """Rows `name or index, group`; a first row that names no image is a heading. Images not listed have no group."""
    try:
        with path.open(newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        known = ["views", "labels", "groups", "neighbours"]
        hint = nearest(str(path), known) if not path.exists() else f": {error}"
        raise TwofoldError(f"graph.source={path} is no file of groups{hint}") from None
    names = {str(index): place for place, index in enumerate(images.index.tolist())}
    names |= {name: place for place, name in enumerate(images.files or ())}
    numbers: dict[str, int] = {}
    groups = torch.full((len(images),), -1)
    listed = 0
    for row in rows:
        if len(row) < 2:
            raise TwofoldError(f"{path}: a row must be a file name or index and a group, not '{','.join(row)}'")
        if row[0] in names:
            groups[names[row[0]]] = numbers.setdefault(row[1].strip(), len(numbers))
            listed += 1
    if listed == 0:
        example = next(iter(images.files or ())) if images.files else str(int(images.index[0]))
        raise TwofoldError(f"{path} names none of the training images; they are called like '{example}'")
    return groups
