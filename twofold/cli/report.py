"""`twofold report`."""

from typing import Annotated

import typer

from twofold.cli.common import EVALUATE, MovedData, Quiet, RunArgument, command, display_of, handle_interrupts

EXAMPLES = """
twofold report runs/frossl-photos-1
twofold report runs/frossl-photos-1 --map 2000
"""


@command(EVALUATE, EXAMPLES)
def report(
    run: RunArgument,
    data: MovedData = None,
    points: Annotated[
        int | None,
        typer.Option(
            "--map",
            metavar="N",
            min=10,
            max=5000,
            help="Compute the map of the features again, with this many images (10 to 5000).",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write the HTML report of a run again.

    The report has the map and the pictures if Twofold finds the images of the run.
    """
    from twofold.report.page import write_anew
    from twofold.runs.folder import RunFolder

    display = display_of(quiet)
    with handle_interrupts():
        display.say(write_anew(RunFolder.open(run), display, points, data))
