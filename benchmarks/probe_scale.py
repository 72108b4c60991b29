"""Measure time and memory of a linear probe and kNN on a memory-mapped file, and compare memory with a bound.

    python -m benchmarks.probe_scale [--rows 1000000] [--features 512] [--classes 10] [--queries 10000]

Features are Gaussian classes in float32, written to a .npy file that is memory-mapped. Each part runs in its own
process. Its peak is the private memory of the process above that before the part. Pages of the mapped file are not
counted, because the system can drop them. The bounds follow from the algorithms, in numbers of 4 or 8 bytes:

- probe: 8 blocks of 2²² numbers (features, logits and intermediate results), 40 numbers per row (labels, folds and
  their orders in int64), and 40·K·C for L-BFGS;
- kNN: 4 blocks of 4096 queries by 4096 rows, twice their K features, three times C votes, and 2 numbers per row.

Both bounds include 128 MiB for buffers of the matrix libraries.

The limit of the arithmetic is the processor time of the matrix products alone, measured in the same process on a few
blocks: for the probe, the two products of every pass over the rows; for kNN, the product of all queries with all rows.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.results import Table, keep
from twofold.data.store import readonly_tensor
from twofold.evaluate import linear
from twofold.evaluate.linear import BLOCK, block_rows, fit_linear
from twofold.evaluate.probes import knn_accuracy

MIB = 2**20
LIBRARIES_MIB = 128
KNN_BLOCK = 4096
WRITTEN = 2**14  # rows written at a time


def write(path: Path, rows: int, features: int, classes: int, seed: int) -> None:
    """Write features and labels. Each class has its own centre, and all classes share a few strong directions."""
    centres = np.random.default_rng(0).normal(size=(classes, features)).astype(np.float32)
    scale = np.geomspace(5, 0.2, features).astype(np.float32)
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, features))
    labels = np.arange(rows) * 7919 % classes
    for start in range(0, rows, WRITTEN):
        part = labels[start : start + WRITTEN]
        noise = np.random.default_rng((seed, start)).standard_normal((len(part), features), dtype=np.float32)
        out[start : start + len(part)] = 0.3 * centres[part] + noise * scale
    out.flush()
    np.save(path.with_suffix(".labels.npy"), labels)


def private_mib() -> float:
    """Return the memory of this process that is not backed by a file."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no Anonymous line")


class Peak:
    """Measures the peak of private memory, which it samples 20 times per second."""

    def __enter__(self) -> "Peak":
        self.start = self.most = private_mib()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self) -> None:
        while not self.stop.wait(0.05):
            self.most = max(self.most, private_mib())
        self.seconds = time.thread_time()  # of this thread, which is not part of what is measured

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()
        self.extra = self.most - self.start


def bound_mib(part: str, rows: int, features: int, classes: int) -> float:
    """Return the memory bound of a part; the docstring of this module derives it."""
    if part == "probe":
        return LIBRARIES_MIB + (8 * 4 * BLOCK + 8 * 40 * rows + 40 * 8 * features * classes) / MIB
    return (
        LIBRARIES_MIB
        + (4 * (4 * KNN_BLOCK**2 + 2 * KNN_BLOCK * features) + 8 * 3 * KNN_BLOCK * classes + 16 * rows) / MIB
    )


class Passes:
    """Counts the rows that a probe reads, and the columns of its products: one for each problem and class."""

    def __init__(self) -> None:
        self.numbers = 0

    def __enter__(self) -> "Passes":
        likelihood, count = linear._Problems.likelihood, self

        def counted(problems: Any, *arguments: Any) -> Any:
            count.numbers += len(problems.rows) * problems.share.shape[1]
            return likelihood(problems, *arguments)

        self.patch = patch.object(linear._Problems, "likelihood", counted)
        self.patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.patch.stop()


def limit_seconds(part: str, features: torch.Tensor, queries: int, classes: int, passes: Passes) -> float:
    """Return the processor time of the matrix products of a part alone, from the median of a few blocks."""
    rows = KNN_BLOCK if part == "knn" else block_rows(features.shape[1], classes)
    block = features[:rows].clone()
    other = (
        torch.randn(min(queries, KNN_BLOCK), features.shape[1]) if part == "knn" else torch.randn(len(block), classes)
    )
    weight = torch.randn(features.shape[1], classes)
    times = []
    for _ in range(7):
        start = time.process_time()
        if part == "knn":
            other @ block.T
        else:
            block @ weight
            block.T @ other
        times.append((time.process_time() - start) / len(block))
    return median(times) * (len(features) * queries / len(other) if part == "knn" else passes.numbers)


def run_part(part: str, path: Path, options: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(options.threads)
    features = readonly_tensor(np.load(path, mmap_mode="r"))
    test = torch.from_numpy(np.load(path.with_name("test.npy")))
    labels, truth = (
        torch.from_numpy(np.load(path.with_name(name))) for name in ("features.labels.npy", "test.labels.npy")
    )
    torch.ones(64, 64) @ torch.ones(64, 64)
    start, busy = time.perf_counter(), time.process_time()
    with Peak() as peak, Passes() as passes:
        if part == "probe":
            accuracy = fit_linear(features, labels, classes=options.classes).accuracy(test, truth)
        else:
            accuracy = knn_accuracy(features, labels, test, truth, block=KNN_BLOCK)
    seconds, of_processor = time.perf_counter() - start, time.process_time() - busy - peak.seconds
    limit = limit_seconds(part, features, len(test), options.classes, passes)
    return {
        "part": part,
        "rows": len(features),
        "features": features.shape[1],
        "classes": options.classes,
        "queries": len(test),
        "seconds": seconds,
        "of processor": of_processor,
        "limit": limit,
        "times the limit": of_processor / limit,
        "MiB": peak.extra,
        "bound MiB": bound_mib(part, len(features), features.shape[1], options.classes),
        "file MiB": features.numel() * 4 / MIB,
        "accuracy": accuracy,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--parts", default="probe,knn")
    parser.add_argument("--folder", type=Path, default=None, help="folder for the features [default: temporary]")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--commit", default="", help="the commit to record, if git is not available")
    parser.add_argument("--only", default=None, help=argparse.SUPPRESS)  # runs this part in the current process
    options = parser.parse_args()
    if options.only:
        print(json.dumps(run_part(options.only, options.folder / "features.npy", options)))
        return
    table = Table("part", "rows", "seconds", "of processor", "limit", "times the limit", "MiB", "bound MiB", "accuracy")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder, "features.npy")
        write(path, options.rows, options.features, options.classes, seed=1)
        write(Path(folder, "test.npy"), options.queries, options.features, options.classes, seed=2)
        for part in options.parts.split(","):
            command = [
                sys.executable,
                "-m",
                "benchmarks.probe_scale",
                *sys.argv[1:],
                "--only",
                part,
                "--folder",
                folder,
            ]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            table.add(json.loads(done.stdout.splitlines()[-1]))
    settings = {name: value for name, value in vars(options).items() if name not in ("out", "commit", "only", "folder")}
    keep("probe-scale", table, settings, "cpu", options.commit, options.out)


if __name__ == "__main__":
    main()
