"""Published and ours side by side: lines of text from a table and records, for a terminal, a page, or Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from twofold.reproduce.readings import Column
from twofold.reproduce.record import Record
from twofold.reproduce.table import Job, Printed, Row, Table, records_of

NOT_RUN = "not run yet"


@dataclass(frozen=True)
class Cell:
    printed: str
    ours: str


@dataclass(frozen=True)
class Line:
    """A row with one number of epochs, over its seeds."""

    name: str
    epochs: int
    seeds: Sequence[int]  # of the runs that are done
    cells: Sequence[Cell]  # one for each column of the table
    note: str
    records: Mapping[str, Record]


def lines_of_jobs(table: Table, jobs: Sequence[Job], records: Mapping[str, Record]) -> list[Line]:
    """What was asked for on the command line: a line for each row."""
    lines = []
    for row in table.rows:
        own = [job for job in jobs if job.row == row and job.table == table]
        if own:
            done = {job.name: records[job.name] for job in own if job.name in records}
            lines.append(line_of(table, row, own[0].epochs, done, own[0].refused))
    return lines


def lines_of_records(table: Table, records: Mapping[str, Record]) -> list[Line]:
    """All that was run: a line for each row and number of epochs, and one for each row that was not."""
    lines = []
    for row in table.rows:
        found = records_of(table, row, records)
        own = row.epochs or table.epochs
        for epochs in sorted({own} | {record["config"]["values"]["epochs"] for record in found.values()}):
            done = {name: each for name, each in found.items() if each["config"]["values"]["epochs"] == epochs}
            if done or epochs == own:
                lines.append(line_of(table, row, epochs, done, ""))
    return lines


def line_of(table: Table, row: Row, epochs: int, done: Mapping[str, Record], refused: str) -> Line:
    failed = [record["failed"] for record in done.values() if record.get("failed")]
    notes = [row.note, refused] + ([f"{len(failed)} of {len(done)} runs failed: {failed[0]}"] if failed else [])
    return Line(
        name=row.name,
        epochs=epochs,
        seeds=[record["config"]["values"]["seed"] for record in done.values()],
        cells=[
            Cell(printed_text(row, column, epochs, table.epochs), ours_text(column, list(done.values())))
            for column in table.columns
        ],
        note="; ".join(note for note in notes if note),
        records=done,
    )


def printed_text(row: Row, column: Column, epochs: int, usual: int) -> str:
    """The published number for these epochs; another, which says so, where there is none."""
    numbers = row.printed.get(column.title, ())
    if not numbers:
        return ""
    exact: list[Printed] = [each for each in numbers if (each.epochs or usual) == epochs]
    chosen = (exact or list(numbers))[0]
    text = format(chosen.value, column.form) + ("" if chosen.sd is None else f" ± {chosen.sd:{column.form}}")
    extra = [] if exact else [f"{chosen.epochs or usual} epochs"]
    extra += [chosen.note] if chosen.note else []
    return f"{text} ({', '.join(extra)})" if extra else text


def ours_text(column: Column, done: Sequence[Record]) -> str:
    values = [value for value in map(column.read, done) if value is not None]
    if not values:
        return "—" if done else NOT_RUN
    spread = f" ± {stdev(values):{column.form}}" if len(values) > 1 else ""
    return f"{mean(values):{column.form}}{spread}"


def heads(table: Table) -> list[str]:
    """Titles of the cells: a pair for each column."""
    return [f"{column.title}: {side}" for column in table.columns for side in ("published", "ours")]


def seeds_text(line: Line) -> str:
    return ", ".join(map(str, line.seeds)) or "—"


def markdown(table: Table, records: Mapping[str, Record]) -> list[str]:
    """A section of docs/results.md."""
    titles = ["", *heads(table), "epochs", "seeds", "note"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for line in lines_of_records(table, records):
        cells = [text for cell in line.cells for text in (cell.printed, cell.ours)]
        row = [line.name, *cells, str(line.epochs), seeds_text(line), line.note]
        lines.append("| " + " | ".join(row) + " |")
    return [f"### {table.name}: {table.number}. {table.title}", "", *lines, "", *differences(table)]


def differences(table: Table) -> list[str]:
    return [f"Not as in print: {'; '.join(table.differs)}."] if table.differs else []
