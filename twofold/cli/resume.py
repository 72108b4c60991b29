"""`twofold resume`."""

from shlex import quote
from typing import Annotated

import typer

from twofold.cli.common import TRAIN, MovedData, Quiet, RunArgument, command, handle_interrupts, processes, split_words
from twofold.cli.results import conclude
from twofold.errors import TwofoldError

EXAMPLES = """
twofold resume runs/frossl-photos-1
twofold resume runs/frossl-photos-1 epochs=200
"""


# Additional arguments are accepted here, so that an error can explain what to do with settings among them.
@command(TRAIN, EXAMPLES, allow_extra_args=True)
def resume(
    context: typer.Context,
    run: RunArgument,
    data: MovedData = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            "-m",
            metavar="FILE.py:FUNCTION",
            help="The method of your own that the run was trained with, also as MODULE:FUNCTION.",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Resume a run from its last checkpoint.

    With epochs=N, extend it, also after its end: all schedules are then those of a run with N epochs.
    """
    from twofold.keys import checked, parse_overrides
    from twofold.methods import name_of_method
    from twofold.verbs import resume as verb

    data, settings = split_words([word for word in (data, *context.args) if word is not None])
    given = parse_overrides(settings)
    epochs = given.pop("epochs", None)
    if given:
        name, value = next(iter(given.items()))
        raise TwofoldError(
            f"resume takes no settings such as {name}={value}, only epochs: a run keeps the settings it started with. "
            "To train further with other settings, wait until it is finished, then start a new run from its weights: "
            f"twofold pretrain DATA --init {quote(str(run))} {' '.join(settings)}"
        )
    if method is not None:
        name_of_method(method)  # registers it
    with handle_interrupts(data), processes(quiet) as display:
        conclude(
            verb.resume(
                run, data=data, epochs=None if epochs is None else checked("epochs", epochs, int), display=display
            ),
            display,
        )
