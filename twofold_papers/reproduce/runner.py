"""Carry out the runs of tables in one process: finished runs are skipped, interrupted runs are resumed.

Several processes can share one folder. Each takes the next run that no other process is working on.
"""

import gc
import json
import platform
import shutil
import threading
import time
import traceback
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import torch

from twofold.device import choose_device, device_name
from twofold.display import Display
from twofold.errors import Diverged, Interrupted, TwofoldError
from twofold.files import try_lock
from twofold.train.guards import ask_to_stop
from twofold.verbs import pretrain
from twofold.verbs.resume import resume
from twofold.version import __version__
from twofold_papers.reproduce.probe import measure_probe
from twofold_papers.reproduce.record import (
    Record,
    has_todays_defaults,
    read_records,
    record,
    record_of_failure,
    write_record,
)
from twofold_papers.reproduce.table import Job

LEAST_SECONDS = 45.0  # no run starts with less time left: it would only compile, then stop


class Budget:
    """A time limit in seconds. When it is over, the current run is asked to save and stop. None: no limit."""

    def __init__(self, seconds: float | None):
        self.end = float("inf") if seconds is None else time.monotonic() + seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def left(self) -> float:
        return self.end - time.monotonic()

    @property
    def over(self) -> bool:
        return self.left <= 0

    def _watch(self) -> None:
        # Ask repeatedly, because a run may start to train only after the time is over.
        while not self._done.wait(min(max(self.left, 0.2), 3600)):
            if self.over:
                ask_to_stop()

    def __enter__(self) -> "Budget":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


@dataclass
class Outcome:
    """The names of the runs, by how they ended."""

    done: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)  # not finished within the time limit
    elsewhere: list[str] = field(default_factory=list)  # another process is working on it
    refused: dict[str, str] = field(default_factory=dict)

    def leave_out(self, recorded: Container[str]) -> None:
        """Forget what was not done by this process but has a record now."""
        self.left = [name for name in self.left if name not in recorded]
        self.elsewhere = [name for name in self.elsewhere if name not in recorded]


def carry_out(
    jobs: Sequence[Job],
    *,
    out: Path,
    records: Sequence[Path],
    budget: Budget,
    display: Display,
    machine: str = "",
    commit: str = "",
) -> Outcome:
    """Carry out all runs without a record in `records`. New records are written to the last of these folders."""
    outcome = Outcome()
    to_do = {job.name: job for job in jobs if not job.refused}
    outcome.refused |= {f"{job.table.name}, {job.row.name}": job.refused for job in jobs if job.refused}
    known = read_records(*records)
    for number, (name, job) in enumerate(to_do.items(), start=1):
        if name in known:
            continue
        if budget.left < LEAST_SECONDS:
            outcome.left.append(name)
            continue
        with claimed(out / ".claims" / name) as ours:
            if not ours:
                outcome.elsewhere.append(name)
                continue
            if name in read_records(records[-1]):  # another process has finished it meanwhile
                continue
            display.say(f"\n{number} of {len(to_do)}: {name}")
            try:
                values = carried_out(job, out / name, display, machine, commit)
            except Interrupted:
                if not budget.over:
                    raise
                outcome.left.append(name)
                continue
            except TwofoldError as error:
                outcome.refused[name] = str(error)
                continue
            except Exception as error:  # for example from torch or a driver; the other runs can still succeed
                note = out / f"{name}.error.txt"
                note.write_text(traceback.format_exc())
                outcome.refused[name] = f"{type(error).__name__}; {note} has the traceback"
                continue
            finally:
                forget()
            display.say(f"record   {write_record(records[-1], name, values)}")
            shutil.rmtree(out / name / "checkpoints", ignore_errors=True)  # large, and no longer needed
            outcome.done.append(name)
    return outcome


def carried_out(job: Job, path: Path, display: Display, machine: str, commit: str) -> Record:
    """Start or resume a run, and return its record."""
    try:
        if can_go_on(path):
            resume(path, display=display)
        else:
            put_aside(path, display)
            config, source = pretrain.configure(overrides=job.keys, display=display)
            pretrain.start(config, source, out=path, display=display)
    except Diverged as error:
        display.say(f"failed   {error}")
        results = {
            "date": datetime.now(UTC).date().isoformat(),
            "device": device_name(choose_device("auto")),
            "versions": {
                "twofold": __version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
        }
        return record_of_failure(path, error.reason.rstrip("."), results, machine, commit)
    probes = {probe.name: measure_probe(path, probe, display) for probe in job.row.probes}
    return record(path, machine, commit) | ({"probes": probes} if probes else {})


def can_go_on(path: Path) -> bool:
    """Whether the folder has a run with the current defaults. Otherwise its result would not belong to the table."""
    try:
        return has_todays_defaults({"config": json.loads((path / "config.json").read_text(encoding="utf-8"))})
    except (FileNotFoundError, ValueError, KeyError):  # a kill can leave a folder without a complete configuration
        return False


def put_aside(path: Path, display: Display) -> None:
    """Rename a folder whose run cannot be continued. Nothing is deleted."""
    if not path.exists():
        return
    places = (path.with_name(f"{path.name}.old-{number}") for number in count(1))
    aside = next(place for place in places if not place.exists())
    path.rename(aside)
    display.say(f"A run with other defaults or damaged files was in the way. It is now in {aside}.")


def forget() -> None:
    """Free what a run leaves in the process: compiled code, CUDA graphs with their memory, and cuBLAS workspaces."""
    torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()


@contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Whether this process has claimed the run. The claim ends with the block, or with the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        yield try_lock(file)
