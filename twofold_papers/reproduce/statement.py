"""Statements of a paper about the numbers of a table, and whether our runs agree with them.

The status of a statement is computed from records and published numbers, so it changes with them:

- agrees: true of at least three seeds, trained as in the paper (same data set, network and number of epochs)
- consistent with: true, but of fewer seeds, or of runs that differ from those of the paper
- disagrees: false, for runs as in the paper
- disagrees at this size: false, for runs that differ from those of the paper
- not comparable: the statement is about a number that depends on what differs
- not decided: our difference is smaller than its uncertainty
- not run yet
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Literal

from twofold_papers.reproduce.published import title_of
from twofold_papers.reproduce.readings import Column
from twofold_papers.reproduce.show import Cell, Line
from twofold_papers.reproduce.table import Statement, Table

Status = Literal[
    "agrees",
    "consistent with",
    "disagrees",
    "disagrees at this size",
    "not comparable",
    "not decided",
    "not run yet",
]
ENOUGH_SEEDS = 3


@dataclass(frozen=True)
class Judged:
    """A statement with the texts of its row in a summary. Brief texts have only the difference of two numbers."""

    statement: Statement
    table: Table
    status: Status
    published: str
    ours: str
    brief_published: str
    brief_ours: str
    size: str
    seeds: str


def judge(table: Table, statement: Statement, lines: Sequence[Line]) -> Judged:
    column = statement.column
    titles = [each.title for each in table.columns]
    names = [statement.first] + ([statement.second] if statement.second else [])
    found = [line_named(lines, name, statement.epochs) for name in names]
    cells = [line.cells[titles.index(column.title)] for line in found]
    if statement.other_column is not None:
        cells.append(found[0].cells[titles.index(statement.other_column.title)])
    published, ours = published_texts(column, cells), our_texts(column, cells)
    return Judged(
        statement,
        table,
        status_of(table, statement, cells),
        ": ".join(published) or statement.published,
        ": ".join(ours) or "—",
        published[-1] if published else statement.published,
        ours[-1] if ours else "—",
        size_text(table, found),
        seeds_text(table, cells),
    )


def line_named(lines: Sequence[Line], name: str, epochs: int | None) -> Line:
    """The line of a row with this number of epochs; by default the first, which is that of the table."""
    found = [line for line in lines if line.name == name and epochs in (None, line.epochs)]
    if not found:
        raise KeyError(f"no line is named {name!r}, {epochs} epochs")
    return found[0]


def status_of(table: Table, statement: Statement, cells: Sequence[Cell]) -> Status:
    if not all(cell.values for cell in cells):
        return "not run yet"
    as_published = all(is_as_published(table, cell) for cell in cells)
    if len(cells) == 1 and not as_published:
        return "not comparable"
    holds = is_true(statement, cells)
    if holds is None:
        return "not decided"
    if not holds:
        return "disagrees" if as_published else "disagrees at this size"
    enough = table.benchmark or all(len(cell.values) >= ENOUGH_SEEDS for cell in cells)
    return "agrees" if as_published and enough else "consistent with"


def is_as_published(table: Table, cell: Cell) -> bool:
    """Whether the paper has a number for the same data set, network and number of epochs."""
    number = cell.number
    return number is not None and not cell.differs and (bool(table.benchmark) or number.epochs is not None)


def is_true(statement: Statement, cells: Sequence[Cell]) -> bool | None:
    """Whether our numbers have the stated relation; None if their difference is within its uncertainty."""
    apart = difference(cells)
    noise = uncertainty(statement, cells)
    match statement.relation:
        case "above":
            return None if abs(apart - statement.by) <= noise else apart > statement.by
        case "below":
            return None if abs(apart + statement.by) <= noise else apart < -statement.by
        case "at least":
            return True if apart > -noise else None if apart > -2 * noise else False
        case "equal":
            limit = max(noise, statement.by)
            return True if abs(apart) <= limit else None if abs(apart) <= limit + noise else False


def difference(cells: Sequence[Cell]) -> float:
    """Our first number minus the second, or minus the published number if there is no second row."""
    first = mean(cells[0].values)
    if len(cells) > 1:
        return first - mean(cells[1].values)
    assert cells[0].number is not None
    return first - cells[0].number.value


def uncertainty(statement: Statement, cells: Sequence[Cell]) -> float:
    return uncertainty_of([cell.values for cell in cells], statement.least)


def uncertainty_of(rows: Sequence[Sequence[float]], least: float) -> float:
    """Two standard errors of the difference of means, and at least `least` if a row has a single seed."""
    spread = [stdev(values) / math.sqrt(len(values)) for values in rows if len(values) > 1]
    error = 2 * math.sqrt(sum(each**2 for each in spread))
    return error if len(spread) == len(rows) else max(error, least)


def published_texts(column: Column, cells: Sequence[Cell]) -> list[str]:
    """The published numbers, and their difference with what it was measured on."""
    if any(cell.number is None for cell in cells):
        return []
    values = [cell.number.value for cell in cells if cell.number is not None]
    where = sorted({cell.condition for cell in cells if cell.condition})
    *numbers, last = both_and_difference(column, [cell.published for cell in cells], values)
    return [*numbers, last + (f" ({'; '.join(where)})" if where else "")]


def our_texts(column: Column, cells: Sequence[Cell]) -> list[str]:
    if not all(cell.values for cell in cells):
        return []
    return both_and_difference(column, [cell.ours for cell in cells], [mean(cell.values) for cell in cells])


def both_and_difference(column: Column, texts: Sequence[str], values: Sequence[float]) -> list[str]:
    """One number; or two, and their difference."""
    if len(texts) == 1:
        return list(texts)
    return [f"{texts[0]} and {texts[1]}", format(values[0] - values[1], f"+z{column.form}").replace("-", "−")]


def size_text(table: Table, lines: Sequence[Line]) -> str:
    if table.benchmark:
        return "measured"
    parts = []
    for part in zip(*(line.conditions for line in lines), strict=True):
        parts.append(" and ".join(dict.fromkeys(map(title_of, part))))
    return ", ".join(parts)


def seeds_text(table: Table, cells: Sequence[Cell]) -> str:
    """How many seeds the rows have: "1 seed", "1 and 3 seeds"; empty if they are not runs."""
    if table.benchmark or not all(cell.values for cell in cells):
        return ""
    counts = list(dict.fromkeys(str(len(cell.values)) for cell in cells))
    return f"{' and '.join(counts)} seed{'' if counts == ['1'] else 's'}"
