"""Write groups of near-identical images as JSON, CSV or text, for `twofold duplicates --out`."""

import csv
import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from twofold import files
from twofold.errors import TwofoldError
from twofold.files import write_atomically

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
