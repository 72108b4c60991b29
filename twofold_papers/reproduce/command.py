"""`twofold reproduce`: run the experiments of the papers' tables and compare the results with published numbers."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Column
from rich.table import Table as Grid

from twofold.cli.common import RESEARCH, Quiet, command, display_of, handle_interrupts, names
from twofold.errors import TwofoldError, nearest

if TYPE_CHECKING:
    from twofold.display import Display
    from twofold_papers.reproduce.record import Record
    from twofold_papers.reproduce.runner import Outcome
    from twofold_papers.reproduce.show import Line
    from twofold_papers.reproduce.table import Job, Row, Table

EXAMPLES = """
twofold reproduce --list
twofold reproduce frossl-online --epochs 5
"""
RUNS = Path("runs") / "reproduce"
CHECKOUT = Path(__file__).parents[2]  # the repository, with its records; an installed package has none there


Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TABLE]... [KEY=VALUE]...",
        help="The tables to run. List them with `twofold reproduce --list`."
        "\n\n"
        "Settings for all runs of the tables, as for `twofold pretrain`.",
        show_default=False,
    ),
]
ListTables = Annotated[bool, typer.Option("--list", help="List all tables and the number of finished rows of each.")]
Epochs = Annotated[
    int | None,
    typer.Option("--epochs", metavar="N", min=1, help="Epochs of all runs.", show_default="as the table states"),
]
Seeds = Annotated[
    str, typer.Option("--seeds", metavar="SEEDS", help="Run each row once with each of these seeds.", show_default=True)
]
RowNames = Annotated[
    list[str] | None,
    typer.Option(
        "--row",
        metavar="NAME",
        help="Run only the rows with this name; * stands for any text. May be given more than once.",
        show_default=False,
    ),
]
DataFolder = Annotated[
    str | None,
    typer.Option(
        "--data-dir", metavar="FOLDER", help="The folder with the standard files of CIFAR-10.", show_default="data"
    ),
]
OutFolder = Annotated[
    Path,
    typer.Option("--out", "-o", metavar="FOLDER", help="The folder for runs, records and pages.", show_default=True),
]
RecordsFolder = Annotated[
    Path | None,
    typer.Option("--records", metavar="FOLDER", help="The folder for new records.", show_default="OUT/records"),
]
BudgetSeconds = Annotated[
    float | None,
    typer.Option(
        "--budget",
        metavar="SECONDS",
        min=0,
        help="Save and stop training after this time. The same command continues it.",
    ),
]
Parallel = Annotated[
    int,
    typer.Option(
        "--parallel", metavar="N", min=1, help="The number of processes that share the device.", show_default=True
    ),
]
Machine = Annotated[
    str,
    typer.Option(
        "--machine", metavar="NAME", help="The name of the machine, for the records.", show_default="the device's name"
    ),
]
Commit = Annotated[
    str,
    typer.Option("--commit", metavar="HASH", help="The commit, for the records.", show_default="the current commit"),
]


@command(RESEARCH, EXAMPLES)
def reproduce(
    words: Words = None,
    list_tables: ListTables = False,
    epochs: Epochs = None,
    seeds: Seeds = "0",
    row: RowNames = None,
    data_dir: DataFolder = None,
    out: OutFolder = RUNS,
    records: RecordsFolder = None,
    budget: BudgetSeconds = None,
    parallel: Parallel = 1,
    machine: Machine = "",
    commit: Commit = "",
    quiet: Quiet = False,
) -> None:
    """Run the experiments of a paper's table and compare the results with the published numbers."""
    from twofold_papers.reproduce.record import head_commit, read_records
    from twofold_papers.reproduce.runner import Budget, carry_out
    from twofold_papers.reproduce.tables import TABLES, find_table

    display = display_of(quiet)
    folders = [CHECKOUT / "records", records or out / "records"]
    names, settings = split(words or [])
    if list_tables or not names:
        display.say(listing(list(TABLES.values()), read_records(*folders)))
        return
    tables = [find_table(name) for name in names]
    user = user_settings(settings, tables, data_dir)
    jobs = jobs_asked_for(tables, row or ["*"], epochs_asked_for(epochs, user), seeds, user)
    recorded = {job.name for job in jobs} & read_records(*folders).keys()
    if recorded:
        display.say(f"{len(recorded)} of {len(jobs)} runs already have a record and are skipped")
    with handle_interrupts(), Budget(budget) as time_left, helpers(parallel - 1, out):
        outcome = carry_out(
            jobs,
            out=out,
            records=folders,
            budget=time_left,
            display=display,
            machine=machine,
            commit=commit or head_commit(),
        )
    known = read_records(*folders)
    asked = " ".join(f"{key}={value}" for key, value in user.items() if key != "data_dir")
    for table in tables:
        show_table(table, jobs, known, asked, out, display)
    outcome.leave_out(known)  # another process may have finished some of the runs meanwhile
    conclude(outcome, display)


def epochs_asked_for(epochs: int | None, user: dict[str, str]) -> int | None:
    """The number of epochs from the option or from the setting `epochs`, which is removed from the settings."""
    if epochs is not None and "epochs" in user:
        raise TwofoldError(f"epochs is given twice: --epochs {epochs} and epochs={user['epochs']}. Pass one of them.")
    if "epochs" not in user:
        return epochs
    (asked, *more) = whole_numbers("epochs=", given := user.pop("epochs"))
    if more or not asked:
        raise TwofoldError(f"epochs={given} is not a whole number of at least 1")
    return asked


