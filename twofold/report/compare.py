"""Several runs as one page: a table to sort, curves over each other by epoch and by time, maps side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from markupsafe import Markup

from twofold.errors import TwofoldError
from twofold.keys import shown
from twofold.report import charts, gallery, pictures
from twofold.report.charts import Chart, Record, axis, chart, line, thin
from twofold.report.page import duration, last_of, page, per_cent, read_json, read_results, typical_speed
from twofold.train.checkpoint import write_atomically
from twofold.train.outputs import refuse_unwritable, writing
from twofold.train.record import RunFolder

PICTURE_BYTES = 7 * 2**20  # of all sheets: the page stays below 10 MB
COLOURS = 10
TIMES = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))
TEXTS = ("method", "data", "verdict")  # columns of words
Cell = tuple[str, float | None]  # text, and the number it sorts by
HIDDEN_KEYS = ("data_dir", "checkpoint.seconds", "checkpoint.keep", "download", "log", "map_points")  # change nothing


@dataclass(frozen=True)
class Compared:
    """One of the runs: its records, read once, and how it is called and coloured on the page."""

    name: str
    colour: str
    folder: RunFolder

    @cached_property
    def config(self) -> Record:
        return read_json(self.folder.path / "config.json")

    @cached_property
    def results(self) -> Record:
        return read_results(self.folder)

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """Each with the seconds of training until then."""
        seconds = charts.clock(self.timing)
        return [record | {"seconds": seconds.get(record["step"])} for record in self.folder.read("metrics.jsonl")]

    @cached_property
    def timing(self) -> list[dict[str, Any]]:
        return self.folder.read("timing.jsonl")

    @cached_property
    def pictures(self) -> Record:
        return pictures.read(self.folder)

    def last(self, key: str) -> float | None:
        return last_of(self.metrics, key)


def write_comparison(folders: Sequence[RunFolder], out: Path) -> Path:
    if len({folder.path.resolve() for folder in folders}) < 2:
        raise TwofoldError("a comparison needs two runs or more: twofold compare RUN RUN")
    refuse_unwritable(out)
    page = render_comparison(folders)
    with writing(out):
        write_atomically(out, page)
    return out


def render_comparison(folders: Sequence[RunFolder]) -> str:
    names = names_of([folder.path for folder in folders])
    runs = [
        Compared(name, f"map-{number % COLOURS}", folder)
        for number, (name, folder) in enumerate(zip(names, folders, strict=True))
    ]
    sections = {
        "Online accuracy": both_ways(runs, "online_accuracy", axis("accuracy", unit="%"), factor=100, dots=True),
        "Effective rank of the features": both_ways(runs, "features_effective_rank", axis("effective rank", zero=True)),
        "Loss": both_ways(runs, "loss", axis("loss")),
        "Spectrum": [spectrum_chart(runs, of) for of in ("features", "embeddings")],
    }
    sections = {title: [each for each in group if each["series"]] for title, group in sections.items()}
    maps, sheets = map_charts(runs)
    drawn = [each for group in sections.values() for each in group] + maps
    return page(
        "compare.html",
        title=f"{len(runs)} runs compared",
        table=table(runs),
        differences=differences(runs),
        runs=runs,
        notes=NOTES,
        sections={title: group for title, group in sections.items() if group},
        maps=maps,
        sheets=Markup(gallery.style_of(sheets)),
        blob={each["id"]: each for each in drawn},
    )


NOTES = {
    "Online accuracy": "Of a linear classifier that learns beside the encoder, on held-out images.",
    "Effective rank of the features": "How many dimensions of the encoder's output are in use.",
    "Loss": "Losses of different methods are different things: compare them within a method only.",
    "Spectrum": "Eigenvalues at the last step, by size.",
}


def names_of(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell them all apart."""
    resolved = [path.resolve().parts for path in paths]
    for length in range(1, max(len(parts) for parts in resolved) + 1):
        names = ["/".join(parts[-length:]) for parts in resolved]
        if len(set(names)) == len(names):
            break
    return names


# ---------------------------------------------------------------------------------------------- tables


