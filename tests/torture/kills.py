"""Kill runs at random times and at file operations, and resume them until they finish. A failure is a different result.

With two processes, one of them is killed. They are joined as torchrun joins them, by a store in a third process.
"""

import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch.distributed import TCPStore

from torture.forked import DONE, KILLED, REFUSED, SLOW, STOPPED, Forked
from torture.row import Row
from torture.small_runs import METHODS, continue_or_begin, differences, image_files

KILLS_PER_RUN = 8
NOTICED_SECONDS = 0.3  # until torchrun notices that a process has ended
STOPPED_SECONDS = 3.0  # until it kills the others; torchrun waits 30 s
OPERATIONS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "open")
MOST_OPERATIONS = 400  # of a tiny run
MOST_NOTES = 5
TIMES, FILES = "at random times", "at file operations"
NEVER = 0


def kill_at(operation: int, root: Path) -> None:
    """Kill this process at its file operation of this number that changes something below `root`, or is a sync."""
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        if done == operation:
            os.kill(os.getpid(), signal.SIGKILL)

    def see(event: str, arguments: tuple[object, ...]) -> None:
        is_change = event in OPERATIONS and str(arguments[0]).startswith(str(root))
        if is_change and (event != "open" or int(str(arguments[2])) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            count()

    def counted(sync: Callable[[Any], None]) -> Callable[[Any], None]:
        def call(file: Any) -> None:
            count()
            sync(file)

        return call

    sys.addaudithook(see)
    os.fsync, os.fdatasync = counted(os.fsync), counted(os.fdatasync)


def child(method: str, folder: Path, operation: int, joining: dict[str, str]) -> None:
    """Start or continue the run in a folder, alone or with other processes."""
    os.environ |= joining
    if operation != NEVER:
        kill_at(operation, folder)
    continue_or_begin(method, folder / "run")


class Launcher:
    """Starts the processes of a run."""

    def __init__(self, count: int):
        self.count, self.attempt, self.store = count, 0, None
        if count > 1:
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", 0))
                self.port = listener.getsockname()[1]
            self.store = Forked(self.serve)
            time.sleep(0.5)

    def serve(self) -> None:
        """Host the store, as torchrun does, so that it survives all processes of the run."""
        store = TCPStore("127.0.0.1", self.port, is_master=True, wait_for_workers=False)
        signal.pause()
        del store

    def close(self) -> None:
        if self.store is not None:
            self.store.kill()
            self.store.wait()

    def start(self, method: str, folder: Path, victim: int, operation: int) -> list[Forked]:
        """Start all processes. The victim is killed at its file operation of this number."""
        self.attempt += 1
        joining: dict[str, str] = {}
        if self.count > 1:
            joining = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port), "WORLD_SIZE": str(self.count)}
            joining |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": str(self.attempt)}
        return [
            Forked(
                partial(
                    child,
                    method,
                    folder,
                    operation if rank == victim else NEVER,
                    joining and joining | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                )
            )
            for rank in range(self.count)
        ]


def problem_of(processes: list[Forked], victim: int, chance: Random) -> tuple[bool, str]:
    """Wait for all processes. Return whether the victim was killed, and what is wrong, or "".

    If it was, torchrun asks the others to stop, and kills them if they do not.
    """
    first = processes[victim].wait()
    was_killed = first.kind == KILLED
    others = [process for number, process in enumerate(processes) if number != victim]
    if was_killed and others:
        time.sleep(chance.uniform(0, NOTICED_SECONDS))
        for process in others:
            process.stop()
        outcomes = [process.wait(STOPPED_SECONDS) for process in others]
        allowed = (DONE, REFUSED, STOPPED, SLOW)
    else:
        outcomes, allowed = [first, *(process.wait() for process in others)], (KILLED if was_killed else DONE,)
    wrong = [f"{kind}: {text}" for kind, text in outcomes if kind not in allowed]
    return was_killed, "; ".join(wrong)


def campaign(method: str, root: Path, chance: Random, spend: float, count: int) -> tuple[Counter[str], list[str]]:
    """Kill and resume runs of a method for so many seconds. Return the number of kills of each kind, and failures."""
    launcher = Launcher(count)
    begun = time.monotonic()
    _, problem = problem_of(launcher.start(method, root / "whole", 0, NEVER), 0, chance)
    failures = [f"whole: {problem}"] if problem else []
    seconds = max(0.3, time.monotonic() - begun)
    end = time.monotonic() + spend
    kills = Counter({TIMES: 0, FILES: 0})
    while time.monotonic() < end and not problem:
        folder = root / "killed"
        folder.mkdir()
        done: list[str] = []
        for kind in chance.choices((TIMES, FILES), k=KILLS_PER_RUN):
            victim = chance.randrange(count)
            operation = int(MOST_OPERATIONS ** chance.random()) if kind == FILES else NEVER
            processes = launcher.start(method, folder, victim, operation)
            if kind == TIMES:
                time.sleep(chance.uniform(0, seconds))
                processes[victim].kill()
            was_killed, wrong = problem_of(processes, victim, chance)
            kills[kind] += was_killed
            done.append(f"process {victim} {kind} {operation or ''}")
            if wrong:
                failures.append(f"{', '.join(done)}: {wrong}")
        _, wrong = problem_of(launcher.start(method, folder, 0, NEVER), 0, chance)
        wrong = wrong or differences(folder / "run", root / "whole" / "run")
        if wrong:
            failures.append(f"{', '.join(done)}: {wrong}")
        shutil.rmtree(folder)
    launcher.close()
    return kills, failures


def run(seconds: float, seed: int, count: int = 1) -> list[Row]:
    """Kill runs for about this time, and return a row for each method and kind of kill."""
    torch.set_num_threads(1)
    image_files()
    rows, chance = [], Random(seed)
    for method in METHODS:
        with tempfile.TemporaryDirectory(prefix="twofold-kills-") as aside:
            (Path(aside) / "whole").mkdir()
            kills, failures = campaign(method, Path(aside), chance, seconds / len(METHODS), count)
        notes = "\n".join(failures[:MOST_NOTES])
        what = "kills" if count == 1 else f"kills of one of {count} processes"
        rows += [
            Row(f"{what} {kind}, {method}", tried, 0 if number else len(failures), "" if number else notes)
            for number, (kind, tried) in enumerate(kills.items())
        ]
    return rows
