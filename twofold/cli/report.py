"""`twofold report`."""

from typing import Annotated

import typer

from twofold.cli.common import MovedData, Quiet, RunArgument, app, display_of, handle_interrupts


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
    from twofold.runs.folder import RunFolder

    display = display_of(quiet)
    with handle_interrupts():
        display.say(write_anew(RunFolder.open(run), display, points, data))
