"""Read a file that lists images: a .txt with one path per line, or a .csv or .tsv with more columns.

- `.csv` (commas or semicolons) and `.tsv` (tabs): the first row may name the columns `path`, `label`, `group` and
  `split`, in any order; other columns are ignored. Without such a row, the columns are path, label and group, in this
  order. The values of `split` are the names of split folders: `train`, `test`, `val`, …
- `.txt`: each line is a path. If an integer follows the path in every line, these integers are the labels.

Paths are relative to the folder of the list. An empty cell means that the value is unknown.
"""

import csv
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from twofold.data.decode_options import USUAL, DecodeOptions
from twofold.data.image_formats import extensions
from twofold.data.item_split import ItemSplit, ItemSplits
from twofold.data.parallel import Progress
from twofold.data.readers.columns import Cell, number_labels, read_rows
from twofold.data.readers.file_index import index_files, split_of_files
from twofold.data.readers.splits import TEST_NAMES, TRAIN_NAMES
from twofold.errors import TwofoldError, nearest
from twofold.files import read_table

LIST_SUFFIXES = (".txt", ".csv", ".tsv")
COLUMN_NAMES = {
    "path": ("path", "file", "filename", "file_name", "filepath", "file_path", "image", "image_path"),
    "label": ("label", "class", "target", "category"),
    "group": ("group",),
    "object": ("object", "object_id"),
    "split": ("split", "set", "partition"),
}
UNNAMED_COLUMNS = ("path", "label", "group")


@dataclass(frozen=True)
class ListedImage:
    path: str
    label: Cell = None
    group: Cell = None
    object: Cell = None
    split: str = TRAIN_NAMES[0]


def read_list(path: Path, progress: Progress | None = None, options: DecodeOptions = USUAL) -> ItemSplits:
    entries = parse_list(path)
    seen: set[str] = set()
    for entry in entries:
        normalised = os.path.normpath(entry.path)  # ./a.png and a.png are the same file
        if normalised in seen:
            raise TwofoldError(f"{path} lists {entry.path} twice; list each image once")
        seen.add(normalised)
    train = [entry for entry in entries if entry.split in TRAIN_NAMES]
    test = [entry for entry in entries if entry.split not in TRAIN_NAMES]
    if not train:
        raise TwofoldError(f"{path} lists no training images; write one path per line, or set split to train")
    paths = [entry.path for entry in [*train, *test]]
    index = index_files(path.parent, paths, of=path, progress=progress, options=options)
    # A class needs at least one readable image, so labels of unreadable images do not count.
    known = [[None if entry.path in index.reasons else entry.label for entry in part] for part in (train, test)]
    labels, classes = number_labels(*known)
    groups, _ = number_labels([entry.group for entry in train], [entry.group for entry in test])

    refuse_mixed_objects(path, entries)
    objects, _ = number_labels([entry.object for entry in train], [entry.object for entry in test])

    def part(rows: slice, number: int) -> ItemSplit:
        of_part = index.part(rows)
        return split_of_files(path.parent, of_part, labels[number], groups=groups[number], objects=objects[number])

    return part(slice(0, len(train)), 0), part(slice(len(train), None), 1) if test else None, classes


def refuse_mixed_objects(path: Path, entries: Sequence[ListedImage]) -> None:
    """Refuse an object whose images have different labels or groups, or are in the training and in the test set."""
    first: dict[Cell, ListedImage] = {}
    for entry in entries:
        if entry.object is None:
            continue
        other = first.setdefault(entry.object, entry)
        for column in ("label", "group", "split"):
            values = [getattr(each, column) for each in (other, entry)]
            if column == "split":
                values = ["training" if value in TRAIN_NAMES else "test" for value in values]
            if values[0] != values[1]:
                shown = " and ".join(str(value if value is not None else "(empty)") for value in values)
                raise TwofoldError(
                    f"{path}: the object {entry.object} has the {column} {shown}, in {other.path} and {entry.path}; "
                    f"give all images of an object the same {column}"
                )


def parse_list(path: Path) -> list[ListedImage]:
    """Return the rows of a list. The file extension determines the format."""
    try:
        if path.suffix.lower() == ".txt":
            lines = read_table(path).splitlines()
            return _parse_lines([line.strip() for line in lines if line.strip()])
        rows = read_rows(path)
    except (OSError, UnicodeDecodeError) as error:
        raise TwofoldError(f"{path} cannot be read as text: {error}") from None
    except csv.Error as error:
        raise TwofoldError(f"{path} is not a valid CSV table: {error}") from None
    if not rows:
        return []
    columns = _find_columns(path, rows[0][1])
    if columns is not None:
        rows = rows[1:]
    elif len(rows) > 1 and _names_an_image(rows[1][1]) and not _names_an_image(rows[0][1]):
        raise TwofoldError(
            f"the first row of {path} is {', '.join(rows[0][1])}, which is not an image; if it is a header, name the "
            f"column of files {', '.join(COLUMN_NAMES['path'][:3])} or image, and separate columns by commas or "
            "semicolons"
        )
    else:
        columns = dict(zip(UNNAMED_COLUMNS, range(max(len(row) for _, row in rows)), strict=False))
    return [_parse_row(f"{path}, row {number}", row, columns) for number, row in rows]


def _names_an_image(row: Sequence[str]) -> bool:
    # Tabs and bars count as separators here, so that a wrong delimiter is noticed.
    return any(Path(part.strip()).suffix.lower() in extensions() for cell in row for part in re.split(r"[\t|]", cell))


def _parse_lines(lines: Sequence[str]) -> list[ListedImage]:
    labelled = [re.fullmatch(r"(.*\S)\s+(\d+)", line) for line in lines]
    if all(match is not None and Path(match[1]).suffix.lower() in extensions() for match in labelled):
        return [ListedImage(match[1], match[2]) for match in labelled if match is not None]
    return [ListedImage(line) for line in lines]


def _find_columns(path: Path, row: Sequence[str]) -> dict[str, int] | None:
    """Return the position of each known column if the first row names them, otherwise None."""
    names = [cell.strip().lower() for cell in row]
    columns = {
        column: names.index(name) for column, known in COLUMN_NAMES.items() for name in reversed(known) if name in names
    }
    if "path" in columns:
        return columns
    if columns:
        raise TwofoldError(f"{path} has the columns {', '.join(names)}; name the column of files path")
    return None


def _parse_row(where: str, row: Sequence[str], columns: dict[str, int]) -> ListedImage:
    def cell(column: str) -> str:
        place = columns.get(column)
        return row[place].strip() if place is not None and place < len(row) else ""

    if not cell("path"):
        raise TwofoldError(f"{where} has no path of an image; fill the cell, or remove the row")
    split = cell("split").lower() or TRAIN_NAMES[0]
    if split not in (*TRAIN_NAMES, *TEST_NAMES):
        raise TwofoldError(f"{where} has split '{split[:60]}'{nearest(split, [*TRAIN_NAMES, *TEST_NAMES])}")
    return ListedImage(cell("path"), cell("label") or None, cell("group") or None, cell("object") or None, split)
