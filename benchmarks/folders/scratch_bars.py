"""Measure what `--minutes 5` from scratch gains over features that need no training, on test sets.

    python -m benchmarks.folders.scratch_bars --sources DATA --out scratch.jsonl --workers 8 --seconds 540
    python -m benchmarks.folders.scratch_bars --out scratch.jsonl --summary

Each worker has two cores (`--cores`) and as many threads of its own, and no GPU. A job is a folder, a seed, and either
the run, whose settings are the defaults of `twofold.pretrain(FOLDER, minutes=5)`, or the rows without training. Runs
come first, and none is started that would end after the given time: call again to continue. The summary has a table for
each folder, and says which bars are met.
"""

import argparse
import fcntl
import os
import platform
import time
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.folders.bars import interval
from benchmarks.folders.pool import claimed, lines_of, record, run_workers

FOLDERS = ("flowers17", "cifar10-2000", "cifar10-500", "mnist-2000", "digits", "cifar10-10000")
RUN, WITHOUT = "run", "without training"
ROWS_OF = {RUN: ("scratch",), WITHOUT: ("raw", "handmade", "patches")}
TRAINED, UNTRAINED, PIXELS = "trained from scratch", "untrained", "raw pixels"
HANDMADE, PATCHES = "HOG + colour", "patch k-means"
ORDER = (PIXELS, HANDMADE, PATCHES, UNTRAINED, "trained, without adapter", TRAINED)
MEASURES = ("linear", "knn")
#: Seconds that a job takes on two free cores, in addition to the training, and the factor for the largest folder.
SECONDS, LARGEST, FACTOR = {RUN: 110.0, WITHOUT: 80.0}, "cifar10-10000", 2.0
ENOUGH = 4  # folders, of six, on which the encoder must be above hand-made features, and above patch k-means
Job = tuple[str, int, str]  # folder, seed, and a key of ROWS_OF
Rows = dict[str, dict[str, float]]


def jobs(folders: list[str], seeds: list[int]) -> list[Job]:
    """Return all jobs, the runs first: the others are short and fill the time that is left."""
    return [(folder, seed, what) for what in ROWS_OF for seed in seeds for folder in folders]


def name_of(job: Job) -> str:
    return "-".join(map(str, job))


def work(given: argparse.Namespace) -> None:
    """Do the jobs that no other worker has taken and that end in time."""
    import torch

    from twofold.keys import parse_overrides

    torch.set_num_threads(given.cores)
    overrides = dict(parse_overrides(given.overrides))
    of_name = {name_of(job): job for job in jobs(given.folders, given.seeds)}
    in_time = (name for name, job in of_name.items() if time.time() + seconds_of(job, given.minutes) < given.deadline)
    for name in claimed(given.work, in_time):
        folder, seed, what = job = of_name[name]
        line = {"folder": folder, "seed": seed, "what": what, "part": given.part, "minutes": given.minutes}
        line |= {"threads": given.cores, "processor": platform.processor() or platform.machine()}
        line |= {"overrides": given.overrides, "torch": torch.__version__}
        record(given.out, line, lambda job=job: measured(given, job, overrides))  # type: ignore[misc]


def seconds_of(job: Job, minutes: float) -> float:
    """Estimate the duration of a job."""
    folder, _, what = job
    return SECONDS[what] * (FACTOR if folder == LARGEST else 1) + (60 * minutes if what == RUN else 0)


def measured(given: argparse.Namespace, job: Job, overrides: dict[str, Any]) -> Rows:
    from benchmarks.folders.datasets import split
    from benchmarks.folders.rows import ROWS, Settings, measure

    folder, seed, what = job
    with (given.work / f"{folder}-{seed}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        divided = split(folder, given.sources, given.work, seed, given.part)
    settings = Settings(given.work, given.minutes, 0, overrides)
    rows: Rows = {}
    for row in ROWS_OF[what]:
        rows |= measure(divided, ROWS[row](divided, settings), with_few_labels=False)
    return {name: {key: round(row[key], 3) for key in (*MEASURES, "seconds")} for name, row in rows.items()}


def summary(path: Path) -> None:
    """Print a table for each folder, and for each bar the folders on which it is met."""
    found: dict[str, dict[int, Rows]] = {}  # folder → seed → rows
    for line in lines_of(path):
        if "error" in line:
            print("ERROR", line["folder"], line["seed"], line["what"], line["error"])
        else:
            found.setdefault(line["folder"], {}).setdefault(line["seed"], {}).update(line["rows"])
    above: dict[str, list[str]] = {name: [] for name in (UNTRAINED, PIXELS, HANDMADE, PATCHES)}
    for folder, seeds in found.items():
        print(f"\n{folder}\n| | linear | kNN | linear of {TRAINED} minus it | kNN | seeds |\n|---|---|---|---|---|---|")
        for name in ORDER:
            pairs = [(rows[name], rows.get(TRAINED)) for rows in seeds.values() if name in rows]
            gains = [{key: ours[key] - row[key] for key in MEASURES} for row, ours in pairs if ours is not None]
            cells = [f"{mean(row[key] for row, _ in pairs):.1f}" for key in MEASURES if pairs]
            cells += [interval([gain[key] for gain in gains]) for key in MEASURES if gains and name != TRAINED]
            print(f"| {name} | {' | '.join([*cells, *[''] * (4 - len(cells))])} | {len(pairs)} |")
            if name in above and gains and all(mean(gain[key] for gain in gains) > 0 for key in MEASURES):
                above[name].append(folder)
    print("\nFolders on which the encoder is above in linear and kNN accuracy, in the mean over seeds:")
    for name, folders in above.items():
        least = len(FOLDERS) if name in (UNTRAINED, PIXELS) else ENOUGH
        answer = "met" if len(folders) >= least else "missed"
        print(f"- {name}: {len(folders)} ({', '.join(folders) or 'none'}); {least} of {len(FOLDERS)} needed: {answer}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, help="as for `python -m benchmarks.folders`")
    parser.add_argument("--out", type=Path, required=True, help="a file of JSON lines; a second call continues it")
    parser.add_argument("--work", type=Path, default=Path("build/folders"))
    parser.add_argument("--part", choices=("validation", "test"), default="test")
    parser.add_argument("--folders", type=lambda text: text.split(","), default=list(FOLDERS))
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[0, 1, 2])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--cores", type=int, default=2, help="of each worker")
    parser.add_argument("--workers", type=int, help="default: as many as there are cores for")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--summary", action="store_true", help="only print the tables of the file")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*", help="KEY=VALUE of runs, for experiments")
    given = parser.parse_args()
    if given.worker:
        return work(given)
    if not given.summary:
        os.environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": str(given.cores)}
        workers = given.workers or max(1, (os.cpu_count() or 1) // given.cores)
        cores = [f"{given.cores * worker}-{given.cores * (worker + 1) - 1}" for worker in range(workers)]
        done = (line for line in lines_of(given.out) if "rows" in line)
        names = (name_of((line["folder"], line["seed"], line["what"])) for line in done)
        prefixes = [["taskset", "--cpu-list", of_worker] for of_worker in cores]
        run_workers("benchmarks.folders.scratch_bars", given.work, names, time.time() + given.seconds, prefixes)
    return summary(given.out)


if __name__ == "__main__":
    main()
