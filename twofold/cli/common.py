"""What the commands share: the program, its words for a run, and how it says that something went wrong."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column

from twofold.errors import Interrupted, Stopped, TwofoldError, how_to_resume
from twofold.version import __version__

Images = Annotated[str, typer.Argument(metavar="DATA", help="Images, as for pretrain.", show_default=False)]
if TYPE_CHECKING:
    from twofold.display import Display
OutOption = Annotated[Path | None, typer.Option("--out", "-o", help="Also write all numbers to this .json file.")]

if TYPE_CHECKING:
    from twofold.display import Display

app = typer.Typer(
    help="Learn image representations without labels, and see what was learnt.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def say_version(asked: bool) -> None:
    if asked:
        print(f"twofold {__version__}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", help="Say the version.", callback=say_version, is_eager=True)
    ] = False,
) -> None: ...


RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]
MovedData = Annotated[
    str | None,
    typer.Argument(metavar="[DATA]", help="Where the run's images are now, if they moved.", show_default=False),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]


def names(title: str) -> Column:
    """Of a table, for what one types: never cut."""
    return Column(title, no_wrap=True)


def display_of(quiet: bool) -> "Display":
    from twofold.display import Display

    return Display(quiet=quiet)


@contextmanager
def processes(quiet: bool) -> "Iterator[Display]":
    """Together with the other processes, where torchrun has started some; the first one speaks for all."""
    from twofold import dist

    with dist.joined():
        yield display_of(quiet or not dist.is_first())


@contextmanager
def handle_interrupts(moved: str | None = None) -> Iterator[None]:
    """After Ctrl-C or SIGTERM say how to go on, and exit as the shell expects; `moved`: where a run's images are."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except Interrupted as stop:
        fail(f"stopped; everything is saved. Go on with: {how_to_resume(stop.path, moved)}", 128 + stop.signal_number)
    except Stopped as stop:
        fail(f"stopped; it goes on from its last checkpoint with: {how_to_resume(stop.path, moved)}", 130)
    except KeyboardInterrupt:
        fail("stopped; nothing was written", 130)


def say_verdict(verdict: dict[str, Any] | None, display: "Display") -> None:
    """In words, with its evidence, and what to try."""
    if verdict is not None:
        display.say(f"verdict  {verdict['sentence']}")
        for text in verdict["evidence"]:
            display.say(f"         {text}")
        if verdict["remedy"]:
            display.say(f"try      {verdict['remedy']}")


def fail(message: str, code: int) -> None:
    Console(stderr=True).print(message, highlight=False, soft_wrap=True, markup=False)
    sys.exit(code)


def refuse_unwritable_json(out: Path | None) -> None:
    """Before the work, not after it."""
    if out is None:
        return
    if out.suffix != ".json" or not out.resolve().parent.is_dir():
        raise TwofoldError(f"--out {out}: numbers are written as .json, into a folder that exists")
    from twofold import files

    files.refuse_unwritable(out)


def write_json(found: dict[str, Any], out: Path | None, display: "Display") -> None:
    if out is not None:
        from twofold.files import write_atomically, writing

        with writing(out):
            write_atomically(out, json.dumps(found, indent=1) + "\n")
        display.say(f"wrote    {out}")
