"""Kill runs at random times and at file operations, and resume them until they finish. A failure is a different result.

Run `python -m torture.kills --child ...` to see one run; `run` starts it in processes of its own.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from torture.row import Row
from torture.small_runs import METHODS, begin, differences, go_on
from twofold.runs.new_folder import has_no_run_yet

KILLS_PER_RUN = 8
OPERATIONS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "open")
MOST_NOTES = 5


def kill_at(operation: int, root: Path) -> None:
    """Kill this process at its file operation of this number that changes something below `root`."""
    done = 0

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal done
        is_change = event in OPERATIONS and str(arguments[0]).startswith(str(root))
        if is_change and (event != "open" or int(str(arguments[2])) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            done += 1
            if done == operation:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def child(method: str, folder: Path, operation: int) -> None:
    """Start or continue the run in a folder, and print when training begins."""
    print("ready", flush=True)
    kill_at(operation, folder)
    run = folder / "run"
    if (run / "results.json").exists() or (run.is_dir() and not has_no_run_yet(run)):
        go_on(run)
    else:
        begin(method, run)


def launch(method: str, folder: Path, operation: int) -> "subprocess.Popen[str]":
    words = ["--child", method, str(folder), "--operation", str(operation)]
    process = subprocess.Popen(
        [sys.executable, "-m", "torture.kills", *words],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()  # the imports are done
    return process


def completed(process: "subprocess.Popen[str]") -> str:
    """Wait for a process, and return the last line of its errors, or "" if it succeeded."""
    _, errors = process.communicate()
    return "" if process.returncode == 0 else (errors.splitlines() or [f"exit code {process.returncode}"])[-1]


def campaign(method: str, root: Path, chance: Random, end: float) -> tuple[dict[str, int], list[str]]:
    """Kill and resume runs of a method until the time ends. Return the number of kills of each kind, and failures."""
    begun = time.monotonic()
    failures = list(filter(None, [completed(launch(method, root / "whole", 0))]))
    seconds = max(0.5, time.monotonic() - begun)
    kills = {"at random times": 0, "at file operations": 0}
    number = 0
    while time.monotonic() < end:
        number += 1
        folder = root / f"killed-{number}"
        folder.mkdir()
        for kind in chance.choices(sorted(kills), k=KILLS_PER_RUN):
            process = launch(method, folder, chance.randint(1, 120) if kind == "at file operations" else 0)
            if kind == "at random times":
                time.sleep(chance.uniform(0, seconds))
                process.kill()
            problem = completed(process)
            kills[kind] += process.returncode == -signal.SIGKILL
            if problem and process.returncode != -signal.SIGKILL:
                failures.append(f"{folder.name}: {problem}")
        problem = completed(launch(method, folder, 0)) or differences(folder / "run", root / "whole" / "run")
        if problem:
            failures.append(f"{folder.name}: {problem}")
    return kills, failures


def run(seconds: float, seed: int) -> list[Row]:
    """Kill runs for about this time, and return a row for each method and kind of kill."""
    rows, chance = [], Random(seed)
    for method in METHODS:
        end = time.monotonic() + seconds / len(METHODS)
        with tempfile.TemporaryDirectory(prefix="twofold-kills-") as aside:
            (Path(aside) / "whole").mkdir()
            kills, failures = campaign(method, Path(aside), chance, end)
        notes = "\n".join(failures[:MOST_NOTES])
        rows += [
            Row(f"kills {kind}, {method}", count, 0 if number else len(failures), "" if number else notes)
            for number, (kind, count) in enumerate(kills.items())
        ]
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", nargs=2, metavar=("METHOD", "FOLDER"), required=True)
    parser.add_argument("--operation", type=int, default=0)
    words = parser.parse_args()
    child(words.child[0], Path(words.child[1]), words.operation)
