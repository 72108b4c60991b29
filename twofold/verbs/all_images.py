"""All images of a source in one order, for the verbs that process every image: embed, search and diagnose."""

import dataclasses
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from twofold.data.file_names import FileNames
from twofold.data.load import read_data
from twofold.data.open import open_to_use
from twofold.data.source import Data, Source
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.opened import Opened
from twofold.runs.provenance import is_run_source, with_run_split
from twofold.text import plural
from twofold.verbs.feature_files import Catalogue


def read_all_images(opened: Opened, data: Any, display: Display, source: Source | None = None) -> Data:
    """Read all images of a source for an encoder. `source` is the opened `data`, if they are open already.

    A run's own images are split as in the run, so that the images it decoded are found in the cache. For other
    encoders, all images count as training images unless the source has a test set.
    """
    run, config = opened.run, opened.config
    if data is None:
        raise TwofoldError(f"{opened.name} needs images: give DATA")
    if source is None:
        with display.stage("scanning images", 0) as stage:
            source = open_to_use(data, config, stage)
    own, is_named = False, isinstance(data, (str, Path))
    if run is not None:
        source = with_run_split(run, config, source, display.say)
        own = (is_named and source.location == config.data) or is_run_source(run, source)
    read = read_data(
        config if own else dataclasses.replace(config, test_fraction=0.0, unlabelled_fraction=0.0),
        source,
        display,
        rest=True,
    )
    if read.skipped:
        first = read.skipped[0]
        count = plural(len(read.skipped), "image")
        display.say(f"skipped {count} that could not be read; the first is {first.path}: {first.reason}")
    return read


class AllImages:
    """The images of all splits, sorted by their index."""

    def __init__(self, data: Data):
        self.classes = data.classes
        self.stores = [store for store in (data.train, data.test, data.rest) if store is not None]
        index = torch.cat([store.index for store in self.stores])
        place = torch.cat([torch.full((len(store),), number) for number, store in enumerate(self.stores)])
        row = torch.cat([torch.arange(len(store)) for store in self.stores])
        self.order = index.argsort()
        self.index, self.store_number, self.row = index[self.order], place[self.order], row[self.order]

    def __len__(self) -> int:
        return len(self.index)

    def take(self, rows: Tensor) -> tuple[Tensor, None]:
        """Return the images of these rows, uint8 `[N, C, H, W]`. The second value is always None."""
        shape = self.stores[0].images.shape[1:]
        images = torch.empty((len(rows), *shape), dtype=torch.uint8)
        for number, store in enumerate(self.stores):
            here = self.store_number[rows] == number
            images[here] = store.take(self.row[rows[here]])[0]
        return images, None

    @cached_property
    def catalogue(self) -> Catalogue:
        """Index, split, label and file name of every image."""
        held_out = (self.store_number > 0).numpy()
        return Catalogue(self.index.numpy(), held_out, self._labels(), self._files(), self.classes)

    def _labels(self) -> np.ndarray | None:
        if all(store.labels is None for store in self.stores):
            return None
        labels = [torch.full((len(store),), -1) if store.labels is None else store.labels for store in self.stores]
        return torch.cat(labels)[self.order].numpy()

    def _files(self) -> FileNames | None:
        if all(store.files is None for store in self.stores):
            return None
        names = FileNames.of(name for store in self.stores for name in (store.files or [""] * len(store)))
        return names.take(self.order.numpy())
