"""Run campaigns for a given time and print their table. `make torture` calls this.

PYTHONPATH=tests python -m torture --minutes 60 --parts kills,processes,disks,flips,power,replaced,fuzz
"""

import argparse
import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from torture.small_runs import without_few_labels
from torture.table import add_to_record

# Each is a module here with a function run(seconds, seed) → rows.
MEMORY = Path("/dev/shm")  # a sync costs nothing there, and kills and flipped bits do not depend on the disk
PARTS = ("kills", "processes", "disks", "flips", "power", "replaced", "fuzz")


def main() -> int:
    """Return 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="Time for all parts together.")
    parser.add_argument("--parts", default=",".join(PARTS), help="Which parts to run, separated by commas.")
    parser.add_argument("--seed", type=int, default=0, help="Another seed tries other cases.")
    parser.add_argument("--add-to", type=Path, help="A record (JSON) to which the counts are added.")
    words = parser.parse_args()
    parts = words.parts.split(",")
    unknown = set(parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    if MEMORY.is_dir() and "TMPDIR" not in os.environ:
        tempfile.tempdir = str(MEMORY)
    failed = 0
    print(f"{'test':44} {'tried':>10} {'failed':>8}")
    with tempfile.TemporaryDirectory(prefix="twofold-cache-") as cache, without_few_labels():
        os.environ["TWOFOLD_CACHE"] = cache
        os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
        for part in parts:
            rows = import_module(f"torture.{part}").run(60 * words.minutes / len(parts), words.seed)
            for row in rows:
                failed += row.failed
                print(f"{row.test:44} {row.tried:>10,} {row.failed:>8,}", flush=True)
                for line in row.note.splitlines():
                    print(f"    {line}")
            if words.add_to is not None:
                add_to_record(words.add_to, part, words.seed, rows)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
