"""What was learnt, to look at: `twofold report` and `twofold compare`."""

from pathlib import Path
from typing import Annotated

import typer

from twofold.cli.common import MovedData, Quiet, RunArgument, app, display_of, polite


@app.command()
def report(
    run: RunArgument,
    data: MovedData = None,
    points: Annotated[
        int | None,
        typer.Option("--map", min=10, max=5000, help="Draw the map anew, of this many images."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write report.html anew from a run's records, with map and pictures wherever its images can be found."""
    from twofold.report.page import write_anew
    from twofold.train.record import RunFolder

    display = display_of(quiet)
    with polite():
        display.say(write_anew(RunFolder.open(run), display, points, data))


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Two or more run folders.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the page goes.")] = Path("compare.html"),
    quiet: Quiet = False,
) -> None:
    """Write one page of several runs: a table to sort, curves by epoch and by time, maps side by side."""
    from twofold.report.compare import write_comparison
    from twofold.train.record import RunFolder

    with polite():
        display_of(quiet).say(write_comparison([RunFolder.open(run) for run in runs], out))
