"""Published numbers next to ours: texts from a table and records, for a terminal, an HTML page or Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from twofold_papers.reproduce.readings import Column
from twofold_papers.reproduce.record import Record
from twofold_papers.reproduce.table import Figure, Job, Published, Row, Table, records_of

NOT_RUN = "not run yet"


@dataclass(frozen=True)
class Cell:
    published: str
    ours: str


@dataclass(frozen=True)
class Line:
    """The results of a row for one number of epochs, over all seeds."""

    name: str
    epochs: int | None  # None: the table has no runs
    seeds: Sequence[int]  # seeds of the finished runs
    cells: Sequence[Cell]  # one for each column of the table
    note: str
    records: Mapping[str, Record]


def lines_of_jobs(table: Table, jobs: Sequence[Job], records: Mapping[str, Record]) -> list[Line]:
    """The results of the jobs of a command: a line for each row."""
    lines = []
    for row in table.rows:
        own = [job for job in jobs if job.row == row and job.table == table]
        if own:
            done = {job.name: records[job.name] for job in own if job.name in records}
            lines.append(line_of(table, row, own[0].epochs, done, own[0].refused))
    return lines


def lines_of_records(table: Table, records: Mapping[str, Record]) -> list[Line]:
    """All results in records: a line for each row and number of epochs, and one for each row that was not run."""
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
    values = list(done.values())
    failed = [record["failed"] for record in values if record.get("failed")]
    notes = [row.note, refused] + ([f"{len(failed)} of {len(done)} runs failed: {failed[0]}"] if failed else [])
    for figure in table.figures if values and not failed else ():
        if not any(record.get(figure.needs) for record in values):
            notes.append(f"the record has no {figure.needs}")
    return Line(
        name=row.name,
        epochs=epochs,
        seeds=[record["config"]["values"]["seed"] for record in values],
        cells=[
            # A row that was not run says so in its first cell only.
            Cell(published_text(table, row, column, epochs), ours_text(column, values) if values or not place else "")
            for place, column in enumerate(table.columns)
        ],
        note="; ".join(note for note in notes if note),
        records=done,
    )


def published_text(table: Table, row: Row, column: Column, epochs: int) -> str:
    """The published number for these epochs. If there is none, another one that states its epochs."""
    numbers = row.published.get(column.title, ())
    if not numbers:
        return ""
    chosen: Published = next((each for each in numbers if each.epochs == epochs), numbers[0])
    digits = max(
        len(f"{each.value:g}".partition(".")[2]) for row in table.rows for each in row.published.get(column.title, ())
    )
    text = f"{chosen.value:,.{digits}f}" + ("" if chosen.sd is None else f" ± {chosen.sd:.{digits}f}")
    extra = [f"{chosen.epochs} epochs"] * (chosen.epochs not in (None, epochs)) + [chosen.note] * bool(chosen.note)
    return f"{text} ({', '.join(extra)})" if extra else text


def ours_text(column: Column, done: Sequence[Record]) -> str:
    values = [value for value in map(column.read, done) if value is not None]
    if not values:
        return "—" if done else NOT_RUN
    spread = f" ± {stdev(values):{column.form}}" if len(values) > 1 else ""
    return f"{mean(values):{column.form}}{spread}"


def heads(table: Table) -> list[str]:
    """The titles for the cells of `texts`. A column without published numbers has only ours."""
    titles = [""]
    for column in table.columns:
        titles += [f"{column.title}: published", "ours"] if table.is_published(column) else [f"{column.title}: ours"]
    return [*titles, "epochs", "seeds", "note"]


def texts(table: Table, line: Line) -> list[str]:
    cells = [line.name]
    for column, cell in zip(table.columns, line.cells, strict=True):
        cells += [cell.published, cell.ours] if table.is_published(column) else [cell.ours]
    return [*cells, "—" if line.epochs is None else str(line.epochs), seeds_text(line), line.note]


def seeds_text(line: Line) -> str:
    return ", ".join(map(str, line.seeds)) or "—"


def figures_of(table: Table, found: Sequence[Line]) -> dict[str, str]:
    """The pictures of a table by file name, without those for which no run has data."""
    shown = {figure: runs_in(figure, found) for figure in table.figures}
    return {f"{table.name}-{figure.name}.svg": figure.draw(runs) for figure, runs in shown.items() if runs}


def runs_in(figure: Figure, found: Sequence[Line]) -> list[tuple[str, Record]]:
    """For each row, the first record that has the data for the figure. Failed runs are left out."""
    runs = []
    several = len({line.epochs for line in found if line.records}) > 1
    for line in found:
        own = [record for record in line.records.values() if record.get(figure.needs) and not record.get("failed")]
        name = f"{line.name}, {line.epochs} epochs" if several else line.name
        runs += [(name, own[0])] if own else []
    return runs


def markdown(table: Table, found: Sequence[Line]) -> list[str]:
    """The section of a table in docs/results.md, which refers to a folder of figures."""
    titles = heads(table)
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    lines += [f"| {' | '.join(texts(table, line))} |" for line in found]
    for file in figures_of(table, found):
        lines += ["", f"![{table.title}](figures/{file})"]
    return [f"### {table.number}: {table.title} (`{table.name}`)", "", *lines, "", *differences(table)]


def differences(table: Table) -> list[str]:
    measured = [f"We measured our numbers with `{table.command}`.", ""] if table.command else []
    return measured + (
        ["Differences from the paper:", "", *(f"- {each}" for each in table.differs)] * bool(table.differs)
    )
