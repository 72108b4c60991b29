"""The command line. Each module holds the commands of one purpose; this order is the order of `twofold --help`."""

from twofold.cli import train, evaluate, use, see, duplicates, reproduce, verify, methods, cache  # noqa: F401, I001
from twofold.cli.common import app, fail
from twofold.errors import Followed, TwofoldError


def main() -> None:
    try:
        app()
    except Followed as error:  # another process has said it
        raise SystemExit(error.exit_code) from None
    except TwofoldError as error:
        fail(f"error: {error}", error.exit_code)
    except OSError as error:
        fail(f"error: {error}", 1)
