"""Tables whose numbers come from a benchmark's result files instead of training runs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twofold_papers.reproduce.show import NOT_RUN, Line, cell_of
from twofold_papers.reproduce.table import Row, Table, own_conditions

# What lines measured that do not state it, because the benchmark had a single value then.
ONCE = {"size": 32}


def lines_of_measurements(table: Table, folder: Path) -> list[Line]:
    found = {row.name: measurement(table, row, folder) for row in table.rows}
    return [line_of(table, row, found[row.name]) for row in table.rows]


def measurement(table: Table, row: Row, folder: Path) -> Mapping[str, Any] | None:
    """The newest line of the benchmark's results that has the settings of the row.

    If several files have the same date, the one whose name sorts last counts: the name without a word after the date.
    """
    newest: tuple[str, Mapping[str, Any]] | None = None
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.get("benchmark") != table.benchmark:
            continue
        for line in content["rows"]:
            fits = all(line.get(key, ONCE.get(key)) == value for key, value in row.settings.items())
            if fits and (newest is None or content["date"] >= newest[0]):
                newest = content["date"], line
    return None if newest is None else newest[1]


def line_of(table: Table, row: Row, found: Mapping[str, Any] | None) -> Line:
    cells = []
    for place, column in enumerate(table.columns):
        value = None if found is None else column.read(dict(found))
        missing = "—" if found is not None else NOT_RUN if place == 0 else ""
        ours = missing if value is None else format(value, column.form)
        values = () if value is None else (value,)
        cells.append(cell_of(table, row, column, own_conditions(table, row), ours, values))
    return Line(row.name, None, (), cells, row.note, {})
