"""`search`: find the images that are most similar to a query, by the features of a trained encoder.

In shapes, n is the number of images and K the dimension of the features.
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
from twofold.data.decode import Unreadable, crop_and_resize, decode_image
from twofold.data.store import readonly_tensor
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.encoder import Encoder, open_run_encoder
from twofold.evaluate.neighbours import nearest_rows, unit
from twofold.keys import Count, checked
from twofold.models import feature_dimension
from twofold.runs.preprocess import preprocess_of
from twofold.runs.run import Run, config_of
from twofold.runs.weights import fingerprint
from twofold.verbs.all_images import AllImages, read_all_images

BLOCK = 2**14  # number of features that are compared at a time

Query = str | Path | Image.Image


@dataclass(frozen=True)
class Match:
    """An image that `search` found."""

    similarity: float  # cosine similarity of the features, at most 1
    index: int  # number of the image in the source
    file: str | None  # path relative to the folder of the source
    name: str | None  # class, if there are labels


def search(
    run: str | Path | Run,
    data: Any,
    queries: Query | Sequence[Query],
    *,
    k: int = 10,
    encoder: nn.Module | None = None,
    adapter: bool = True,
    views: int = 1,
    quiet: bool = True,
    display: Display | None = None,
) -> list[list[Match]]:
    """Find the images in `data` that are most similar to each query.

    Twofold keeps the features of `data` in its cache, so the next search is fast.

    Parameters
    ----------
    run : str, Path or Run
        The run whose encoder compares the images.
    data
        The images to search, in any form that `pretrain` accepts.
    queries : str, Path, PIL.Image.Image, or a sequence of these
        Image files or Pillow images.
    k : int
        The number of images to return for each query.
    encoder : nn.Module, optional
        A module of the same class, if the run trained your own module.
    adapter : bool
        Apply the adapter that `adapt` wrote, if there is one.
    views : int
        1, or 5 to average the features of each image and of four crops of it. This takes five times as long.
    quiet : bool
        Print nothing.
    display : Display, optional
        Where progress is printed; the command line passes one.

    Returns
    -------
    list of list of Match
        For each query, the `k` most similar images, best first. A `Match` has `similarity` (cosine), `index`, `file`
        and `name` (the class).

    Examples
    --------
    >>> (matches,) = twofold.search("runs/frossl-photos-1", "photos/", "query.jpg", k=5)  # doctest: +SKIP
    >>> [(match.file, match.similarity) for match in matches]  # doctest: +SKIP
    """
    k = checked("k", k, Count)
    display = display or Display(quiet=quiet)
    path, config = Path(run), config_of(run)
    opened = open_run_encoder(path, config, encoder, adapter=adapter, views=views, say=display.say)
    asked = [queries] if isinstance(queries, (str, Path, Image.Image)) else list(queries)
    if not asked:
        raise TwofoldError("there is no query: give at least one image file or Pillow image")
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
    """Return the features `[1, K]` of a query.

    A file is decoded like the files of a source, so that a search for one of them finds it with similarity 1.
    """
    preprocess = preprocess_of(encoder.network)
    pixels: Any = query
    if not isinstance(query, (Image.Image, str, Path)):
        raise TwofoldError(f"a query must be an image file or a Pillow image, not a {type(query).__name__}")
    try:
        if not isinstance(query, Image.Image):
            pixels = decode_image(Path(query).expanduser(), preprocess.image_size, preprocess.channels)
        elif encoder.views > 1:  # views are crops of pixels
            pixels = crop_and_resize(query, preprocess.image_size, preprocess.channels)
    except Unreadable as error:
        raise TwofoldError(f"the query {query} cannot be read: {error}; pass the path of an image file") from None
    return encoder.encode(pixels)


def _features_from_cache(encoder: Encoder, images: AllImages, fingerprint_of_images: str, display: Display) -> Tensor:
    """Return the features `[n, K]` of all images, memory-mapped from the cache. The first call computes them."""
    preprocess = preprocess_of(encoder.network)
    width = feature_dimension(encoder.network, preprocess.channels, preprocess.image_size)
    weights = fingerprint(encoder.network.state_dict())
    ingredients = (
        weights,
        fingerprint_of_images,
        repr(preprocess),
        str(encoder.device),
        *([] if encoder.views == 1 else [str(encoder.views)]),
    )
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
