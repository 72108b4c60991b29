"""Graphs of related images: G for one batch as a function of its sample indices, never for the whole data set."""

import csv
import hashlib
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from twofold import counter
from twofold.config import Graph
from twofold.data.duplicates import BLOCK, levelled, near_duplicates
from twofold.data.readers.columns import read_rows
from twofold.data.store import ImageStore
from twofold.errors import TwofoldError, nearest, path_close_to
from twofold.objectives import (
    across_views,
    balanced_weights,
    label_graph,
    nearest_neighbours,
    neighbour_graph,
)
from twofold.text import plural

SOURCES = ("views", "labels", "groups", "neighbours", "duplicates")  # any other source is a file
THUMBNAIL = 16  # side of the images that are compared to find duplicates, in pixels
Relation = Callable[[Tensor, int], Tensor]  # (index[N], views) → graph or classes of the V·N rows of a batch
FEW_GROUPS = 9  # so many groups need at most eight dimensions, which verdicts call few


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
    """(index[N], views) → class numbers [VN]: the group of a row's image; an image without one is its own class."""
    if graph.source == "neighbours" or graph.balance:
        raise TwofoldError(
            "this method needs classes of images: set graph.source to labels, groups, duplicates, views or a file, "
            "and graph.balance=false"
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
    """Why the graph needs few dimensions, as a sentence; empty if it needs more."""
    if graph.source in ("views", "neighbours", "duplicates"):
        return ""
    groups = group_numbers(graph, images)
    known = int(groups.max()) + 1
    if known > FEW_GROUPS or bool((groups < 0).any()):
        return ""
    return f"All images are in one of {known} groups, which need no more dimensions than that."


def looked_up(values: Tensor | None, images: ImageStore) -> Callable[[Tensor], Tensor]:
    """A function index[N] → values[N], from the values[n] of all images of the store."""
    if values is None:
        raise TwofoldError("there is nothing to look up: these images have no labels or groups; use data with them")
    values, own = values.to(images.device), images.index.to(images.device)
    return lambda index: values.index_select(0, torch.searchsorted(own, index))


def group_numbers(graph: Graph, images: ImageStore) -> Tensor:
    """int64 [n]: the group of each image of the store; −1 if it has none, so that it is related to itself only."""
    if graph.source == "views":
        return torch.full((len(images),), -1)
    if graph.source == "labels":
        if images.labels is None:
            raise TwofoldError("graph.source=labels needs labels, and these images have none: choose another source")
        labels = images.labels.cpu().clone()
        # The draw does not depend on the seed, so that runs with different seeds use the same labels.
        kept = counter.uniform(counter.key(images.index.cpu(), "graph.labelled")) < graph.labelled_fraction
        return labels.masked_fill(~kept, -1)
    if graph.source == "groups":
        if images.groups is None:
            raise TwofoldError("graph.source=groups needs groups: use a CSV list of images with a column 'group'")
        return images.groups.cpu().clone()
    if graph.source == "duplicates":
        return _groups_of_duplicates(images)
    return _groups_of_file(Path(graph.source), images)


def file_fingerprint(graph: Graph) -> str:
    """A hash of the file of groups; empty if there is none."""
    path = Path(graph.source)
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest() if path.is_file() else ""


def file_coverage(graph: Graph, images: ImageStore, held_out: ImageStore | None) -> str:
    """How many training images a file of groups covers, in words; empty if there is no file."""
    if graph.source in SOURCES:
        return ""
    path = Path(graph.source)
    groups = _groups_of_file(path, images)
    grouped = groups[groups >= 0]
    known = _places(images).keys() | ({} if held_out is None else _places(held_out)).keys()
    strays = sum(name not in known for name, _ in _rows_of_file(path)[1:])  # the first row may be a heading
    unknown = f"; no image found for {plural(strays, 'row')}" if strays else ""
    groups_found = plural(len(grouped.unique()), "group")
    return f"{len(grouped):,} of {plural(len(images), 'image')} in {groups_found}{unknown}: {path}"


def _groups_of_duplicates(images: ImageStore) -> Tensor:
    """The group of near-identical images of each image, as `twofold duplicates` finds them, from thumbnails."""
    side = min(THUMBNAIL, *images.images.shape[2:])
    thumbnails = [
        levelled(adaptive_avg_pool2d(images.images[rows].to(images.device).float() / 255, side)).flatten(1)
        for rows in torch.arange(len(images)).split(BLOCK)
    ]
    groups = torch.full((len(images),), -1)
    for number, group in enumerate(near_duplicates(torch.cat(thumbnails))):
        groups[list(group.rows)] = number
    return groups


def _among_neighbours(graph: Graph, images: ImageStore) -> Relation:
    pixels = images.images.flatten(1).float() / 255
    neighbours = nearest_neighbours(pixels.to(images.device), graph.neighbours)
    own = images.index.to(images.device)

    def of(index: Tensor, views: int) -> Tensor:
        return across_views(neighbour_graph(torch.searchsorted(own, index), neighbours), views)

    return of


def _groups_of_file(path: Path, images: ImageStore) -> Tensor:
    """Group numbers from rows of `name or index, group`.

    A first row that names no image counts as a heading. Images that are not listed have no group.
    """
    places = _places(images)
    numbers: dict[str, int] = {}
    groups = [-1] * len(images)
    for name, group in _rows_of_file(path):
        if name not in places or not group:  # an empty cell means no group, as in a list of images
            continue
        place, number = places[name], numbers.setdefault(group, len(numbers))
        if groups[place] not in (-1, number):
            other = list(numbers)[groups[place]]
            raise TwofoldError(f"{path} lists the image '{name}' twice, in groups '{other}' and '{group}': keep one")
        groups[place] = number
    if not numbers:
        example = next(iter(images.files or ())) if images.files else str(int(images.index[0]))
        raise TwofoldError(f"{path} names none of the training images: use their names, such as '{example}'")
    return torch.tensor(groups)


def _rows_of_file(path: Path) -> list[tuple[str, str]]:
    try:
        rows = [row for _, row in read_rows(path)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        if not path.exists():
            close = path_close_to(path)
            hint = nearest(str(path), list(SOURCES)) if close is None else f", did you mean '{close}'?"
            raise TwofoldError(f"graph.source={path} does not exist{hint}") from None
        raise TwofoldError(f"graph.source={path} cannot be read as a CSV file of groups: {error}") from None
    for row in rows:
        if len(row) < 2:
            raise TwofoldError(f"{path}: each row must be a file name or index and a group, not '{','.join(row)}'")
    return [(row[0], row[1].strip()) for row in rows]


def _places(images: ImageStore) -> dict[str, int]:
    """The position of each image in the store, by index and by file name."""
    places = {str(index): place for place, index in enumerate(images.index.tolist())}
    return places | {name: place for place, name in enumerate(images.files or ())}
