"""`twofold predict`: the classes of images."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from twofold.cli.common import USE, Images, Quiet, command, display_of, handle_interrupts
from twofold.text import plural, printable

EXAMPLES = """
twofold predict classifier.safetensors new-photos/ --out table.csv
"""
SHOWN = 20  # images in the table on the console


@command(USE, EXAMPLES, name="predict")
def predict_command(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="CLASSIFIER",
            help="A file that `twofold probe RUN --out classifier.safetensors` wrote, or the run folder of a run of "
            "the method `supervised`.",
            show_default=False,
        ),
    ],
    data: Images,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="The .csv file to write: for each image the class, its probability, and the nearest labelled image.",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Classify images with a saved classifier."""
    from twofold.verbs.predict import predict

    display = display_of(quiet)
    with handle_interrupts():
        found = predict(model, data, out, display=display)
        table = Table("image", "class", "probability", "nearest labelled image", box=None, header_style="bold")
        for each in found[:SHOWN]:
            nearest = f"{each.nearest} ({each.nearest_class}, similarity {each.similarity:.2f})"
            name = each.file or str(each.index)
            table.add_row(cell(name), cell(each.predicted), f"{100 * each.probability:.1f} %", cell(nearest))
        display.say(table)
        if len(found) > SHOWN:
            advice = "" if out is not None else "; write all to a file with --out table.csv"
            display.say(f"{plural(len(found), 'image')}; the first {SHOWN} are shown{advice}")
        if out is not None:
            display.say(f"wrote    {out}")


def cell(name: str) -> str:
    """Return a name as the content of a table."""
    return escape(printable(name))
