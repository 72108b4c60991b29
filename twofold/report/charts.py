"""Records as descriptions of charts: plain data that travel in a page as one JSON blob, for scripts/ to draw."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from twofold.train.log_points import log_spaced

Record = Mapping[str, Any]
Chart = dict[str, Any]

MOST_POINTS = 600  # of a curve
MOST_INDICES = 20  # eigenvalues whose trajectories are drawn
ROUNDING_ERROR = 1e-8  # of the largest eigenvalue, as the captions say; below it is nothing of the network


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
        "embeddings": "the projector's output, where the loss acts",
        "features": "the encoder's output, which is kept",
        "predictor": "the predictor's output",
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
        "The exponential of the entropy of the singular values, of augmented images: how many dimensions are in use.",
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
        "Eigenvalues by size, the largest at index 1. A cliff means that the dimensions after it carry nothing.",
        axis("index", whole=True, switch=True),
        axis("eigenvalue", "log", floor=ROUNDING_ERROR),
        _drawn(lines),
        latest=False,
    )


def speed_chart(timing: Sequence[Record]) -> Chart:
    return chart(
        "speed",
        "Speed",
        "Images through the whole training step in a second, whatever else the machine was doing.",
        axis("step", whole=True, switch=True),
        axis("images/s", zero=True),
        _drawn([curve("images/s", timing, "step", "images_per_second")]),
    )


def map_chart(pictures: Record, name: str, title: str, sheet_name: str | None) -> Chart | None:
    """The map with all that hovering tells; its pictures are tiles of a sheet, where the page has it."""
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
    """Seconds of training at each recorded step, over all stretches of a resumed run, whose clocks start at 0 each.

    What was trained twice, since the checkpoint before a kill was older, counts twice: it was waited for.
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
    span: float = 0.0,
    limits: tuple[float, float] | None = None,
    decimals: int | None = None,
) -> Chart:
    """`switch`: has a button between linear and log; `whole`: whole numbers only; `zero`: begins at 0 where linear;
    `floor`: a log axis goes no lower than this part of its largest value; `span`: a linear one shows at least so much,
    within its `limits`; `decimals`: that values, though not ticks, are written with."""
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
    """So wide that the noise of a small test set does not look like learning."""
    return axis("accuracy", unit="%", span=20, limits=(0, 100), decimals=1)


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
