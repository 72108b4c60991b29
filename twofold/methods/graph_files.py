"""Read a graph of images from a file: groups of images, or weighted pairs of images.

- A table (.csv, .tsv) with a heading: a column of images and a column of groups; or two columns of images and, if they
  are weighted, a column of weights. Other columns are ignored if one column is called `group`.
- A table without a heading: image and group; or two images and a weight.
- What `twofold duplicates --out` writes: .csv, .json or .txt.

What can be read in two ways is refused, because a run would train on the wrong one without a sign of it.
"""

import csv
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from twofold.data.readers.columns import read_rows
from twofold.errors import TwofoldError
from twofold.files import read_table

PATHS = ("path", "file", "filename", "file_name", "filepath", "file_path", "image", "image_path", "name")
PAIRS = (("first", "second"), ("source", "target"), ("from", "to"), ("a", "b"), ("left", "right"))
STEMS = ("path", "file", "filename", "image", "name", "index")  # file1,file2 or file_a,file_b
ENDINGS = (("1", "2"), ("_1", "_2"), ("_a", "_b"))
PAIR_NAMES = (*PAIRS, *((stem + one, stem + two) for stem in STEMS for one, two in ENDINGS))
WEIGHTS = ("weight", "similarity", "score")
NO_GROUPS = ("index", "split", "set", "partition", *WEIGHTS)  # columns that never name groups

Pair = tuple[str, str, float]


@dataclass(frozen=True)
class GraphFile:
    """The content of a file: groups or pairs of images, which are named by their file or their index."""

    groups: list[tuple[str, str]] = field(default_factory=list)  # image, group
    pairs: list[Pair] = field(default_factory=list)
    column: str = ""  # the heading of the groups, if there are other columns and it is not `group`

    @property
    def images(self) -> list[str]:
        """The image of every row, for pairs both of them."""
        return [image for image, _ in self.groups] + [image for pair in self.pairs for image in pair[:2]]


