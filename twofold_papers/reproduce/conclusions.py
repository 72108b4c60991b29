"""What we conclude from a table: sentences that are made of the records, and whether we agree with the paper."""

from collections.abc import Sequence
from statistics import mean, stdev

from twofold_papers.reproduce.readings import Column
from twofold_papers.reproduce.show import Line
from twofold_papers.reproduce.statement import Judged, Status, judge, line_named
from twofold_papers.reproduce.table import Table

OPENINGS: dict[Status, str] = {
    "agrees": "Agrees with the paper",
    "consistent with": "Consistent with the paper",
    "disagrees": "Disagrees with the paper",
    "disagrees at this size": "Disagrees with the paper at this size",
    "not comparable": "Not comparable",
    "not decided": "Not decided",
    "not run yet": "Not run yet",
}


class Missing(Exception):
    """A number of a sentence is not in the records."""


class Numbers:
    """Our numbers of a table as texts. Asking for a number that is not in the records raises `Missing`."""

    def __init__(self, table: Table, lines: Sequence[Line]):
        self.table, self.lines, self.names = table, lines, {line.name for line in lines}

    def values(self, row: str, column: Column, epochs: int | None = None) -> Sequence[float]:
        place = [each.title for each in self.table.columns].index(column.title)
        try:
            values = line_named(self.lines, row, epochs).cells[place].values
        except KeyError:
            values = ()
        if not values:
            raise Missing(f"{row}, {column.title}")
        return values

    def mean(self, row: str, column: Column, epochs: int | None = None) -> float:
        return mean(self.values(row, column, epochs))

    def text(self, row: str, column: Column, form: str = ".1f", epochs: int | None = None) -> str:
        """The mean over seeds, with the standard deviation if there are several."""
        values = self.values(row, column, epochs)
        return format(mean(values), form) + (f" ± {stdev(values):{form}}" if len(values) > 1 else "")

    def baseline(self, row: str, name: str) -> str:
        """The linear accuracy of "untrained" or "raw pixels" in the runs of a row."""
        records = line_named(self.lines, row, None).records.values() if row in self.names else ()
        values = [
            each["linear_accuracy"] for record in records for each in record["results"]["table"] if each["name"] == name
        ]
        if not values:
            raise Missing(f"{row}, {name}")
        return f"{100 * mean(values):.0f}"

    def apart(self, first: str, second: str, column: Column, form: str = ".1f", epochs: int | None = None) -> str:
        """How far the first is from the second: "1.3 points above"."""
        gap = self.mean(first, column, epochs) - self.mean(second, column, epochs)
        return f"{abs(gap):{form}} points {'above' if gap >= 0 else 'below'}"

    def best(self, column: Column) -> str:
        """The row with the largest number."""
        found = {}
        for line in self.lines:
            try:
                found[line.name] = self.mean(line.name, column, line.epochs)
            except Missing:
                continue
        if not found:
            raise Missing(column.title)
        return max(found, key=lambda name: found[name])


def judged(table: Table, lines: Sequence[Line]) -> list[Judged]:
    """All statements of the paper about a table with their status."""
    return [judge(table, statement, lines) for statement in table.statements]


def conclusion(table: Table, lines: Sequence[Line]) -> list[str]:
    """The sentences of a table: what the paper says and whether we agree, and what else the records show."""
    known = {line.name for line in lines}
    asked = [each for each in table.statements if {each.first, each.second or each.first} <= known]
    decided = [judge(table, each, lines) for each in asked]
    by_status = {status: [each for each in decided if each.status == status] for status in OPENINGS}
    return [*(sentence(status, each) for status, each in by_status.items() if each), *findings(table, lines)]


def sentence(status: Status, found: Sequence[Judged]) -> str:
    """One sentence with all statements of a status."""
    return f"**{OPENINGS[status]}:** {'; '.join(map(item, found))}."


def item(each: Judged) -> str:
    return each.statement.text if each.status == "not run yet" else f"{each.statement.text} (ours: {each.ours})"


def findings(table: Table, lines: Sequence[Line]) -> list[str]:
    """The further sentences about a table, without those whose numbers are missing."""
    if isinstance(table.findings, str):
        return [table.findings] if table.findings else []
    numbers, found = Numbers(table, lines), []
    for each in table.findings:
        try:
            found.append(each if isinstance(each, str) else each(numbers))
        except Missing:
            continue
    return found
