"""The record of campaigns: one entry for each part that was run, and the table that adds them up.

`python -m torture --add-to FILE` adds to it, and `python -m torture.table FILE` prints the table for
docs/reliability.md.
"""

import json
import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from torture.row import Row
from twofold.version import __version__

# The rows of the table: what the names of tests begin with, and the title.
TITLES = (
    ("kills at random times", "kills at random times"),
    ("kills at file operations", "kills at file operations"),
    ("kills of one of 2 processes", "kills of one of two processes"),
    ("full disks", "full disks"),
    ("bit flips, stopped", "single-bit flips in stopped runs, then resumed"),
    ("bit flips, finished", "single-bit flips in finished runs, then read"),
    ("power losses", "power losses"),
    ("files replaced", "files of a run replaced, then used by each command"),
    ("fuzz", "changed files of all kinds (fuzzing)"),
)


def add_to_record(path: Path, part: str, seed: int, rows: Sequence[Row]) -> None:
    """Add the rows of a part to a record."""
    record = json.loads(path.read_text()) if path.exists() else {"benchmark": "torture", "parts": []}
    record["parts"].append(
        {
            "part": part,
            "seed": seed,
            "date": datetime.now(UTC).date().isoformat(),
            "twofold": __version__,
            "torch": torch.__version__,
            "machine": f"{platform.system()}, {os.cpu_count()} cores",
            "rows": [row._asdict() for row in rows],
        }
    )
    path.write_text(json.dumps(record, indent=1) + "\n")


def table(record: Sequence[dict[str, Any]]) -> str:
    """Return the sums over all parts, as Markdown."""
    lines = ["| test | tried | failed |", "|---|---:|---:|"]
    rows = [row for part in record for row in part["rows"]]
    for prefix, title in TITLES:
        tried, failed = (
            sum(row[name] for row in rows if row["test"].startswith(prefix)) for name in ("tried", "failed")
        )
        if tried:
            lines.append(f"| {title} | {tried:,} | {failed:,} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table([part for name in sys.argv[1:] for part in json.loads(Path(name).read_text())["parts"]]))
