"""A run folder as one self-contained page: numbers, curves, spectra, and what is needed to repeat the run.

Here the records become descriptions of charts, plain data that travel in the page as one JSON blob; charts.js draws
them in the browser, page.html and style.css say where and how.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from twofold.errors import TwofoldError, how_to_resume
from twofold.keys import shown
from twofold.train.observers import log_spaced
from twofold.train.record import RunFolder

Record = Mapping[str, Any]
Chart = dict[str, Any]

MOST_POINTS = 600  # of a curve
MOST_RANKS = 20  # eigenvalues whose trajectories are drawn
ROUNDING_ERROR = 1e-8  # of the largest eigenvalue, as the captions say; below it is nothing of the network
LAYERS = ("user", "chosen", "data", "method", "derived", "default")  # who sets a value, the strongest first


def write_report(folder: RunFolder) -> Path:
    """Write report.html of a run, finished or not, and return its path."""
    return folder.write("report.html", render(folder))


def render(folder: RunFolder) -> str:
    """The page as ASCII text, so that no locale and no server can garble it."""
    config = _read_json(folder.path / "config.json")
    results = _read_json(folder.path / "results.json") if (folder.path / "results.json").exists() else {}
    metrics, spectra = folder.read("metrics.jsonl"), folder.read("spectrum.jsonl")
    values = config["values"]
    sections = {
        "Training": [loss_chart(metrics), accuracy_chart(metrics)],
        "Spectrum": [
            trajectory_chart(spectra, "embeddings"),
            trajectory_chart(spectra, "features"),
            rank_chart(metrics),
            final_spectrum_chart(spectra),
        ],
    }
    sections = {title: [chart for chart in charts if chart["series"]] for title, charts in sections.items()}
    page = environment().from_string(resource("page.html"))
    html = page.render(
        title=f"{values['method']} on {Path(values['data']).name or values['data']}",
        facts=facts(values, results, metrics, folder.read("timing.jsonl")),
        state=state(values, results, metrics),
        table=accuracy_table(results.get("table") or []),
        sections={title: charts for title, charts in sections.items() if charts},
        blob={chart["id"]: chart for charts in sections.values() for chart in charts},
        configuration=configuration(config),
        command=results.get("command"),
        versions=results.get("versions") or {},
        seed=values.get("seed"),
        resume=how_to_resume(folder.path),
        style=resource("style.css"),
        script=resource("charts.js"),
    )
    return html.encode("ascii", "xmlcharrefreplace").decode("ascii")


def environment() -> Environment:
    made = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return made


def resource(name: str) -> str:
    return (files("twofold.report") / name).read_text(encoding="utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text())
    except ValueError as error:
        raise TwofoldError(f"{path} is not JSON: {error}") from None
    if not isinstance(record, dict) or (path.name == "config.json" and "method" not in record.get("values", {})):
        raise TwofoldError(f"{path} is not what Twofold wrote there")
    return record


# ---------------------------------------------------------------------------------------------- words and numbers


def facts(values: Record, results: Record, metrics: Sequence[Record], timing: Sequence[Record]) -> list[str]:
    """Epochs, images, device and time, as far as they are known."""
    words = []
    if values.get("epochs") is not None:
        epochs, done = _plural(values["epochs"], "epoch"), metrics[-1]["epoch"] if metrics else 0
        words.append(epochs if finished(values, metrics) else f"{done:.3g} of {epochs}")
    if results.get("train_images") is not None:
        words.append(f"{results['train_images']:,} training images")
    if results.get("test_images"):
        words.append(f"{results['test_images']:,} test images")
    device = results.get("device") or values.get("device")
    if device and device != "auto":
        words.append(str(device))
    seconds = total_seconds(timing, results.get("seconds"))
    return words + ([duration(seconds)] if seconds else [])


def finished(values: Record, metrics: Sequence[Record]) -> bool:
    return bool(metrics) and metrics[-1]["epoch"] >= values.get("epochs", 0)


def state(values: Record, results: Record, metrics: Sequence[Record]) -> str:
    """Why there are no accuracies: "" where there are, else "unfinished", "unlabelled" or "unevaluated"."""
    if results.get("table"):
        return ""
    if not finished(values, metrics):
        return "unfinished"
    labelled = any("online_train_accuracy" in record for record in metrics)
    return "unevaluated" if labelled and not results else "unlabelled"


def total_seconds(timing: Sequence[Record], last: float | None) -> float:
    """Over all stretches of a resumed run, whose clocks start at 0 each; `last` is the length of the last stretch."""
    seconds = [record["seconds"] for record in timing]
    earlier = sum(end for end, following in pairwise(seconds) if following < end)
    return earlier + (last if last is not None else seconds[-1] if seconds else 0.0)


def duration(seconds: float) -> str:
    """52 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h" + (f" {minutes % 60} min" if minutes % 60 else "")


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def accuracy_table(rows: Sequence[Record]) -> dict[str, Any] | None:
    """Columns and rows of text in per cent; every cell knows whether it is the best of its column."""
    if not rows:
        return None
    labels = next((row["labels_per_class"] for row in rows if row.get("labels_per_class")), None)
    few = "linear, few labels" if labels is None else f"linear, {_plural(labels, 'label')} per class"
    titles = {"linear_accuracy": "linear", "few_labels_accuracy": few, "knn_accuracy": "kNN"}
    keys = [key for key in titles if any(row.get(key) is not None for row in rows)]
    return {
        "columns": [titles[key] for key in keys],
        "rows": [{"name": row.get("name", "?"), "cells": [_cell(row, key, rows) for key in keys]} for row in rows],
    }


