"""`search`: the images of a set that are nearest to others, by the features of a run's encoder.

n images, K feature dimension.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from twofold.data import cache
from twofold.data.decode import Unreadable, decode_image
from twofold.data.store import readonly_tensor
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.encoder import Encoder, open_run_encoder
from twofold.evaluate.neighbours import nearest_rows, unit
from twofold.keys import Count, checked
from twofold.models import feature_dimension
from twofold.runs.preprocess import preprocess_of
from twofold.runs.run import Run
from twofold.runs.weights import fingerprint
from twofold.verbs.all_images import AllImages, read_all_images

BLOCK = 2**14  # features compared at a time

Query = str | Path | Image.Image


@dataclass(frozen=True)
class Match:
    similarity: float  # cosine of the two features, at most 1
    index: int  # the image's number in its source
    file: str | None  # below the source's folder
    name: str | None  # its class, where there are labels


def search(
    run: str | Path | Run,
    data: Any,
    queries: Query | Sequence[Query],
    *,
    k: int = 10,
    encoder: nn.Module | None = None,
    quiet: bool = True,
    display: Display | None = None,
) -> list[list[Match]]:
    """For each query (an image file or a Pillow image) its k nearest images of `data`, the nearest first.

    Features of `data` are kept in Twofold's cache, so that the next search among them needs none to be computed.
    """
    k = checked("k", k, Count)
    display = display or Display(quiet=quiet)
    path, config = Path(run), Run(run).config
    opened = open_run_encoder(path, config, encoder)
    asked = [queries] if isinstance(queries, (str, Path, Image.Image)) else list(queries)
    if not asked:
        raise TwofoldError("there is no query: give at least one image file or picture of Pillow's")
    query = torch.cat([_query_features(opened, one) for one in asked])
    read = read_all_images(path, config, data, display)
    images = AllImages(read)
    bank = _features_from_cache(opened, images, read.fingerprint, display)
    similarity, rows = nearest_rows(unit(query), bank, k, BLOCK)
    return [
        [_match(images, *found) for found in zip(values, numbers, strict=True)]
        for values, numbers in zip(similarity.clamp(-1, 1).tolist(), rows.tolist(), strict=True)
    ]


def _query_features(encoder: Encoder, query: Query) -> Tensor:
    """[1, K]. A file is read as files of a source are, so that one of them is found with similarity 1."""
    preprocess = preprocess_of(encoder.network)
    pixels: Any = query
    if not isinstance(query, (Image.Image, str, Path)):
        raise TwofoldError(f"a query is a file or a picture of Pillow's, not a {type(query).__name__}")
    if not isinstance(query, Image.Image):
        try:
            pixels = decode_image(Path(query).expanduser(), preprocess.image_size, preprocess.channels)
        except Unreadable as error:
            raise TwofoldError(f"{query} cannot be searched for: {error}") from None
    return encoder.encode(pixels)


def _features_from_cache(encoder: Encoder, images: AllImages, fingerprint_of_images: str, display: Display) -> Tensor:
    """[n, K], mapped from the cache, where they are put the first time."""
    preprocess = preprocess_of(encoder.network)
    width = feature_dimension(encoder.network, preprocess.channels, preprocess.image_size)
    weights = fingerprint(encoder.network.state_dict())
    ingredients = (weights, fingerprint_of_images, repr(preprocess), str(encoder.device))
    key = "features-" + hashlib.blake2b("|".join(ingredients).encode(), digest_size=16).hexdigest()
    row = (4 * width,)  # bytes of float32
    known = cache.read_set(key, row)
    if known is None or len(known.images) != len(images):
        with display.stage("embedding", len(images)) as stage:
            rows = (features.view("uint8") for block in encoder.blocks(images, stage) for features in block)
            known = cache.write_set(key, row, rows)
    return readonly_tensor(known.images).view(torch.float32)


def _match(images: AllImages, similarity: float, row: int) -> Match:
    known = images.catalogue.row(row)
    return Match(similarity, known["index"], known.get("file") or None, known.get("class") or None)
