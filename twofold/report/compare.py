"""Comparison of several runs as one HTML page: a sortable table, curves by epoch and by time, and maps."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from markupsafe import Markup

from twofold.errors import TwofoldError
from twofold.files import refuse_unwritable, write_atomically, writing
from twofold.keys import shown
from twofold.report import charts, gallery, headlines
from twofold.report.accuracies import per_cent, seed_spread
from twofold.report.charts import Chart, Record, accuracy_axis, axis, chart, line, thin
from twofold.report.page import last_of, page, typical_speed
from twofold.runs.folder import RunFolder
from twofold.runs.images_record import images_fingerprint
from twofold.text import duration

PICTURE_BYTES = 7 * 2**20  # largest size of all sheets together, so that the page stays below 10 MB
COLOURS = 10
TIMES = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))
TEXTS = ("method", "data", "helped", "verdict", "seeds")  # columns that contain words, not numbers
ACCURACIES = {"linear": "linear_accuracy", "few labels": "few_labels_accuracy", "kNN": "knn_accuracy"}
HIDDEN_KEYS = (
    "data_dir",
    "checkpoint.seconds",
    "checkpoint.keep",
    "download",
    "log",
    "map_points",
)  # no effect on results


class Cell(NamedTuple):
    text: str = ""
    value: float | None = None  # the number to sort by
    spread: str = ""


@dataclass(frozen=True)
class Compared:
    """One of the compared runs: its name and colour on the page, and its records, which are read once."""

    name: str
    colour: str
    folder: RunFolder

    @cached_property
    def config(self) -> Record:
        return self.folder.config_record()

    @cached_property
    def results(self) -> Record:
        return self.folder.results() or {}

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, each with the seconds of training so far."""
        seconds = charts.clock(self.timing)
        return [record | {"seconds": seconds.get(record["step"])} for record in self.folder.read("metrics.jsonl")]

    @cached_property
    def timing(self) -> list[dict[str, Any]]:
        return self.folder.read("timing.jsonl")

    @cached_property
    def pictures(self) -> Record:
        return gallery.read_pictures(self.folder)

    def row(self, name: str) -> Record:
        """Return a row of the run's table of accuracies, or {} if there is none of that name."""
        return next((row for row in self.results.get("table") or [] if row.get("name") == name), {})

    @property
    def data(self) -> str:
        return self.config["values"]["data"]

    @property
    def seed(self) -> Any:
        return self.config["values"].get("seed")

    def last(self, key: str) -> float | None:
        return last_of(self.metrics, key)


def write_comparison(folders: Sequence[RunFolder], out: Path) -> Path:
    """Write the comparison of two or more runs to the file `out` and return its path."""
    folders = list({folder.path.resolve(): folder for folder in folders}.values())
    if len(folders) < 2:
        raise TwofoldError("a comparison needs two runs or more; give their folders: twofold compare RUN RUN")
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
        "Online accuracy": both_ways(runs, "online_accuracy", accuracy_axis(), factor=100, dots=True),
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
        seeds=over_seeds(runs),
        differences=differences(runs),
        runs=runs,
        notes=NOTES,
        sections={title: group for title, group in sections.items() if group},
        maps=maps,
        sheets=Markup(gallery.style_of(sheets)),
        blob={each["id"]: each for each in drawn},
    )


NOTES = {
    "Online accuracy": "Accuracy on held-out images of a linear classifier that is trained with the encoder.",
    "Effective rank of the features": "How many dimensions of the encoder's output are in use, on augmented images.",
    "Loss": "Losses of different methods are not comparable. Compare runs of the same method only.",
    "Spectrum": "Eigenvalues at the last step, by size; index 1 is the largest.",
}


def names_of(paths: Sequence[Path]) -> list[str]:
    """Return the shortest path endings that are all different."""
    resolved = [path.resolve().parts for path in paths]
    for length in range(1, max(len(parts) for parts in resolved) + 1):
        names = ["/".join(parts[-length:]) for parts in resolved]
        if len(set(names)) == len(names):
            break
    return names


# ---------------------------------------------------------------------------------------------- tables


