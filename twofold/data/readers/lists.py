"""A file that lists images: text with one path on each line, or CSV (tab-separated: .tsv) with further columns.

CSV, with commas or semicolons: the first row may name the columns, in any order: path, label, group, split (of the
names that folders may have); other columns are ignored. Without names they are path, label, group, as many as there
are. Text: a path, or a path and a whole number behind it, the label. Paths are relative to the list's own folder. Empty
cells are unknown.
"""

import csv
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from twofold.data.decode import extensions
from twofold.data.item_split import ItemSplit, ItemSplits
from twofold.data.parallel import Progress
from twofold.data.readers.columns import Cell, number_labels, read_rows
from twofold.data.readers.file_index import index_files, split_of_files
from twofold.data.readers.splits import TEST_NAMES, TRAIN_NAMES
from twofold.errors import TwofoldError, nearest

LIST_SUFFIXES = (".txt", ".csv", ".tsv")
COLUMN_NAMES = {
    "path": ("path", "file", "filename", "file_name", "filepath", "file_path", "image", "image_path"),
    "label": ("label", "class", "target", "category"),
    "group": ("group",),
    "split": ("split", "set", "partition"),
}
UNNAMED_COLUMNS = ("path", "label", "group")


@dataclass(frozen=True)
class ListedImage:
    path: str
    label: Cell = None
    group: Cell = None
    split: str = TRAIN_NAMES[0]


def read_list(path: Path, progress: Progress | None = None) -> ItemSplits:
    entries = parse_list(path)
    seen: set[str] = set()
    for entry in entries:
        normalised = os.path.normpath(entry.path)  # ./a.png is a.png
        if normalised in seen:
            raise TwofoldError(f"{path} lists {entry.path} twice; an image has one number, label and group")
        seen.add(normalised)
    train = [entry for entry in entries if entry.split in TRAIN_NAMES]
    test = [entry for entry in entries if entry.split not in TRAIN_NAMES]
    if not train:
        raise TwofoldError(f"{path} lists no images to train on")
    index = index_files(path.parent, [entry.path for entry in [*train, *test]], of=path, progress=progress)
    # A label of an unreadable image makes no class: none of its images can be learnt or tested.
    known = [[None if entry.path in index.reasons else entry.label for entry in part] for part in (train, test)]
    labels, classes = number_labels(*known)
    groups, _ = number_labels([entry.group for entry in train], [entry.group for entry in test])

    def part(rows: slice, labels: np.ndarray | None, groups: np.ndarray | None) -> ItemSplit:
        return split_of_files(path.parent, index.part(rows), labels, groups=groups)

    test_split = part(slice(len(train), None), labels[1], groups[1]) if test else None
    return part(slice(0, len(train)), labels[0], groups[0]), test_split, classes


def parse_list(path: Path) -> list[ListedImage]:
    """The rows of a list; `path` says by its ending how they are written."""
    try:
        if path.suffix.lower() == ".txt":
            lines = path.read_text(encoding="utf-8-sig").splitlines()
            return _parse_lines([line.strip() for line in lines if line.strip()])
        rows = read_rows(path)
    except (OSError, UnicodeDecodeError) as error:
        raise TwofoldError(f"{path} cannot be read as text: {error}") from None
    except csv.Error as error:
        raise TwofoldError(f"{path} is no table: {error}") from None
    if not rows:
        return []
    columns = _find_columns(path, rows[0][1])
    if columns is not None:
        rows = rows[1:]
    elif len(rows) > 1 and _names_an_image(rows[1][1]) and not _names_an_image(rows[0][1]):
        raise TwofoldError(
            f"{path} begins with {', '.join(rows[0][1])}, which names no image: is it a heading? Then call the column "
            f"of files {', '.join(COLUMN_NAMES['path'][:3])} or image; columns are separated by commas or semicolons"
        )
    else:
        columns = dict(zip(UNNAMED_COLUMNS, range(max(len(row) for _, row in rows)), strict=False))
    return [_parse_row(f"{path}, row {number}", row, columns) for number, row in rows]


def _names_an_image(row: Sequence[str]) -> bool:
    # With what follows a tab or a bar, where these stand for the comma.
    return any(Path(part.strip()).suffix.lower() in extensions() for cell in row for part in re.split(r"[\t|]", cell))


def _parse_lines(lines: Sequence[str]) -> list[ListedImage]:
    labelled = [re.fullmatch(r"(.*\S)\s+(\d+)", line) for line in lines]
    if all(match is not None and Path(match[1]).suffix.lower() in extensions() for match in labelled):
        return [ListedImage(match[1], match[2]) for match in labelled if match is not None]
    return [ListedImage(line) for line in lines]


def _find_columns(path: Path, row: Sequence[str]) -> dict[str, int] | None:
    """Which column is what, where the first row says so."""
    names = [cell.strip().lower() for cell in row]
    columns = {
        column: names.index(name) for column, known in COLUMN_NAMES.items() for name in reversed(known) if name in names
    }
    if "path" in columns:
        return columns
    if columns:
        raise TwofoldError(f"{path} has columns {', '.join(names)}, and none called path")
    return None


def _parse_row(where: str, row: Sequence[str], columns: dict[str, int]) -> ListedImage:
    def cell(column: str) -> str:
        place = columns.get(column)
        return row[place].strip() if place is not None and place < len(row) else ""

    if not cell("path"):
        raise TwofoldError(f"{where} names no image")
    split = cell("split").lower() or TRAIN_NAMES[0]
    if split not in (*TRAIN_NAMES, *TEST_NAMES):
        raise TwofoldError(f"{where} has split '{split[:60]}'{nearest(split, [*TRAIN_NAMES, *TEST_NAMES])}")
    return ListedImage(cell("path"), cell("label") or None, cell("group") or None, split)
