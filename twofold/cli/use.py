"""What is done with a trained encoder: `twofold embed`."""

from pathlib import Path
from typing import Annotated

import typer

from twofold.cli.common import Quiet, RunArgument, app, display_of, polite


@app.command("embed")
def embed_(
    run: RunArgument,
    data: Annotated[str, typer.Argument(metavar="DATA", help="Images, as for pretrain.", show_default=False)],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="A .npz, .csv or .parquet file: features, index, split, labels, files.")
    ],
    quiet: Quiet = False,
) -> None:
    """Write the features of images under a run's encoder."""
    from twofold.use.embedding import embed

    display = display_of(quiet)
    with polite():
        display.say(f"wrote {embed(run, data, out, display=display)}")
