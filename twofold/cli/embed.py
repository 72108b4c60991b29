"""`twofold embed`."""

from pathlib import Path
from typing import Annotated

import typer

from twofold.cli.common import Images, Quiet, RunArgument, app, display_of, handle_interrupts


@app.command("embed")
def embed_command(
    run: RunArgument,
    data: Images,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="A .npz, .csv or .parquet file: features, index, split, labels, files.")
    ],
    quiet: Quiet = False,
) -> None:
    """Write the features of images under a run's encoder."""
    from twofold.verbs.embed import embed

    display = display_of(quiet)
    with handle_interrupts():
        display.say(f"wrote {embed(run, data, out, display=display)}")
