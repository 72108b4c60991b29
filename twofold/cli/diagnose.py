"""`twofold diagnose`."""

from typing import Annotated

import typer
from rich.table import Table

from twofold.cli.common import (
    EVALUATE,
    AdapterOption,
    ArchitectureOption,
    OutOption,
    Quiet,
    SizeOption,
    command,
    display_of,
    handle_interrupts,
    refuse_unwritable_json,
    say_verdict,
    write_json,
)
from twofold.cli.probing import WORST
from twofold.text import plural

EXAMPLES = """
twofold diagnose embeddings.npy
twofold diagnose timm:resnet18 photos/
"""


@command(EVALUATE, EXAMPLES, name="diagnose")
def diagnose_command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A file of embeddings (.npy, .npz, .csv, .parquet), or an encoder: a run folder, a .safetensors or "
            ".onnx file, efficientnet-lite0, or a timm model (timm:NAME).",
            show_default=False,
        ),
    ],
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATA]",
            help="The images to encode, in any form that `twofold pretrain` accepts. A run uses its own images by "
            "default; embeddings need no images.",
            show_default=False,
        ),
    ] = None,
    encoder: ArchitectureOption = None,
    image_size: SizeOption = None,
    adapter: AdapterOption = True,
    out: OutOption = None,
    quiet: Quiet = False,
) -> None:
    """Measure the spectrum of embeddings or of an encoder and check for collapse and near-duplicates.

    The command needs no labels.
    """
    from twofold.evaluate.spectrum import MEANINGS
    from twofold.verbs.diagnose import diagnose

    display = display_of(quiet)
    with handle_interrupts():
        refuse_unwritable_json(out)
        found = diagnose(what, data, encoder=encoder, image_size=image_size, adapter=adapter, display=display)
        display.say(f"{found['of']}: {plural(found['rows'], 'row')} of {plural(found['dimension'], 'feature')}")
        table = Table("measure", "value", "", box=None, header_style="bold")
        for name, value in found["measures"].items():
            shown = "infinite" if value is None else f"{value:.4g}"
            table.add_row(name.replace("_", " "), shown, MEANINGS[name])
        if found["measures"]:
            display.say(table)
        say_verdict(found["verdict"], display)
        display.say(f"copies   {copies(found['duplicates'], found['duplicate_files'])}")
        if found["training"] is not None and found["training"].get("sentence"):
            display.say(f"run      {found['training']['sentence']} (embeddings at the end of the run)")
        write_json(found, out, display)


def copies(groups: list[tuple[int, ...]] | None, files: list[list[str]] | None) -> str:
    """Return a sentence about near-duplicate rows. `groups` is None if they were not searched for."""
    if groups is None:
        return "not checked: there are too many rows to compare all pairs, values that are not finite, or a collapse"
    if not groups:
        return "no near-duplicate rows"
    first = ", ".join(map(str, (groups if files is None else files)[0][:WORST]))
    return f"{plural(len(groups), 'group')} of near-duplicate rows; the largest has {len(groups[0])} rows: {first}"
