"""`twofold duplicates`: near-identical images."""

from pathlib import Path
from typing import Annotated

import typer

from twofold.cli.common import (
    USE,
    AdapterOption,
    ArchitectureOption,
    EncoderArgument,
    Quiet,
    SizeOption,
    command,
    display_of,
    handle_interrupts,
)

SHOWN = 20  # groups; thousands would flood a terminal


@command(USE, examples="twofold duplicates runs/frossl-photos-1 --out duplicates.csv")
def duplicates(
    run: EncoderArgument,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATA]",
            help="The images to search, in any form that `twofold pretrain` accepts. Default: the run's own images.",
            show_default=False,
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold",
            metavar="SIMILARITY",
            help="The smallest similarity of duplicates. A lower value such as 0.9 finds more duplicates, but also "
            "more pairs of different images.",
            show_default="0.95",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Also write all groups to this .json, .csv or .txt file."),
    ] = None,
    encoder: ArchitectureOption = None,
    image_size: SizeOption = None,
    adapter: AdapterOption = True,
    quiet: Quiet = False,
) -> None:
    """List groups of near-identical images: copies, and versions with another size, encoding or brightness."""
    from twofold.data.duplicates import THRESHOLD
    from twofold.text import plural
    from twofold.verbs.duplicates import as_text, find_duplicates, refuse_unwritable_groups, write_duplicates

    display = display_of(quiet)
    with handle_interrupts():
        if out is not None:
            refuse_unwritable_groups(out)
        threshold = THRESHOLD if threshold is None else threshold
        groups = find_duplicates(
            run, data, threshold=threshold, encoder=encoder, image_size=image_size, adapter=adapter, display=display
        )
        if not groups:
            display.say(
                f"no duplicates found: no two images have a similarity of {threshold:g} or more (whitened features)"
            )
        else:
            display.say(as_text(groups[:SHOWN]).rstrip())
            display.say()
            unshown = f" (only the first {SHOWN} groups are shown)" if len(groups) > SHOWN else ""
            surplus = sum(len(group) - 1 for group in groups)
            found = f"{plural(len(groups), 'group')} of duplicates"
            display.say(f"{found}; {plural(surplus, 'image')} could be removed{unshown}")
            display.say(
                "The numbers are cosine similarities of whitened features; `twofold search` does not whiten them."
            )
        if out is not None:
            display.say(f"wrote {write_duplicates(out, groups)}")