def table(runs: Sequence[Compared]) -> dict[str, Any]:
    """Return a row for each run and each baseline. Columns that are empty for all runs are left out."""
    trained = [run.row("trained") for run in runs]
    columns: dict[str, list[Cell]] = {
        "method": [Cell(run.config["values"]["method"]) for run in runs],
        "data": [Cell(Path(run.data).name) for run in runs],
        "helped": [Cell(headlines.short_answer(run.results)) for run in runs],
        "verdict": [Cell(verdict_words(run)) for run in runs],
        "epochs": [_number(run.last("epoch"), "{:.3g}") for run in runs],
        **{title: [_accuracy(row, key) for row in trained] for title, key in ACCURACIES.items()},
        "online": [_number(_hundred(run.last("online_accuracy")), "{:.1f}") for run in runs],
        "effective rank": [_number(run.last("features_effective_rank"), "{:.3g}") for run in runs],
        "images/s": [_number(typical_speed(run.timing), "{:,.0f}") for run in runs],
        "training time": [_time(run) for run in runs],
        "MiB": [_number(run.results.get("memory"), "{:,.0f}") for run in runs],
    }
    columns = {title: cells for title, cells in columns.items() if any(cell.text for cell in cells)}
    rows = [
        {"name": run.name, "colour": run.colour, "cells": [cells[number] for cells in columns.values()]}
        for number, run in enumerate(runs)
    ]
    return {"columns": list(columns), "texts": TEXTS, "rows": rows + baselines(runs, list(columns))}


def over_seeds(runs: Sequence[Compared]) -> dict[str, Any] | None:
    """Return a row for each group of finished runs that differ only in their seed; None if there is no such group."""
    groups: dict[frozenset[tuple[str, str]], list[Compared]] = {}
    for run in runs:
        group = groups.setdefault(settings_of(run), []) if run.results else []
        if run.seed not in [other.seed for other in group]:
            group.append(run)  # a second run with the same seed is not counted
    if all(len(group) == 1 for group in groups.values()):
        return None
    found = [mean_cells(group) for group in groups.values()]
    columns = [title for title in found[0] if any(cells[title].text for cells in found)]
    rows = [
        {"name": name, "colour": group[0].colour, "cells": [cells[title] for title in columns]}
        for name, group, cells in zip(titles_of(list(groups)), groups.values(), found, strict=True)
    ]
    return {"columns": columns, "texts": TEXTS, "rows": rows}


def mean_cells(group: Sequence[Compared]) -> dict[str, Cell]:
    return {
        "seeds": Cell(", ".join(shown(run.seed) for run in group)),
        "helped": Cell(counted(headlines.short_answer(run.results) for run in group)),
        "verdict": Cell(counted(verdict_words(run) for run in group)),
        **{title: _mean([_hundred(run.row("trained").get(key)) for run in group]) for title, key in ACCURACIES.items()},
        "online": _mean([_hundred(run.last("online_accuracy")) for run in group]),
        "effective rank": _mean([run.last("features_effective_rank") for run in group]),
    }


def counted(words: Iterable[str]) -> str:
    """Return different words with how often each occurs, or the word alone if all are equal."""
    found = Counter(words)
    return ", ".join(word if len(found) == 1 else f"{word or 'unknown'} ({count})" for word, count in found.items())


def verdict_words(run: Compared) -> str:
    """Return the kind of a run's verdict as people read it."""
    kind = (run.results.get("verdict") or {}).get("kind") or ""
    return "no collapse" if kind == "healthy" else kind


def settings_of(run: Compared) -> frozenset[tuple[str, str]]:
    """Return the configuration without the seed, and a fingerprint of the training images.

    The fingerprint is needed because arrays have no name and the contents of a folder may change.
    """
    values = run.config["values"] | {"images": (images_fingerprint(run.folder.path) or "")[:6]}
    return frozenset((key, shown(value)) for key, value in values.items() if key not in (*HIDDEN_KEYS, "seed"))


def titles_of(settings: Sequence[frozenset[tuple[str, str]]]) -> list[str]:
    """Return the method of each configuration and the values in which it differs from others of that method."""
    methods = [dict(each)["method"] for each in settings]
    titles = []
    for method, own in zip(methods, settings, strict=True):
        alike = [other for name, other in zip(methods, settings, strict=True) if name == method]
        differing = sorted(own - frozenset.intersection(*alike))
        titles.append(", ".join([method, *(f"{key}={value}" for key, value in differing)]))
    return titles


def _mean(values: Sequence[float | None]) -> Cell:
    known = [value for value in values if value is not None]
    if not known:
        return Cell()
    return Cell(f"{mean(known):.1f}", mean(known), f"± {stdev(known):.1f}" if len(known) > 1 else "")