def _cell(row: Record, key: str, rows: Sequence[Record]) -> dict[str, Any]:
    value, sd = row.get(key), row.get("few_labels_sd") if key == "few_labels_accuracy" else None
    if value is None:
        return {"text": "–", "spread": "", "best": False}
    # What prints alike is equally good, so two rows may be the best.
    best = max(_per_cent(other[key]) for other in rows if other.get(key) is not None)
    spread = "" if sd is None else f"± {_per_cent(sd):.1f}"
    return {"text": f"{_per_cent(value):.1f}", "spread": spread, "best": _per_cent(value) == best}


def _per_cent(value: float) -> float:
    return float(f"{100 * value:.1f}")


def configuration(config: Record) -> list[dict[str, str]]:
    """One row for each key: name, value, and the layer that set it; what the user set comes first."""
    origin = config.get("origin", {})
    rows = [(key, value, origin.get(key, "default")) for key, value in config["values"].items()]
    rows += [(key, value, "derived") for key, value in config.get("derived", {}).items()]
    rows.sort(key=lambda row: LAYERS.index(row[2]) if row[2] in LAYERS else 1)
    return [{"key": key, "value": shown(value), "origin": layer} for key, value, layer in rows]


# ---------------------------------------------------------------------------------------------- charts


def loss_chart(metrics: Sequence[Record]) -> Chart:
    total = curve("total", metrics, "step", "loss", colour="ink")
    names = _terms(metrics)
    terms = [curve(name.removeprefix("loss/"), metrics, "step", name) for name in names]
    terms = [term for term in terms if term["y"] != total["y"]]
    lines = _drawn([total, *terms])
    positive = all(value > 0 for line in lines for value in line["y"])
    return chart(
        "loss",
        "Loss",
        "What is minimised, and its terms as they enter the total; each point is a mean since the one before.",
        axis("step", whole=True, switch=True),
        axis("loss", switch=positive),
        lines,
    )


def _terms(metrics: Iterable[Record]) -> list[str]:
    # A dict, to keep the order in which the objective names its terms.
    return list({name: None for record in metrics for name in record if name.startswith("loss/")})


def accuracy_chart(metrics: Sequence[Record]) -> Chart:
    lines = [
        curve("training views", metrics, "epoch", "online_train_accuracy", factor=100),
        curve("test images", metrics, "epoch", "online_accuracy", factor=100, dots=True),
    ]
    return chart(
        "online_accuracy",
        "Online accuracy",
        "A linear classifier that learns beside the encoder, without sending it any gradient. "
        "It follows the training; the numbers to quote are those of probes fitted afterwards.",
        axis("epoch", switch=True),
        axis("accuracy", unit="%"),
        _drawn(lines),
    )


