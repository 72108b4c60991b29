"""`search`: find the images that are most similar to a query, by the features of any encoder.

torch is imported only if features must be computed, because that takes longer than the search.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from twofold.data.decode import crop_and_resize, decode_image, with_8_bits
from twofold.data.decode_options import Unreadable
from twofold.data.open import open_to_use
from twofold.data.registry import NAMED_SETS
from twofold.data.source import Source
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.files import read_regular
from twofold.keys import Count, checked
from twofold.runs.folder import RunFolder
from twofold.verbs import feature_bank
from twofold.verbs.feature_bank import Bank

if TYPE_CHECKING:
    from torch import nn

    from twofold.evaluate.opened import Opened, What

Query = str | Path | Image.Image


@dataclass(frozen=True)
class Match:
    """An image that `search` found."""

    similarity: float  # cosine similarity of the features, at most 1
    index: int  # number of the image in the source
    file: str | None  # path relative to the folder of the source
    name: str | None  # class, if there are labels


def search(
    run: What,
    data: Any,
    queries: Query | Sequence[Query],
    *,
    k: int = 10,
    encoder: str | nn.Module | None = None,
    image_size: int | None = None,
    adapter: bool = True,
    views: int = 1,
    quiet: bool = True,
    display: Display | None = None,
) -> list[list[Match]]:
    """Find the images in `data` that are most similar to each query.

    Twofold keeps the features of `data` and of query files in its cache. A search that finds them there takes less than
    a second, and does not import torch.

    Parameters
    ----------
    run : str, Path, Run or nn.Module
        The encoder: a run, a folder that `adapt` wrote, a .safetensors or .onnx file, `efficientnet-lite0` or
        `timm:NAME` with pretrained weights, or a module.
    data
        The images to search, in any form that `pretrain` accepts.
    queries : str, Path, PIL.Image.Image, or a sequence of these
        Image files or Pillow images.
    k : int
        The number of images to return for each query.
    encoder : str or nn.Module, optional
        For a .safetensors file that Twofold did not write: the name of its architecture. For a run that trained your
        own module: a module of the same class.
    image_size : int, optional
        The size of the images, for an encoder that does not state its own, and for `efficientnet-lite0` or `timm:NAME`.
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
    asked = [queries] if isinstance(queries, (str, Path, Image.Image)) else list(queries)
    refuse_queries(asked)
    found = _Search(run, data, encoder, image_size, adapter=adapter, views=views, display=display)
    bank = found.bank()
    features = np.concatenate([found.query(one, bank) for one in asked])
    similarity, rows = feature_bank.most_similar(features, bank, k)
    return [
        [found.match(value, int(bank.index[row])) for value, row in zip(values, numbers, strict=True)]
        for values, numbers in zip(similarity.clip(-1, 1).tolist(), rows.tolist(), strict=True)
    ]


def refuse_queries(queries: Sequence[Any]) -> None:
    """Raise an error if there is no query, or one of another type."""
    if not queries:
        raise TwofoldError("there is no query: give at least one image file or Pillow image")
    for query in queries:
        if not isinstance(query, (Image.Image, str, Path)):
            raise TwofoldError(f"a query must be an image file or a Pillow image, not a {type(query).__name__}")


