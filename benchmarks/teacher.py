"""Compare a small student with a teacher to the same student without one, in the same processor time.

    python -m benchmarks.teacher --sources DATA --arms teacher,simclr --seeds 0,1

DATA holds `flowers17/CLASS/*.jpg`. Each arm trains the encoder `conv` at 64 pixels on one thread, with the recipe that
`--minutes` chooses on a CPU. The number of epochs follows from the processor time of an epoch, which is measured first,
so that training takes `--seconds` in every arm. With a teacher, the time includes the teacher's features. A fifth of
each class is held out for the accuracies. The arm `references` measures the untrained student and the teacher.
"""

import argparse
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import twofold
from benchmarks.folders.datasets import Split, split
from benchmarks.folders.rows import Representations, measure, store, timed
from benchmarks.results import Table, keep
from twofold.data.open import open_source
from twofold.evaluate.encoder import Encoder, open_encoder
from twofold.methods.catalog.common import SHORT_METHOD
from twofold.models.encoders import EFFICIENTNET
from twofold.runs.preprocess import preprocess_of
from twofold.runs.weights import load_encoder
from twofold.verbs.probing import initial

STUDENT = {"encoder": "conv", "image_size": 64, "recipe": "short"}  # what --minutes 3 gives on a CPU
SIZE_OF_TEACHER = 224
TEACHER = {"graph.source": "teacher", "graph.encoder": EFFICIENTNET}
ARMS: dict[str, dict[str, Any]] = {
    "teacher": {"method": "ridge-graph", **TEACHER},
    "simclr": {"method": "simclr"},
    "ridge-graph": {"method": "ridge-graph"},
    "default": {"method": SHORT_METHOD},
}
COLUMNS = ("arm", "seed", "linear", "few", "knn", "epochs", "steps", "whole_call_s")
FEW_EPOCHS, MORE_EPOCHS = 1, 3  # of the runs that measure an epoch


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--part", choices=("validation", "test"), default="validation")
    parser.add_argument("--seconds", type=float, default=450, help="of processor time for training")
    parser.add_argument("--epochs", type=int, help="of training, instead of measuring how many take --seconds")
    parser.add_argument("--work", type=Path, default=Path("build/teacher"), help="where folders and runs are kept")
    parser.add_argument("--record", type=Path, help="a JSON file; rows that it has already are kept")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    torch.set_num_threads(1)
    os.environ["TWOFOLD_CACHE"] = str(given.work / "cache" / str(os.getpid()))  # the first run of an arm finds nothing
    for arm in given.arms.split(","):
        costs: tuple[float, float] | None = None
        for seed in map(int, given.seeds.split(",")):
            divided = split("flowers17", given.sources, given.work, seed, given.part)
            if arm == "references":
                for name, numbers in measure(divided, references(divided, given.work)).items():
                    add({"arm": name, "seed": seed, **rounded(numbers)}, given)
            else:
                if given.epochs is None:
                    costs = costs or costs_of(ARMS[arm], divided, given.work)
                add({"arm": arm, "seed": seed, **trained(ARMS[arm], divided, given, costs)}, given)


def add(row: Mapping[str, Any], given: argparse.Namespace) -> None:
    """Add a row to the record. It is read again each time, because other processes measure other arms."""
    table = Table(*COLUMNS)
    if given.record is not None and given.record.exists():
        table.rows = json.loads(given.record.read_text())["rows"]
    table.add(row)
    settings = {"part": given.part, "seconds": given.seconds, **STUDENT, "test_fraction": 0.0}
    keep("teacher-flowers17-cpu", table, settings, "cpu", "", given.record)


def train(arm: Mapping[str, Any], divided: Split, work: Path, epochs: int) -> tuple[twofold.Run, float]:
    """Train, and return the run and the processor time of the whole call, in seconds."""
    start = time.process_time()
    out = work / "runs" / f"{arm['method']}-{time.time_ns()}"
    settings = {**STUDENT, **arm, "epochs": epochs, "seed": divided.seed, "test_fraction": 0.0, "map_points": 0}
    run = twofold.pretrain({"data": divided.fit, "device": "cpu", "precision": "float32", **settings}, out=out)
    return run, time.process_time() - start


def costs_of(arm: Mapping[str, Any], divided: Split, work: Path) -> tuple[float, float]:
    """Return the processor time of what is computed once (reading, the teacher's features), and that of an epoch."""
    first, again, longer = (train(arm, divided, work, epochs)[1] for epochs in (FEW_EPOCHS, FEW_EPOCHS, MORE_EPOCHS))
    return first - again, (longer - again) / (MORE_EPOCHS - FEW_EPOCHS)


def trained(
    arm: Mapping[str, Any], divided: Split, given: argparse.Namespace, costs: tuple[float, float] | None
) -> dict[str, Any]:
    if costs is None:
        epochs = given.epochs
    else:
        once, epoch = costs
        epochs = max(1, round((given.seconds - once) / epoch))
    run, seconds = train(arm, divided, given.work, epochs)
    network = load_encoder(run, adapter=False)
    encoder = Encoder.on_device(network, network.preprocess, torch.device("cpu"))
    stores = [store(folder, STUDENT["image_size"], 3) for folder in (divided.fit, divided.score)]
    measured = measure(divided, {"": timed(encoder, stores)})[""]
    facts = {"epochs": epochs, "steps": run.metrics[-1]["step"], "whole_call_s": round(seconds, 1)}
    return rounded(measured) | facts | ({} if costs is None else {"once_s": round(once, 1), "epoch_s": round(epoch, 2)})


def references(divided: Split, work: Path) -> Representations:
    """Features of the student before training, and of the teacher in its own size."""
    run, _ = train(ARMS["simclr"], divided, work, 1)
    preprocess = preprocess_of(load_encoder(run, adapter=False))
    stores = [store(folder, preprocess.image_size, 3) for folder in (divided.fit, divided.score)]
    student = Encoder.on_device(initial(run.config, stores[0], "pre", None), preprocess, torch.device("cpu"))
    teacher = open_encoder(EFFICIENTNET, lambda: open_source(divided.fit))
    large = [store(folder, SIZE_OF_TEACHER, 3) for folder in (divided.fit, divided.score)]
    return {"untrained student": timed(student, stores), "teacher itself": timed(teacher, large)}


def rounded(numbers: Mapping[str, float]) -> dict[str, float]:
    return {name: round(numbers[name], 2) for name in ("linear", "few", "knn")}


if __name__ == "__main__":
    main()
