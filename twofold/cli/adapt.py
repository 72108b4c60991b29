"""`twofold adapt`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from twofold.cli.common import (
    USE,
    ArchitectureOption,
    Quiet,
    SizeOption,
    ViewsOption,
    command,
    display_of,
    handle_interrupts,
)
from twofold.cli.probing import percent

if TYPE_CHECKING:
    from twofold.display import Display
    from twofold.verbs.adapt import Adapted

ACCURACIES = {"linear": "linear_accuracy", "few labels": "few_labels_accuracy", "kNN": "knn_accuracy"}
EXAMPLES = """
twofold adapt efficientnet-lite0 photos/ --out adapted
twofold adapt runs/simclr-photos-1
"""


@command(USE, EXAMPLES, name="adapt")
def adapt_command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="ENCODER",
            help="The encoder: a run folder, a .safetensors or .onnx file, efficientnet-lite0, or a timm model with "
            "its pretrained weights (timm:NAME).",
            show_default=False,
        ),
    ],
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATA]",
            help="The images, in any form that `twofold pretrain` accepts. Default: the run's own training images.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            help="The folder to create, with the encoder and its adapter. All commands accept it in place of a run.",
            show_default="the run folder",
        ),
    ] = None,
    graph: Annotated[
        str,
        typer.Option(
            "--graph",
            metavar="SOURCE",
            help="Which images are related: views (none), labels, groups, neighbours, duplicates, a file of groups or "
            "of weighted pairs, or a function (FILE.py:FUNCTION).",
        ),
    ] = "views",
    graph_encoder: Annotated[
        str | None,
        typer.Option(
            "--graph-encoder",
            metavar="ENCODER",
            help="The encoder by whose features neighbours are found.",
            show_default="by pixels",
        ),
    ] = None,
    variant: Annotated[
        str,
        typer.Option(
            "--variant",
            metavar="NAME",
            help="The map. `auto`: whitening within images, or none if held-out images are not found better with it. "
            "`within`, `whitening`, `ridge` and `threshold` are kept in any case.",
        ),
    ] = "auto",
    images: Annotated[
        int, typer.Option("--images", metavar="N", min=2, help="The largest number of images to use.")
    ] = 10_000,
    flip: Annotated[
        bool | None,
        typer.Option(
            "--flip/--no-flip",
            help="Whether a flipped image shows the same.",
            show_default="yes, unless the run or the dataset excludes flips",
        ),
    ] = None,
    views: ViewsOption = 1,
    encoder: ArchitectureOption = None,
    image_size: SizeOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an adapter that exists already.")] = False,
    quiet: Quiet = False,
) -> None:
    """Adapt a pretrained encoder to your images in seconds, without training and without labels.

    The adapter is a linear map of the features. Twofold chooses it on held-out images, and writes none if no map is
    better. The encoder's own file stays as it is.
    """
    from twofold.verbs.adapt import adapt

    display = display_of(quiet)
    with handle_interrupts():
        adapted = adapt(
            what,
            data,
            out=out,
            graph=graph,
            graph_encoder=graph_encoder,
            variant=variant,
            images=images,
            flip=flip,
            views=views,
            overwrite=overwrite,
            encoder=encoder,
            image_size=image_size,
            display=display,
        )
        print_adapted(adapted, display)


def print_adapted(adapted: "Adapted", display: "Display") -> None:
    """Print the map, why it was chosen, the scores, the accuracies and the files."""
    from twofold.runs.folder import adapter_file
    from twofold.runs.weights import in_words

    found = adapted.adaptation
    display.say(f"map      {in_words(found.variant, found.settings)}: {found.reason}")
    display.say(f"images   {found.images:,}, of which {found.held_out:,} chose the map; {found.seconds:.0f} s")
    display.say(scores_table(adapted))
    display.say("retrieval: how often views of a held-out image find each other, from 0 to 1; it needs no labels")
    written = adapted.path / "encoder.safetensors"
    if found.adapter is None:
        display.say(f"encoder  {written}, without an adapter")
    else:
        display.say(f"adapter  {adapter_file(written)}, applied by all commands unless you pass --no-adapter")


def scores_table(adapted: "Adapted") -> Table:
    """Return the scores before and after, and with labels the accuracies on held-out images."""
    found = adapted.adaptation
    retrieval = {"as it is": found.before} | ({} if found.adapter is None else {"with adapter": found.after})
    rows = {row.name: row for row in adapted.rows}
    table = Table("", "retrieval", *(ACCURACIES if rows else ()), box=None, header_style="bold")
    for name in rows or retrieval:
        score = retrieval.get(name)
        cells = [percent(getattr(rows[name], of)) for of in ACCURACIES.values()] if rows else []
        table.add_row(name, "—" if score is None else f"{score.mean:.3f}", *cells)
    return table
