"""The error types for what a user can put right."""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from shlex import quote


class TwofoldError(Exception):
    """Says in one line what is wrong, where, and what to do. The command line prints it and exits with 2."""

    exit_code = 2


class Diverged(TwofoldError):
    """Training produced values that are not numbers. What was saved before is sound."""

    exit_code = 1


class Interrupted(KeyboardInterrupt):
    """A run was asked to stop; its checkpoint is saved."""

    def __init__(self, path: Path, signal_number: int):
        super().__init__(f"{path} was stopped, and all of it is saved; go on with twofold.resume({str(path)!r})")
        self.path, self.signal_number = path, signal_number


class Stopped(KeyboardInterrupt):
    """A run was stopped at once; its last checkpoint is sound."""

    def __init__(self, path: Path):
        super().__init__(f"{path} was stopped; its last checkpoint is what twofold.resume({str(path)!r}) goes on from")
        self.path = path


class LostProcess(TwofoldError):
    """Another process of the run is gone."""

    exit_code = 1


class Followed(TwofoldError):
    """This process stops because another one did, which has said why."""

    def __init__(self, reason: str, exit_code: int):
        super().__init__(reason)
        self.exit_code = exit_code


def how_to_resume(path: Path, moved: str | None = None) -> str:
    """The command, to be copied as it is; `moved`: where its images are now."""
    return f"twofold resume {quote(str(path))}{'' if moved is None else f' {quote(moved)}'}"


def how_to_report(path: Path) -> str:
    return f"twofold report {quote(str(path))}"


def nearest(word: str, choices: list[str]) -> str:
    """`, did you mean 'simclr'?` where a choice is close to the word, else the choices themselves."""
    close = close_to(word, choices)
    return f", did you mean '{close}'?" if close else f"; there are: {', '.join(sorted(choices))}"


def close_to(word: str, choices: Iterable[str]) -> str | None:
    """What was probably meant."""
    lower = {choice.lower(): choice for choice in sorted(choices)}
    return next((lower[found] for found in get_close_matches(str(word).lower(), lower, n=1, cutoff=0.5)), None)
