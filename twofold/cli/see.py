"""What was learnt, to look at: `twofold report`."""

from rich.console import Console

from twofold.cli.common import RunArgument, app


@app.command()
def report(run: RunArgument) -> None:
    """Write report.html anew from a run's records."""
    from twofold.report.page import write_report
    from twofold.train.record import RunFolder

    Console().print(str(write_report(RunFolder.open(run))), highlight=False, soft_wrap=True)
