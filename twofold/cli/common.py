"""What the commands share: the program, the decorator that registers a command, arguments, interrupts, JSON files."""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column

from twofold.cli.help import Command, Program
from twofold.console import SafeConsole
from twofold.errors import Interrupted, Stopped, TwofoldError, how_to_resume
from twofold.version import __version__

if TYPE_CHECKING:
    from twofold.display import Display

EXAMPLES = """
   twofold pretrain photos/ --minutes 20
   twofold probe runs/frossl-photos-1
"""
CONTEXT = {"help_option_names": ["-h", "--help"]}

# The panels of `twofold --help`, from top to bottom.
TRAIN, EVALUATE, USE, RESEARCH = PANELS = ("Train", "Evaluate", "Use", "Research")
CommandFunction = Callable[..., Any]

app = typer.Typer(
    cls=Program,
    help="Learn image representations without labels, and measure how good they are.",
    epilog=EXAMPLES.strip("\n"),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)


def show_version(asked: bool) -> None:
    if asked:
        print(f"twofold {__version__}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=show_version, is_eager=True)
    ] = False,
) -> None: ...


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


RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.", show_default=False)]
EncoderArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The encoder: a run folder, a .safetensors or .onnx file, efficientnet-lite0, or a timm model with its "
        "pretrained weights (timm:NAME). All but runs need DATA.",
        show_default=False,
    ),
]
ArchitectureOption = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        metavar="NAME",
        help="The architecture of a .safetensors file that Twofold did not write: resnet18, resnet34, resnet50, conv "
        "or timm:NAME.",
    ),
]
SizeOption = Annotated[
    int | None,
    typer.Option(
        "--image-size",
        metavar="PIXELS",
        min=1,
        help="The size of the images for efficientnet-lite0, timm:NAME, or a file that does not state its own.",
        show_default="the encoder's own",
    ),
]
Images = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="The images, in any form that `twofold pretrain` accepts.",
        show_default=False,
    ),
]
MovedData = Annotated[
    str | None,
    typer.Argument(metavar="[DATA]", help="The new path of the run's images, if they moved.", show_default=False),
]
OutOption = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="FILE", help="Also write all numbers to this .json file.")
]
AdapterOption = Annotated[
    bool,
    typer.Option(
        "--adapter/--no-adapter",
        help="Apply the adapter that `twofold adapt` wrote, if there is one.",
        show_default="--adapter",
    ),
]
ViewsOption = Annotated[
    int,
    typer.Option(
        "--views",
        metavar="N",
        help="The number of views. With 5, features are averaged over each image and four crops of it, at five times "
        "the cost.",
        show_default=True,
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]


def names(title: str) -> Column:
    """Return a table column for names that a user types. It is never cut."""
    return Column(title, no_wrap=True)


def display_of(quiet: bool) -> "Display":
    """Return a display. `twofold.display` is imported late, so that `twofold --help` starts quickly."""
    from twofold.display import Display

    return Display(quiet=quiet)


@contextmanager
def processes(quiet: bool) -> "Iterator[Display]":
    """Join the other processes that torchrun started, if any. Only the first process prints."""
    from twofold import dist

    with dist.joined():
        yield display_of(quiet or not dist.is_first())


@contextmanager
def handle_interrupts(moved: str | None = None) -> Iterator[None]:
    """After Ctrl-C or SIGTERM, print the command that resumes the run and exit with the status a shell expects.

    `moved` is the new path of the run's images, which that command then includes.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except Interrupted as stop:
        fail(f"stopped and saved; resume with: {how_to_resume(stop.path, moved)}", 128 + stop.signal_number)
    except Stopped as stop:
        fail(f"stopped; resume from the last checkpoint with: {how_to_resume(stop.path, moved)}", 130)
    except KeyboardInterrupt:
        fail("stopped; nothing was written", 130)


def say_verdict(verdict: dict[str, Any] | None, display: "Display", title: str = "verdict") -> None:
    """Print a verdict, or the answer whether training helped, with its evidence and what to try."""
    if verdict is not None and verdict.get("sentence"):  # results.json may lack the others
        display.say(f"{title:9}{verdict['sentence']}")
        for text in verdict.get("evidence", ()):
            display.say(f"         {text}")
        if verdict.get("remedy"):
            display.say(f"try      {verdict['remedy']}")


LONGEST_MESSAGE = 4000  # characters of an error


def fail(message: str, code: int) -> None:
    """Print a message to standard error and exit."""
    if len(message) > LONGEST_MESSAGE:  # a name in it can be a whole damaged file
        message = f"{message[: LONGEST_MESSAGE // 2]} … {message[-LONGEST_MESSAGE // 2 :]}"
    SafeConsole(stderr=True).print(message, highlight=False, soft_wrap=True, markup=False)
    sys.exit(code)


def refuse_unwritable_json(out: Path | None) -> None:
    """Refuse a file that cannot be written, before the work instead of after it."""
    if out is None:
        return
    if out.suffix != ".json" or not out.resolve().parent.is_dir():
        raise TwofoldError(f"--out {out}: give a .json file in a folder that exists")
    from twofold import files

    files.refuse_unwritable(out)


def write_json(found: dict[str, Any], out: Path | None, display: "Display") -> None:
    """Write all numbers to `out`, unless it is None."""
    if out is not None:
        from twofold.files import write_atomically, writing

        with writing(out):
            write_atomically(out, json.dumps(found, indent=1) + "\n")
        display.say(f"wrote    {out}")


def split_words(words: list[str]) -> tuple[str | None, list[str]]:
    """Split arguments into the data and the settings (KEY=VALUE). At most one argument is the data."""
    settings = [word for word in words if word.partition("=")[0].replace(".", "_").isidentifier() and "=" in word]
    others = [word for word in words if word not in settings]
    if len(others) > 1:
        hint = next(filter(None, (setting_for(word, words) for word in others)), "")
        raise TwofoldError(f"give one DATA, not {len(others)}: {', '.join(others)}{hint}")
    return (others[0] if others else None), settings


def setting_for(word: str, words: list[str]) -> str:
    """Return a hint for a setting in another notation, such as `--batch-size 64` or `epochs 3`, otherwise ''."""
    from twofold.config import RUN_KEYS
    from twofold.methods import CATALOG, schema

    name, _, value = word.lstrip("-").partition("=")
    name = name.replace("-", "_")
    if name not in RUN_KEYS and not any(name in schema(method) for method in CATALOG):
        return ""
    following = words[words.index(word) + 1 :]
    return f"; did you mean {name}={value or (following[0] if following else 'VALUE')}?"
