"""`twofold pretrain`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from twofold.cli.arguments import setting_for, split_words
from twofold.cli.common import Quiet, app, handle_interrupts, names, processes
from twofold.cli.results import conclude
from twofold.errors import TwofoldError, nearest

if TYPE_CHECKING:
    from twofold.config import Config
    from twofold.data.source import Source


# Unknown options come as words, so that what is a setting can be answered with how to write it.
@app.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]})
def pretrain(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATA] [KEY=VALUE]...",
            help="Images: digits (the default), cifar10 or another set by its name, a folder, a .csv or .txt list of "
            "files, .tar shards, a .npy or .npz file. Then settings such as `epochs=20 batch_size=128 seed=1 "
            "image_size=64`; `twofold methods NAME` lists all of them.",
            show_default=False,
        ),
    ] = None,
    method: Annotated[str | None, typer.Option("--method", "-m", help="See `twofold methods`. [frossl]")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The run folder. [runs/METHOD-DATA-NUMBER]")] = None,
    graph: Annotated[
        str | None,
        typer.Option(help="Of relational methods: views, labels, groups, neighbours, or a CSV file of groups. [views]"),
    ] = None,
    init: Annotated[
        str | None,
        typer.Option(help="Weights to start from: a run, a .safetensors file, or timm:NAME. [new ones]"),
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(help="Send metrics also to tensorboard or wandb; both need their package. [metrics.jsonl alone]"),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Train for about so long: epochs are chosen by the pace of a few steps.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, why, and what it would cost; do nothing.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Train an encoder on images, without their labels, unless `--graph labels` or `--method supervised` asks."""
    from twofold.keys import parse_overrides
    from twofold.launch import is_alone
    from twofold.verbs.settings import check_settings

    for word in words or []:
        if word.startswith("-"):
            options = [option for parameter in context.command.params for option in parameter.opts]
            hint = setting_for(word, words or []) or nearest(word, options)
            raise TwofoldError(f"there is no option {word}{hint}")
    data, overrides = split_words(words or [])
    for name, _, value in (setting.partition("=") for setting in overrides):
        if name in ("out", "minutes", "dry_run", "quiet"):
            option = f"--{name.replace('_', '-')}"
            raise TwofoldError(f"{name} is no key: write {option}{f' {value}' if name in ('out', 'minutes') else ''}")
    if graph is not None:
        overrides.append(f"graph.source={graph}")
    if init is not None:
        overrides.append(f"init={init}")
    if log:
        overrides.append(f"log={','.join(log)}")
    if is_alone():  # Several processes check it together below, so that one of them reports what is wrong.
        check_settings(data, method, parse_overrides(overrides), minutes)
    # Imported here because they need torch, and the words above are checked without it.
    from twofold.runs.folder import RunFolder
    from twofold.runs.initial_weights import refuse_unfit
    from twofold.verbs import pretrain

    with handle_interrupts(), processes(quiet) as display:
        config, source = pretrain.configure(data, method, parse_overrides(overrides), display, minutes)
        if dry_run:
            if out is not None:
                RunFolder.refuse_existing(out)
            refuse_unfit(config)
            explain(config, source)
            return
        conclude(pretrain.start(config, source, out=out, display=display), display)


def explain(config: "Config", source: "Source") -> None:
    """All that was chosen and why, and an estimate."""
    from twofold.cli.common import display_of
    from twofold.verbs import explain as explaining

    display = display_of(False)
    with display.stage("taking a few steps", 0):
        costs = explaining.estimate(config, source)
    for title, text in explaining.described(config, source, costs).items():
        display.say(f"{title:14}{text}")
    display.say()
    table = Table(names("key"), "value", "set by", "why", box=None, header_style="bold")
    for row in explaining.explained(config, source):
        table.add_row(row.key, escape(row.value), row.origin, escape(row.why))
    display.say(table)
    display.say(f"\nAll other keys have their defaults: twofold methods {config.method}. No run was begun.")
