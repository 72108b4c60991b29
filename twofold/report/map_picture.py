"""The map of the features as a PNG picture, for model cards. It shows dots and no images."""

import io
import warnings
from collections.abc import Mapping
from typing import Any

MOST_NAMED = 20  # classes in the legend
LONGEST = 24  # characters of a name in the legend
INCHES, DOTS_PER_INCH = (8.0, 5.0), 125
GREY = "#5d6570"


def draw_map(pictures: Mapping[str, Any]) -> bytes:
    """Return the map in the contents of pictures.json as a PNG file."""
    from matplotlib import colormaps  # imported here, because this takes a second
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    kept, classes = pictures["map"], pictures.get("classes") or []
    known = sorted({label for label in kept["labels"] if label is not None})
    names = {label: str(classes[label]) if label < len(classes) else str(label) for label in known}
    palette = colormaps["tab10" if len(known) <= 10 else "tab20" if len(known) <= MOST_NAMED else "turbo"]
    figure = Figure(figsize=INCHES, layout="constrained")
    axes = figure.add_subplot()
    for place, label in enumerate([None, *known]):
        rows = [row for row, own in enumerate(kept["labels"]) if own == label]
        if not rows:
            continue
        shade = place - 1 if len(known) <= MOST_NAMED else (place - 1) / max(len(known) - 1, 1)
        axes.scatter(
            [kept["x"][row] for row in rows],
            [kept["y"][row] for row in rows],
            s=14,
            linewidths=0,
            alpha=0.85,
            color=GREY if label is None else palette(shade),
            # A dollar sign would begin a formula, and a label that begins with "_" would be left out.
            label=None if label is None else "\u200b" + shortened(names[label]).replace("$", r"\$"),
        )
    axes.set_aspect("equal")
    axes.set_axis_off()
    if 0 < len(known) <= MOST_NAMED:
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=9)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # characters that the font does not have
        FigureCanvasAgg(figure).print_figure(
            file, dpi=DOTS_PER_INCH, bbox_inches="tight", pad_inches=0.1, metadata={"Software": None}
        )
    return file.getvalue()


def shortened(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
