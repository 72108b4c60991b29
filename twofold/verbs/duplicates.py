"""`duplicates`: near-identical images of a set, found by a run's encoder."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from twofold.data.load import read_data
from twofold.data.store import ImageStore
from twofold.display import Display
from twofold.evaluate.duplicates import THRESHOLD, Levelled, check_threshold, near_duplicates
from twofold.evaluate.encoder import open_run_encoder
from twofold.runs.preprocess import preprocess_of
from twofold.runs.provenance import own_source
from twofold.runs.run import Run
from twofold.verbs.all_images import read_all_images
from twofold.verbs.duplicate_files import Duplicates, GroupedImage


def find_duplicates(
    run: str | Path | Run,
    data: Any = None,
    *,
    threshold: float = THRESHOLD,
    encoder: nn.Module | None = None,
    display: Display | None = None,
) -> Duplicates:
    """Groups of near-identical images among all of `data` (by default what the run was trained on), largest first."""
    path, display = Path(run), display or Display(quiet=True)
    check_threshold(threshold)
    config = Run(path).config
    opened = open_run_encoder(path, config, encoder)
    opened = replace(opened, preprocess=Levelled(preprocess_of(opened.network)))
    if data is None:
        everything = read_data(config, own_source(path, config, display.say), display)
    else:
        everything = read_all_images(path, config, data, display)
    stores = {name: store for name, store in (("train", everything.train), ("test", everything.test)) if store}
    features = []
    for name, store in stores.items():
        with display.stage(f"embedding {name}", len(store)) as stage:
            features.append(opened.features(store.place(opened.device), progress=stage).to(opened.device))
    rows = torch.cat(features)
    with display.stage("comparing", len(rows)) as stage:
        groups = near_duplicates(rows, threshold, progress=stage)
    images = [known for name, store in stores.items() for known in identities(name, store)]
    return [
        tuple(
            GroupedImage(*images[row], similarity)
            for row, similarity in zip(group.rows, group.similarities, strict=True)
        )
        for group in groups
    ]


def identities(split: str, store: ImageStore) -> list[tuple[int, str, str | None]]:
    files: Sequence[str | None] = store.files or [None] * len(store)
    return [(index, split, file) for index, file in zip(store.index.tolist(), files, strict=True)]
