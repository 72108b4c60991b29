"""Tables of measurements, printed row by row and stored with date, machine and commit."""

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import head_commit, machine

FOLDER = Path(__file__).parent / "results"


class Table:
    """Rows of measurements. Each row is printed when it is added."""

    def __init__(self, *columns: str):
        self.columns = columns
        self.rows: list[dict[str, Any]] = []

    def add(self, row: Mapping[str, Any]) -> None:
        if not self.rows:
            print("  ".join(f"{name:>14}" for name in self.columns))
        self.rows.append(dict(row))
        print("  ".join(f"{shown(row.get(name)):>14}" for name in self.columns), flush=True)


def shown(value: Any) -> str:
    if value is None:
        return "—"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"
    return str(value)


def keep(name: str, table: Table, settings: Mapping[str, Any], device: str, commit: str, path: Path | None) -> Path:
    """Write the rows, the settings and the machine as JSON, and return the path."""
    today = datetime.date.today().isoformat()
    path = path or FOLDER / f"{name}-{today}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "benchmark": name,
        "date": today,
        "commit": commit or head_commit(),
        "machine": machine(device),
        "torch": torch.__version__,
        "settings": {key: str(value) for key, value in settings.items()},
        "rows": table.rows,
    }
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return path