def read_graph(path: Path, names: frozenset[str]) -> GraphFile:
    """Read a file.

    Parameters
    ----------
    path
        The file.
    names
        The names of all known images: file names and indices. They tell a heading from a first row.
    """
    try:
        if path.suffix.lower() == ".json":
            return _of_json(path)
        if path.suffix.lower() == ".txt" and (found := _of_paragraphs(path)) is not None:
            return found
        rows = [[cell.strip() for cell in row] for _, row in read_rows(path)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TwofoldError(f"graph.source={path} cannot be read as a CSV file of groups: {error}") from None
    if not rows:
        return GraphFile()
    short = next((row for row in rows if len(row) < 2), None)
    if short is not None:
        raise TwofoldError(f"{path}: each row must be a file name or index and a group, not '{','.join(short)}'")
    heading = [cell.lower() for cell in rows[0]]
    if heading[0] == heading[1] and heading[0] in (*PATHS, "index"):  # such as "name,name,weight"
        heading[:2] = PAIRS[0]
    if is_heading(rows[0], names):
        return _with_heading(path, heading, rows[1:])
    return _without_heading(path, rows, names)


def is_heading(row: Sequence[str], names: frozenset[str]) -> bool:
    """Return whether a first row names columns: it has a known title, and no image."""
    known = {*PATHS, *NO_GROUPS, "group", *(name for pair in PAIR_NAMES for name in pair)}
    is_title = not row[0].isdecimal()  # a number is the index of an image, even of one that is not among the names
    return names.isdisjoint(row) and (
        (len(row) == 2 and is_title) or not known.isdisjoint(cell.lower() for cell in row)
    )


def _with_heading(path: Path, heading: list[str], rows: list[list[str]]) -> GraphFile:
    def cells(title: str) -> list[str]:
        at = heading.index(title)
        return [row[at] if at < len(row) else "" for row in rows]

    listed = ", ".join(heading)
    pair = next((pair for pair in PAIR_NAMES if set(pair) <= set(heading)), None)
    weight = next((title for title in WEIGHTS if title in heading), None)
    if pair is not None and "group" in heading:
        raise TwofoldError(
            f"{path} has the columns {listed}: these can be groups (column group) or pairs (columns "
            f"{' and '.join(pair)}); leave one out"
        )
    if pair is not None:
        weights = [_weight(path, text) for text in cells(weight)] if weight else [1.0] * len(rows)
        return GraphFile(pairs=list(zip(cells(pair[0]), cells(pair[1]), weights, strict=True)))
    image = next((title for title in PATHS if title in heading), None)
    by_index = cells("index") if "index" in heading else [""] * len(rows)
    if image is None and "index" not in heading and len(heading) == 2:
        image = heading[0]  # such as "picture,patient"
    if image is None and "index" not in heading:
        raise TwofoldError(f"{path} has the columns {listed}: name the column of images path or index")
    images = [name or index for name, index in zip(cells(image) if image else by_index, by_index, strict=True)]
    others = [title for title in heading if title not in (*NO_GROUPS, image)]
    column = "group" if "group" in others else others[0] if len(others) == 1 else None
    if column is None and not others:
        raise TwofoldError(f"{path} has the columns {listed}, and none of them names groups: add a column group")
    if column is None:
        choice = " or ".join(f"by {title}" for title in others)
        raise TwofoldError(f"{path} has the columns {listed}, and the groups can be {choice}: name one column group")
    is_plain = column == "group" or len(heading) == 2
    return GraphFile(groups=list(zip(images, cells(column), strict=True)), column="" if is_plain else column)


def _without_heading(path: Path, rows: list[list[str]], names: frozenset[str]) -> GraphFile:
    width = max(map(len, rows))
    are_files = all(row[1] in names and not row[1].isdecimal() for row in rows)
    if width == 2:
        if are_files:
            raise TwofoldError(
                f"{path} has two images in each row: these can be pairs of images, or images with groups that are "
                "named after images; add the heading first,second for pairs, or path,group for groups"
            )
        return GraphFile(groups=[(row[0], row[1]) for row in rows])
    are_numbers = width == 3 and all(len(row) == 3 and _is_number(row[2]) for row in rows)
    are_pairs = are_numbers and all(row[0] in names and row[1] in names for row in rows)
    if are_pairs and (are_files or any(not row[2].isdecimal() for row in rows)):
        return GraphFile(pairs=[(row[0], row[1], _weight(path, row[2])) for row in rows])
    readings = "pairs of images with a weight (first,second,weight)" if are_pairs else "images with labels and groups"
    more = "path,label,group" if width == 3 else "path,group and the names of the other columns"
    raise TwofoldError(
        f"{path} has {width} columns without a heading, such as '{','.join(rows[0])}': the groups can be in column 2 "
        f"or in column 3, or the rows are {readings}; add a heading, for example {more}"
    )


def _of_json(path: Path) -> GraphFile:
    """Read the groups of duplicates that `twofold duplicates --out FILE.json` writes."""
    try:
        content = json.loads(read_table(path))
        groups = [
            (str(image["file"] or image["index"]), str(number))
            for number, group in enumerate(content)
            for image in group
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise TwofoldError(
            f"{path} is not a file of groups: give a CSV file, or what `twofold duplicates --out` writes"
        ) from None
    return GraphFile(groups=groups)


def _of_paragraphs(path: Path) -> GraphFile | None:
    """Read the text that `twofold duplicates --out FILE.txt` writes; None if the file has another form."""
    groups, number = [], 0
    for line in filter(None, read_table(path).splitlines()):
        if re.fullmatch(r"\d+ images", line):
            number += 1
        elif number and (found := re.fullmatch(r"  \d\.\d{3}  (?:(?:train|test) image (\d+)|(.+))", line)):
            groups.append((found[1] or found[2], str(number)))
        else:
            return None
    return GraphFile(groups=groups)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _weight(path: Path, text: str) -> float:
    if not _is_number(text) or float(text) < 0:
        raise TwofoldError(f"{path} has the weight '{text}': weights must be numbers of at least 0")
    return float(text)
