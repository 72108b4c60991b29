"""Measure features of small folders, and print a table for each folder.

    python -m benchmarks.folders --sources DATA --folders flowers17,digits --rows raw,handmade --seeds 0,1,2

DATA holds `flowers17/CLASS/*.jpg`, and the standard files of CIFAR-10 and MNIST. Choices are made with
`--part validation`, which never reads a test image; `--part test` gives the numbers to publish. Accuracy in per cent:
linear with all labels, linear with 10 labels per class, and 5 nearest neighbours. ± is half of the range over seeds.
"""

import argparse
import json
import os
import platform
from pathlib import Path
from typing import Any

import torch

from benchmarks.folders.datasets import FOLDERS, split
from benchmarks.folders.rows import ROWS, Settings, measure, summary
from twofold.keys import parse_overrides
from twofold.methods.catalog.common import CONTINUED_METHOD


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--folders", default=",".join(FOLDERS))
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--part", choices=("validation", "test"), default="validation")
    parser.add_argument("--minutes", type=float, default=5, help="of training, in rows that train")
    parser.add_argument("--size", type=int, default=96, help="pixels of images for the pretrained network")
    parser.add_argument("--methods", default=CONTINUED_METHOD, help="of continued pretraining")
    parser.add_argument("--work", type=Path, default=Path("build/folders"), help="where folders and runs are kept")
    parser.add_argument("--record", type=Path, help="a JSON file to write")
    parser.add_argument("overrides", nargs="*", help="KEY=VALUE of runs, in rows that train")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    settings = Settings(
        given.work, given.minutes, given.size, dict(parse_overrides(given.overrides)), tuple(given.methods.split(","))
    )
    table: dict[str, dict[str, list[dict[str, float]]]] = {}  # folder → representation → one entry per seed
    for folder in given.folders.split(","):
        rows = table.setdefault(folder, {})
        for seed in map(int, given.seeds.split(",")):
            divided = split(folder, given.sources, given.work, seed, given.part)
            for row in given.rows.split(","):
                for name, numbers in measure(divided, ROWS[row](divided, settings)).items():
                    rows.setdefault(name, []).append(numbers)
                    print(folder, seed, name, {key: round(value, 1) for key, value in numbers.items()}, flush=True)
                write(given, table)
    for folder, rows in table.items():
        print(f"\n{folder} ({given.part})\n| | linear | 10 per class | kNN | seconds |\n|---|---|---|---|---|")
        for name, seeds in rows.items():
            cells = [summary([numbers[key] for numbers in seeds]) for key in ("linear", "few", "knn", "seconds")]
            print(f"| {name} | {' | '.join(cells)} |")


def write(given: argparse.Namespace, table: dict[str, Any]) -> None:
    """Write the record after each row, so that an interrupted measurement is not lost."""
    if given.record is None:
        return
    machine = {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
    }
    settings = {key: value for key, value in vars(given).items() if key not in ("sources", "work", "record")}
    given.record.parent.mkdir(parents=True, exist_ok=True)
    given.record.write_text(json.dumps({"settings": settings, "machine": machine, "table": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
