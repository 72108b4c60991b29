"""`duplicates`: find near-identical images with a trained encoder, and write the groups as JSON, CSV or text."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from twofold import files
from twofold.data.duplicates import THRESHOLD, check_threshold
from twofold.data.load import read_data
from twofold.data.store import ImageStore
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.duplicates import Levelled, near_duplicates
from twofold.evaluate.encoder import open_run_encoder
from twofold.files import write_atomically
from twofold.runs.preprocess import preprocess_of
from twofold.runs.provenance import open_run_source
from twofold.runs.run import Run, config_of
from twofold.verbs.all_images import read_all_images

FORMATS = (".json", ".csv", ".txt")


@dataclass(frozen=True)
class GroupedImage:
    """An image in a group of duplicates."""

    index: int  # the number of the image in the source
    split: str  # train or test
    file: str | None  # path relative to the folder of the source
    similarity: float  # cosine similarity to the most similar other image of the group

    def __str__(self) -> str:
        return self.file or f"{self.split} image {self.index}"


Duplicates = list[tuple[GroupedImage, ...]]


def find_duplicates(
    run: str | Path | Run,
    data: Any = None,
    *,
    threshold: float = THRESHOLD,
    encoder: nn.Module | None = None,
    adapter: bool = True,
    display: Display | None = None,
) -> Duplicates:
    """Find groups of near-identical images.

    Parameters
    ----------
    run : str, Path or Run
        The run whose encoder compares the images.
    data : optional
        The images to search, as for `pretrain`. By default the run's own images.
    threshold : float
        The similarity (at most 1) from which two images count as duplicates. 0.9 finds more duplicates than the default
        0.95, and more false ones.
    encoder : nn.Module, optional
        A module of the same class, if the run trained your own module.
    adapter : bool
        Apply the adapter that `adapt` wrote, if there is one.
    display : Display, optional
        Where progress is printed. By default nothing is printed.

    Returns
    -------
    list of tuple of GroupedImage
        The groups, largest first.
    """
    path, display = Path(run), display or Display(quiet=True)
    check_threshold(threshold)
    config = config_of(path)
    opened = open_run_encoder(path, config, encoder, adapter=adapter, say=display.say)
    opened = replace(opened, preprocess=Levelled(preprocess_of(opened.network)))
    if data is None:
        everything = read_data(config, open_run_source(path, config, display.say), display)
    else:
        everything = read_all_images(path, config, data, display)
    stores = {name: store for name, store in (("train", everything.train), ("test", everything.test)) if store}
    features = []
    for name, store in stores.items():
        with display.stage(f"embedding {name}", len(store)) as stage:
            features.append(opened.features(store.place(opened.device), progress=stage).to(opened.device))
    rows = torch.cat(features)
    with display.stage("comparing images", len(rows)) as stage:
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
    """Return index, split and file name of every image of a split."""
    files: Sequence[str | None] = store.files or [None] * len(store)
    return [(index, split, file) for index, file in zip(store.index.tolist(), files, strict=True)]


def write_duplicates(path: Path, groups: Duplicates) -> Path:
    """Write the groups as JSON, CSV (a line for each image) or text. The suffix of the file name decides."""
    refuse_unwritable_groups(path)
    text = {".json": as_json, ".csv": as_csv, ".txt": as_text}[path.suffix](groups)
    with files.writing(path):
        # File names may have bytes that are not UTF-8.
        write_atomically(path, text.encode("utf-8", "backslashreplace").decode())
    return path


def refuse_unwritable_groups(path: Path) -> None:
    """Refuse a file that cannot be written, before the work instead of after it."""
    if path.suffix not in FORMATS or not path.resolve().parent.is_dir():
        raise TwofoldError(
            f"--out {path}: give a {', '.join(FORMATS[:-1])} or {FORMATS[-1]} file in a folder that exists"
        )
    files.refuse_unwritable(path)


def as_json(groups: Duplicates) -> str:
    return json.dumps([[asdict(image) for image in group] for group in groups], indent=1) + "\n"


def as_csv(groups: Duplicates) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["group", "similarity", "split", "index", "file"])
    for number, group in enumerate(groups, start=1):
        for image in group:
            writer.writerow([number, f"{image.similarity:.5f}", image.split, image.index, image.file or ""])
    return text.getvalue()


def as_text(groups: Duplicates) -> str:
    """Return a paragraph for each group with a line for each image."""
    return "\n".join(
        "".join([f"{len(group)} images\n", *(f"  {image.similarity:.3f}  {image}\n" for image in group)])
        for group in groups
    )
