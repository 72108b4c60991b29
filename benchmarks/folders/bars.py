"""Measure what training from pretrained weights gains over these weights as they are, on test sets.

    python -m benchmarks.folders.bars --sources DATA --out bars.jsonl --workers 8 --seconds 330
    python -m benchmarks.folders.bars --out bars.jsonl --summary

Several processes share the jobs, the most valuable first, until the time is over. A job is a folder, a split and either
the start (as it is, and adapted in closed form) or a method (default training, its adapter, five views). Its line in
the file has the accuracies in per cent. The summary has the differences to the start, paired by split, with intervals
of 95 % from the t distribution.
"""

import argparse
import fcntl
import os
import platform
import time
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.folders.pool import claimed, lines_of, record, run_workers

os.environ.setdefault("OMP_NUM_THREADS", "2")

METHODS = ("simclr", "frossl", "byol", "vicreg", "s-diet")  # the first one is the default
OTHERS = ("cifar10-2000", "cifar10-500", "mnist-2000", "digits", "cifar10-10000")
START = "start"
#: The t distribution's 97.5 % points for 1, 2, ... degrees of freedom.
T_POINTS = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145)
MEASURES = ("linear", "few", "knn")
Job = tuple[str, int, str]  # folder, seed, and START or a method


def jobs(splits: int, seeds: int) -> list[Job]:
    """Return all jobs, the most valuable first."""
    found = [("flowers17", seed, what) for seed in range(splits) for what in (START, METHODS[0])]
    found += [("flowers17", seed, method) for method in METHODS[1:] for seed in range(splits)]
    others = [(folder, seed) for folder in OTHERS for seed in range(seeds)]
    found += [(*other, what) for other in others for what in (START, METHODS[0])]
    return found + [(*other, method) for other in others for method in METHODS[1:]]


def work(given: argparse.Namespace) -> None:
    """Do the jobs that no other process has taken, in order."""
    import torch

    from twofold.keys import parse_overrides

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    overrides = dict(parse_overrides(given.overrides))
    of_name = {name_of(job): job for job in jobs(given.splits, given.seeds)}
    for name in claimed(given.work, of_name):
        folder, seed, what = job = of_name[name]
        line = {"folder": folder, "seed": seed, "what": what, "size": given.size, "torch": torch.__version__}
        line["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
        record(given.out, line, lambda job=job: measured(given, job, overrides))  # type: ignore[misc]
        if time.time() > given.deadline:
            break


def name_of(job: Job) -> str:
    return "-".join(map(str, job))


def measured(given: argparse.Namespace, job: Job, overrides: dict[str, Any]) -> dict[str, dict[str, float]]:
    from benchmarks.folders.datasets import split
    from benchmarks.folders.rows import ROWS, Settings, measure

    folder, seed, what = job
    with (given.work / f"{folder}-{seed}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        divided = split(folder, given.sources, given.work, seed, given.part)
    settings = Settings(given.work, 5, given.size, overrides, (what,))
    found = measure(divided, ROWS["adapted" if what == START else "continued"](divided, settings))
    return {name: {key: round(value, 3) for key, value in row.items()} for name, row in found.items()}


def summary(path: Path) -> None:
    """Print paired differences to the start, as it is, of each folder."""
    lines = lines_of(path)
    for line in lines:
        if "error" in line:
            print("ERROR", line["folder"], line["seed"], line["what"], line["error"])
    done = [line for line in lines if "rows" in line]
    starts = {
        (line["folder"], line["seed"]): next(iter(line["rows"].values())) for line in done if line["what"] == START
    }
    for folder in dict.fromkeys(line["folder"] for line in done):
        values: dict[str, list[dict[str, float]]] = {}
        of_start = [start for (name, _), start in starts.items() if name == folder]
        if not of_start:
            continue
        cells = [f"{mean(start[key] for start in of_start):.1f}" for key in MEASURES]
        print(f"\n{folder}\n| | {' | '.join(MEASURES)} | splits | seconds |\n|---|---|---|---|---|---|")
        print(f"| as it is | {' | '.join(cells)} | {len(of_start)} | |")
        for line in done:
            start = starts.get((folder, line["seed"]))
            if line["folder"] == folder and start is not None:
                for name, row in line["rows"].items():
                    gains = {key: row[key] - start[key] for key in MEASURES} | {"seconds": row["seconds"]}
                    values.setdefault(name, []).append(gains)
        for name, gains in list(values.items())[1:]:
            cells = [interval([each[key] for each in gains]) for key in MEASURES]
            print(f"| {name} | {' | '.join(cells)} | {len(gains)} | {mean(each['seconds'] for each in gains):.0f} |")


def interval(differences: list[float]) -> str:
    """Return the mean and the ends of its interval of 95 %."""
    n, centre = len(differences), mean(differences)
    if n == 1:
        return f"{centre:+.1f}"
    half = T_POINTS[n - 2] * stdev(differences) / sqrt(n)
    return f"{centre:+.1f} ({centre - half:+.1f} to {centre + half:+.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="a file of JSON lines; a second call continues it")
    parser.add_argument("--work", type=Path, default=Path("build/folders"))
    parser.add_argument("--part", choices=("validation", "test"), default="test")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--splits", type=int, default=10, help="of Flowers-17")
    parser.add_argument("--seeds", type=int, default=3, help="of the other folders")
    parser.add_argument("--summary", action="store_true", help="only print the table of the file")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*", help="KEY=VALUE of runs")
    given = parser.parse_args()
    if given.worker:
        return work(given)
    if not given.summary:
        done = (line for line in lines_of(given.out) if "rows" in line)
        names = (name_of((line["folder"], line["seed"], line["what"])) for line in done)
        run_workers("benchmarks.folders.bars", given.work, names, time.time() + given.seconds, [[]] * given.workers)
    return summary(given.out)


if __name__ == "__main__":
    main()
