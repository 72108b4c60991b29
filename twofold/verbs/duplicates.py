"""Near-identical images of a set, found by a run's encoder: what `twofold duplicates` lists."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from twofold import files
from twofold.data.store import ImageStore
from twofold.device import choose_device
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.duplicates import THRESHOLD, check_threshold, levelled, near_duplicates
from twofold.evaluate.features import extract
from twofold.files import write_atomically
from twofold.precision import autocast_of
from twofold.runs.provenance import own_source
from twofold.runs.run import Run, read_data
from twofold.runs.weights import Preprocess, load_encoder
from twofold.verbs.embed import read_all

FORMATS = (".json", ".csv", ".txt")


@dataclass(frozen=True)
class Image:
    """One of a group."""

    index: int  # its number in the source
    split: str  # train or test
    file: str | None  # below the source's folder
    similarity: float  # to the most similar other of the group

    def __str__(self) -> str:
        return self.file or f"{self.split} image {self.index}"


Duplicates = list[tuple[Image, ...]]


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
    network = load_encoder(path, encoder=encoder)
    device = choose_device("auto")
    if data is None:
        everything = read_data(config, own_source(path, config, display.say), display)
    else:
        everything = read_all(path, config, data, display)
    stores = {name: store for name, store in (("train", everything.train), ("test", everything.test)) if store}
    features = []
    for name, store in stores.items():
        with display.stage(f"embedding {name}", len(store)) as stage:
            features.append(
                extract(
                    network.to(device),
                    store.place(device),
                    Levelled(network.preprocess),  # type: ignore[arg-type]
                    device=device,
                    autocast=autocast_of(config.precision, device),
                    progress=stage,
                ).to(device)
            )
    rows = torch.cat(features)
    with display.stage("comparing", len(rows)) as stage:
        groups = near_duplicates(rows, threshold, progress=stage)
    images = [known for name, store in stores.items() for known in identities(name, store)]
    return [
        tuple(Image(*images[row], similarity) for row, similarity in zip(group.rows, group.similarities, strict=True))
        for group in groups
    ]


class Levelled:
    """Pixels as the encoder takes them, after every image was brought to one brightness and contrast."""

    def __init__(self, preprocess: Preprocess):
        self.preprocess = preprocess

    def __call__(self, images: Tensor) -> Tensor:
        mean, std = self.preprocess.mean.view(-1, 1, 1), self.preprocess.std.view(-1, 1, 1)
        level = levelled(self.preprocess(images) * std + mean)
        return (level * std.mean() + mean.mean() - mean) / std


def identities(split: str, store: ImageStore) -> list[tuple[int, str, str | None]]:
    files: Sequence[str | None] = store.files or [None] * len(store)
    return [(index, split, file) for index, file in zip(store.index.tolist(), files, strict=True)]


def write_duplicates(path: Path, groups: Duplicates) -> Path:
    """As JSON, CSV (a line for each image) or text, by the ending of the name."""
    refuse_unwritable(path)
    text = {".json": as_json, ".csv": as_csv, ".txt": as_text}[path.suffix](groups)
    with files.writing(path):
        write_atomically(path, text.encode("utf-8", "backslashreplace").decode())  # names need not be text
    return path


def refuse_unwritable(path: Path) -> None:
    if path.suffix not in FORMATS or not path.resolve().parent.is_dir():
        raise TwofoldError(f"--out {path}: groups are written as {', '.join(FORMATS)}, into a folder that exists")
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
    """A group is a paragraph, an image a line."""
    return "\n".join(
        "".join([f"{len(group)} images\n", *(f"  {image.similarity:.3f}  {image}\n" for image in group)])
        for group in groups
    )