class _Search:
    """The images of a search, and the encoder, which is opened only if features must be computed."""

    def __init__(
        self, what: What, data: Any, module: Any, image_size: int | None, *, adapter: bool, views: int, display: Display
    ):
        self.data, self.display = data, display
        path = os.fspath(what) if isinstance(what, (str, os.PathLike)) else None  # a module has no path

        @once
        def opened() -> Opened:
            from twofold.evaluate.opened import open_any

            return open_any(what, data, display, module=module, image_size=image_size, adapter=adapter, views=views)

        self.opened = opened
        self.identity: str | None = None
        if path is not None:
            self.identity = feature_bank.identity_of(path, module, image_size, adapter=adapter, views=views)
        self.source = self._open(path)

    def _open(self, path: str | None) -> Source:
        values: Any = None
        if path is not None and (folder := Path(path).expanduser()).is_dir():
            if (folder / "config.json").exists():
                values = RunFolder(folder).config_record()["values"]
            elif str(self.data) in NAMED_SETS:
                values = self.opened().config
        with self.display.stage("scanning images", 0) as stage:
            return open_to_use(self.data, values, stage)

    def bank(self) -> Bank:
        """Return the features of all images, from the cache if they are there."""
        identity = self.identity
        if identity is None:
            from twofold.runs.weights import fingerprint

            opened = self.opened()
            weights = fingerprint(opened.encoder.network.state_dict())
            identity = f"{weights}|{opened.encoder.network}|{opened.preprocess}|{opened.encoder.views}"
        key = feature_bank.key_of(identity, self.source)
        return feature_bank.read_bank(key, self.source) or self._compute(key)

    def _compute(self, key: str) -> Bank:
        from twofold.verbs.all_images import AllImages, read_all_images

        opened = self.opened()
        images = AllImages(read_all_images(opened, self.data, self.display, self.source))
        with self.display.stage("embedding", len(images)) as stage:
            blocks = opened.encoder.blocks(images, stage)
            return feature_bank.write_bank(key, self.source, images.index.numpy(), blocks)

    def query(self, query: Query, bank: Bank) -> np.ndarray:
        """Return the features [1, K] of a query, of unit length: from the bank, from the cache, or computed."""
        if isinstance(query, Image.Image):
            return self._encode(query)
        path = Path(query).expanduser()
        if (row := self._row_of(path, bank)) is not None:
            return bank.rows[row : row + 1]
        try:
            key = feature_bank.query_key(bank, read_regular(path))
        except OSError:
            return self._encode(path)  # which raises the error
        known = feature_bank.read_rows(key)
        if known is not None and known.images.shape[1] == 4 * bank.rows.shape[1]:
            return known.images.view(np.float32)
        features = self._encode(path)
        feature_bank.write_row(key, features[0])
        return features

    def _row_of(self, path: Path, bank: Bank) -> int | None:
        """Return the row of a file that is one of the images, otherwise None."""
        location = Path(self.source.location)
        folder = location if location.is_dir() else location.parent
        try:
            name = str((path.parent.resolve() / path.name).relative_to(folder))
            number = self._number_of(name)
        except ValueError:  # a file elsewhere, or one that is not among the images
            return None
        (row,) = np.searchsorted(bank.index, [number]).tolist()
        return row if row < len(bank.index) and bank.index[row] == number else None

    def _number_of(self, name: str) -> int:
        """Return the number of a file in the source, or raise ValueError if it is not one of the images."""
        first = 0
        for split in (self.source.train, self.source.test):
            names = None if split is None else split.names(np.arange(len(split)))
            if names is not None and name in names:
                return first + names.index(name)
            first += 0 if split is None else len(split)
        raise ValueError(f"{name} is not one of the images")

    def _encode(self, query: Path | Image.Image) -> np.ndarray:
        """Compute the features [1, K] of a query, of unit length.

        A file is decoded like the files of a source, so that a search for a copy of one finds it with similarity 1.
        """
        opened = self.opened()
        size, channels = opened.preprocess.image_size, opened.preprocess.channels
        pixels: Any = query
        try:
            if not isinstance(query, Image.Image):
                pixels = decode_image(query, size, channels, opened.preprocess.decode)
            elif opened.encoder.views > 1:  # views are crops of pixels
                pixels = crop_and_resize(with_8_bits(query, opened.preprocess.decode), size, channels)
        except Unreadable as error:
            raise TwofoldError(f"the query {query} cannot be read: {error}; pass the path of an image file") from None
        return feature_bank.unit_rows(opened.encoder.encode(pixels).numpy())

    def match(self, similarity: float, number: int) -> Match:
        """Describe the image of this number."""
        split, row = self.source.train, number
        if number >= len(split) and self.source.test is not None:
            split, row = self.source.test, number - len(split)
        label = -1 if split.labels is None else int(split.labels[row])
        classes = self.source.classes
        name = classes[label] if classes is not None and label >= 0 else None
        names = split.names(np.array([row]))
        return Match(similarity, number, names[0] if names else None, name)
