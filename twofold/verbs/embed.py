"""`embed`: the features of images under a run's encoder, as a file.

n images, K feature dimension.
"""

import dataclasses
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from twofold.config import Config
from twofold.data.sources import Data, open_source
from twofold.data.store import ImageStore
from twofold.device import choose_device
from twofold.display import Display, Stage
from twofold.evaluate.features import stream
from twofold.files import writing
from twofold.precision import autocast_of
from twofold.runs.provenance import as_trained, is_own
from twofold.runs.run import Run, read_data
from twofold.runs.weights import load_encoder
from twofold.verbs.feature_files import Catalogue, writer_for


def embed(
    run: str | Path | Run,
    data: Any,
    out: str | Path,
    *,
    encoder: nn.Module | None = None,
    quiet: bool = True,
    display: Display | None = None,
) -> Path:
    """Features of every image of `data` under a run's encoder, in the order of their index, as .npz, .csv or .parquet.

    With them: index, split, and labels and file names where there are any. Labels are −1, and names empty, in a split
    that has none. `split` is the data's own; of the run's own data it says what the run held out.
    """
    out = Path(out)
    write = writer_for(out)
    display = display or Display(quiet=quiet)
    used = open_encoder(run, encoder)
    images = Images(read_all(used.path, used.config, data, display))
    aside = out.with_name(f".{out.name}.part")
    with writing(out):
        try:
            with display.stage("embedding", len(images)) as stage:
                write(aside, images.catalogue, used.blocks(images, stage))
            aside.replace(out)
        finally:
            aside.unlink(missing_ok=True)
    return out


@dataclass(frozen=True, eq=False)
class Used:
    """A run's encoder, ready on a device."""

    path: Path
    config: Config
    encoder: nn.Module
    device: torch.device

    def autocast(self) -> AbstractContextManager[Any]:
        return autocast_of(self.config.precision, self.device)()

    def blocks(self, images: "Images", progress: Stage | None = None) -> Iterator[np.ndarray]:
        """Features, float32 [rows, K], block by block."""
        batches = stream(
            self.encoder,
            images,
            self.encoder.preprocess,  # type: ignore[arg-type]
            device=self.device,
            autocast=self.autocast,
            progress=progress,
        )
        return (batch.float().cpu().numpy() for batch in batches)


def open_encoder(run: str | Path | Run, encoder: nn.Module | None = None) -> Used:
    path = Path(run)
    config = Run(path).config
    device = choose_device("auto")
    return Used(path, config, load_encoder(path, encoder=encoder).to(device), device)


def read_all(run: Path, config: Config, data: Any, display: Display) -> Data:
    """All images of a source. Those of the run's own data are split as the run did, so that what it decoded is used."""
    named = isinstance(data, (str, Path))
    own = named and config.data in (str(data), str(Path(data).expanduser().resolve()))
    with display.stage("looking at images", 0) as stage:
        source = open_source(
            str(data) if named else data,
            data_dir=config.data_dir,
            class_list=config.class_list if own else None,
            progress=stage,
            to_train=False,
        )
    source = as_trained(run, config, source, display.say)
    own = own or is_own(run, source)
    read = read_data(config if own else dataclasses.replace(config, test_fraction=0.0), source, display, rest=True)
    if read.skipped:
        first = read.skipped[0]
        display.say(f"{len(read.skipped)} images could not be read and are left out; {first.path}: {first.reason}")
    return read


class Images:
    """All images of a source in the order of their index, whichever split holds them."""

    def __init__(self, data: Data):
        held_out = [store for store in (data.test, data.rest) if store is not None]
        self.stores = [data.train, *held_out]
        index = torch.cat([store.index for store in self.stores])
        home = torch.cat([torch.full((len(store),), number) for number, store in enumerate(self.stores)])
        row = torch.cat([torch.arange(len(store)) for store in self.stores])
        order = index.argsort()
        self.home, self.row = home[order], row[order]
        self.catalogue = Catalogue(
            index[order].numpy(),
            (self.home > 0).numpy(),
            self._labels(order),
            self._files(order),
            data.classes,
        )

    def __len__(self) -> int:
        return len(self.home)

    def take(self, rows: Tensor) -> tuple[Tensor, None]:
        """uint8 [N, C, H, W] of these rows."""
        shape = self.stores[0].images.shape[1:]
        images = torch.empty((len(rows), *shape), dtype=torch.uint8)
        for number, store in enumerate(self.stores):
            here = self.home[rows] == number
            images[here] = store.take(self.row[rows[here]])[0]
        return images, None

    def _labels(self, order: Tensor) -> np.ndarray | None:
        if all(store.labels is None for store in self.stores):
            return None
        return torch.cat([_labels_of(store) for store in self.stores])[order].numpy()

    def _files(self, order: Tensor) -> list[str] | None:
        if all(store.files is None for store in self.stores):
            return None
        names = [name for store in self.stores for name in (store.files or [""] * len(store))]
        return [names[number] for number in order.tolist()]


def _labels_of(store: ImageStore) -> Tensor:
    return torch.full((len(store),), -1) if store.labels is None else store.labels
