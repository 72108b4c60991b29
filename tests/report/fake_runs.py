"""Run folders with made-up but plausible numbers, and the JSON object of their pages."""

import json
import math
from pathlib import Path
from typing import Any

import torch

from twofold.report.pictures import sheet
from twofold.runs.folder import RunFolder

TABLE = [
    {
        "name": name,
        "linear_accuracy": linear,
        "few_labels_accuracy": few,
        "few_labels_sd": 0.0123,
        "labels_per_class": 10,
        "knn_accuracy": knn,
    }
    for name, linear, few, knn in (
        ("trained", 0.97149, 0.9213, 0.9612),
        ("untrained", 0.9301, 0.8011, 0.9001),
        ("raw pixels", 0.9549, 0.8502, 0.9708),
    )
]
RESULTS = {
    "table": TABLE,
    "train_images": 1437,
    "test_images": 360,
    "seconds": 71.3,
    "command": "twofold pretrain digits --method frossl epochs=40",
    "versions": {"twofold": "0.1.0", "torch": "2.13.0", "python": "3.11.2"},
    "device": "cpu",
}


VERDICT = {
    "kind": "dimensional collapse",
    "sentence": "The embeddings use 3 of 128 dimensions.",
    "evidence": ["effective rank 3.1 of 128", "since step 24"],
    "remedy": "Try a larger variance weight.",
}


def steps_of(total: int) -> list[int]:
    return sorted({round(total ** (i / 63)) for i in range(64)} | set(range(12, total + 1, 12)))


def spectrum(size: int, step: int, speed: float) -> list[float]:
    """Return a power law that becomes flatter over the steps, first for the largest eigenvalues."""
    grown = [1 / (1 + (rank / speed) ** 2 / step) for rank in range(1, size + 1)]
    return [3 * value * rank**-0.7 + 1e-9 for rank, value in enumerate(grown, start=1)]


def fake_run(path: Path, *, epochs: int = 40, done: int = 480, labels: bool = True, **values: Any) -> RunFolder:
    """Create a run of 12 steps per epoch that was stopped after `done` steps."""
    values = {
        "data": "digits",
        "method": "frossl",
        "epochs": epochs,
        "seed": 7,
        "lr": 0.1,
        "betas": [0.9, 0.999],
    } | values
    config = {"format": 1, "values": values, "origin": {"epochs": "user", "lr": "method", "data": "user"}}
    folder = RunFolder.create(path, json.dumps(config | {"derived": {"scaled_lr": 0.05}}))
    for step in [step for step in steps_of(epochs * 12) if step <= done]:
        variance, invariance = -4 - math.log(step), 0.8 / (1 + step / 40)
        record = {"step": step, "epoch": step / 12, "loss": variance + invariance}
        record |= {"loss/variance": variance, "loss/invariance": invariance}
        if labels:
            record["online_train_accuracy"] = 1 - 0.9 / (1 + step / 30)
            if step % 60 == 0:
                record["online_accuracy"] = 0.99 - 0.9 / (1 + step / 25)
        for of, size in (("features", 64), ("embeddings", 128)):
            eigenvalues = spectrum(size, step, 2 if of == "features" else 4)
            folder.append("spectrum.jsonl", {"step": step, "of": of, "eigenvalues": eigenvalues})
        record |= {"effective_rank": 2 + step**0.6, "features_effective_rank": 3 + step**0.4}
        folder.append("metrics.jsonl", record)
        folder.append("timing.jsonl", {"step": step, "seconds": 0.1 * step, "images_per_second": 2560.0})
    return folder


def finished_run(path: Path, **changes: Any) -> RunFolder:
    folder = fake_run(path, **changes)
    folder.write("results.json", json.dumps(RESULTS))
    return folder


def fake_pictures(points: int = 40, classes: int | None = 4) -> dict[str, Any]:
    """Return pictures: a map whose points form a spiral that ends at (1, 0). The picture of image i has the shade i."""
    tiles = torch.arange(points, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 8, 8)

    def about(rows: list[int]) -> dict[str, list[Any]]:
        labels = [None if classes is None else row % classes for row in rows]
        return {
            "index": rows,
            "held_out": [row % 2 for row in rows],
            "labels": labels,
            "names": [f"{row}.png" for row in rows],
        }

    turns = [i / (points - 1) * 4 * math.pi for i in range(points)]
    spiral = {
        "x": [math.cos(turn) * (i + 1) / points for i, turn in enumerate(turns)],
        "y": [0.6 * math.sin(turn) * (i + 1) / points for i, turn in enumerate(turns)],
    }
    rows = [(query + step) % points for query in range(12) for step in (0, 4, 8, 9)]
    return {
        "format": 1,
        "classes": None if classes is None else [f"kind {label}" for label in range(classes)],
        "channels": 3,
        "views": {"images": 6, "views": 2, "small_crops": 0, "sheet": sheet(tiles[:18])},
        "neighbours": {
            "among": points,
            "each": 3,
            "similarity": [0.5] * 48,
            "agreeing_by_pixels": 11,
            **about(rows),
            "sheet": sheet(tiles[rows]),
        },
        "map": spiral | {"perplexity": 13.0, "divergence": 0.5, **about(list(range(points))), "sheet": sheet(tiles)},
    }


def pictured_run(path: Path, *, classes: int | None = 4, **changes: Any) -> RunFolder:
    folder = finished_run(path, **changes)
    folder.write("pictures.json", json.dumps(fake_pictures(classes=classes)))
    return folder


def blob(html: str) -> dict[str, Any]:
    """Return the JSON as a browser reads it: up to the first end tag of a script element."""
    text = html.split('<script type="application/json" id="charts">')[1].split("</script")[0]
    return json.loads(text)