def baselines(runs: Sequence[Compared], columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows for untrained encoders and raw pixels: one row for all runs whose data and numbers are the same."""
    names = [row["name"] for run in runs for row in run.results.get("table") or [] if row.get("name") != "trained"]
    one_data = len({run.data for run in runs}) == 1
    rows = []
    for name in dict.fromkeys(names):
        alike: dict[tuple[Any, ...], list[Compared]] = {}
        for run in runs:
            if row := run.row(name):
                alike.setdefault((run.data, *map(row.get, ACCURACIES.values())), []).append(run)
        for group in alike.values():
            cells = {title: _accuracy(group[0].row(name), key) for title, key in ACCURACIES.items()}
            cells["data"] = Cell(Path(group[0].data).name)
            of = "" if one_data and len(alike) == 1 else f", {', '.join(run.name for run in group)}"
            rows.append({"name": name + of, "colour": None, "cells": [cells.get(title, Cell()) for title in columns]})
    return rows


def _number(value: float | None, form: str) -> Cell:
    return Cell() if value is None else Cell(form.format(value), value)


def _hundred(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _accuracy(row: Record, key: str) -> Cell:
    value = row.get(key)
    return Cell() if value is None else Cell(f"{per_cent(value):.1f}", per_cent(value), seed_spread(row, key))


def _time(run: Compared) -> Cell:
    seconds = max(charts.clock(run.timing).values(), default=None)
    return Cell() if seconds is None else Cell(duration(seconds), seconds)


def differences(runs: Sequence[Compared]) -> list[dict[str, Any]]:
    """Return the configuration keys whose values are not the same in all runs."""
    values = [run.config["values"] for run in runs]
    keys = [key for key in dict.fromkeys(key for each in values for key in each) if key not in HIDDEN_KEYS]
    rows = [{"key": key, "values": [shown(each[key]) if key in each else "" for each in values]} for key in keys]
    return [row for row in rows if len(set(row["values"])) > 1]


# ---------------------------------------------------------------------------------------------- charts


def both_ways(runs: Sequence[Compared], key: str, y: Chart, *, factor: float = 1, dots: bool = False) -> list[Chart]:
    """Return the same curves twice: by epoch and by training time."""
    unit, length = time_unit(runs)
    drawn = []
    for x, title, label in (("epoch", "By epoch", "epoch"), ("time", "By training time", unit)):
        lines = []
        for run in runs:
            timed = [record | {"time": record["seconds"] / length} for record in run.metrics if record["seconds"]]
            curve = charts.curve(run.name, timed, x, key, factor=factor, colour=run.colour, dots=dots)
            lines += [curve] if curve["y"] else []
        drawn.append(chart(f"{key}-{x}", title, "", axis(label, switch=True), y, lines))
    return drawn


def time_unit(runs: Sequence[Compared]) -> tuple[str, float]:
    """Return the largest unit of time of which the longest run took at least two, and its length in seconds."""
    longest = max(seconds for run in runs for seconds in (0.0, *charts.clock(run.timing).values()))
    return next((unit for unit in TIMES if longest >= 2 * unit[1]), TIMES[-1])


def spectrum_chart(runs: Sequence[Compared], of: str) -> Chart:
    lines = []
    for run in runs:
        spectra = run.folder.read("spectrum.jsonl")
        final: list[float] = next((record["eigenvalues"] for record in reversed(spectra) if record.get("of") == of), [])
        kept = thin(len(final), charts.MOST_POINTS)
        drawn = line(run.name, [place + 1 for place in kept], [final[place] for place in kept], colour=run.colour)
        lines += [drawn] if drawn["y"] else []
    y = axis("eigenvalue", "log", floor=charts.ROUNDING_ERROR)
    return chart(f"spectrum-{of}", of.capitalize(), "", axis("index", whole=True, switch=True), y, lines, latest=False)


def map_charts(runs: Sequence[Compared]) -> tuple[list[Chart], dict[str, Record]]:
    """Return the maps and the sheets of pictures they need.

    Runs on the same images share a sheet. Sheets beyond PICTURE_BYTES are left out.
    """
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
    tallest = max((each["tallest"] for each in maps), default=0.0)
    classes = {(tuple(each["classes"] or ()), frozenset(each["points"]["labels"])) for each in maps}
    group = "maps" if len(classes) == 1 else None
    return [each | {"tallest": tallest, "group": group} for each in maps], sheets
