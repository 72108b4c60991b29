"""Descriptions of charts: plain data that a page contains as one JSON object. The files in scripts/ draw them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from twofold.train.log_points import log_spaced

Record = Mapping[str, Any]
Chart = dict[str, Any]

MOST_POINTS = 600  # largest number of points of a curve
MOST_INDICES = 20  # largest number of eigenvalues that are drawn over the steps
ROUNDING_ERROR = 1e-8  # relative to the largest eigenvalue; smaller ones are rounding errors. Captions state it


def loss_chart(metrics: Sequence[Record]) -> Chart:
    total = curve("total", metrics, "step", "loss", colour="ink")
    # A dict, to keep the order in which the objective names its terms.
    names = {name: None for record in metrics for name in record if name.startswith("loss/")}
    terms = [curve(name.removeprefix("loss/"), metrics, "step", name) for name in names]
    terms = [term for term in terms if term["y"] != total["y"]]
    lines = _drawn([total, *terms])
    positive = all(value > 0 for line in lines for value in line["y"])
    return chart(
        "loss",
        "Loss",
        "The training loss and its weighted terms. Each point is the mean since the previous point.",
        axis("step", whole=True, switch=True),
        axis("loss", switch=positive),
        lines,
    )


def accuracy_chart(metrics: Sequence[Record]) -> Chart:
    lines = [
        curve("training views", metrics, "epoch", "online_train_accuracy", factor=100),
        curve("test images", metrics, "epoch", "online_accuracy", factor=100, dots=True),
    ]
    return chart(
        "online_accuracy",
        "Online accuracy",
        "Accuracy of a linear classifier that is trained at the same time as the encoder and sends no gradient to it. "
        "This curve shows the progress of training. To report a result, use the accuracies in the table above.",
        axis("epoch", switch=True),
        accuracy_axis(),
        _drawn(lines),
    )


def trajectory_chart(spectra: Sequence[Record], of: str) -> Chart:
    records = [record for record in spectra if record.get("of") == of and record.get("eigenvalues")]
    records = [records[i] for i in thin(len(records), MOST_POINTS // 3)]
    indices = log_spaced(min(len(record["eigenvalues"]) for record in records), MOST_INDICES) if records else []
    steps = [record["step"] for record in records]
    lines = [
        line(f"index {index}", steps, [record["eigenvalues"][index - 1] for record in records]) for index in indices
    ]
    where = {
        "embeddings": "the projector's output, from which the loss is computed",
        "features": "the encoder's output, which you use after training",
        "predictor": "the predictor's output",
    }
    return chart(
        f"{of}_eigenvalues",
        f"Eigenvalues of the {of}",
        f"Eigenvalues of the covariance of {where[of]}. If the lines rise together, many dimensions are in use. "
        "A line that falls far below the others, or below 10⁻⁸ of the largest, is a lost dimension.",
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
        "How many dimensions are in use: the exponential of the entropy of the singular values, on augmented images.",
        axis("step", "log", whole=True, switch=True),
        axis("effective rank", zero=True),
        _drawn(lines),
    )


def final_spectrum_chart(spectra: Sequence[Record]) -> Chart:
    lines = []
    for of in ("embeddings", "features"):
        final: list[float] = next((record["eigenvalues"] for record in reversed(spectra) if record.get("of") == of), [])
        kept = thin(len(final), MOST_POINTS)
        lines.append(line(of, [place + 1 for place in kept], [final[place] for place in kept]))
    return chart(
        "final_spectrum",
        "Spectrum at the last step",
        "Eigenvalues by size; index 1 is the largest. Dimensions after a steep drop carry almost no information.",
        axis("index", whole=True, switch=True),
        axis("eigenvalue", "log", floor=ROUNDING_ERROR),
        _drawn(lines),
        latest=False,
    )


def speed_chart(timing: Sequence[Record]) -> Chart:
    return chart(
        "speed",
        "Speed",
        "Training images per second. Other programs on the same machine make training slower.",
        axis("step", whole=True, switch=True),
        axis("images/s", zero=True),
        _drawn([curve("images/s", timing, "step", "images_per_second")]),
    )


def map_chart(pictures: Record, name: str, title: str, sheet_name: str | None) -> Chart | None:
    """Return the map with the texts shown on hover, or None if the run has no map.

    `sheet_name` names the sheet in the page whose tiles are the pictures; None draws dots only.
    """
    kept = pictures.get("map")
    if kept is None:
        return None
    columns = {key: kept[key] for key in ("x", "y", "labels", "names", "index", "held_out")}
    sheet = None
    if sheet_name is not None:
        sheet = {"name": sheet_name} | {key: kept["sheet"][key] for key in ("side", "gutter", "columns", "rows")}
    words = {"id": name, "kind": "map", "title": title, "classes": pictures.get("classes")}
    return words | {"points": columns, "sheet": sheet, "tallest": max(map(abs, kept["y"]), default=0.0), "group": None}


def clock(timing: Sequence[Record]) -> dict[int, float]:
    """Return the seconds of training at each recorded step.

    Each time a run is resumed its clock restarts at 0; the seconds add up. Steps that were trained twice, because the
    run was killed after its last checkpoint, count twice.
    """
    seconds: dict[int, float] = {}
    before, last = 0.0, 0.0
    for record in timing:
        if record["seconds"] < last:
            before += last
        last = record["seconds"]
        seconds[record["step"]] = before + last
    return seconds


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
    """Return the description of a line chart.

    With `ramp`, the series are ordered and coloured along a ramp. With `latest`, the legend shows their last values.
    """
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
    span: float = 0.0,
    limits: tuple[float, float] | None = None,
    decimals: int | None = None,
) -> Chart:
    """Return the description of an axis.

    Parameters
    ----------
    label : str
        Title of the axis.
    scale : {"linear", "log"}
        The scale at first.
    switch : bool
        Show a button that switches between linear and log.
    whole : bool
        Use whole numbers only.
    zero : bool
        Start a linear axis at 0.
    unit : str
        Unit after each value.
    floor : float
        End a log axis at this fraction of its largest value.
    span : float
        Smallest range that a linear axis shows, within `limits`.
    limits : tuple of float, optional
        Smallest and largest value of a linear axis.
    decimals : int, optional
        Decimals of values in legend and tooltip, but not of tick labels.
    """
    return {
        "label": label,
        "scale": scale,
        "switch": switch,
        "whole": whole,
        "zero": zero,
        "unit": unit,
        "floor": floor,
        "span": span,
        "limits": limits,
        "decimals": decimals,
    }


def accuracy_axis() -> Chart:
    """Return an axis that shows at least 20 %, so that the noise of a small test set does not look like learning."""
    return axis("accuracy", unit="%", span=20, limits=(0, 100), decimals=1)


def curve(name: str, records: Sequence[Record], x: str, y: str, *, factor: float = 1, **style: Any) -> Chart:
    """Return a line of the records that have values `x` and `y`, with at most MOST_POINTS points."""
    having = [record for record in records if record.get(x) is not None and record.get(y) is not None]
    having = [having[i] for i in thin(len(having), MOST_POINTS)]
    return line(name, [record[x] for record in having], [factor * record[y] for record in having], **style)


def line(name: str, x: Sequence[float], y: Sequence[float], *, colour: str = "", dots: bool = False) -> Chart:
    points = [(rounded(a), rounded(b)) for a, b in zip(x, y, strict=True) if math.isfinite(b)]
    return {"name": name, "x": [a for a, _ in points], "y": [b for _, b in points], "colour": colour, "dots": dots}


def _drawn(lines: Iterable[Chart]) -> list[Chart]:
    return [line for line in lines if line["y"]]


def rounded(value: float) -> float:
    """Round to five significant digits; integers stay unchanged."""
    return value if isinstance(value, int) else float(f"{value:.5g}")


def thin(count: int, most: int) -> list[int]:
    """Return at most `most` of `count` positions, including both ends.

    Half are evenly spaced and half log-spaced, so that the line is smooth on both kinds of axis.
    """
    if count <= most:
        return list(range(count))
    half = most // 2
    even = {round(i * (count - 1) / (half - 1)) for i in range(half)}
    return sorted(even | {position - 1 for position in log_spaced(count, half)})
