"""The summary of a finished run: accuracies, whether training helped, the verdict, and where the files are."""

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


def conclude(run: "Run", display: "Display") -> None:
    """Print the accuracies, whether training helped, the verdict and the paths of the encoder and the report."""
    results = run.results or {}
    if results.get("table"):
        display.say(results_table(results["table"]))
    say_verdict(results.get("gain"), display, "gain")
    say_verdict(results.get("verdict"), display)
    if (results.get("kept") or {}).get("sentence"):
        display.say(f"kept     {results['kept']['sentence']}")
    display.say(f"encoder  {run.path / 'encoder.safetensors'}")
    display.say(f"report   {run.report}")
    for number, line in enumerate(results.get("load") or []):
        display.say(f"{'' if number else 'python':9}{line}")
