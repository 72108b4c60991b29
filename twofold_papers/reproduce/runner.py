"""Doing the runs of tables, one after another in one process: resumed where they stopped, skipped where they are done.

Several processes can work on one folder: each takes the next run that nobody else is at.
"""

import gc
import json
import platform
import shutil
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import torch

from twofold.device import choose_device, device_name
from twofold.display import Display
from twofold.errors import Diverged, Interrupted, TwofoldError
from twofold.files import hold
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

LEAST_SECONDS = 45.0  # with less than this left a run would compile, and stop


class Budget:
    """So many seconds, after which the run in training is asked to save and stop. None: no end."""

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
        # Asked again and again, since a run may only begin to train when the time is over.
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
    """What became of the runs, by name."""

    done: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)  # for want of time
    elsewhere: list[str] = field(default_factory=list)  # another process is at it
    refused: dict[str, str] = field(default_factory=dict)


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
    """Run what has no record in any of the folders; new records go into the last of them, each when its run is done."""
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
            if name in read_records(records[-1]):  # another process has done it in the meantime
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
            except Exception as error:  # of torch or a driver: the other runs are not to blame
                note = out / f"{name}.error.txt"
                note.write_text(traceback.format_exc())
                outcome.refused[name] = f"{type(error).__name__}; {note} has the whole story"
                continue
            finally:
                forget()
            display.say(f"record   {write_record(records[-1], name, values)}")
            shutil.rmtree(out / name / "checkpoints", ignore_errors=True)  # large, and of no more use
            outcome.done.append(name)
    return outcome


def carried_out(job: Job, path: Path, display: Display, machine: str, commit: str) -> Record:
    """The record of a run, which is begun or resumed here."""
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
        return record_of_failure(path, str(error).partition(";")[0], results, machine, commit)
    probes = {probe.name: measure_probe(path, probe, display) for probe in job.row.probes}
    return record(path, machine, commit) | ({"probes": probes} if probes else {})


def can_go_on(path: Path) -> bool:
    """Whether the folder has a run with the defaults of today; else what it ends with is not what was asked for."""
    try:
        return has_todays_defaults({"config": json.loads((path / "config.json").read_text(encoding="utf-8"))})
    except (FileNotFoundError, ValueError, KeyError):  # a kill can leave a folder that never became a run
        return False


def put_aside(path: Path, display: Display) -> None:
    """What lies there already, and cannot be gone on with; nothing of it is deleted."""
    if not path.exists():
        return
    places = (path.with_name(f"{path.name}.old-{number}") for number in count(1))
    aside = next(place for place in places if not place.exists())
    path.rename(aside)
    display.say(f"begun with other defaults, or damaged, and put aside: {aside}")


def forget() -> None:
    """What a run leaves in the process: compiled code, of which torch keeps few versions, graphs and their memory, and
    what cuBLAS works in, for every stream that there was."""
    torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()


@contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Whether this process alone is at it; the claim ends with the block, or with the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        yield hold(file)
