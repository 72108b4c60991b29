"""Maps of runs (t-SNE of their features) next to each other in one SVG picture, and the small form in records."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from twofold.report import gallery
from twofold.runs.folder import RunFolder
from twofold_papers.reproduce.svg import GAP, legend, sheet, text

GRID = 999  # coordinates are rounded to whole numbers from 0 to this
PALETTE = ["#2f6fd0", "#e8842c", "#2c9c5a", "#d1394b", "#8a5cc9", "#8c6140", "#de6fb5", "#6d7682", "#b5a417", "#17a6bd"]
SIDE, TITLE, DOT = 360, 28, 4  # sizes in a panel, in pixels

Map = Mapping[str, Any]  # a map as a record keeps it


def kept_map(run: Path) -> Map | None:
    """The positions and classes of the images on the map of a finished run; None if the run has no map."""
    kept = gallery.read_pictures(RunFolder(run))
    found = kept.get("map")
    if found is None:
        return None
    place = {axis: [round((value + 1) / 2 * GRID) for value in found[axis]] for axis in ("x", "y")}
    labels = [-1 if label is None else label for label in found["labels"]]
    return place | {"labels": labels, "classes": kept["classes"]}


def side_by_side(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """An SVG with the map and title of each record, and a legend of the classes below."""
    panels = [(title, record["map"]) for title, record in runs]
    width = len(panels) * (SIDE + GAP) + GAP
    classes = panels[0][1]["classes"] or []
    parts = [panel(title, found, GAP + number * (SIDE + GAP)) for number, (title, found) in enumerate(panels)]
    colours = [(name, colour(number, len(classes))) for number, name in enumerate(classes)]
    names, bottom = legend(colours, width, TITLE + SIDE + GAP)
    return sheet(width, bottom + GAP, parts + names)


def panel(title: str, found: Map, left: int) -> str:
    """A map: one path for each class, with a square for each image."""
    scale = (SIDE - DOT) / GRID
    squares: dict[int, list[str]] = {}
    for x, y, label in zip(found["x"], found["y"], found["labels"], strict=True):
        corner = f"M{left + x * scale:.0f} {TITLE + (GRID - y) * scale:.0f}"
        squares.setdefault(label, []).append(f"{corner}h{DOT}v{DOT}h-{DOT}z")
    count = len(found["classes"] or [])
    paths = [
        f'<path fill="{colour(label, count)}" fill-opacity=".75" d="{"".join(squares[label])}"/>'
        for label in sorted(squares)
    ]
    frame = f'<rect x="{left - 4}" y="{TITLE - 4}" width="{SIDE + 8}" height="{SIDE + 8}" fill="none" stroke="#ccc"/>'
    return "\n".join([text(left, 18, title, 14), frame, *paths])


def colour(label: int, classes: int) -> str:
    """The colour of a class, as in a report: ten distinct colours, or hues that turn by the golden angle."""
    if not 0 <= label < classes:
        return "#999"
    return PALETTE[label] if classes <= len(PALETTE) else f"hsl({label * 137.508 % 360:.0f} 60% 50%)"
