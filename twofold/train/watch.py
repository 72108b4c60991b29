"""The spectrum on the record, and the verdict on a run as it goes on."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from twofold.evaluate.metrics import effective_rank, eigenvalues, eigenvector_alignment, widened
from twofold.evaluate.verdict import Snapshot, Verdict, judge, snapshots
from twofold.models import DirectPredictor
from twofold.train.observers import Observers
from twofold.train.record import RunFolder


def spectra(observers: Observers, direct: DirectPredictor | None) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Eigenvalues now, and what is measured of them; waits for the device.

    `predictor` is the covariance of a trained predictor's output, or the matrix itself of a predictor in closed form.
    """
    covariances = {name: spectrum.read() for name, spectrum in observers.spectra.items()}
    moved = None if observers.predicted is None else observers.predicted.read()
    if direct is not None:
        covariances["predictor"] = moved = widened(direct.matrix())
    found = {name: eigenvalues(covariance) for name, covariance in covariances.items()}
    values = {
        "effective_rank": effective_rank(found["embeddings"]),
        "features_effective_rank": effective_rank(found["features"]),
    }
    if moved is not None:
        cosines, weights = eigenvector_alignment(moved, covariances["embeddings"])
        values["predictor_alignment"] = ((cosines * weights).sum() / weights.sum().clamp_min(1e-300)).item()
    return found, values


class Watch:
    """What a verdict is made of: all of it is in the records, so that a resumed run goes on where it was."""

    def __init__(self, few_dimensions: str):
        self.few_dimensions = few_dimensions
        self.seen: list[Snapshot] = []
        self.metrics: list[Mapping[str, Any]] = []
        self.verdict = judge(self.seen)

    def restore(self, folder: RunFolder) -> None:
        self.metrics = list(folder.read("metrics.jsonl"))
        self.seen = snapshots(folder.read("spectrum.jsonl"), self.metrics)
        self.verdict = judge(self.seen, self.metrics, few_dimensions=self.few_dimensions)

    def note(self, line: Mapping[str, Any], eigenvalues: list[float] | None) -> Verdict | None:
        """A line of metrics, and the embeddings' spectrum where there is one; the verdict if it has just turned bad."""
        self.metrics.append(line)
        if eigenvalues is not None:
            self.seen.append(Snapshot.of(torch.tensor(eigenvalues), line))
        before = self.verdict
        self.verdict = judge(self.seen, self.metrics, few_dimensions=self.few_dimensions)
        return self.verdict if self.verdict.bad and self.verdict.kind != before.kind else None
