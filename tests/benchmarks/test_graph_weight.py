"""The default weight of graph-vicreg is the best one of the measurement that its page names."""

import json
from pathlib import Path

import pytest

from twofold.config import resolve
from twofold.methods import schema

ROOT = Path(__file__).parents[2]
MEASURED = json.loads((ROOT / "benchmarks/results/graph-weight-h200-2026-11-19.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("data", ["digits", "cifar10-5k"])
@pytest.mark.parametrize("measure", ["linear_accuracy", "few_labels_accuracy", "knn_accuracy"])
def test_default_weight_has_the_highest_mean_accuracy(data: str, measure: str) -> None:
    sums: dict[float, float] = {}
    for row in MEASURED["rows"]:
        if row["data"] == data:
            sums[row["weight"]] = sums.get(row["weight"], 0.0) + row[measure]
    default = resolve(schema("graph-vicreg"), {}).parameters["weight"]
    assert default == max(sums, key=lambda weight: sums[weight])
