"""`twofold duplicates`: images that are nearly the same."""

from pathlib import Path
from typing import Annotated

import typer

from twofold.cli.common import Quiet, RunArgument, app, display_of, handle_interrupts

SHOWN = 20  # groups; a terminal is no place for thousands


@app.command()
def duplicates(
    run: RunArgument,
    data: Annotated[
        str | None, typer.Argument(metavar="[DATA]", help="Images, as for pretrain; by default the run's own.")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Similarity from which images count as the same; by default 0.95. 0.9 finds more, and errs more.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also write all groups: a .json, .csv or .txt file.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """List groups of near-identical images: copies, other encodings and sizes, other brightness."""
    from twofold.evaluate.duplicates import THRESHOLD
    from twofold.verbs.duplicate_files import as_text, refuse_unwritable_groups, write_duplicates
    from twofold.verbs.duplicates import find_duplicates

    display = display_of(quiet)
    with handle_interrupts():
        if out is not None:
            refuse_unwritable_groups(out)
        threshold = THRESHOLD if threshold is None else threshold
        groups = find_duplicates(run, data, threshold=threshold, display=display)
        if not groups:
            display.say(f"no two images are as similar as {threshold:g}")
        else:
            display.say(as_text(groups[:SHOWN]).rstrip())
            display.say()
            unshown = f"; the first {SHOWN} are shown" if len(groups) > SHOWN else ""
            surplus = sum(len(group) - 1 for group in groups)
            display.say(f"{len(groups):,} groups, {surplus:,} images more than one of each{unshown}")
        if out is not None:
            display.say(f"wrote {write_duplicates(out, groups)}")
