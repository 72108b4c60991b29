"""`twofold resume`."""

from shlex import quote

import typer

from twofold.cli.arguments import split_words
from twofold.cli.common import MovedData, Quiet, RunArgument, app, handle_interrupts, processes
from twofold.cli.results import conclude
from twofold.errors import TwofoldError


# More words than there should be are taken, so that settings among them can be answered.
@app.command(context_settings={"allow_extra_args": True, "help_option_names": ["-h", "--help"]})
def resume(context: typer.Context, run: RunArgument, data: MovedData = None, quiet: Quiet = False) -> None:
    """Continue a run that was stopped, exactly where its last checkpoint is."""
    from twofold.verbs import resume as verb

    data, settings = split_words([word for word in (data, *context.args) if word is not None])
    if settings:
        raise TwofoldError(
            f"resume takes no settings such as {settings[0]}: a run goes on with its own. Once it is finished, a new "
            f"run can begin with its weights: twofold pretrain DATA --init {quote(str(run))} {' '.join(settings)}"
        )
    with handle_interrupts(data), processes(quiet) as display:
        conclude(verb.resume(run, data=data, display=display), display)
