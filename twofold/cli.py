"""The command line: `twofold pretrain`, `resume`, `embed`, `report`, `methods`, `verify`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from twofold.errors import Interrupted, TwofoldError, how_to_resume

if TYPE_CHECKING:
    from twofold.api import Run
    from twofold.train.progress import Display

app = typer.Typer(
    help="Learn image representations without labels, and see what was learnt.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]


@app.command()
def pretrain(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATA] [KEY=VALUE]...",
            help="Images: digits (the default), cifar10, cifar100, mnist, fashion-mnist, a folder, a .npy or .npz "
            "file. Then settings such as `epochs=20 batch_size=128 seed=1 image_size=64`; `twofold methods NAME` lists "
            "all of them.",
            show_default=False,
        ),
    ] = None,
    method: Annotated[str | None, typer.Option("--method", "-m", help="See `twofold methods`. [frossl]")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The run folder. [runs/METHOD-DATA-NUMBER]")] = None,
    graph: Annotated[
        str | None,
        typer.Option(help="For relational methods: views, labels, neighbours, or a CSV file of groups. [views]"),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Train an encoder on images, without using their labels unless `--graph labels` asks for it."""
    from twofold import api
    from twofold.config import parse_overrides

    data, overrides = split_words(words or [])
    if graph is not None:
        overrides.append(f"graph.source={graph}")
    display = display_of(quiet)
    with polite():
        config, source = api.configure(data, method, parse_overrides(overrides), display)
        conclude(api.start(config, source, out=out, display=display), display)


@app.command()
def resume(run: RunArgument, quiet: Quiet = False) -> None:
    """Continue a run that was stopped, exactly where its last checkpoint is."""
    from twofold import api

    display = display_of(quiet)
    with polite():
        conclude(api.resume(run, display=display), display)


@app.command()
def embed(
    run: RunArgument,
    data: Annotated[str, typer.Argument(metavar="DATA", help="Images, as for pretrain.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="A .npz file: features, index, split, labels, files.")],
    quiet: Quiet = False,
) -> None:
    """Write the features of images under a run's encoder."""
    from twofold import api

    display = display_of(quiet)
    with polite():
        display.say(f"wrote {api.embed(run, data, out, display=display)}")


@app.command()
def report(run: RunArgument) -> None:
    """Write report.html anew from a run's records."""
    from twofold.report.page import write_report
    from twofold.train.record import RunFolder

    Console().print(str(write_report(RunFolder.open(run))), highlight=False, soft_wrap=True)


@app.command()
def verify(
    paper: Annotated[
        str | None, typer.Argument(metavar="[PAPER]", help="s-diet, frossl, birth, alpha-cl or isoloss.")
    ] = None,
    report: Annotated[bool, typer.Option("--report", help="Also write a page, with the figures drawn anew.")] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the page goes.")] = Path("theory.html"),
    quiet: Quiet = False,
) -> None:
    """Compute the papers' statements numerically: both sides of each, and the printed form where it is wrong."""
    from twofold.report.theory import counts, picture, row, write_page
    from twofold.theory import check, claims, figures
    from twofold.theory.claim import PAPERS

    display = display_of(quiet)
    with polite():
        wanted = claims(paper)
        results = []
        with display.stage("checking claims", len(wanted)) as stage:
            for done, claim in enumerate(wanted, start=1):
                results.append(check(claim))
                stage(done)
        for name, title in PAPERS.items():
            rows = [row(checked) for checked in results if checked.claim.paper == name]
            if rows:
                display.say(f"\n{title}")
                display.say(claims_table(rows))
        display.say(", ".join(f"{count} {verdict}" for verdict, count in counts(results).items()))
        if report:
            drawn = figures(paper)
            pictures = []
            with display.stage("drawing figures", len(drawn)) as stage:
                for done, figure in enumerate(drawn, start=1):
                    pictures.append((figure, picture(figure)))
                    stage(done)
            display.say(f"report   {write_page(out, results, pictures)}")
    if any(checked.verdict == "FAILS" for checked in results):
        raise typer.Exit(1)


def claims_table(rows: list[dict[str, str]]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("claim")
    table.add_column("statement", ratio=1)
    for name in ("left", "", "right", "error", "allowed"):
        table.add_column(name, no_wrap=True)
    table.add_column("verdict")
    for cells in rows:
        names = ("number", "statement", "left", "relation", "right", "error", "tolerance", "verdict")
        table.add_row(*(escape(cells[name]) for name in names))
    return table


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One method, with every key it takes.")] = None,
) -> None:
    """List the methods, or the settings of one."""
    from twofold.config import describe, resolve, shown
    from twofold.methods import CATALOG, find, schema

    console = Console()
    if name is None:
        table = Table("method", "family", "what it does", "paper", box=None, header_style="bold")
        for each in sorted(CATALOG.values(), key=lambda item: (item.family, item.name)):
            table.add_row(each.name, each.family, each.summary, each.paper)
        console.print(table)
        return
    recipe = find(name).recipe_for(resolve(schema(name), {}).parameters)
    table = Table("key", "default", "values", "meaning", box=None, header_style="bold")
    for key in sorted(schema(name).values(), key=lambda item: ("." in item.name, item.name)):
        table.add_row(key.name, shown(recipe.get(key.name, key.default)), describe(key.hint), key.help)
    console.print(f"[bold]{name}[/bold]: {find(name).summary} {find(name).paper}.", soft_wrap=True)
    console.print("Data sources change some of these defaults; the run's config.json says what was used, and why.")
    console.print(table)


def split_words(words: list[str]) -> tuple[str | None, list[str]]:
    """Settings are KEY=VALUE; the one other word is the data."""
    settings = [word for word in words if word.partition("=")[0].replace(".", "_").isidentifier() and "=" in word]
    others = [word for word in words if word not in settings]
    if len(others) > 1:
        raise TwofoldError(f"one set of images at a time, not {len(others)}: {', '.join(others)}")
    return (others[0] if others else None), settings


def display_of(quiet: bool) -> "Display":
    from twofold.train.progress import Display

    return Display(quiet=quiet)


def conclude(run: "Run", display: "Display") -> None:
    """The table of numbers and where to look next."""
    rows = (run.results or {}).get("table", [])
    if rows:
        per_class = rows[0]["labels_per_class"]
        table = Table("", "linear", f"linear, {per_class} labels per class", "kNN", box=None, header_style="bold")
        for row in rows:
            few = f"{100 * row['few_labels_accuracy']:.1f} ± {100 * row['few_labels_sd']:.1f} %"
            table.add_row(
                row["name"], f"{100 * row['linear_accuracy']:.1f} %", few, f"{100 * row['knn_accuracy']:.1f} %"
            )
        display.say(table)
    display.say(f"encoder  {run.path / 'encoder.safetensors'}")
    display.say(f"report   {run.report}")


@contextmanager
def polite() -> Iterator[None]:
    """After Ctrl-C or SIGTERM say how to go on, and exit as the shell expects."""
    try:
        yield
    except Interrupted as stop:
        fail(f"stopped; everything is saved. Go on with: {how_to_resume(stop.path)}", 128 + stop.signal_number)
    except KeyboardInterrupt:
        fail("stopped; a run that had begun goes on from its last checkpoint with: twofold resume RUN", 130)


def fail(message: str, code: int) -> None:
    Console(stderr=True).print(message, highlight=False, soft_wrap=True, markup=False)
    sys.exit(code)


def main() -> None:
    try:
        app()
    except TwofoldError as error:
        fail(f"error: {error}", error.exit_code)
    except OSError as error:
        fail(f"error: {error}", 1)