def jobs_asked_for(
    tables: "list[Table]", patterns: list[str], epochs: int | None, seeds: str, user: dict[str, str]
) -> "list[Job]":
    """The runs of all rows whose name matches one of the patterns."""
    from twofold_papers.reproduce.table import jobs_of

    chosen = {table.name: matching(table, patterns) for table in tables}
    if not any(chosen.values()):
        names = [each.name for table in tables for each in table.rows]
        raise TwofoldError(f"no row is named {' or '.join(map(repr, patterns))}{nearest(patterns[0], names)}")
    return [
        job
        for table in tables
        for job in jobs_of(table, chosen[table.name], epochs=epochs, seeds=whole_numbers("--seeds ", seeds), user=user)
    ]


def show_table(
    table: "Table", jobs: "list[Job]", known: "dict[str, Record]", asked: str, out: Path, display: "Display"
) -> None:
    """Print published numbers and ours, and write the table's page. Does nothing if none of its rows was requested."""
    from twofold_papers.reproduce.measured import lines_of_measurements
    from twofold_papers.reproduce.page import write_page
    from twofold_papers.reproduce.show import lines_of_jobs

    lines = (
        lines_of_measurements(table, CHECKOUT / "benchmarks" / "results")
        if table.benchmark
        else lines_of_jobs(table, jobs, known)
    )
    if not lines:
        return
    display.say(f"\n{table.number}: {table.title} ({table.name})")
    if asked:
        display.say(f"settings of these runs: {asked}")
    display.say(side_by_side(table, lines))
    for line in lines:
        if line.note:
            display.say(f"{line.name}: {line.note}")
    if table.command:
        display.say(f"measured by: {table.command}")
    display.say(f"page     {write_page(out / f'{table.name}.html', table, lines, asked)}")


def conclude(outcome: "Outcome", display: "Display") -> None:
    for name, reason in outcome.refused.items():
        display.say(f"not run: {name}: {reason}")
    if outcome.elsewhere:
        display.say(f"running in another process: {', '.join(outcome.elsewhere)}")
    if outcome.left:
        display.say(f"not finished in time: {', '.join(outcome.left)}\nRun the same command again to continue.")
    if outcome.refused:
        raise typer.Exit(1)


def split(words: list[str]) -> tuple[list[str], list[str]]:
    return [word for word in words if "=" not in word], [word for word in words if "=" in word]


def matching(table: "Table", patterns: list[str]) -> "list[Row]":
    return [each for each in table.rows if any(fnmatch(each.name.lower(), pattern.lower()) for pattern in patterns)]


def user_settings(words: list[str], tables: "list[Table]", data_dir: str | None) -> dict[str, str]:
    """The settings of the user. Raises an error for a key that no method of the tables knows."""
    from twofold.config import RUN_KEYS
    from twofold.keys import parse_overrides
    from twofold.methods import CATALOG, schema

    user = parse_overrides(words) | ({} if data_dir is None else {"data_dir": data_dir})
    methods = {row.method for table in tables for row in table.rows} & CATALOG.keys()
    known = set(RUN_KEYS).union(*(schema(method) for method in methods))
    for key in user:
        if key in ("method", "seed"):
            raise TwofoldError(
                "the table sets the method; remove method="
                if key == "method"
                else "pass seeds as --seeds 0,1,2, not seed="
            )
        if key not in known:
            raise TwofoldError(f"unknown key '{key}'{nearest(key, sorted(known))}")
    return user


def whole_numbers(option: str, text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() for part in parts) or len(set(parts)) != len(parts):
        raise TwofoldError(f"{option}{text}: expected different whole numbers, such as 0,1,2")
    return [int(part) for part in parts]


@contextmanager
def helpers(count: int, out: Path) -> Iterator[None]:
    """Start `count` more processes with the same command, and wait for them. Each run is done by one process only."""
    if count:
        out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "twofold", *sys.argv[1:], "--parallel", "1"]
    processes = []
    for number in range(2, count + 2):
        with (out / f"process-{number}.txt").open("w") as log:
            processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))
    try:
        yield
    except BaseException:
        for process in processes:
            process.terminate()
        raise
    finally:
        for process in processes:
            process.wait()


def listing(tables: "list[Table]", records: "dict[str, Record]") -> Grid:
    from twofold_papers.reproduce.measured import measurement
    from twofold_papers.reproduce.table import jobs_of

    results = CHECKOUT / "benchmarks" / "results"
    grid = Grid(names("table"), "contents", "epochs", "runs", "done", box=None, header_style="bold")
    for table in tables:
        if table.benchmark:
            done = sum(measurement(table, row, results) is not None for row in table.rows)
        else:
            done = sum(job.name in records for job in jobs_of(table, table.rows))
        known = table.paper == "twofold" or table.name.startswith(table.paper)
        what = f"{'' if known else f'{table.paper}, '}{table.number}: {table.title}"
        grid.add_row(table.name, escape(what), str(table.epochs or "—"), str(len(table.rows)), str(done))
    return grid


def side_by_side(table: "Table", lines: "list[Line]") -> Grid:
    """The table without its notes, which are unreadable in a narrow column."""
    from twofold_papers.reproduce.show import heads, texts

    row, *others, _ = heads(table, lines)
    longest = max(len(word) for line in lines for word in line.name.split())
    grid = Grid(Column(row, min_width=longest), *others, box=None, header_style="bold")
    for line in lines:
        grid.add_row(*map(escape, texts(table, line, lines)[:-1]))
    return grid