def trajectory_chart(spectra: Sequence[Record], of: str) -> Chart:
    records = [record for record in spectra if record.get("of") == of and record.get("eigenvalues")]
    records = [records[i] for i in thin(len(records), MOST_POINTS // 3)]
    ranks = log_spaced(min(len(record["eigenvalues"]) for record in records), MOST_RANKS) if records else []
    steps = [record["step"] for record in records]
    lines = [line(f"rank {rank}", steps, [record["eigenvalues"][rank - 1] for record in records]) for rank in ranks]
    where = {
        "embeddings": "the projector's output, where the loss acts",
        "features": "the encoder's output, which is kept",
    }
    return chart(
        f"{of}_eigenvalues",
        f"Eigenvalues of the {of}",
        f"Of the covariance of {where[of]}. Lines that rise together fill many dimensions; "
        "lines that fall away, or below 10⁻⁸ of the largest, are dimensions lost.",
        axis("step", "log", whole=True),
        axis("eigenvalue", "log", floor=ROUNDING_ERROR),
        _drawn(lines),
        ramp=True,
    )


def rank_chart(metrics: Sequence[Record]) -> Chart:
    lines = [
        curve("embeddings", metrics, "step", "effective_rank"),
        curve("features", metrics, "step", "features_effective_rank"),
    ]
    return chart(
        "effective_rank",
        "Effective rank",
        "The exponential of the entropy of the eigenvalues: how many dimensions are in use.",
        axis("step", "log", whole=True, switch=True),
        axis("effective rank", zero=True),
        _drawn(lines),
    )


def final_spectrum_chart(spectra: Sequence[Record]) -> Chart:
    lines = []
    for of in ("embeddings", "features"):
        final: list[float] = next((record["eigenvalues"] for record in reversed(spectra) if record.get("of") == of), [])
        ranks = thin(len(final), MOST_POINTS)
        lines.append(line(of, [rank + 1 for rank in ranks], [final[rank] for rank in ranks]))
    return chart(
        "final_spectrum",
        "Spectrum at the last step",
        "Eigenvalues by size. A cliff means that the dimensions after it carry nothing.",
        axis("rank", whole=True, switch=True),
        axis("eigenvalue", "log", floor=ROUNDING_ERROR),
        _drawn(lines),
        latest=False,
    )


def chart(
    name: str,
    title: str,
    caption: str,
    x: Chart,
    y: Chart,
    series: list[Chart],
    *,
    ramp: bool = False,
    latest: bool = True,
) -> Chart:
    """The description of a line chart. `ramp`: the series are in order and take the colours of a ramp;
    `latest`: the legend shows their last values."""
    words = {"id": name, "kind": "line", "title": title, "caption": caption}
    return words | {"x": x, "y": y, "series": series, "ramp": ramp, "latest": latest}


def axis(
    label: str,
    scale: str = "linear",
    *,
    switch: bool = False,
    whole: bool = False,
    zero: bool = False,
    unit: str = "",
    floor: float = 0.0,
) -> Chart:
    """`switch`: has a button between linear and log; `whole`: whole numbers only; `zero`: begins at 0 where linear;
    `floor`: a log axis goes no lower than this part of its largest value."""
    return {
        "label": label,
        "scale": scale,
        "switch": switch,
        "whole": whole,
        "zero": zero,
        "unit": unit,
        "floor": floor,
    }


def curve(name: str, records: Sequence[Record], x: str, y: str, *, factor: float = 1, **style: Any) -> Chart:
    """The records that have a `y`, at most MOST_POINTS of them, as a line."""
    having = [record for record in records if record.get(y) is not None]
    having = [having[i] for i in thin(len(having), MOST_POINTS)]
    return line(name, [record[x] for record in having], [factor * record[y] for record in having], **style)


def line(name: str, x: Sequence[float], y: Sequence[float], *, colour: str = "", dots: bool = False) -> Chart:
    points = [(rounded(a), rounded(b)) for a, b in zip(x, y, strict=True) if math.isfinite(b)]
    return {"name": name, "x": [a for a, _ in points], "y": [b for _, b in points], "colour": colour, "dots": dots}


def _drawn(lines: Iterable[Chart]) -> list[Chart]:
    return [line for line in lines if line["y"]]


def rounded(value: float) -> float:
    """Five digits; whole numbers stay what they are."""
    return value if isinstance(value, int) else float(f"{value:.5g}")


def thin(count: int, most: int) -> list[int]:
    """At most `most` of `count` positions, ends included: half evenly spaced, half log-spaced, to serve both axes."""
    if count <= most:
        return list(range(count))
    half = most // 2
    even = {round(i * (count - 1) / (half - 1)) for i in range(half)}
    return sorted(even | {position - 1 for position in log_spaced(count, half)})
