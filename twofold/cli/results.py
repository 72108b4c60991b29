"""How a finished run is summed up: the table of accuracies, the verdict, and where to look next."""

from typing import TYPE_CHECKING, Any

from rich.table import Table

from twofold.cli.common import say_verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twofold.display import Display
    from twofold.runs.run import Run


def results_table(rows: "Sequence[Mapping[str, Any]]") -> Table:
    """Few labels have a column where there were more to choose them from."""
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
    """What labels say of the training, as the report does: a healthy spectrum alone does not mean that it helped."""
    from twofold.report.accuracies import shortfall, tested

    trained, *others = results["table"]
    found = {
        title: shortfall(trained, others, key, tested(results))
        for title, key in (("linear", "linear_accuracy"), ("kNN", "knn_accuracy"))
    }
    words = "; ".join(f"{title} {text}" for title, text in found.items() if text)
    return f"labels   {words or 'better than untrained and raw pixels'}"


def conclude(run: "Run", display: "Display") -> None:
    """The table of numbers and where to look next."""
    results = run.results or {}
    if results.get("table"):
        display.say(results_table(results["table"]))
        display.say(comparison(results))
    say_verdict(results.get("verdict"), display)
    display.say(f"encoder  {run.path / 'encoder.safetensors'}")
    display.say(f"report   {run.report}")
