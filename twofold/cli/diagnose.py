"""`twofold diagnose`."""

from typing import Annotated

import typer
from rich.table import Table

from twofold.cli.common import (
    OutOption,
    Quiet,
    app,
    display_of,
    handle_interrupts,
    refuse_unwritable_json,
    say_verdict,
    write_json,
)
from twofold.cli.probing import WORST


@app.command("diagnose")
def diagnose_command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE|RUN|timm:NAME",
            help="Embeddings (.npy, .npz, .csv, .parquet), weights (.safetensors), a run folder, or a model of timm.",
            show_default=False,
        ),
    ],
    data: Annotated[
        str | None,
        typer.Argument(metavar="[DATA]", help="Images for an encoder, as for pretrain.", show_default=False),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="The architecture of a .safetensors file: resnet18, resnet50, timm:NAME, ..."),
    ] = None,
    image_size: Annotated[int | None, typer.Option(help="For such a file. [as pretrain would choose]")] = None,
    out: OutOption = None,
    quiet: Quiet = False,
) -> None:
    """The spectrum of any embeddings or encoder, whether it collapsed, and near-duplicates; no labels needed."""
    from twofold.evaluate.spectrum import MEANINGS
    from twofold.verbs.diagnose import diagnose

    display = display_of(quiet)
    with handle_interrupts():
        refuse_unwritable_json(out)
        found = diagnose(what, data, encoder=encoder, image_size=image_size, display=display)
        display.say(f"{found['rows']:,} rows of {found['dimension']} features: {found['of']}")
        table = Table("measure", "value", "", box=None, header_style="bold")
        for name, value in found["measures"].items():
            shown = "infinite" if value is None else f"{value:.4g}"
            table.add_row(name.replace("_", " "), shown, MEANINGS[name])
        if found["measures"]:
            display.say(table)
        say_verdict(found["verdict"], display)
        display.say(f"copies   {copies(found['duplicates'])}")
        if found["training"] is not None:
            display.say(f"training {found['training']['sentence']}")
        write_json(found, out, display)


def copies(groups: list[tuple[int, ...]] | None) -> str:
    if groups is None:
        return "not looked for: too many rows to compare all pairs of, some that are not finite, or all nearly the same"
    if not groups:
        return "no rows that are nearly the same"
    first = ", ".join(map(str, groups[0][:WORST]))
    return f"{len(groups):,} groups of rows that are nearly the same; the largest has {len(groups[0])}: {first}"
