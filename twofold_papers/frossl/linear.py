"""The record of `python -m benchmarks.linear_variants`: linear variants on crops of CIFAR-10 images, for Figure 2."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

CRITERIA = ("half of the fall", "95 % of the fall", "10th eigenvalue")


@dataclass(frozen=True)
class Record:
    rows: Sequence[dict[str, Any]]
    interval: float  # the time between two points of a curve
    variance: float  # the share of each view's variance that was kept
    end: float  # the time at the end of training

    def of(self, crops: str, variant: str) -> list[dict[str, Any]]:
        """The rows of all seeds, in the order of the seeds."""
        return [row for row in self.rows if (row["crops"], row["variant"]) == (crops, variant)]

    def time(self, crops: str, variant: str, criterion: str) -> float:
        """The mean over seeds."""
        rows = self.of(crops, variant)
        return sum(row[criterion] for row in rows) / len(rows)


@cache
def record() -> Record:
    found = json.loads(files("twofold_papers.frossl").joinpath("linear_cifar10.json").read_text(encoding="utf-8"))
    settings = found["settings"]
    end = float(settings["lr"]) * int(settings["steps"])
    return Record(found["rows"], float(settings["interval of the curves"]), float(settings["variance"]), end)


def comparison(crops: str) -> str:
    """A sentence with the times of both variants for each criterion."""
    times = [[record().time(crops, variant, name) for variant in ("frossl", "barlow")] for name in CRITERIA]
    parts = [f"{frossl:.0f} and {barlow:.0f} ({name})" for name, (frossl, barlow) in zip(CRITERIA, times, strict=True)]
    return f"With {crops} crops, the FroSSL variant and the Barlow variant need t = {', '.join(parts)}"


def summary() -> str:
    """What the record shows, with its numbers."""
    seeds, variance = len(record().of("mild", "frossl")), record().variance
    components = "All components" if variance == 1 else f"The components with {100 * variance:.0f} % of the variance"
    return (
        "Whether the FroSSL variant is faster depends on the crops and on the criterion: half of the fall of the loss, "
        "95 % of its fall, or 90 % of the rise of the 10th eigenvalue, each up to the end of training at "
        f"t = {record().end:.0f}. "
        f"{comparison('mild')}. {comparison('strong')}. These are means of {seeds} seeds. {components} of each view "
        "are used."
    )
