"""Published numbers next to ours: texts from a table and records, for a terminal, an HTML page or Markdown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, stdev

from twofold_papers.reproduce.published import Conditions, Published, label, number_for, title_of
from twofold_papers.reproduce.readings import Column
from twofold_papers.reproduce.record import Record
from twofold_papers.reproduce.table import Figure, Job, Row, Table, own_conditions, records_of

NOT_RUN = "not run yet"


@dataclass(frozen=True)
class Cell:
    """Texts: the published number, how its conditions differ from those of our run, and our number."""

    published: str
    ours: str
    condition: str = ""
    number: Published | None = field(default=None, compare=False)
    values: Sequence[float] = field(default=(), compare=False)  # ours, one for each seed
    differs: bool = field(default=False, compare=False)  # whether the published number is for something else


@dataclass(frozen=True)
class Line:
    """The results of a row for one data set, network and number of epochs, over all seeds."""

    name: str
    epochs: int | None  # None: the table has no runs
    seeds: Sequence[int]  # seeds of the finished runs
    cells: Sequence[Cell]  # one for each column of the table
    note: str
    records: Mapping[str, Record]
    conditions: Sequence[str] = ()  # data set, network and length, to display

    @property
    def has_results(self) -> bool:
        return any(cell.values for cell in self.cells)


def lines_of_jobs(table: Table, jobs: Sequence[Job], records: Mapping[str, Record]) -> list[Line]:
    """The results of the jobs of a command: a line for each row."""
    lines = []
    for row in table.rows:
        own = [job for job in jobs if job.row == row and job.table == table]
        if own:
            done = {job.name: records[job.name] for job in own if job.name in records}
            lines.append(line_of(table, row, own[0].run, done, own[0].refused))
    return lines


def lines_of_records(table: Table, records: Mapping[str, Record]) -> list[Line]:
    """All results in records: a line for each row, data set, network and number of epochs.

    A row that was not run as the table states it has a line that says so.
    """
    lines = []
    for row in table.rows:
        own = own_conditions(table, row)
        groups: dict[Conditions, dict[str, Record]] = {own: {}}
        for name, record in records_of(table, row, records).items():
            groups.setdefault(conditions_of(record), {})[name] = record
        for run in sorted(groups, key=lambda run: (run.data != own.data, run.encoder != own.encoder, run.epochs)):
            line = line_of(table, row, run, groups[run], "")
            others = [title_of(run.data)] * (run.data != own.data) + [title_of(run.encoder)] * (
                run.encoder != own.encoder
            )
            lines.append(replace(line, name=", ".join([row.name, *others])))
    return lines


def conditions_of(record: Record) -> Conditions:
    values = record["config"]["values"]
    return Conditions(values["data"], values["encoder"], values["epochs"])


def line_of(table: Table, row: Row, run: Conditions, done: Mapping[str, Record], refused: str) -> Line:
    values = list(done.values())
    failed = [record["failed"] for record in values if record.get("failed")]
    notes = [row.note, refused] + ([f"{len(failed)} of {len(done)} runs failed: {failed[0]}"] if failed else [])
    for figure in table.figures if values and not failed else ():
        if not any(record.get(figure.needs) for record in values):
            notes.append(f"the record has no {figure.needs}")
    return Line(
        name=row.name,
        epochs=run.epochs,
        seeds=[record["config"]["values"]["seed"] for record in values],
        cells=[
            # A row that was not run says so in its first cell only.
            cell_of(
                table,
                row,
                column,
                run,
                ours_text(column, values) if values or not place else "",
                [value for value in map(column.read, values) if value is not None],
            )
            for place, column in enumerate(table.columns)
        ],
        note="; ".join(note for note in notes if note),
        records=done,
        conditions=(run.data, run.encoder, f"{run.epochs} epochs"),
    )


def cell_of(table: Table, row: Row, column: Column, run: Conditions, ours: str, values: Sequence[float] = ()) -> Cell:
    """Our number, next to the published number for the same conditions."""
    own = own_conditions(table, row)
    number = number_for(row.published.get(column.title, ()), run, own)
    if number is None:
        return Cell("", ours, values=values)
    digits = max(
        len(f"{each.value:g}".partition(".")[2]) for row in table.rows for each in row.published.get(column.title, ())
    )
    text = f"{number.value:,.{digits}f}" + ("" if number.sd is None else f" ± {number.sd:.{digits}f}")
    differs = bool(label(replace(number, note=""), run, own))
    return Cell(text, ours, label(number, run, own), number, values, differs)


def ours_text(column: Column, done: Sequence[Record]) -> str:
    values = [value for value in map(column.read, done) if value is not None]
    if not values:
        return "—" if done else NOT_RUN
    spread = f" ± {stdev(values):{column.form}}" if len(values) > 1 else ""
    return f"{mean(values):{column.form}}{spread}"


def shared_conditions(table: Table, lines: Sequence[Line]) -> list[str]:
    """For each column, the condition that all of its published numbers have, which the title then states."""
    shared = []
    for place in range(len(table.columns)):
        found = {line.cells[place].condition for line in lines if line.cells[place].published}
        shared.append(found.pop() if len(found) == 1 else "")
    return shared


def heads(table: Table, lines: Sequence[Line]) -> list[str]:
    """The titles for the cells of `texts`. A column without published numbers has only ours."""
    titles = [""]
    for column, shared in zip(table.columns, shared_conditions(table, lines), strict=True):
        source = f"published ({shared})" if shared else "published"
        titles += [f"{column.title}: {source}", "ours"] if table.is_published(column) else [f"{column.title}: ours"]
    return [*titles, "epochs", "seeds", "note"]


def texts(table: Table, line: Line, lines: Sequence[Line]) -> list[str]:
    """The cells of a line of a table with these lines."""
    cells = [line.name]
    for column, cell, shared in zip(table.columns, line.cells, shared_conditions(table, lines), strict=True):
        cells += [with_condition(cell, shared), cell.ours] if table.is_published(column) else [cell.ours]
    return [*cells, "—" if line.epochs is None else str(line.epochs), seeds_text(line), line.note]


def with_condition(cell: Cell, shared: str) -> str:
    return f"{cell.published} ({cell.condition})" if cell.condition and not shared else cell.published


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
    titles = heads(table, found)
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    lines += [f"| {' | '.join(texts(table, line, found))} |" for line in found]
    for file in figures_of(table, found):
        lines += ["", f"![{table.title}](figures/{file})"]
    return [f"### {table.number}: {table.title} (`{table.name}`)", "", *lines, "", *differences(table)]


def differences(table: Table) -> list[str]:
    measured = [f"We measured our numbers with `{table.command}`.", ""] if table.command else []
    return measured + (
        ["Differences from the paper:", "", *(f"- {each}" for each in table.differs)] * bool(table.differs)
    )
