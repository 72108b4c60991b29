"""Graphs of related images: G for one batch as a function of its sample indices, never for the whole data set."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from twofold import counter
from twofold.config import Graph
from twofold.data.duplicates import BLOCK, levelled, near_duplicates
from twofold.data.store import ImageStore
from twofold.errors import TwofoldError, nearest, path_close_to
from twofold.methods.graph_files import GraphFile, Pair, read_graph
from twofold.methods.own_function import load_function
from twofold.objectives import (
    across_views,
    balanced_weights,
    label_graph,
    nearest_neighbours,
    neighbour_graph,
)
from twofold.text import plural

SOURCES = ("views", "labels", "groups", "neighbours", "duplicates", "teacher")  # others are a file or a function
THUMBNAIL = 16  # side of the images that are compared to find duplicates, in pixels
Relation = Callable[[Tensor, int], Tensor]  # (index[N], views) → graph or classes of the V·N rows of a batch
FEW_GROUPS = 9  # so many groups need at most eight dimensions, which verdicts call few


def graph_of(graph: Graph, images: ImageStore) -> Relation:
    """(index[N], views) → G[VN, VN], the graph of a batch from its samples' stable indices."""
    pairs = sample_graph(graph, images)
    if pairs is not None:
        return lambda index, views: across_views(pairs(index), views)
    groups = group_numbers(graph, images)
    known = int(groups.max()) + 1
    weights = balanced_weights(groups, known).to(images.device) if graph.balance and known > 0 else None
    members = looked_up(groups, images)

    def of(index: Tensor, views: int) -> Tensor:
        return across_views(label_graph(members(index), weights), views)

    return of


def sample_graph(graph: Graph, images: ImageStore) -> Callable[[Tensor], Tensor] | None:
    """index[N] → G[N, N] of a source that relates pairs of images; None if the source has groups."""
    own = images.index.to(images.device)

    def rows(index: Tensor) -> Tensor:
        return torch.searchsorted(own, index)

    if graph.source == "neighbours":
        neighbours = _neighbours(graph, images)
        return lambda index: neighbour_graph(rows(index), neighbours)
    if graph.source == "teacher":
        labels = _teacher_labels(graph, images).to(images.device)
        return lambda index: label_graph(labels.index_select(0, rows(index)))
    if ":" in graph.source and graph.source.rpartition(":")[0] and not Path(graph.source).exists():
        function = load_function(graph.source, "graph.source")
        return lambda index: _checked_graph(graph, function(index), index)
    if graph.source not in SOURCES and (pairs := _content_of(graph, images).pairs):
        edges = EdgeList.of(Path(graph.source), pairs, images)
        return lambda index: edges.between(rows(index))
    return None


def _checked_graph(graph: Graph, found: Tensor, index: Tensor) -> Tensor:
    """Return what the user's function returned, as a graph; raise an error if it is none."""
    if not isinstance(found, Tensor) or found.shape != (len(index), len(index)):
        shape = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise TwofoldError(
            f"graph.source={graph.source} returned {shape} for {len(index)} images: return weights [N, N]"
        )
    return found.to(index.device, torch.get_default_dtype())


@dataclass(frozen=True, eq=False)
class EdgeList:
    """Weighted pairs of the n images of a store. An image is related to itself with weight 1."""

    keys: Tensor  # int64 [E], ascending: n·i + j of each pair in both directions
    weights: Tensor  # float [E]
    images: int  # n

    @classmethod
    def of(cls, path: Path, pairs: Sequence[Pair], images: ImageStore) -> Self:
        """Collect the pairs of a file, without those of unknown images and of an image with itself."""
        places, found = _places(images), dict[tuple[int, int], float]()
        for first, second, weight in pairs:
            i, j = places.get(first, -1), places.get(second, -1)
            if min(i, j) < 0 or i == j:
                continue
            pair = (min(i, j), max(i, j))
            if found.setdefault(pair, weight) != weight:
                raise TwofoldError(f"{path} lists the images '{first}' and '{second}' with two weights: keep one")
        if not found:
            _refuse_unknown_images(path, images)
        i, j = torch.tensor(list(found)).T
        keys, weights = torch.cat([i * len(images) + j, j * len(images) + i]), torch.tensor([*found.values()] * 2)
        order = keys.argsort()
        device = images.device
        return cls(keys[order].to(device), weights[order].to(device), len(images))

    def between(self, rows: Tensor) -> Tensor:
        """The graph [N, N] between rows [N]."""
        keys = rows[:, None] * self.images + rows
        at = torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)
        weights = torch.where(self.keys[at] == keys, self.weights[at], 0)
        return torch.where(rows[:, None] == rows, 1.0, weights).to(torch.get_default_dtype())


