"""Does the answer without labels agree with that of the labels? Trains small encoders well and badly, and compares.

    python -m benchmarks.folders.verdicts --sources DATA --work build/verdicts --folders digits --record FILE.json

Every run is judged twice after its last step: by accuracies on all images that were not used for training, and by views
of a part of them. "init" runs start from the encoder of the first run of the folder.
"""

import argparse
import json
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.folders.datasets import FOLDERS, Pictures
from twofold.display import Display
from twofold.evaluate.gain import BEFORE, UNTRAINED, compare_accuracies, judge_by_labels, judge_by_views
from twofold.evaluate.probes import labelled_splits, measure_accuracies
from twofold.runs.weights import save_encoder
from twofold.train.trainer import Trainer
from twofold.verbs import pretrain
from twofold.verbs.selection import score_encoder

SIZES = {"digits": (8, 1078), "mnist-2000": (16, 1600), "cifar10-500": (16, 500), "cifar10-2000": (16, 2000)}
SIZES["flowers17"] = (24, 816)  # pixels, and images to train on
EVALUATED = 1500  # at most so many other images are evaluated
STEPS = 150
GOOD = {
    "encoder": "conv",
    "optimizer": "adamw",
    "lr": 1e-3,
    "lr_scaling": "none",
    "weight_decay": 1e-4,
    "batch_size": 64,
    "projector": "128,64",
    "seed": 3,
}
MILD = {"crop_scale": (0.4, 1.0), "brightness": 0.2, "contrast": 0.2, "saturation": 0.2, "hue": 0.05, "grayscale": 0.0}
DAMAGE = {"crop_scale": (0.02, 0.1), "grayscale": 1.0, "rotate": 180.0}  # views that show next to nothing
CASES: dict[str, tuple[str, float, dict[str, Any], dict[str, Any]]] = {  # method, length, settings, augmentation
    "simclr": ("simclr", 1.0, {}, MILD),
    "simclr, learning rate 0.3": ("simclr", 0.7, {"lr": 0.3}, MILD),
    "simclr, crops of 2 to 10 %": ("simclr", 1.0, {}, DAMAGE),
    "byol without predictor": ("byol", 0.7, {"lr": 3e-3, "predictor": False}, MILD),
    "frossl": ("frossl", 1.0, {}, MILD),
    "simclr, twice as long, learning rate 0.01": ("simclr", 2.0, {"lr": 1e-2}, MILD),
    "init, simclr, learning rate 0.03": ("simclr", 0.7, {"lr": 0.03}, MILD),
    "init, simclr, learning rate 0.0001": ("simclr", 0.7, {"lr": 1e-4}, MILD),
    "init, simclr, crops of 2 to 10 %": ("simclr", 0.7, {}, DAMAGE),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("build/verdicts"))
    parser.add_argument("--folders", default=",".join(SIZES))
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--record", type=Path)
    return parser.parse_args()


def main() -> None:
    given = arguments()
    machine = {"processor": platform.machine(), "cores": os.cpu_count(), "torch": torch.__version__}
    rows: list[dict[str, Any]] = []
    for folder in given.folders.split(","):
        write(folder, given.sources, given.work / folder)
        for case in given.cases:
            rows.append(judged(folder, case, given.work))
            print(rows[-1], flush=True)
            if given.record is not None:
                given.record.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


def write(folder: str, sources: Path, work: Path) -> None:
    """Write the training images and the others as two folders, unless they exist."""
    if work.exists():
        return
    generator = np.random.default_rng(7)
    train, test = FOLDERS[folder](sources, generator)
    every = Pictures(*(one + other for one, other in zip(vars(train).values(), vars(test).values(), strict=True)))
    every = Pictures(every.classes, [f"{row}-{name}" for row, name in enumerate(every.names)], every.pictures)
    order, images = generator.permutation(len(every)), SIZES[folder][1]
    every.some(order[:images]).write(work / "train")
    every.some(order[images : images + EVALUATED]).write(work / "test")


def judged(folder: str, case: str, work: Path) -> dict[str, Any]:
    """Train a run, and return both answers and what they rest on."""
    method, length, settings, augment = CASES[case]
    side, images = SIZES[folder]
    start = work / f"{folder}.safetensors"
    keys: dict[str, Any] = GOOD | settings | {f"augment.{name}": value for name, value in augment.items()}
    keys |= {"image_size": side, "epochs": max(2, round(length * STEPS / (images // GOOD["batch_size"])))}  # type: ignore[operator]
    if folder in ("digits", "mnist-2000"):
        keys |= {"augment.flip": 0.0, "augment.grayscale": 0.0}
    if case.startswith("init"):
        keys |= {"init": str(start), "recipe": "scratch"}
        del keys["encoder"]
    config, source = pretrain.configure(str(work / folder), method, keys)
    config, weights = pretrain.with_weights(config)
    display = Display(quiet=True)
    trainer = Trainer(config, pretrain.read_data(config, source, display), display, None, weights)
    before = BEFORE if weights is not None else UNTRAINED
    networks = {before: trainer.untrained if trainer.before is None else trainer.before}
    trainer.method.train()
    while trainer.step < trainer.total_steps:
        trainer.take_step(trainer.step)
        trainer.step += 1
    networks["trained"] = trainer.method.encoder
    if case == next(iter(CASES)):
        save_encoder(start, trainer.method.encoder, trainer.description())
    splits = labelled_splits(trainer.data)
    assert splits is not None
    features = {
        name: (trainer.features(splits.train, net), trainer.features(splits.test, net))
        for name, net in networks.items()
    }
    measured = measure_accuracies(features, splits.train_labels, splits.test_labels, classes=len(splits.classes))
    scores = {name: score_encoder(trainer, network) for name, network in networks.items()}
    facts = {"steps": trainer.step, "test_images": len(splits.test)}
    return {
        "folder": folder,
        "case": case,
        "labels": judge_by_labels(compare_accuracies({each.row.name: each.correct for each in measured}), **facts).kind,
        "views": judge_by_views(scores, **facts).kind,
        "linear": [100 * each.row.linear_accuracy for each in measured],
        "knn": [100 * each.row.knn_accuracy for each in measured],
        "view_retrieval": [scores[name].mean for name in networks],
        "effective_rank": [scores[name].rank for name in networks],
        **facts,
    }


if __name__ == "__main__":
    main()
