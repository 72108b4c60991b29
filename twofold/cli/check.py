"""`twofold check`."""

import typer

from twofold.cli.common import TRAIN, Quiet, RunArgument, command, display_of


@command(TRAIN, "twofold check runs/frossl-photos-1")
def check(run: RunArgument, quiet: Quiet = False) -> None:
    """Check the files of a run, or of a shared folder, for damage, and say what can be recovered.

    The exit code is 1 if a file is damaged.
    """
    from twofold.verbs.check import check as verb

    display = display_of(quiet)
    found = verb(run)
    for file in found.files:
        display.say(f"{'damaged' if file.problem else 'intact':9}{file.name}")
        if file.problem:
            display.say(f"         {file.problem}")
    display.say(f"result   {found.recovery}")
    if found.damaged:
        raise typer.Exit(1)
