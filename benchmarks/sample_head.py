"""Measure time, memory and file traffic of a step of the per-image classifier, for growing numbers of rows.

    python -m benchmarks.sample_head [--rows 50000 1000000] [--steps 200] [--folder DIR] [--out FILE]

A step reads a batch of distinct random rows and updates them with a gradient. "disk" and "memory" are the classifier of
Twofold. "torch" is `nn.Embedding(sparse=True)` with `SparseAdam`, which has no weight decay, does not update rows in
steps that do not use them, and keeps 3·n·D numbers in memory. Each case runs in its own process, one after the other,
in `--rounds` rounds.

"step ms" is the median time of a step, with its quartiles. "cpu ms" is the mean CPU time of process and system per
step, including work that is done once for many steps, such as writing back and syncing. All batches use the same 50,000
rows, spread over the classifier, so that caches are equally warm for all sizes. "resident MiB" is the memory that the
process gained; "read KiB" and "written KiB" are its file traffic per step (/proc/self/io).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import MIB, head_commit
from benchmarks.results import Table, keep
from twofold.models import SampleHead

SIZES = [50_000, 1_000_000, 10_000_000, 100_000_000]
USED = 50_000  # rows that batches are drawn from
NUMBERS = 3  # stored numbers per weight: the weight and two moments
COLUMNS = ("head", "rows", "step ms", "lower", "upper", "cpu ms", "resident MiB", "read KiB", "written KiB")


def resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return 1024 * int(line.split()[1])
    return 0


def traffic() -> tuple[int, int]:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"]), int(fields["wchar"])


def measured(kind: str, rows: int, dim: int, batch_size: int, steps: int, folder: Path) -> dict[str, Any]:
    """Measure one kind of classifier, after a warm-up that uses each row once."""
    generator = torch.Generator().manual_seed(0)
    used = torch.arange(USED) * (rows // USED)
    warm_up = list(used.split(batch_size))
    batches = [used[torch.randperm(USED, generator=generator)[:batch_size]] for _ in range(steps)]
    gradient = torch.randn(batch_size, dim, generator=generator) / dim
    before = resident()
    if kind == "torch":
        step = torch_step(rows, dim)
    else:
        path = folder / "head" if kind == "disk" else None
        schedule = torch.full((len(warm_up) + steps,), 1e-3)
        step = our_step(SampleHead(rows, dim, path=path, schedule=schedule))
    for index in warm_up:
        step(index, gradient[: len(index)])
    times = []
    read, written = traffic()
    worked = time.process_time()
    for index in batches:
        begun = time.perf_counter()
        step(index, gradient)
        times.append(1e3 * (time.perf_counter() - begun))
    worked = time.process_time() - worked
    read, written = (now - then for now, then in zip(traffic(), (read, written), strict=True))
    lower, middle, upper = quantiles(times, n=4)
    return {
        "head": kind, "rows": rows, "step ms": middle, "lower": lower, "upper": upper, "cpu ms": 1e3 * worked / steps,
        "resident MiB": (resident() - before) / MIB,
        "read KiB": read / steps / 1024, "written KiB": written / steps / 1024,
    }  # fmt: skip


def our_step(head: SampleHead) -> Any:
    def step(index: Tensor, gradient: Tensor) -> None:
        head.apply(head.load(index.numpy(), head.steps), gradient)

    return step


def torch_step(rows: int, dim: int) -> Any:
    weight = torch.nn.Embedding(rows, dim, sparse=True)
    optimizer = torch.optim.SparseAdam(weight.parameters(), lr=1e-3)

    def step(index: Tensor, gradient: Tensor) -> None:
        optimizer.zero_grad()
        weight(index).backward(gradient)
        optimizer.step()

    return step


def in_a_process(arguments: argparse.Namespace, kind: str, rows: int) -> dict[str, Any] | None:
    """Run `measured` in a new process; return None if it needs more than the allowed memory."""
    if kind != "disk" and 4 * NUMBERS * arguments.dim * rows > arguments.memory * MIB:
        return None
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        words = [kind, rows, arguments.dim, arguments.batch_size, arguments.steps, folder]
        program = [sys.executable, "-m", "benchmarks.sample_head", "--one", *map(str, words)]
        done = subprocess.run(program, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", type=int, default=SIZES)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--memory", type=int, default=4096, help="largest size in MiB of a classifier in memory")
    parser.add_argument("--folder", type=Path, help="folder for classifiers on disk [default: temporary]")
    parser.add_argument("--commit", default=head_commit())
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/sample-head-DATE.json")
    parser.add_argument("--one", nargs=6, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        kind, *numbers, folder = arguments.one
        print(json.dumps(measured(kind, *map(int, numbers), Path(folder))))
        return
    cases = [(kind, rows) for rows in arguments.rows for kind in ("disk", "memory", "torch")]
    table = Table(*COLUMNS)
    for kind, rows in cases * arguments.rounds:
        row = in_a_process(arguments, kind, rows)
        table.add({"head": kind, "rows": rows} if row is None else row)
    settings = {name: vars(arguments)[name] for name in ("rows", "dim", "batch_size", "steps", "rounds", "memory")}
    print(keep("sample-head", table, settings, "cpu", arguments.commit, arguments.out))


if __name__ == "__main__":
    main()
