"""Features of another encoder for a graph: those of a teacher, and the nearest neighbours by them.

Features are computed once and kept in the cache with the decoded images.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from twofold import dist
from twofold.config import Config, Graph
from twofold.data import cache
from twofold.data.load import load_data
from twofold.data.source import Data, Source
from twofold.data.store import readonly_tensor
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.encoder import Encoder, open_encoder
from twofold.evaluate.features import Subset
from twofold.evaluate.neighbours import nearest_rows, unit
from twofold.runs.preprocess import Preprocess
from twofold.runs.weights import fingerprint

BY_FEATURES = ("neighbours", "teacher")  # sources that use the features of `graph.encoder`
QUERIES = 1024  # images whose neighbours are searched at a time
BLOCK = 8192  # images that they are compared with at a time


def with_graph_features(config: Config, source: Source, data: Data, display: Display) -> Data:
    """Return the data of a run, whose training images have what its graph needs of another encoder."""
    graph = config.parameters.get("graph")
    if not isinstance(graph, Graph):
        return data
    return add_graph_features(graph, source, data, (config.test_fraction, config.unlabelled_fraction), display)


def add_graph_features(
    graph: Graph, source: Source, data: Data, fractions: tuple[float, float], display: Display
) -> Data:
    """Return the data, whose training images have the features of `graph.encoder`, or their neighbours by these.

    `fractions` are the fractions of labelled and of unlabelled images that are held out.
    """
    if graph.encoder is None:
        return data
    if graph.source not in BY_FEATURES:
        raise TwofoldError(f"graph.encoder has no effect with graph.source={graph.source}: leave it out")
    encoder = open_encoder(graph.encoder, lambda: source, say=display.say)
    identity = f"{fingerprint(encoder.network.state_dict())} {encoder.preprocess}"
    read = _images_for(encoder, source, data, fractions)
    with dist.one_before_the_others():
        features = _cached_features(encoder, identity, read, display)
    if graph.source == "teacher":
        return replace(data, train=replace(data.train, features=features, graph_encoder=identity))
    if data.train.objects is not None:
        features = features[data.train.objects.first]
    if not 1 <= graph.neighbours < len(features):
        raise TwofoldError(
            f"graph.neighbours={graph.neighbours} is not possible for {len(features)} images: use fewer neighbours"
        )
    with display.stage("nearest neighbours", len(features)) as stage:
        found = nearest_others(features.to(encoder.device), graph.neighbours, stage)
    return replace(data, train=replace(data.train, neighbours=found, graph_encoder=identity))


def nearest_others(features: Tensor, k: int, progress: Callable[[int, int], None] | None = None) -> Tensor:
    """Return the rows of the k other images with the most similar features by their cosine, int64 [n, k]."""
    rows, found = unit(features), []
    for start in range(0, len(rows), QUERIES):
        _, near = nearest_rows(rows[start : start + QUERIES], rows, k + 1, BLOCK)
        itself = near == torch.arange(start, start + len(near), device=near.device)[:, None]
        itself[~itself.any(dim=1), -1] = True  # among many copies, the image itself may be missing
        found.append(near[~itself].view(len(near), k))
        if progress is not None:
            progress(min(start + QUERIES, len(rows)), len(rows))
    return torch.cat(found)


def _images_for(encoder: Encoder, source: Source, data: Data, fractions: tuple[float, float]) -> Data:
    """Return the images in the size of an encoder, if larger ones than those of the run exist and help."""
    preprocess, (channels, side) = encoder.preprocess, data.train.images.shape[1:3]
    assert isinstance(preprocess, Preprocess)
    if min(preprocess.image_size, source.train.side) <= side and preprocess.channels == channels:
        return data
    with dist.one_before_the_others():
        read = load_data(
            source,
            image_size=preprocess.image_size,
            channels=preprocess.channels,
            test_fraction=fractions[0],
            unlabelled_fraction=fractions[1],
        )
    if not torch.equal(read.train.index.cpu(), data.train.index.cpu()):
        raise TwofoldError(f"the images of {source.name} changed while they were read: run the command again")
    return read


def _cached_features(encoder: Encoder, identity: str, data: Data, display: Display) -> Tensor:
    """Return the features [n, K] of the training images, memory-mapped from the cache; compute them if necessary.

    Runs with images of another size find them too, if the encoder needs larger images than both runs.
    """
    images = data.train
    of_all = f"{identity}|{data.fingerprint}|{len(images)}"
    key = "graph-" + hashlib.blake2b(of_all.encode(), digest_size=16).hexdigest()
    width = encoder.features(Subset(images, torch.arange(min(2, len(images))))).shape[1]
    known = cache.read_set(key, (4 * width,))
    if known is None or len(known.images) != len(images):
        with display.stage("features for the graph", len(images)) as stage:
            blocks = encoder.blocks(images, stage)
            known = cache.write_set(key, (4 * width,), (row.view("uint8") for block in blocks for row in block))
    features = readonly_tensor(known.images).view(torch.float32)
    if not features.isfinite().all():
        raise TwofoldError("the encoder of the graph returned features that are not finite: choose another encoder")
    return features
