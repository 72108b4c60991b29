"""Compare the accuracy of runs in float32 and in bfloat16 on digits, seed by seed.

    python -m benchmarks.precision [--methods frossl,simclr] [--seeds 10] [--epochs 12]

Both runs of a seed have the same images, views and initial weights. The printed difference is the mean over the seeds,
with its standard error.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

import twofold
from benchmarks.results import Table, keep

PRECISIONS = ("float32", "bf16")
MEASURES = {"linear": "linear_accuracy", "kNN": "knn_accuracy", "10 labels": "few_labels_accuracy"}


def accuracies(method: str, seed: int, precision: str, epochs: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        run = twofold.pretrain(
            "digits", method=method, epochs=epochs, seed=seed, precision=precision, device="cpu", out=f"{folder}/run"
        )
        assert run.results is not None
        (trained,) = (row for row in run.results["table"] if row["name"] == "trained")
        found = {name: 100 * trained[key] for name, key in MEASURES.items()}
    return found | {"seconds": time.process_time() - start}


def compared(method: str, found: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Return means and the mean differences of the seeds with their standard errors, and all values."""
    row: dict[str, Any] = {"method": method, "seeds": len(found["bf16"])}
    for name in (*MEASURES, "seconds"):
        wide, narrow = ([values[name] for values in found[precision]] for precision in PRECISIONS)
        differences = [b - a for a, b in zip(wide, narrow, strict=True)]
        row |= {f"{name}, float32": mean(wide), f"{name}, bf16": mean(narrow)}
        row |= {f"{name}, difference": mean(differences), f"{name}, ±": stdev(differences) / len(wide) ** 0.5}
    return row | {"values": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="frossl,simclr")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--commit", default="", help="the commit to record, if git is not available")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = Table("method", "seeds", *(f"{name}, {what}" for name in MEASURES for what in ("difference", "±")))
    for method in options.methods.split(","):
        found = {
            precision: [accuracies(method, seed, precision, options.epochs) for seed in range(options.seeds)]
            for precision in PRECISIONS
        }
        table.add(compared(method, found))
    keep("precision-digits-cpu", table, {"epochs": options.epochs}, "cpu", options.commit, options.out)


if __name__ == "__main__":
    main()
