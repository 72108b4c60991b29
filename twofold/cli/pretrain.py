"""`twofold pretrain`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from twofold.cli.common import (
    TRAIN,
    Quiet,
    command,
    display_of,
    handle_interrupts,
    names,
    processes,
    setting_for,
    split_words,
)
from twofold.cli.results import conclude
from twofold.errors import TwofoldError, nearest

if TYPE_CHECKING:
    from twofold.config import Config
    from twofold.data.source import Source


EXAMPLES = """
twofold pretrain photos/ --minutes 20
twofold pretrain digits --method simclr epochs=50 batch_size=128
"""


Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[DATA] [KEY=VALUE]...",
        help="The images: a folder, a .csv or .txt list of files, .tar shards, a .npy or .npz file, or the name of "
        "a dataset such as digits (the default) or cifar10."
        "\n\n"
        "Settings such as `epochs=20 batch_size=128 image_size=64`. List those of a method with "
        "`twofold methods NAME`.",
        show_default=False,
    ),
]
MethodOption = Annotated[
    str | None,
    typer.Option(
        "--method",
        "-m",
        metavar="NAME",
        help="The method. List all with `twofold methods`. FILE.py:FUNCTION or MODULE:FUNCTION is one of your own.",
        show_default="frossl; simclr with --init; ridge-graph with --teacher",
    ),
]
RunOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FOLDER",
        help="The run folder to create.",
        show_default="runs/METHOD-DATA-NUMBER",
    ),
]
GraphOption = Annotated[
    str | None,
    typer.Option(
        "--graph",
        metavar="SOURCE",
        help="Graph for relational methods: views, labels, groups, neighbours, duplicates, a CSV file of groups or of "
        "weighted pairs, the output of `twofold duplicates`, or a function (FILE.py:FUNCTION).",
        show_default="views",
    ),
]
TeacherOption = Annotated[
    str | None,
    typer.Option(
        "--teacher",
        metavar="ENCODER",
        help="Learn to predict the features of this encoder (distillation): a run, a .safetensors or .onnx file, "
        "efficientnet-lite0, or timm:NAME.",
    ),
]
InitOption = Annotated[
    str | None,
    typer.Option(
        "--init",
        metavar="SOURCE",
        help="Initial weights: a run folder, a .safetensors file, efficientnet-lite0, or timm:NAME.",
        show_default="random weights",
    ),
]
LogOption = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="NAME",
        help="Also send metrics to tensorboard or wandb, which must be installed. To use both, pass the option "
        "twice. Twofold always writes metrics to metrics.jsonl in the run folder.",
    ),
]
MinutesOption = Annotated[
    float | None,
    typer.Option(
        "--minutes",
        metavar="M",
        help="Approximate training time in minutes. Twofold times a few steps and chooses the number of epochs.",
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Show the settings, the reason for each, and the time and memory of the run. Do not train.",
    ),
]


# Unknown options are accepted here, so that the error can show how to write `--batch-size 64` as a setting.
@command(TRAIN, EXAMPLES, ignore_unknown_options=True)
def pretrain(
    context: typer.Context,
    words: Words = None,
    method: MethodOption = None,
    out: RunOption = None,
    graph: GraphOption = None,
    teacher: TeacherOption = None,
    init: InitOption = None,
    log: LogOption = None,
    minutes: MinutesOption = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Train an encoder on images without labels.

    Labels are used for evaluation only, unless you pass `--graph labels` or `--method supervised`.
    """
    from twofold.keys import parse_overrides
    from twofold.launch import is_alone
    from twofold.verbs.settings import check_settings

    refuse_unknown_options(context, words or [])
    data, overrides = split_words(words or [])
    refuse_options_as_settings(overrides)
    if graph is not None and teacher is not None:
        raise TwofoldError(f"--graph {graph} and --teacher {teacher} are two graphs: leave one out")
    if graph is not None:
        overrides.append(f"graph.source={graph}")
    if teacher is not None:
        overrides += ["graph.source=teacher", f"graph.encoder={teacher}"]
        method = method or "ridge-graph"
    if init is not None:
        overrides.append(f"init={init}")
    if log:
        overrides.append(f"log={','.join(log)}")
    if is_alone():  # Several processes check the settings together below, so that only one reports an error.
        check_settings(data, method, parse_overrides(overrides), minutes)
    # Imported late because they need torch: errors in the settings are reported sooner.
    from twofold.runs.folder import RunFolder
    from twofold.runs.initial_weights import refuse_unfit_weights
    from twofold.verbs import pretrain

    with handle_interrupts(), processes(quiet) as display:
        config, source = pretrain.configure(data, method, parse_overrides(overrides), display, minutes, for_use=True)
        if dry_run:
            if out is not None:
                RunFolder.refuse_existing(out)
            refuse_unfit_weights(config)
            explain(config, source)
            return
        conclude(pretrain.start(config, source, out=out, display=display), display)


def refuse_unknown_options(context: typer.Context, words: list[str]) -> None:
    """Raise an error for a word such as --batch-size, and show how to write it as a setting."""
    for word in words:
        if word.startswith("-"):
            options = [option for parameter in context.command.params for option in parameter.opts]
            hint = setting_for(word, words) or nearest(word, options)
            raise TwofoldError(f"there is no option {word}{hint}")


def refuse_options_as_settings(overrides: list[str]) -> None:
    """Raise an error for a setting such as minutes=20, and show how to write it as an option."""
    for name, _, value in (setting.partition("=") for setting in overrides):
        if name in ("out", "minutes", "dry_run", "quiet"):
            option = f"--{name.replace('_', '-')}"
            raise TwofoldError(
                f"{name} is an option, not a setting: write {option}{f' {value}' if name in ('out', 'minutes') else ''}"
            )


def explain(config: "Config", source: "Source") -> None:
    """Print the cost of the run, and every setting that is not the default, with its origin and the reason."""
    from twofold.verbs import explain as explaining

    display = display_of(False)
    with display.stage("timing a few steps", 0):
        costs = explaining.measure_cost(config, source)
    for title, text in explaining.described(config, source, costs).items():
        display.say(f"{title:14}{text}")
    display.say()
    table = Table(names("setting"), "value", "set by", "reason", box=None, header_style="bold")
    for row in explaining.explained(config, source):
        table.add_row(row.key, escape(row.value), row.origin, escape(row.why))
    display.say(table)
    display.say(f"\nAll other settings have their defaults; list them with: twofold methods {config.method}")
    display.say("This was a dry run: nothing was trained or written.")
