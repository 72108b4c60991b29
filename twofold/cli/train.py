"""`twofold pretrain` and `resume`."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from twofold.cli.common import MovedData, Quiet, RunArgument, app, names, polite, processes, say_verdict
from twofold.errors import TwofoldError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twofold.api import Run
    from twofold.config import Config
    from twofold.data.sources import Source
    from twofold.train.progress import Display


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
    from twofold import api
    from twofold.keys import parse_overrides
    from twofold.train.initial import refuse_unfit
    from twofold.train.record import RunFolder

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
    with polite(), processes(quiet) as display:
        config, source = api.configure(data, method, parse_overrides(overrides), display, minutes)
        if dry_run:
            if out is not None:
                RunFolder.refuse_existing(out)
            refuse_unfit(config)
            explain(config, source)
            return
        conclude(api.start(config, source, out=out, display=display), display)


# More words than there should be are taken, so that settings among them can be answered.
@app.command(context_settings={"allow_extra_args": True, "help_option_names": ["-h", "--help"]})
def resume(context: typer.Context, run: RunArgument, data: MovedData = None, quiet: Quiet = False) -> None:
    """Continue a run that was stopped, exactly where its last checkpoint is."""
    from twofold import api

    data, settings = split_words([word for word in (data, *context.args) if word is not None])
    if settings:
        raise TwofoldError(
            f"resume takes no settings such as {settings[0]}: a run goes on with its own. Once it is finished, a new "
            f"run can begin with its weights: twofold pretrain DATA --init {quote(str(run))} {' '.join(settings)}"
        )
    with polite(data), processes(quiet) as display:
        conclude(api.resume(run, data=data, display=display), display)


def explain(config: "Config", source: "Source") -> None:
    """All that was chosen and why, and an estimate."""
    from twofold import plan
    from twofold.cli.common import display_of

    display = display_of(False)
    with display.stage("taking a few steps", 0):
        costs = plan.estimate(config, source)
    for title, text in plan.described(config, source, costs).items():
        display.say(f"{title:14}{text}")
    display.say()
    table = Table(names("key"), "value", "set by", "why", box=None, header_style="bold")
    for row in plan.explained(config, source):
        table.add_row(row.key, escape(row.value), row.origin, escape(row.why))
    display.say(table)
    display.say(f"\nAll other keys have their defaults: twofold methods {config.method}. No run was begun.")


def split_words(words: list[str]) -> tuple[str | None, list[str]]:
    """Settings are KEY=VALUE; the one other word is the data."""
    settings = [word for word in words if word.partition("=")[0].replace(".", "_").isidentifier() and "=" in word]
    others = [word for word in words if word not in settings]
    if len(others) > 1:
        hint = next(filter(None, (setting_for(word, words) for word in others)), "")
        raise TwofoldError(f"one set of images at a time, not {len(others)}: {', '.join(others)}{hint}")
    return (others[0] if others else None), settings


def setting_for(word: str, words: list[str]) -> str:
    """How to write what was meant as a setting, as `--batch-size 64` and `epochs 3` are; nothing for other words."""
    from twofold.config import RUN_KEYS
    from twofold.methods import CATALOG, schema

    name, _, value = word.lstrip("-").partition("=")
    name = name.replace("-", "_")
    if name not in RUN_KEYS and not any(name in schema(method) for method in CATALOG):
        return ""
    following = words[words.index(word) + 1 :]
    return f"; did you mean {name}={value or (following[0] if following else 'VALUE')}?"


def accuracy_table(rows: "Sequence[Mapping[str, Any]]") -> Table:
    """Few labels have a column where there were more to choose them from."""
    per_class = rows[0]["labels_per_class"]
    few = [] if per_class is None else [f"linear, {per_class} labels per class"]
    table = Table("", "linear", *few, "kNN", box=None, header_style="bold")
    for row in rows:
        cells = [f"{100 * row['few_labels_accuracy']:.1f} ± {100 * row['few_labels_sd']:.1f} %"] if few else []
        table.add_row(
            row["name"], f"{100 * row['linear_accuracy']:.1f} %", *cells, f"{100 * row['knn_accuracy']:.1f} %"
        )
    return table


def comparison(results: "Mapping[str, Any]") -> str:
    """What labels say of the training, as the report does: a healthy spectrum alone does not mean that it helped."""
    from twofold.report.accuracies import shortfall, tested

    trained, *others = results["table"]
    found = {
        title: shortfall(trained, others, key, tested(results))
        for title, key in (("linear", "linear_accuracy"), ("kNN", "knn_accuracy"))
    }
    words = "; ".join(f"{title} {text}" for title, text in found.items() if text)
    return f"labels   {words or 'better than untrained and raw pixels'}"


def conclude(run: "Run", display: "Display") -> None:
    """The table of numbers and where to look next."""
    results = run.results or {}
    if results.get("table"):
        display.say(accuracy_table(results["table"]))
        display.say(comparison(results))
    say_verdict(results.get("verdict"), display)
    display.say(f"encoder  {run.path / 'encoder.safetensors'}")
    display.say(f"report   {run.report}")
