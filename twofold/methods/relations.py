"""From what is known about images to the graph of a batch: G as a function of sample indices, never n×n."""

import csv
import hashlib
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from twofold import counter
from twofold.config import Graph
from twofold.data.readers.columns import read_rows
from twofold.data.store import ImageStore
from twofold.errors import TwofoldError, nearest
from twofold.objectives import (
    across_views,
    balanced_weights,
    label_graph,
    nearest_neighbours,
    neighbour_graph,
)

SOURCES = ("views", "labels", "groups", "neighbours")  # any other is a file
Relation = Callable[[Tensor, int], Tensor]  # (index[N], views) → something of the V·N rows of a batch
FEW_GROUPS = 9  # that ask for at most eight dimensions, which verdicts call few


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


def few_groups(graph: Graph, images: ImageStore) -> str:
    """Why few dimensions are what the graph asks for, in words; empty where it asks for more."""
    if graph.source in ("views", "neighbours"):
        return ""
    groups = group_numbers(graph, images)
    known = int(groups.max()) + 1
    if known > FEW_GROUPS or bool((groups < 0).any()):
        return ""
    return f"All images are in one of {known} groups, which ask for no more dimensions than that."


def looked_up(values: Tensor | None, images: ImageStore) -> Callable[[Tensor], Tensor]:
    """index[N] → the values[n] of those images of the store."""
    if values is None:
        raise TwofoldError("there is nothing to look up: these images have no labels, or no groups; give data that do")
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


def file_coverage(graph: Graph, images: ImageStore, held_out: ImageStore | None) -> str:
    """Of how many images a file of groups speaks, in words; empty where there is no file."""
    if graph.source in SOURCES:
        return ""
    path = Path(graph.source)
    groups = _groups_of_file(path, images)
    grouped = groups[groups >= 0]
    known = _places(images).keys() | ({} if held_out is None else _places(held_out)).keys()
    strays = sum(name not in known for name, _ in _rows_of_file(path)[1:])  # the first may be a heading
    unknown = f"; {strays:,} rows name no image" if strays else ""
    return f"{len(grouped):,} of {len(images):,} images have a group, {len(grouped.unique()):,} groups{unknown}: {path}"


def _among_neighbours(graph: Graph, images: ImageStore) -> Relation:
    pixels = images.images.flatten(1).float() / 255
    neighbours = nearest_neighbours(pixels.to(images.device), graph.neighbours)
    own = images.index.to(images.device)

    def of(index: Tensor, views: int) -> Tensor:
        return across_views(neighbour_graph(torch.searchsorted(own, index), neighbours), views)

    return of


def _groups_of_file(path: Path, images: ImageStore) -> Tensor:
    """Rows `name or index, group`; a first row that names no image is a heading. Images not listed have no group."""
    places = _places(images)
    numbers: dict[str, int] = {}
    groups = [-1] * len(images)
    for name, group in _rows_of_file(path):
        if name not in places or not group:  # an empty cell is unknown, as in a list of images
            continue
        place, number = places[name], numbers.setdefault(group, len(numbers))
        if groups[place] not in (-1, number):
            other = list(numbers)[groups[place]]
            raise TwofoldError(f"{path} has the image '{name}' twice, in groups '{other}' and '{group}': keep one")
        groups[place] = number
    if not numbers:
        example = next(iter(images.files or ())) if images.files else str(int(images.index[0]))
        raise TwofoldError(f"{path} names none of the training images; they are called like '{example}'")
    return torch.tensor(groups)


def _rows_of_file(path: Path) -> list[tuple[str, str]]:
    try:
        rows = [row for _, row in read_rows(path)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        hint = nearest(str(path), list(SOURCES)) if not path.exists() else f": {error}"
        raise TwofoldError(f"graph.source={path} is no file of groups{hint}") from None
    for row in rows:
        if len(row) < 2:
            raise TwofoldError(f"{path}: a row must be a file name or index and a group, not '{','.join(row)}'")
    return [(row[0], row[1].strip()) for row in rows]


def _places(images: ImageStore) -> dict[str, int]:
    """Where in the store an image is, by its index and by its file's name."""
    places = {str(index): place for place, index in enumerate(images.index.tolist())}
    return places | {name: place for place, name in enumerate(images.files or ())}
