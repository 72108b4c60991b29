"""Curves of runs as SVG pictures: panels with the same axes, so that runs can be compared."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from twofold.report.charts import ROUNDING_ERROR
from twofold_papers.reproduce.maps import PALETTE
from twofold_papers.reproduce.record import Record
from twofold_papers.reproduce.svg import GAP, legend, sheet, text
from twofold_papers.reproduce.table import Figure

WIDTH, HEIGHT, TITLE, LEFT, BELOW = 300, 200, 28, 44, 40  # size of a panel and the space around it, in pixels
IN_A_LINE = 3  # panels in one row
RAMP = ((43, 45, 124), (31, 154, 138), (224, 165, 38))  # colours from the first to the last of an ordered set of curves
MOST_TICKS = 6

Named = tuple[str, Record]  # the name to display, and the record


@dataclass(frozen=True)
class Axis:
    title: str
    low: float
    high: float
    log: bool = False

    def part(self, value: float) -> float:
        """The position of a value on the axis, from 0 to 1."""
        low, high, value = (math.log10(each) if self.log else each for each in (self.low, self.high, value))
        return (value - low) / (high - low)

    def ticks(self) -> list[float]:
        if not self.log:
            return [self.low + (self.high - self.low) * number / 4 for number in range(5)]
        powers = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
        return [10.0**power for power in powers[:: -(-len(powers) // MOST_TICKS)]]


@dataclass(frozen=True)
class Curve:
    name: str
    colour: str
    x: Sequence[float]
    y: Sequence[float]


def eigenvalues(runs: Sequence[Named], ranks: int | None = None) -> str:
    """Eigenvalues of the embeddings' covariance by step, with a panel for each run; `ranks` keeps the largest only.

    Values below the rounding error of the largest eigenvalue are left out.
    """
    found = [(name, record["spectrum"]) for name, record in runs]
    kept = sorted({int(rank) for _, spectrum in found for rank in spectrum["eigenvalues"]})
    kept = [rank for rank in kept if ranks is None or rank <= ranks]
    colours = dict(zip(kept, ramp(len(kept)), strict=True))
    panels = [
        (name, [kept_of(spectrum, rank, colours[rank]) for rank in kept if str(rank) in spectrum["eigenvalues"]])
        for name, spectrum in found
    ]
    return drawn(
        panels,
        "step",
        "eigenvalue",
        [(f"rank {rank}" if rank == kept[0] else str(rank), colour) for rank, colour in colours.items()],
        log_x=True,
        log_y=True,
    )


def kept_of(spectrum: Mapping[str, Any], rank: int, colour: str) -> Curve:
    values = spectrum["eigenvalues"][str(rank)]
    largest = spectrum["eigenvalues"]["1"]
    points = [
        (step, value)
        for step, value, most in zip(spectrum["step"], values, largest, strict=True)
        if value > ROUNDING_ERROR * most
    ]
    return Curve(str(rank), colour, [step for step, _ in points], [value for _, value in points])


def singular_values(runs: Sequence[Named]) -> str:
    """Singular values of the embeddings at the end, relative to the largest, in one panel with a line at a tenth."""
    curves = []
    for (name, record), colour in zip(runs, cycle(PALETTE)):
        last = {int(rank): values[-1] for rank, values in record["spectrum"]["eigenvalues"].items()}
        kept = {rank: math.sqrt(value / last[1]) for rank, value in last.items() if value > ROUNDING_ERROR * last[1]}
        curves.append(Curve(name, colour, list(kept), list(kept.values())))
    ends = [1, max(max(curve.x) for curve in curves)]
    named = [(curve.name, curve.colour) for curve in curves]
    tenth = Curve("a tenth", "#999", ends, [0.1, 0.1])
    panels = [("", [tenth, *curves])]
    return drawn(panels, "rank", "singular value / largest", [*named, ("a tenth", "#999")], True, True)


def accuracies(runs: Sequence[Named]) -> str:
    """Online accuracy by epoch; all runs in one panel."""
    curves = [Curve(name, colour, *by_epoch(record)) for (name, record), colour in zip(runs, cycle(PALETTE))]
    named = [(curve.name, curve.colour) for curve in curves]
    return drawn([("", curves)], "epoch", "online accuracy, %", named, log_x=True)


def by_epoch(record: Record) -> tuple[list[float], list[float]]:
    points = {float(epoch): 100 * value for epoch, value in record["online_accuracy"].items()}
    return list(points), list(points.values())


def drawn(
    panels: Sequence[tuple[str, Sequence[Curve]]],
    x_title: str,
    y_title: str,
    names: Sequence[tuple[str, str]],
    log_x: bool = False,
    log_y: bool = False,
) -> str:
    curves = [curve for _, each in panels for curve in each]
    x = axis(x_title, [value for curve in curves for value in curve.x], log_x)
    y = axis(y_title, [value for curve in curves for value in curve.y], log_y)
    columns = min(IN_A_LINE, len(panels))
    across, down = LEFT + WIDTH + GAP, TITLE + HEIGHT + BELOW
    width = GAP + columns * across
    parts = []
    for number, (title, own) in enumerate(panels):
        left, top = GAP + LEFT + number % columns * across, TITLE + number // columns * down
        parts += panel(title, own, x, y, left, top)
    lines = -(-len(panels) // columns)
    below, bottom = legend(names, width, lines * down + GAP)
    return sheet(width, bottom + GAP, parts + below)


def axis(title: str, values: Sequence[float], log: bool) -> Axis:
    """An axis over the range of the values. Without a log scale, it starts at 0."""
    low, high = min(values), max(values)
    if not log:
        step = 10.0 ** math.floor(math.log10(high))
        return Axis(title, 0.0, math.ceil(high / step) * step)
    return Axis(title, low, high if high > low else 10 * low, log=True)


def panel(title: str, curves: Sequence[Curve], x: Axis, y: Axis, left: int, top: int) -> list[str]:
    parts = [text(left, top - 10, title, 13)] if title else []
    for value in x.ticks():
        place = left + x.part(value) * WIDTH
        parts.append(f'<path d="M{place:.1f} {top}v{HEIGHT}" stroke="#eee"/>')
        parts.append(text(round(place, 1), top + HEIGHT + 14, shown(value, x.log), 10, ' text-anchor="middle"'))
    for value in y.ticks():
        place = top + (1 - y.part(value)) * HEIGHT
        parts.append(f'<path d="M{left} {place:.1f}h{WIDTH}" stroke="#eee"/>')
        parts.append(text(left - 5, round(place + 3, 1), shown(value, y.log), 10, ' text-anchor="end"'))
    parts.append(f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#ccc"/>')
    for curve in curves:
        points = " ".join(
            f"{left + x.part(a) * WIDTH:.1f},{top + (1 - y.part(b)) * HEIGHT:.1f}"
            for a, b in zip(curve.x, curve.y, strict=True)
        )
        parts.append(f'<polyline fill="none" stroke="{curve.colour}" stroke-width="1.4" points="{points}"/>')
    parts.append(text(left + WIDTH / 2, top + HEIGHT + 29, x.title, 11, ' text-anchor="middle"'))
    turned = f' text-anchor="middle" transform="rotate(-90 {left - 34} {top + HEIGHT / 2:g})"'
    parts.append(text(left - 34, top + HEIGHT / 2, y.title, 11, turned))
    return parts


def shown(value: float, log: bool) -> str:
    """The text of a tick: 0.01, 1, 100; powers of ten above a thousand and below a thousandth."""
    if not log or 1e-3 <= value <= 1e3:
        return f"{value:g}"
    return "10" + str(round(math.log10(value))).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def ramp(count: int) -> list[str]:
    """Colours for an ordered set of curves."""
    colours = []
    for number in range(count):
        place = number / max(count - 1, 1) * (len(RAMP) - 1)
        first = min(int(place), len(RAMP) - 2)
        mixed = (a + (b - a) * (place - first) for a, b in zip(RAMP[first], RAMP[first + 1], strict=True))
        colours.append("#" + "".join(f"{round(part):02x}" for part in mixed))
    return colours


EIGENVALUES = Figure("eigenvalues", "spectrum", eigenvalues)
ACCURACY = Figure("accuracy", "online_accuracy", accuracies)
