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
    per_class = rows[0]["labels_per_class"]
    few = [] if per_class is None else [f"linear, {per_class} labels per class"]
    table = Table("", "linear", *few, "kNN", box=None, header_style="bold")
    for row in rows:
        cells = [f"{100 * row['few_labels_accuracy']:.1f} ± {100 * row['few_labels_sd']:.1f} %"] if few else []
        table.add_row(
            row["name"], f"{100 * row['linear_accuracy']:.1f} %", *cells, f"{100 * row['knn_accuracy']:.1f} %"
        )
    return table


def comparison(results: "Mapping[str, Any]") -> str:
    """Return a sentence that compares the trained encoder with the untrained one and with raw pixels.

    The report has the same sentence. A spectrum without collapse alone does not show that training helped.
    """
    from twofold.report.accuracies import shortfall, tested

    trained, *others = results["table"]
    found = {
        title: shortfall(trained, others, key, tested(results))
        for title, key in (("linear", "linear_accuracy"), ("kNN", "knn_accuracy"))
    }
    words = "; ".join(f"{title} {text}" for title, text in found.items() if text)
    return f"labels   {words or 'better than untrained and raw pixels'}"


def conclude(run: "Run", display: "Display") -> None:
    """Print the accuracies, the verdict and the paths of the encoder and the report."""
    results = run.results or {}
    if results.get("table"):
        display.say(results_table(results["table"]))
        display.say(comparison(results))
    say_verdict(results.get("verdict"), display)
    display.say(f"encoder  {run.path / 'encoder.safetensors'}")
    display.say(f"report   {run.report}")
