"""Processes that share the jobs of a measurement until the time is over. Each job ends with a line of a JSON file."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

GRACE = 30.0  # seconds after the deadline before workers are killed
Line = dict[str, Any]


def lines_of(path: Path) -> list[Line]:
    """Read the lines of a file, which may not exist yet."""
    return [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []


def claimed(work: Path, names: Iterable[str]) -> Iterator[str]:
    """Yield the names of jobs that no other process has taken, and take them."""
    for name in names:
        try:
            (work / "taken" / name).touch(exist_ok=False)
        except FileExistsError:
            continue
        yield name


def record(out: Path, line: Line, measure: Callable[[], Line]) -> None:
    """Measure rows, and append them to the line and the line to the file. A job that fails must not end the others."""
    start = time.perf_counter()
    try:
        line = line | {"rows": measure()}
    except Exception as error:
        line = line | {"error": f"{type(error).__name__}: {error}"[:500]}
    with out.open("a") as file:
        file.write(json.dumps(line | {"seconds": round(time.perf_counter() - start, 1)}) + "\n")


def run_workers(module: str, work: Path, done: Iterable[str], deadline: float, prefixes: Sequence[list[str]]) -> None:
    """Run a worker for each prefix, with the arguments of this program. Jobs that are done are not done again.

    A prefix is the beginning of a command line, such as that of `taskset`.
    """
    taken = work / "taken"
    taken.mkdir(parents=True, exist_ok=True)
    for each in taken.iterdir():
        each.unlink()
    for name in done:
        (taken / name).touch()
    command = [sys.executable, "-m", module, "--worker", "--deadline", str(deadline), *sys.argv[1:]]
    workers = [subprocess.Popen([*prefix, *command], env=dict(os.environ)) for prefix in prefixes]
    for worker in workers:
        left = None if deadline == float("inf") else max(1.0, deadline + GRACE - time.time())
        try:
            worker.wait(left)
        except subprocess.TimeoutExpired:
            worker.kill()
