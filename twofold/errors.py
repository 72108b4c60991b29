"""Errors that the user can fix, and the hints they contain."""

import os
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from shlex import quote

from twofold.version import __version__

MOST_COMPARED = 1000  # names in a folder that are compared with a missing one


class TwofoldError(Exception):
    """An error that the user can fix.

    The message states what is wrong, where, and what to do. The command line prints it and exits with status 2.
    """

    exit_code = 2


class Diverged(TwofoldError):
    """The loss or a weight became NaN or infinite. Earlier checkpoints are intact.

    `reason` says what is not finite, and since which step. The message also has the advice.
    """

    exit_code = 1

    def __init__(self, reason: str, advice: str):
        super().__init__(f"{reason} {advice}")
        self.reason = reason


class Interrupted(KeyboardInterrupt):
    """The user stopped the run, and Twofold saved a checkpoint first."""

    def __init__(self, path: Path, signal_number: int):
        super().__init__(f"{path} was stopped and saved; continue with twofold.resume({str(path)!r})")
        self.path, self.signal_number = path, signal_number


class Stopped(KeyboardInterrupt):
    """The run stopped immediately. Its last checkpoint is intact."""

    def __init__(self, path: Path):
        super().__init__(f"{path} was stopped; continue from its last checkpoint with twofold.resume({str(path)!r})")
        self.path = path


class LostProcess(TwofoldError):
    """Another process of the run ended unexpectedly."""

    exit_code = 1


class Followed(TwofoldError):
    """This process stops because another process failed and has reported the reason."""

    def __init__(self, reason: str, exit_code: int):
        super().__init__(reason)
        self.exit_code = exit_code


def how_to_resume(path: Path, moved: str | None = None) -> str:
    """Return the command that resumes a run, ready to copy. `moved` is the new path of its images."""
    return f"twofold resume {quote(str(path))}{'' if moved is None else f' {quote(moved)}'}"


def other_format(what: str, written: object, version: str | None, readable: tuple[int, ...]) -> TwofoldError:
    """Return the error for a file whose format this version does not read.

    `version` is the version of Twofold that wrote it, if the file says so, and `readable` has the formats that can be
    read.
    """
    newer = isinstance(written, int) and written > max(readable)
    by = f" and was written by Twofold {version}" if version else ""
    wanted = "a newer version of Twofold" if newer else "the version of Twofold that wrote it"
    use = f"use Twofold {version}{' or newer' if newer else ''}" if version else f"use {wanted}"
    formats = " and ".join(map(str, readable))
    return TwofoldError(f"{what} has format {written}{by}, but Twofold {__version__} reads format {formats}: {use}")


def how_to_report(path: Path) -> str:
    """Return the command that writes the report of a run, ready to copy."""
    return f"twofold report {quote(str(path))}"


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra of Twofold (`onnx`, `parquet`, `timm`, ...), ready to copy."""
    return f"pip install 'twofold[{extra}]'"


def nearest(word: str, choices: list[str]) -> str:
    """Return `, did you mean 'simclr'?` if a choice resembles the word, otherwise a list of the choices."""
    close = close_to(word, choices)
    return f", did you mean '{close}'?" if close else f"; choose from {', '.join(sorted(choices))}"


def close_to(word: str, choices: Iterable[str], cutoff: float = 0.5) -> str | None:
    """Return the choice that resembles the word most, or None if none does."""
    lower = {choice.lower(): choice for choice in sorted(choices)}
    return next((lower[found] for found in get_close_matches(str(word).lower(), lower, n=1, cutoff=cutoff)), None)


def path_close_to(path: Path) -> str | None:
    """Return the path in the same folder whose name resembles that of a missing path most, or None."""
    try:
        entries = islice(os.scandir(path.parent), MOST_COMPARED)
        names = [entry.name for entry in entries if not entry.name.startswith(".")]
    except OSError:
        return None
    close = close_to(path.name, names, cutoff=0.6)
    return None if close is None else str(path.with_name(close))
