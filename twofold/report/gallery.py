"""The pictures of a page, which `pictures.py` creates: reads them from pictures.json and places them on the page.

Nearest neighbours and augmented views are tiles of a sheet with a tooltip. This module does not import torch, so that
pages are written quickly.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from twofold.checksums import seal
from twofold.errors import TwofoldError
from twofold.runs.folder import RunFolder
from twofold.schema import anything, fields, items, number, optional, read_json, text, whole

Record = Mapping[str, Any]
Tile = dict[str, Any]

FILE = "pictures.json"
FORMAT = 1
REMEDY = "delete it and run `twofold report` to create it again"
MOST_TILES = 1000  # in a row or a column of a sheet

# What the file contains. A page writes a sheet into a style without escaping, so the address must be exactly this.
ADDRESS = re.compile(r"data:image/(png|webp);base64,[A-Za-z0-9+/=]*")
SHEET = fields(
    {
        **dict.fromkeys(("side", "gutter"), whole(1, 10**4)),
        **dict.fromkeys(("columns", "rows"), whole(1, MOST_TILES)),
        "address": lambda value: text(value) or ("" if ADDRESS.fullmatch(value) else " is no address of a picture"),
    }
)
COLUMNS = ("index", "held_out", "labels", "names")
ABOUT = {
    "index": items(whole()),
    "held_out": items(whole(0, 1)),
    "labels": items(optional(whole())),
    "names": items(optional(text)),
    "sheet": SHEET,
}
PICTURES = fields(
    {},
    {
        "classes": optional(items(text)),
        "map": optional(
            fields(
                {"x": items(number()), "y": items(number()), "perplexity": number(), "divergence": number(), **ABOUT}
            )
        ),
        "neighbours": optional(
            fields(
                {"each": whole(), "among": whole(), "similarity": items(number()), **ABOUT},
                {"agreeing_by_pixels": optional(whole())},
            )
        ),
        "views": optional(
            fields(
                {"images": whole(1, MOST_TILES), "views": whole(0, MOST_TILES), "small_crops": whole(0, MOST_TILES)}
                | {"sheet": SHEET}
            )
        ),
    },
)


def read_pictures(folder: RunFolder) -> dict[str, Any]:
    """Return the contents of pictures.json, or {} if it is missing or has the format of another version."""
    path = folder.path / FILE
    kept = read_json(path, anything, REMEDY) if path.exists() else {}
    if not isinstance(kept, dict) or kept.get("format") != FORMAT:
        return {}
    if problem := PICTURES(kept) or _unfit_part(kept):
        raise TwofoldError(f"{path} does not have the contents that Twofold writes: {problem.lstrip('.')}; {REMEDY}")
    return kept


def _unfit_part(kept: Record) -> str:
    """Return which columns of a checked record do not fit together, or an empty text."""
    classes = None if kept.get("classes") is None else len(kept["classes"])
    for name, lists in (("map", ("x", "y", *COLUMNS)), ("neighbours", ("similarity", *COLUMNS))):
        if (part := kept.get(name)) is None:
            continue
        count = len(part["index"])
        rows = 1 if name == "map" else part["each"] + 1
        if any(len(part[column]) != count for column in lists) or count % rows or count > _tiles(part["sheet"]):
            return f"{name} has columns of different lengths"
        if classes is not None and any(label is not None and label >= classes for label in part["labels"]):
            return f"{name}.labels has a number that is no class"
    views = kept.get("views")
    if views is not None and views["images"] * (1 + views["views"] + views["small_crops"]) > _tiles(views["sheet"]):
        return "views has fewer pictures than it says"
    return ""


def _tiles(sheet: Record) -> int:
    return sheet["columns"] * sheet["rows"]


def write_pictures(folder: RunFolder, pictures: dict[str, Any]) -> None:
    folder.write(FILE, json.dumps(seal(pictures), separators=(",", ":"), allow_nan=False) + "\n")


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
