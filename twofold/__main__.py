"""The program: `twofold` and `python -m twofold`."""

import signal


def main() -> None:
    """Import the command line and run it."""
    # During the imports, Ctrl-C ends the program without a message: an interrupted import can raise any error.
    # Background jobs ignore SIGINT, and that is kept.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from twofold.cli import main as run

    run()


if __name__ == "__main__":
    main()
