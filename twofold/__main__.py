"""`python -m twofold` is `twofold`."""

import signal


def main() -> None:
    # Ctrl-C just ends the program, until there is something to say: an import cut short raises errors of any kind.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, as in the background
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from twofold.cli import main as run

    run()


if __name__ == "__main__":
    main()
