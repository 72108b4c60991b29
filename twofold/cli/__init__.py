"""The command line. Each module holds the commands of one purpose; this order is the order of `twofold --help`."""

import io  # noqa: I001 — the order below is the order of the help
import sys

from importlib import import_module
from importlib.util import find_spec

from twofold.cli import train, evaluate, use, see, duplicates  # noqa: F401
from twofold.cli.common import app, fail
from twofold.errors import Followed, TwofoldError

# Packages that add commands. They import twofold, so twofold knows them by name alone.
for plugin in ("twofold_papers",):
    if find_spec(plugin) is not None:
        import_module(f"{plugin}.cli")

from twofold.cli import cache, methods  # noqa: E402, F401


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
