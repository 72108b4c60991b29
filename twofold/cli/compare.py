"""`twofold compare`."""

from pathlib import Path
from typing import Annotated

import typer

from twofold.cli.common import Quiet, app, display_of, handle_interrupts


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Two or more run folders.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the page goes.")] = Path("compare.html"),
    quiet: Quiet = False,
) -> None:
    """Write one page of several runs: a table to sort, curves by epoch and by time, maps side by side."""
    from twofold.report.compare import write_comparison
    from twofold.runs.folder import RunFolder

    with handle_interrupts():
        display_of(quiet).say(write_comparison([RunFolder.open(run) for run in runs], out))