def table(runs: Sequence[Compared]) -> dict[str, Any]:
    """Text of every cell, and its number where it sorts by one; columns that no run has are left out."""
    columns: dict[str, list[Cell]] = {
        "method": [(run.config["values"]["method"], None) for run in runs],
        "data": [(Path(run.config["values"]["data"]).name, None) for run in runs],
        "verdict": [((run.results.get("verdict") or {}).get("kind") or "", None) for run in runs],
        "epochs": [_number(run.last("epoch"), "{:.3g}") for run in runs],
        "linear": [_accuracy(run, "linear_accuracy") for run in runs],
        "few labels": [_accuracy(run, "few_labels_accuracy") for run in runs],
        "kNN": [_accuracy(run, "knn_accuracy") for run in runs],
        "online": [_number(_hundred(run.last("online_accuracy")), "{:.1f}") for run in runs],
        "rank": [_number(run.last("features_effective_rank"), "{:.3g}") for run in runs],
        "images/s": [_number(typical_speed(run.timing), "{:,.0f}") for run in runs],
        "time": [_time(run) for run in runs],
        "MiB": [_number(run.results.get("memory"), "{:,.0f}") for run in runs],
    }
    columns = {title: cells for title, cells in columns.items() if any(text for text, _ in cells)}
    rows = [
        {"name": run.name, "colour": run.colour, "cells": [cells[number] for cells in columns.values()]}
        for number, run in enumerate(runs)
    ]
    return {"columns": list(columns), "texts": TEXTS, "rows": rows}


def _number(value: float | None, form: str) -> Cell:
    return ("", None) if value is None else (form.format(value), value)


def _hundred(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _accuracy(run: Compared, key: str) -> Cell:
    rows = [row for row in run.results.get("table") or [] if row.get("name") == "trained"]
    value = rows[0].get(key) if rows else None
    return ("", None) if value is None else (f"{per_cent(value):.1f}", per_cent(value))


def _time(run: Compared) -> Cell:
    seconds = max(charts.clock(run.timing).values(), default=None)
    return ("", None) if seconds is None else (duration(seconds), seconds)


def differences(runs: Sequence[Compared]) -> list[dict[str, Any]]:
    """The keys that are not the same in all runs."""
    values = [run.config["values"] for run in runs]
    keys = [key for key in dict.fromkeys(key for each in values for key in each) if key not in HIDDEN_KEYS]
    rows = [{"key": key, "values": [shown(each[key]) if key in each else "" for each in values]} for key in keys]
    return [row for row in rows if len(set(row["values"])) > 1]


# ---------------------------------------------------------------------------------------------- charts


def both_ways(runs: Sequence[Compared], key: str, y: Chart, *, factor: float = 1, dots: bool = False) -> list[Chart]:
    """The same curves by epoch and by time of training."""
    unit, length = time_unit(runs)
    drawn = []
    for x, title, label in (("epoch", "By epoch", "epoch"), ("time", "By time of training", unit)):
        lines = []
        for run in runs:
            timed = [record | {"time": record["seconds"] / length} for record in run.metrics if record["seconds"]]
            curve = charts.curve(run.name, timed, x, key, factor=factor, colour=run.colour, dots=dots)
            lines += [curve] if curve["y"] else []
        drawn.append(chart(f"{key}-{x}", title, "", axis(label, switch=True), y, lines))
    return drawn


def time_unit(runs: Sequence[Compared]) -> tuple[str, float]:
    """The largest unit of which the longest run took two or more, and its seconds."""
    longest = max(seconds for run in runs for seconds in (0.0, *charts.clock(run.timing).values()))
    return next((unit for unit in TIMES if longest >= 2 * unit[1]), TIMES[-1])


def spectrum_chart(runs: Sequence[Compared], of: str) -> Chart:
    lines = []
    for run in runs:
        spectra = run.folder.read("spectrum.jsonl")
        final: list[float] = next((record["eigenvalues"] for record in reversed(spectra) if record.get("of") == of), [])
        ranks = thin(len(final), charts.MOST_POINTS)
        drawn = line(run.name, [rank + 1 for rank in ranks], [final[rank] for rank in ranks], colour=run.colour)
        lines += [drawn] if drawn["y"] else []
    y = axis("eigenvalue", "log", floor=charts.ROUNDING_ERROR)
    return chart(f"spectrum-{of}", of.capitalize(), "", axis("rank", whole=True, switch=True), y, lines, latest=False)


def map_charts(runs: Sequence[Compared]) -> tuple[list[Chart], dict[str, Record]]:
    """The maps, and the sheets they need: shared by runs on the same images, none beyond PICTURE_BYTES."""
    maps: list[Chart] = []
    sheets: dict[str, Record] = {}
    names: dict[str, str] = {}
    for number, run in enumerate(runs):
        kept = run.pictures.get("map")
        if kept is None:
            continue
        address = kept["sheet"]["address"]
        if address not in names and len(address) + sum(map(len, names)) <= PICTURE_BYTES:
            names[address] = f"map-{number}"
            sheets[names[address]] = kept["sheet"]
        drawn = charts.map_chart(run.pictures, f"map-{number}", run.name, names.get(address))
        assert drawn is not None
        maps.append(drawn)
    return maps, sheets
