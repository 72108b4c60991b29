"""`duplicates`: find near-identical images with any encoder, and write the groups as JSON, CSV or text."""

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
from twofold.evaluate.opened import What, open_any
from twofold.files import write_atomically
from twofold.runs.provenance import open_run_source
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
    run: What,
    data: Any = None,
    *,
    threshold: float = THRESHOLD,
    encoder: str | nn.Module | None = None,
    image_size: int | None = None,
    adapter: bool = True,
    display: Display | None = None,
) -> Duplicates:
    """Find groups of near-identical images.

    Parameters
    ----------
    run : str, Path, Run or nn.Module
        The encoder: a run, a folder that `adapt` wrote, a .safetensors or .onnx file, `efficientnet-lite0` or
        `timm:NAME` with pretrained weights, or a module.
    data : optional
        The images to search, as for `pretrain`. By default the run's own images.
    threshold : float
        The similarity (at most 1) from which two images count as duplicates. 0.9 finds more duplicates than the default
        0.95, and more false ones.
    encoder : str or nn.Module, optional
        For a .safetensors file that Twofold did not write: the name of its architecture. For a run that trained your
        own module: a module of the same class.
    image_size : int, optional
        The size of the images, for an encoder that does not state its own, and for `efficientnet-lite0` or `timm:NAME`.
    adapter : bool
        Apply the adapter that `adapt` wrote, if there is one.
    display : Display, optional
        Where progress is printed. By default nothing is printed.

    Returns
    -------
    list of tuple of GroupedImage
        The groups, largest first.
    """
    display = display or Display(quiet=True)
    check_threshold(threshold)
    opened = open_any(run, data, display, module=encoder, image_size=image_size, adapter=adapter)
    levelling = replace(opened.encoder, preprocess=Levelled(opened.preprocess))
    if data is None and opened.run is not None:
        everything = read_data(opened.config, open_run_source(opened.run, opened.config, display.say), display)
    else:
        everything = read_all_images(opened, data, display)
    stores = {name: store for name, store in (("train", everything.train), ("test", everything.test)) if store}
    features = []
    for name, store in stores.items():
        with display.stage(f"embedding {name}", len(store)) as stage:
            rows = levelling.features(store.place(levelling.device), progress=stage)
            features.append(rows.to(levelling.device))
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
