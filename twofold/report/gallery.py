"""The pictures of a page, which `pictures.py` creates: reads them from pictures.json and places them on the page.

Nearest neighbours and augmented views are tiles of a sheet with a tooltip. This module does not import torch, so that
pages are written quickly.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from twofold.checksums import seal, unseal
from twofold.errors import TwofoldError
from twofold.runs.folder import RunFolder

Record = Mapping[str, Any]
Tile = dict[str, Any]

FILE = "pictures.json"
FORMAT = 1
REMEDY = "delete it and run `twofold report` to create it again"


def read_pictures(folder: RunFolder) -> dict[str, Any]:
    """Return the contents of pictures.json, or {} if it is missing or has the format of another version."""
    path = folder.path / FILE
    try:
        kept = unseal(json.loads(path.read_text()), path, REMEDY) if path.exists() else {}
    except ValueError as error:
        raise TwofoldError(f"{path} is not JSON ({error}); {REMEDY}") from None
    if not isinstance(kept, dict) or kept.get("format") != FORMAT:
        return {}
    parts = [part for part in map(kept.get, ("map", "neighbours", "views")) if part is not None]
    if not all(isinstance(part, dict) and is_sheet(part.get("sheet")) for part in parts):
        raise TwofoldError(f"{path} does not have the contents that Twofold writes; {REMEDY}")
    return kept


def write_pictures(folder: RunFolder, pictures: dict[str, Any]) -> None:
    folder.write(FILE, json.dumps(seal(pictures), separators=(",", ":"), allow_nan=False) + "\n")


def is_sheet(record: Any) -> bool:
    """Return whether a record was made by `sheet`.

    A page writes the record into a style without escaping, so the record must not contain anything else.
    """
    if not isinstance(record, dict):
        return False
    numbers = all(isinstance(record.get(key), int) for key in ("side", "gutter", "columns", "rows"))
    address = r"data:image/(png|webp);base64,[A-Za-z0-9+/=]*"
    return numbers and re.fullmatch(address, str(record.get("address"))) is not None


def sheets_of(pictures: Record) -> dict[str, Record]:
    """Return the sheets by their names in the styles of the page."""
    parts = {name: pictures.get(name) for name in ("map", "neighbours", "views")}
    return {name: part["sheet"] for name, part in parts.items() if part is not None}


def style_of(sheets: Record) -> str:
    """Return a CSS rule for each sheet: an element of class `tile` inside `sheet-NAME` shows one of its pictures."""
    return "\n".join(
        f".sheet-{name} .tile {{ background-image: url({sheet['address']}); "
        f"background-size: {_size(sheet, 'columns')} {_size(sheet, 'rows')};"
        # Enlarged small pictures stay sharp.
        f"{' image-rendering: pixelated;' if sheet['side'] < 40 else ''} }}"
        for name, sheet in sheets.items()
    )


def position(sheet: Record, number: int) -> str:
    """Return the `background-position` of a tile: CSS counts it as a percentage of sheet size minus tile size."""
    row, column = divmod(number, sheet["columns"])
    step = _step(sheet)
    parts = ((column, sheet["columns"]), (row, sheet["rows"]))
    return " ".join(
        f"{100 * (place * step + sheet['gutter']) / (count * step - sheet['side']):.4f}%" for place, count in parts
    )


def _size(sheet: Record, count: str) -> str:
    return f"{100 * sheet[count] * _step(sheet) / sheet['side']:.4f}%"


def _step(sheet: Record) -> int:
    """Return the distance from one tile to the next, in pixels."""
    return sheet["side"] + 2 * sheet["gutter"]


def neighbour_rows(pictures: Record) -> dict[str, Any] | None:
    """Return rows of an image and its neighbours. `same` tells whether a neighbour has the label of the image."""
    kept = pictures.get("neighbours")
    if not kept or not kept["each"]:
        return None
    length = kept["each"] + 1
    tiles = [_tile(pictures, kept, number) for number in range(len(kept["index"]))]
    rows = [tiles[start : start + length] for start in range(0, len(tiles), length)]
    compared = 0
    agreeing = 0
    for query, *others in rows:
        for other in others:
            if query["label"] is not None and other["label"] is not None:
                other["same"] = other["label"] == query["label"]
                compared += 1
                agreeing += other["same"]
    counts = {"compared": compared, "agreeing": agreeing, "by_pixels": kept.get("agreeing_by_pixels")}
    return {"rows": rows, "among": kept["among"], **counts}


def _tile(pictures: Record, kept: Record, number: int) -> Tile:
    label = kept["labels"][number]
    classes = pictures.get("classes")
    if label is not None and classes:
        label = classes[label]
    name = kept["names"][number] or f"image {kept['index'][number]}"
    similarity = kept["similarity"][number]
    words = [name, None if label is None else str(label), f"similarity {similarity:.3f}"]
    return {
        "position": position(kept["sheet"], number),
        "label": label,
        "same": None,
        "title": " · ".join(word for word in words if word),
    }


def view_groups(pictures: Record) -> dict[str, Any] | None:
    """Return groups of an image, its views and its small crops."""
    kept = pictures.get("views")
    if not kept:
        return None
    names = ["the image"]
    names += [f"view {number + 1}" for number in range(kept["views"])]
    names += [f"small crop {number + 1}" for number in range(kept["small_crops"])]
    groups = [
        [
            {"position": position(kept["sheet"], image * len(names) + number), "title": name}
            for number, name in enumerate(names)
        ]
        for image in range(kept["images"])
    ]
    return {"groups": groups, "small_crops": kept["small_crops"], "views": kept["views"]}
