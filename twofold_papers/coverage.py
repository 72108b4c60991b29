"""Which command covers each item of the papers: claims and figures of `verify`, and tables of `reproduce`."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twofold_papers.items import ITEMS, Item
from twofold_papers.reproduce.show import Line
from twofold_papers.reproduce.table import Table
from twofold_papers.reproduce.tables import TABLES
from twofold_papers.verify.claim import Claim, claims

KINDS = (
    *("eq", "Theorem", "Lemma", "Proposition", "Corollary", "Definition", "Assumption"),
    *("Listing", "Table", "Figure", "Section", "Appendix"),
)
NUMBER = r"(?:\d+(?:\.\d+)*[a-d]?|[A-E](?:\.\d+)*)(?!\w)"
REFERENCE = re.compile(
    rf"\b(?P<kind>(?i:{'|'.join(KINDS)}))s?\s+"
    rf"(?P<numbers>{NUMBER}(?:(?:\s*,\s*|\s+and\s+|\s+to\s+|\s*[-–]\s*){NUMBER})*)"
)
BARE = re.compile(r"^([A-E](?:\.\d+)*)\b")  # claims name sections of an appendix without the word
MISSING = "missing"


@dataclass(frozen=True)
class Covered:
    """An item with the commands that cover it and their status. No commands: the item is missing."""

    paper: str
    item: Item
    commands: Sequence[str]
    status: str


def references(text: str) -> set[str]:
    """The items that a number such as "eqs 18-20" or "Theorem 1 and Figure 2a" names."""
    found = set()
    for match in REFERENCE.finditer(text):
        kind = next(each for each in KINDS if match["kind"].lower() == each.lower())
        found |= {f"{kind} {number}" for number in expanded(match["numbers"])}
    if bare := BARE.match(text):
        found.add(f"Appendix {bare[1]}")
    return found


def expanded(numbers: str) -> list[str]:
    parts = re.split(r"\s*,\s*|\s+and\s+", numbers)
    found = []
    for part in parts:
        ends = re.split(r"\s+to\s+|\s*[-–]\s*", part)
        if len(ends) == 2 and all(end.isdigit() for end in ends):
            found += [str(number) for number in range(int(ends[0]), int(ends[1]) + 1)]
        else:
            found += ends
    return found


def covers(references: set[str], item: str) -> bool:
    """Whether one of the references is the item, a part of it (Figure 1a), or the whole of which it is a part."""
    plain = item.rstrip("abcd") if item.startswith("Figure") else item
    return any(
        each == item
        or (item.startswith("Figure") and plain == each.rstrip("abcd") and (each == plain or item == plain))
        for each in references
    )


def coverage(paper: str, lines: Callable[[Table], Sequence[Line]], drawn: Sequence[str]) -> list[Covered]:
    """All items of a paper. `lines` returns the results of a table, `drawn` are the numbers of the drawn figures."""
    known = [(references(claim.number), claim) for claim in claims(paper)]
    statuses = [(table, status_of(table, lines(table))) for table in TABLES.values() if table.paper == paper]
    direct = {item.name: directly(paper, item, known, statuses, drawn) for item in ITEMS[paper]}
    found = []
    for item in ITEMS[paper]:
        parts = direct[item.name]
        if not parts:
            wholes = [whole for whole in item.within if direct.get(whole)]
            parts = [(command, f"with {whole}: {status}") for whole in wholes for command, status in direct[whole]]
        commands = list(dict.fromkeys(command for command, _ in parts))
        status = "; ".join(dict.fromkeys(status for _, status in parts)) or MISSING
        found.append(Covered(paper, item, commands, status))
    return found


def directly(
    paper: str,
    item: Item,
    known: Sequence[tuple[set[str], Claim]],
    statuses: Sequence[tuple[Table, str]],
    drawn: Sequence[str],
) -> list[tuple[str, str]]:
    """Pairs of a command and its status. `statuses` are those of the tables of the paper."""
    found = []
    if count := sum(covers(names, item.name) for names, _ in known):
        found.append((f"twofold verify {paper}", f"run in full ({count} {'claim' if count == 1 else 'claims'})"))
    for number in drawn:
        if covers(references(number), item.name):
            size = "run at reduced scale" if "reduced scale" in number else "run in full"
            found.append((f"twofold verify {paper} --report", f"{size} (figure)"))
    for table, status in statuses:
        if covers(references(table.number), item.name) or table.name in item.tables:
            found.append((f"twofold reproduce {table.name}", status))
    return found


def status_of(table: Table, lines: Sequence[Line]) -> str:
    """Whether the rows of a table were run, and at the size of the paper."""
    done = sum(line.has_results or bool(line.seeds) for line in lines)  # a run that failed has seeds, but no results
    reduced = "reduced scale" in f"{table.number} {table.title}"
    missing = "not run yet" if reduced else "needs a GPU"
    if not done:
        return f"{missing} ({table.name})"
    full = any(is_full(table, line) for line in lines)
    size = "run in full" if full else "run at reduced scale"
    return (
        f"{size} ({table.name}: {done} of {len(lines)} rows"
        + ("" if done == len(lines) else f"; the rest {missing}")
        + ")"
    )


def is_full(table: Table, line: Line) -> bool:
    """Whether a line has results for the data set, the network and the number of epochs of a published number."""
    return any(
        cell.values
        and cell.number is not None
        and not cell.differs
        and (bool(table.benchmark) or cell.number.epochs is not None)
        for cell in line.cells
    )
