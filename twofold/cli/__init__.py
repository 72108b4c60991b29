"""The command line: each command has a module that parses its arguments, calls its verb and prints the result."""

import io
import pkgutil
import sys
from importlib import import_module
from importlib.util import find_spec

from typer.models import CommandInfo

from twofold.cli.common import app, fail
from twofold.errors import Followed, TwofoldError

# The order of `twofold --help`, panel by panel; commands that are not listed follow.
ORDER = (
    *("pretrain", "resume", "check", "methods"),
    *("probe", "knn", "diagnose", "report", "compare"),
    *("adapt", "embed", "search", "predict", "duplicates", "export", "cache"),
    *("verify", "reproduce"),
)
PLUGINS = ("twofold_papers",)  # packages that add commands; they import twofold, which only knows their names


def register_commands() -> None:
    """Import the modules of this folder and of the plugins. Each registers its commands."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    for plugin in PLUGINS:
        if find_spec(plugin) is not None:
            import_module(f"{plugin}.cli")
    app.registered_commands.sort(key=help_position)


def help_position(command: CommandInfo) -> int:
    """Return the position of a command in `twofold --help`."""
    name = command.name or getattr(command.callback, "__name__", "")
    return ORDER.index(name) if name in ORDER else len(ORDER)


register_commands()


def main() -> None:
    """Run the command line, and print an error that the user can fix as one line."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a · must not end a training run
    try:
        app()
    except Followed as error:  # another process has reported the reason
        raise SystemExit(error.exit_code) from None
    except TwofoldError as error:
        fail(f"error: {error}", error.exit_code)
    except OSError as error:
        fail(f"error: {error}", 1)
