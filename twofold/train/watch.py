"""Records the spectrum at log points and updates the verdict on the run. `Trainer.log` calls it."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from twofold.errors import Diverged
from twofold.evaluate.metrics import effective_rank, eigenvalues, eigenvector_alignment, widened
from twofold.evaluate.verdict import LASTING, Snapshot, Verdict, judge, not_finite, snapshots
from twofold.models import DirectPredictor
from twofold.runs.folder import RunFolder
from twofold.train.observers import Observers

# These and 10, 100, … times these are the epochs at which the online probe is evaluated on held-out images.
ONLINE_EPOCHS = (1, 2, 3, 5, 7)


def spectra(observers: Observers, direct: DirectPredictor | None) -> tuple[dict[str, Tensor], dict[str, float]]:
    """The current eigenvalues, and metrics computed from them. The host waits for the device.

    `predictor` has the covariance of a trained predictor's output, or the matrix of a closed-form predictor.
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


def record_spectrum(
    folder: RunFolder, step: int, observers: Observers, direct: DirectPredictor | None
) -> tuple[list[float], dict[str, float]]:
    """Write all spectra; return the eigenvalues of the embeddings as written, and metrics of all spectra."""
    found, measured = spectra(observers, direct)
    rounded = {name: [float(f"{value:.5g}") for value in values.tolist()] for name, values in found.items()}
    for name, values in rounded.items():
        folder.append("spectrum.jsonl", {"step": step, "of": name, "eigenvalues": values})
    return rounded["embeddings"], measured


def refuse_nonfinite(folder: RunFolder, step: int, broken: Mapping[str, int], lr: float) -> None:
    """Raise `Diverged` if a value is not finite. `broken` has such values, and how many steps ago they began."""
    if broken:
        oldest = max(broken.values())
        names = [name for name, ago in broken.items() if ago == oldest]
        # Terms of the loss show the cause. Other metrics of broken embeddings are not finite, either.
        verdict = not_finite(step - oldest, [name for name in names if name.startswith("loss/")] or names)
        folder.log(f"step {step} · {verdict.sentence}")
        raise Diverged(
            verdict.sentence,
            f"{verdict.remedy} The learning rate is {lr:g}. Earlier checkpoints are intact in {folder.path}",
        )


class Watch:
    """What the verdict depends on. All of it is in the records, so that a resumed run reaches the same verdict."""

    def __init__(self, **known: Any):
        self.known = known  # facts about the run, as arguments of `judge`
        self.snapshots: list[Snapshot] = []
        self.metrics: list[Mapping[str, Any]] = []
        self.verdict = judge(self.snapshots)
        self.warned = ""  # the kind of bad verdict that was reported, while it lasts

    def restore(self, folder: RunFolder) -> None:
        self.metrics = list(folder.read("metrics.jsonl"))
        self.snapshots = snapshots(folder.read("spectrum.jsonl"), self.metrics)
        self.verdict = self.judged()
        self.warned = self.lasting_kind()

    def note(self, line: Mapping[str, Any], eigenvalues: list[float] | None) -> Verdict | None:
        """Add a line of metrics and, if there is one, a spectrum; return the verdict if it has just turned bad."""
        self.metrics.append(line)
        if eigenvalues is not None:
            self.snapshots.append(Snapshot.of(torch.tensor(eigenvalues), line))
        before = self.warned
        self.verdict = self.judged()
        self.warned = self.lasting_kind()
        return self.verdict if self.warned not in ("", before) else None

    def lasting_kind(self) -> str:
        """The kind of the verdict if it is bad and rests on enough snapshots, otherwise ""."""
        return self.verdict.kind if self.verdict.bad and len(self.snapshots) >= LASTING else ""

    def judged(self) -> Verdict:
        return judge(self.snapshots, self.metrics, **self.known)


def is_online_epoch(epoch: float, epochs: int) -> bool:
    """Whether the online probe is evaluated at this epoch: 1, 2, 3, 5, 7, 10, 20, 30, 50, …, and the last."""
    if epoch != int(epoch):
        return False
    digits = str(int(epoch))
    return epoch == epochs or (int(digits[0]) in ONLINE_EPOCHS and set(digits[1:]) <= {"0"})