def classes_of(graph: Graph, images: ImageStore) -> Relation:
    """(index[N], views) → class numbers [VN]: the group of a row's image; an image without one is its own class."""
    if graph.balance or sample_graph(graph, images) is not None:
        raise TwofoldError(
            "this method needs classes of images: set graph.source to labels, groups, duplicates, views or a file of "
            "groups, and graph.balance=false"
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
    if graph.source in ("views", "duplicates") or sample_graph(graph, images) is not None:
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
    return _groups_of_file(Path(graph.source), _content_of(graph, images), images)


def graph_fingerprint(graph: Graph, images: ImageStore) -> str:
    """A hash of what the graph takes from elsewhere: a file, or another encoder; empty if it takes nothing."""
    state, path = hashlib.blake2b(digest_size=16), Path(graph.source)
    of_file = path if path.is_file() else Path(graph.source.rpartition(":")[0])
    contents = [of_file.read_bytes()] if of_file.is_file() else []
    # Not of the features: their last digits may differ when they are computed again.
    contents += [images.graph_encoder.encode()] if images.graph_encoder else []
    for content in contents:
        state.update(content)
    return state.hexdigest() if contents else ""


def file_coverage(graph: Graph, images: ImageStore, held_out: ImageStore | None) -> str:
    """How many training images a file covers, and how it was read, in words; empty if there is no file."""
    path = Path(graph.source)
    if graph.source in SOURCES or not path.is_file():
        return ""
    content, places = _content_of(graph, images, held_out), _places(images)
    known = places.keys() | ({} if held_out is None else _places(held_out)).keys()
    strays = sum(image not in known for image in content.images)
    unknown = f"; no image found for {plural(strays, 'row')}" if strays else ""
    if content.pairs:
        covered = {places[image] for image in content.images if image in places}
        pairs = plural(len(content.pairs), "pair")
        return f"{len(covered):,} of {plural(len(images), 'image')} in {pairs}{unknown}: {path}"
    groups = _groups_of_file(path, content, images)
    grouped = groups[groups >= 0]
    by = f" by column '{content.column}'" if content.column else ""
    groups_found = plural(len(grouped.unique()), "group")
    return f"{len(grouped):,} of {plural(len(images), 'image')} in {groups_found}{by}{unknown}: {path}"


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


def _neighbours(graph: Graph, images: ImageStore) -> Tensor:
    """int64 [n, k]: the rows of the nearest images by pixels, or by the features of `graph.encoder`."""
    if images.neighbours is not None:
        return images.neighbours.to(images.device)
    pixels = images.images.flatten(1).float() / 255
    return nearest_neighbours(pixels.to(images.device), graph.neighbours)


def _teacher_labels(graph: Graph, images: ImageStore) -> Tensor:
    """float [n, K]: the teacher's centred features, of unit length, so that all images have the same weight."""
    if images.features is None:
        raise TwofoldError("graph.source=teacher needs the teacher: set graph.encoder, or pass --teacher ENCODER")
    if graph.balance:
        raise TwofoldError("graph.balance weights classes, and a teacher has none: set graph.balance=false")
    centred = images.features.float() - images.features.float().mean(0)
    return centred / centred.norm(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)


def _content_of(graph: Graph, images: ImageStore, held_out: ImageStore | None = None) -> GraphFile:
    """Read the file of a graph. The names of images tell its heading from its first row."""
    path = Path(graph.source)
    if not path.exists():
        close = path_close_to(path)
        advice = f", did you mean '{close}'?" if close else nearest(str(path), list(SOURCES))
        raise TwofoldError(f"graph.source={path} does not exist{advice}")
    stores = [store for store in (images, held_out) if store is not None]
    return read_graph(path, frozenset(name for store in stores for name in _places(store)))


def _groups_of_file(path: Path, content: GraphFile, images: ImageStore) -> Tensor:
    """Group numbers [n] of a file of groups. Images that are not listed have no group."""
    places = _places(images)
    numbers: dict[str, int] = {}
    groups = [-1] * len(images)
    for name, group in content.groups:
        if name not in places or not group:  # an empty cell means no group, as in a list of images
            continue
        place, number = places[name], numbers.setdefault(group, len(numbers))
        if groups[place] not in (-1, number):
            other = list(numbers)[groups[place]]
            raise TwofoldError(f"{path} lists the image '{name}' twice, in groups '{other}' and '{group}': keep one")
        groups[place] = number
    if not numbers:
        _refuse_unknown_images(path, images)
    return torch.tensor(groups)


def _refuse_unknown_images(path: Path, images: ImageStore) -> None:
    example = next(iter(images.files or ())) if images.files else str(int(images.index[0]))
    raise TwofoldError(f"{path} names none of the training images: use their names, such as '{example}'")


def _places(images: ImageStore) -> dict[str, int]:
    """The position of each image in the store, by index and by file name."""
    places = {str(index): place for place, index in enumerate(images.index.tolist())}
    return places | {name: place for place, name in enumerate(images.files or ())}
