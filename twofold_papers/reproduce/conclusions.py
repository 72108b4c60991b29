"""What we conclude from a table: sentences that are made of the records, and whether we agree with the paper."""

from collections.abc import Sequence
from statistics import mean, stdev

from twofold_papers.reproduce.readings import Column
from twofold_papers.reproduce.show import Line
from twofold_papers.reproduce.statement import Judged, Status, judge, line_named, uncertainty_of
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

    def change(self, first: str, second: str, column: Column, form: str = ".1f", least: float = 0.5) -> str:
        """How the first row differs from the second: "1.3 ± 0.4 points higher", or that this is not clear.

        ± are two standard errors over seeds. Without them, a row has one seed, and a difference of at most `least` is
        not clear.
        """
        rows = [self.values(name, column) for name in (first, second)]
        gap, noise = mean(rows[0]) - mean(rows[1]), uncertainty_of(rows, least)
        error = f" ± {noise:{form}}" if all(len(values) > 1 for values in rows) else ""
        if abs(gap) <= noise:
            return f"not clearly different ({gap:+z{form}}{error} points)".replace("-", "−")
        return f"{abs(gap):{form}}{error} points {'higher' if gap > 0 else 'lower'}"


def judged(table: Table, lines: Sequence[Line]) -> list[Judged]:
    """All statements of the paper about a table with their status."""
    return [judge(table, statement, lines) for statement in table.statements]


def conclusion(table: Table, lines: Sequence[Line]) -> list[str]:
    """The sentences of a table: what the paper says and whether we agree, and what else the records show."""
    known = {line.name for line in lines}
    asked = [each for each in table.statements if {each.first, each.second or each.first} <= known]
    decided = [judge(table, each, lines) for each in asked]
    seeds_differ = len(numbers_of_seeds(lines)) > 1
    by_status = {status: [each for each in decided if each.status == status] for status in OPENINGS}
    sentences = [
        f"**{OPENINGS[status]}:** {'; '.join(item(each, seeds_differ) for each in own)}."
        for status, own in by_status.items()
        if own
    ]
    return [*sentences, *findings(table, lines)]


def item(each: Judged, with_seeds: bool) -> str:
    if each.status == "not run yet":
        return each.statement.text
    return f"{each.statement.text} (ours: {'; '.join([each.ours] + [each.seeds] * with_seeds)})"


def numbers_of_seeds(lines: Sequence[Line]) -> list[int]:
    return sorted({len(line.seeds) for line in lines if line.seeds})


def seeds_of_rows(lines: Sequence[Line]) -> str:
    """How many seeds the rows of a table have: "1 seed for each row", "1 to 3 seeds for each row"."""
    counts = numbers_of_seeds(lines)
    if not counts:
        return ""
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{number} seed{'' if number == '1' else 's'} for each row"


def findings(table: Table, lines: Sequence[Line]) -> list[str]:
    """The further sentences about a table, without those whose numbers are missing."""
    numbers, found = Numbers(table, lines), []
    for each in table.findings:
        try:
            found.append(each if isinstance(each, str) else each(numbers))
        except Missing:
            continue
    return found
