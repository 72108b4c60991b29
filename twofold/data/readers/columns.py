"""Read tables, and turn labels and groups into numbers. An empty cell becomes UNKNOWN.

The readers of lists, shards, arrays and Datasets use this module, and so do methods that read a graph from a CSV file.
"""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twofold.data.image_formats import extensions
from twofold.data.item_split import UNKNOWN
from twofold.errors import TwofoldError
from twofold.files import read_table

Cell = str | int | None  # None: empty


def read_rows(path: Path) -> list[tuple[int, list[str]]]:
    """Return the non-empty rows of a CSV or TSV file, each with its row number (from 1)."""
    text = read_table(path)  # drops the byte order mark that Excel writes
    return [
        (number, row)
        for number, row in enumerate(csv.reader(io.StringIO(text), delimiter=find_delimiter(path, text)), 1)
        if any(row)
    ]


def find_delimiter(path: Path, text: str) -> str:
    """Return the delimiter: a tab in a .tsv, otherwise a comma or a semicolon.

    Spreadsheets write semicolons in countries where numbers have a decimal comma. A file name may contain one too.
    """
    if path.suffix.lower() == ".tsv":
        return "\t"
    first = next((line for line in text.splitlines() if line.strip()), "")
    one_name = Path(first.strip().strip('"')).suffix.lower() in extensions()
    return ";" if ";" in first and "," not in first and not one_name else ","


def number_labels(*columns: Sequence[Cell]) -> tuple[list[np.ndarray | None], tuple[str, ...] | None]:
    """Replace each cell by the int64 number of its value among the sorted values of all columns.

    Returns one array for each column (None if the column is empty), and the values as text. Numbers that are written as
    text are sorted as numbers.
    """
    values = {cell for column in columns for cell in column if cell is not None}
    if not values:
        return [None] * len(columns), None
    ordered = sorted(values, key=_numeric_order)
    number: dict[Cell, int] = {value: place for place, value in enumerate(ordered)} | {None: UNKNOWN}
    found = [np.array([number[cell] for cell in column], np.int64) for column in columns]
    return [column if (column != UNKNOWN).any() else None for column in found], tuple(str(value) for value in ordered)


def parse_label(value: Any, where: str) -> Cell:
    """Return a label as text or as an integer. A one-hot vector becomes an integer; NaN and pandas' NA become None."""
    if value is None or type(value).__name__ == "NAType":
        return None
    if isinstance(value, str):
        return value or None
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace") or None
    try:
        number = _one_hot_class(value) if getattr(value, "ndim", 0) == 1 and len(value) > 1 else value
        number = number.item() if hasattr(number, "item") else number
        if isinstance(number, float) and math.isnan(number):
            return None
        if number == int(number):
            return None if int(number) < 0 else int(number)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass
    raise TwofoldError(f"{where} has the label {str(value)[:60]!r}; use integers or text, or None if it is unknown")


def _one_hot_class(value: Any) -> int:
    """Return the class of a one-hot vector."""
    parts = value.tolist()
    if sorted(parts) != [0] * (len(parts) - 1) + [1]:
        raise ValueError("not a one-hot vector")
    return parts.index(1)


def _numeric_order(value: str | int) -> tuple[int, int, str]:
    text = str(value)
    whole = text.lstrip("-")
    return (0, int(text), text) if whole.isascii() and whole.isdigit() and len(text) < 19 else (1, 0, text)
