"""`twofold knn` and `twofold.knn`: the vote of the nearest training images."""

import dataclasses
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from twofold.display import Display
from twofold.evaluate.probes import Scores, knn_ranked, scores
from twofold.keys import Count, Positive, checked
from twofold.runs.run import Run
from twofold.verbs.probing import load_probe_data, measure_all, with_description


def knn(
    run: str | Path | Run,
    data: Any = None,
    *,
    k: int = 20,
    temperature: float = 0.07,
    layer: str = "pre",
    encoder: nn.Module | None = None,
    display: Display | None = None,
) -> dict[str, Any]:
    """The vote of the k nearest training images, by cosine similarity s and with weight exp(s/temperature)."""
    k, temperature = checked("k", k, Count), checked("temperature", temperature, Positive)
    display = display or Display(quiet=True)
    probed = load_probe_data(run, data, layer, encoder, display)
    splits = probed.splits

    def measure(train: Tensor, test: Tensor) -> dict[str, Any]:
        named = knn_ranked(train, splits.train_labels, test, k=k, temperature=temperature)
        found: Scores = scores(named, splits.test_labels, classes=len(splits.classes))
        return dataclasses.asdict(found)

    measured = measure_all(probed, "finding neighbours", measure, display)
    return {"k": k, "temperature": temperature} | with_description(run, probed, layer, measured)
