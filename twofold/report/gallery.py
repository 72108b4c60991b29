"""Pictures of a run as a page shows them: tiles of sheets, with what is said of each."""

from collections.abc import Mapping
from typing import Any

Record = Mapping[str, Any]
Tile = dict[str, Any]


def sheets_of(pictures: Record) -> dict[str, Record]:
    """The sheets by the names that the page's styles give them."""
    parts = {name: pictures.get(name) for name in ("map", "neighbours", "views")}
    return {name: part["sheet"] for name, part in parts.items() if part is not None}


def style_of(sheets: Record) -> str:
    """A rule for each sheet, so that an element of class `tile` inside `sheet-NAME` shows a picture of it."""
    return "\n".join(
        f".sheet-{name} .tile {{ background-image: url({sheet['address']}); "
        f"background-size: {_size(sheet, 'columns')} {_size(sheet, 'rows')};"
        # Tiny pictures stay sharp when they are enlarged.
        f"{' image-rendering: pixelated;' if sheet['side'] < 40 else ''} }}"
        for name, sheet in sheets.items()
    )


def position(sheet: Record, number: int) -> str:
    """Where a tile lies in its sheet, as CSS counts: a part of what the sheet is larger than the tile."""
    row, column = divmod(number, sheet["columns"])
    step = _step(sheet)
    parts = ((column, sheet["columns"]), (row, sheet["rows"]))
    return " ".join(
        f"{100 * (place * step + sheet['gutter']) / (count * step - sheet['side']):.4f}%" for place, count in parts
    )


def _size(sheet: Record, count: str) -> str:
    return f"{100 * sheet[count] * _step(sheet) / sheet['side']:.4f}%"


def _step(sheet: Record) -> int:
    """From one tile to the next."""
    return sheet["side"] + 2 * sheet["gutter"]


def neighbour_rows(pictures: Record) -> dict[str, Any] | None:
    """Rows of an image and its neighbours; a neighbour of another label than the image's is marked."""
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
    """Groups of an image, its views, and its small crops."""
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
