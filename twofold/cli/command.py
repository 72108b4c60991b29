"""The decorator that registers a command under its purpose, with examples for its help."""

from collections.abc import Callable
from typing import Any

from twofold.cli.common import CONTEXT, app
from twofold.cli.help import Command

# The panels of `twofold --help`, from top to bottom.
TRAIN, EVALUATE, USE, RESEARCH = PANELS = ("Train", "Evaluate", "Use", "Research")

CommandFunction = Callable[..., Any]


def command(
    panel: str, examples: str, name: str | None = None, **settings: Any
) -> Callable[[CommandFunction], CommandFunction]:
    """Register a function as a command of `twofold`.

    Parameters
    ----------
    panel : str
        One of `PANELS`: the purpose under which `twofold --help` lists the command.
    examples : str
        One or two complete command lines, one in each line. The command's help shows them.
    name : str, optional
        The name of the command, by default that of the function.
    **settings
        Further context settings of Typer, such as `ignore_unknown_options=True`.
    """
    epilog = "\n".join(f"   {line.strip()}" for line in examples.strip().splitlines())
    return app.command(name, cls=Command, rich_help_panel=panel, epilog=epilog, context_settings=CONTEXT | settings)
