"""Records of runs as rows of tables."""

import json
from collections.abc import Iterable
from statistics import mean, stdev
from typing import Any

from generators import paths

Record = dict[str, Any]
NO_VALUE = "—"
COLUMNS = (
    *("linear", "kNN", "online", "effective rank", "images/s", "memory", "seconds"),
    *("seed", "date", "commit", "made with"),
)


def records(pattern: str) -> dict[str, Record]:
    """Return the records whose file names match, by name."""
    files = sorted(paths.RECORDS.glob(pattern))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in files}


def rows_of(runs: Iterable[Record], name: str) -> list[dict[str, float]]:
    """Return the accuracies of "trained", "untrained" or "raw pixels", one row for each run."""
    return [row for run in runs for row in run["results"]["table"] if row["name"] == name]


def percent(values: list[float]) -> str:
    """Return the mean in per cent, with the standard deviation if there are several values."""
    spread = f" ± {100 * stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * mean(values):.1f}{spread}"


def formatted(value: float | None, form: str) -> str:
    return NO_VALUE if value is None else format(value, form).removesuffix("%")


class RunTable:
    """A table with a row for each run. Rows refer to a numbered list of machines and versions, which tables share."""

    def __init__(self, label: str, environments: dict[str, int]):
        self.environments = environments  # the number of each, in the order in which they are first used
        self.titles = (label, *COLUMNS)
        self.rows: list[list[str]] = []

    def add(self, label: str, run: Record, name: str = "trained") -> None:
        """Add the row of a run with this name. "untrained" and "raw pixels" have accuracies only."""
        accuracies = next(iter(rows_of([run], name)), {})
        cells = [formatted(accuracies.get(column), ".1%") for column in ("linear_accuracy", "knn_accuracy")]
        cells += training_cells(run) if name == "trained" else [""] * 5
        versions = run["results"]["versions"].items()
        environment = ", ".join([run["machine"], *(f"{part} {version}" for part, version in versions)])
        number = self.environments.setdefault(environment, len(self.environments) + 1)
        seed, date = run["config"]["values"]["seed"], run["results"].get("date", NO_VALUE)
        self.rows.append([label, *cells, str(seed), date, run["commit"], str(number)])

    def add_missing(self, label: str) -> None:
        self.rows.append([label, "not run yet", *[""] * (len(COLUMNS) - 1)])


def training_cells(run: Record) -> list[str]:
    """Return what was measured while a run trained."""
    results = run["results"]
    return [
        formatted(run["last"].get("online_accuracy"), ".1%"),
        formatted(run["last"].get("effective_rank"), ".0f"),
        formatted(run.get("steady_images_per_second"), ",.0f"),
        formatted(results.get("memory"), ",.0f"),
        formatted(run.get("seconds", results["seconds"]), ",.0f"),
    ]
