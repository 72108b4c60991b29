"""What `twofold probe` and `twofold knn` share: arguments, and tables of accuracies and confusions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from twofold.cli.common import write_json
from twofold.text import printable

if TYPE_CHECKING:
    from twofold.display import Display

WIDE = 20  # the most classes for which the complete confusion matrix is printed
WORST = 10  # with more classes, the number of classes and of confusions that are printed
DataArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[DATA]",
        help="Labelled images, in any form that `twofold pretrain` accepts. Default: the run's own images. Other "
        "encoders need them.",
        show_default=False,
    ),
]
LayerOption = Annotated[
    str,
    typer.Option(
        "--layer",
        metavar="NAME",
        help="What to measure. `pre`: the encoder's features; `post`: the projector's output.",
        show_default=True,
    ),
]


def print_accuracies(found: dict[str, Any], title: str, out: Path | None, display: "Display") -> None:
    """Print the accuracies of `probe` or `knn`, in total and by class, and the confusions; write them to `out`."""
    where = "projector's output" if found["layer"] == "post" else "encoder's features"
    display.say(
        f"{found['data']}: {found['train_images']:,} training and {found['test_images']:,} test images, {where}"
    )
    display.say(main_table(found, title))
    names, rows = list(map(printable, found["classes"])), found["rows"]
    display.say(class_table(names, rows))
    display.say(confusions(names, rows[0]["confusion"]))
    write_json(found, out, display)


def main_table(found: dict[str, Any], title: str) -> Table:
    """Return the table of total accuracies: trained, untrained, hand-made, raw pixels."""
    rows = found["rows"]
    few = [item["labels_per_class"] for item in rows[0].get("few_labels", [])]
    several = rows[0]["top5"] is not None
    table = Table("", f"{title}, top-1", *(["top-5"] if several else []), box=None, header_style="bold")
    for count in few:
        table.add_column(f"{count} per class" if count > 1 else "1 label per class")
    for row in rows:
        cells = [row["name"], percent(row["top1"])] + ([percent(row["top5"])] if several else [])
        cells += [f"{100 * item['mean']:.1f} ± {100 * item['sd']:.1f} %" for item in row.get("few_labels", [])]
        table.add_row(*cells)
    return table


def class_table(names: list[str], rows: list[dict[str, Any]]) -> Table:
    """Return the accuracy of each class, or of the worst classes if there are many."""
    order = list(range(len(names)))
    title = "class"
    if len(names) > WIDE:
        order = sorted(order, key=lambda number: rows[0]["per_class"][number] or 0.0)[:WORST]
        title = f"the {WORST} worst classes"
    table = Table(title, *(row["name"] for row in rows), box=None, header_style="bold")
    for number in order:
        table.add_row(names[number], *(percent(row["per_class"][number]) for row in rows))
    return table


def confusions(names: list[str], matrix: list[list[int]]) -> Table:
    """Return the confusions of the trained encoder: a row for each true class, a column for each predicted class."""
    if len(names) <= WIDE:
        table = Table("true \\ predicted", *names, box=None, header_style="bold")
        for name, counted in zip(names, matrix, strict=True):
            table.add_row(name, *(str(count) if count else "·" for count in counted))
        return table
    pairs = [(count, i, j) for i, counted in enumerate(matrix) for j, count in enumerate(counted) if i != j and count]
    table = Table("true class", "predicted as", "images", box=None, header_style="bold")
    for count, i, j in sorted(pairs, reverse=True)[:WORST]:
        table.add_row(names[i], names[j], str(count))
    return table


def percent(value: float | None) -> str:
    return "—" if value is None else f"{100 * value:.1f} %"
