"""The summary of a finished run: accuracies, verdict, and the paths of the encoder and the report."""

from typing import TYPE_CHECKING, Any

from rich.table import Table

from twofold.cli.common import say_verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twofold.display import Display
    from twofold.runs.run import Run


def results_table(rows: "Sequence[Mapping[str, Any]]") -> Table:
    """Return the table of accuracies. It has a column for few labels if the training images have more labels."""
    columns = columns_of(rows[0])
    table = Table("", *columns, box=None, header_style="bold")
    for row in rows:
        spread = {"few_labels_accuracy": f" ± {100 * (row.get('few_labels_sd') or 0):.1f}"}
        table.add_row(row["name"], *(f"{100 * row[key]:.1f}{spread.get(key, '')} %" for key in columns.values()))
    return table


def columns_of(row: "Mapping[str, Any]") -> dict[str, str]:
    """Return the titles of the columns of accuracies and their keys. Runs without few labels have two columns."""
    per_class = row.get("labels_per_class")
    few = {} if per_class is None else {f"linear, {per_class} labels per class": "few_labels_accuracy"}
    return {"linear": "linear_accuracy", **few, "kNN": "knn_accuracy"}


def comparison(results: "Mapping[str, Any]") -> str:
    """Return lines that compare the trained encoder with its baselines, one for each column unless all are better.

    The report has the same words. A spectrum without collapse alone does not show that training helped.
    """
    from twofold.report.accuracies import shortfall, tested

    trained, *others = results["table"]
    found = {title: shortfall(trained, others, key, tested(results)) for title, key in columns_of(trained).items()}
    better = f"better than {' and '.join(row['name'] for row in others)}"
    if not any(found.values()):
        return f"labels   {better}"
    lines = [f"{title}: {text or better}" for title, text in found.items()]
    return "labels   " + "\n         ".join(lines)


def conclude(run: "Run", display: "Display") -> None:
    """Print the accuracies, the verdict and the paths of the encoder and the report."""
    results = run.results or {}
    if results.get("table"):
        display.say(results_table(results["table"]))
        display.say(comparison(results))
    say_verdict(results.get("verdict"), display)
    display.say(f"encoder  {run.path / 'encoder.safetensors'}")
    display.say(f"report   {run.report}")
