"""`twofold compare`."""

from pathlib import Path
from typing import Annotated

import typer

from twofold.cli.common import EVALUATE, Quiet, command, display_of, handle_interrupts


@command(EVALUATE, examples="twofold compare runs/simclr-photos-1 runs/byol-photos-1")
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Two or more run folders.", show_default=False)],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The page to write.", show_default=True)
    ] = Path("compare.html"),
    quiet: Quiet = False,
) -> None:
    """Write an HTML page that compares runs: a sortable table, training curves and maps of the features."""
    from twofold.report.compare import write_comparison
    from twofold.runs.folder import RunFolder

    with handle_interrupts():
        display_of(quiet).say(write_comparison([RunFolder.open(run) for run in runs], out))
