"""The command line: one module for each command parses its words, calls its verb and prints what comes back."""

import io
import pkgutil
import sys
from importlib import import_module
from importlib.util import find_spec

from typer.models import CommandInfo

from twofold.cli.common import app, fail
from twofold.errors import Followed, TwofoldError

# The order of `twofold --help`; commands that are not named here follow.
ORDER = (
    *("pretrain", "resume", "probe", "knn", "diagnose", "embed", "search", "export", "report", "compare"),
    *("duplicates", "reproduce", "verify", "methods", "cache"),
)
PLUGINS = ("twofold_papers",)  # packages that add commands; they import twofold, which knows them by name alone


def register_commands() -> None:
    """Import the modules of this folder, and those of the plugins, each of which registers its commands."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    for plugin in PLUGINS:
        if find_spec(plugin) is not None:
            import_module(f"{plugin}.cli")
    app.registered_commands.sort(key=help_position)


def help_position(command: CommandInfo) -> int:
    name = command.name or getattr(command.callback, "__name__", "")
    return ORDER.index(name) if name in ORDER else len(ORDER)


register_commands()


def main() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a training must not die of a · that a terminal cannot show
    try:
        app()
    except Followed as error:  # another process has said it
        raise SystemExit(error.exit_code) from None
    except TwofoldError as error:
        fail(f"error: {error}", error.exit_code)
    except OSError as error:
        fail(f"error: {error}", 1)
