"""The columns of tables: which number each reads from the record of a run. It is None if the record lacks it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from twofold.evaluate import metrics
from twofold_papers.reproduce.record import Record


@dataclass(frozen=True)
class Column:
    title: str
    read: Callable[[Record], float | None]
    form: str = ".2f"  # the format of the mean over seeds and of the standard deviation


def _of_trained(record: Record, key: str) -> float | None:
    rows = [row for row in record["results"]["table"] if row["name"] == "trained"]
    return 100 * rows[0][key] if rows else None


LINEAR = Column("linear accuracy, %", lambda record: _of_trained(record, "linear_accuracy"))
KNN = Column("kNN accuracy, %", lambda record: _of_trained(record, "knn_accuracy"))


def _online(record: Record, epoch: int | None) -> float | None:
    by_epoch = {float(key): value for key, value in record["online_accuracy"].items()}
    value = by_epoch.get(float(record["config"]["values"]["epochs"] if epoch is None else epoch))
    return None if value is None else 100 * value


ONLINE = Column("online accuracy, %", lambda record: _online(record, None))


def online_at(epoch: int) -> Column:
    return Column(f"online, epoch {epoch}, %", lambda record: _online(record, epoch))


def probed(name: str, title: str) -> Column:
    """The accuracy of the probe of this name, in %."""

    def read(record: Record) -> float | None:
        value = record.get("probes", {}).get(name)
        return None if value is None else 100 * value

    return Column(title, read)


FEW_LABELS = Column(
    "linear accuracy, 10 labels per class, %", lambda record: _of_trained(record, "few_labels_accuracy")
)


def alignment_of(first: int, last: int) -> Column:
    """The mean cosine of u and W_P u over eigenvectors u, from the rank `first` to the rank `last`."""

    def read(record: Record) -> float | None:
        values = record.get("probes", {}).get("alignment")
        return None if values is None else float(np.mean(values[first - 1 : last]))

    return Column(f"cosine of u and W u, u {first} to {last}", read)


EFFECTIVE_RANK = Column(
    "effective rank", lambda record: None if record.get("failed") else record["last"].get("effective_rank"), ".1f"
)
MEMORY = Column("memory, MiB", lambda record: record["results"].get("memory"), ",.0f")
MINUTES = Column("minutes, with evaluation", lambda record: record["seconds"] / 60)


def _spectrum(record: Record) -> dict[str, Any] | None:
    """The spectrum; None for old records, which have none, and for failed runs, whose spectrum is not the final one."""
    return None if record.get("failed") else record.get("spectrum") or None


def _last(name: str) -> Callable[[Record], float | None]:
    def read(record: Record) -> float | None:
        spectrum = _spectrum(record)
        return None if spectrum is None else spectrum[name][-1]

    return read


ENTROPY = Column("Shannon entropy", _last("entropy"))
DISTINCT = Column("distinct features", _last("above_a_hundredth"), ".0f")


def whole_spectrum(record: Record) -> Tensor | None:
    """All eigenvalues at the end. A record keeps some of them; the others are interpolated on log scales."""
    spectrum = _spectrum(record)
    if spectrum is None:
        return None
    kept = {int(rank): values[-1] for rank, values in spectrum["eigenvalues"].items()}
    logs = np.log(np.maximum(list(kept.values()), np.finfo(float).tiny))
    ranks = np.arange(1, spectrum["dimension"] + 1)
    return torch.from_numpy(np.exp(np.interp(np.log(ranks), np.log(list(kept)), logs)))


def distinct_uncentred(record: Record) -> tuple[int, int] | None:
    """Bounds on the number of singular values above a tenth of the largest, for embeddings that are not centred.

    With the mean μ, E[zzᵀ] is the covariance plus μμᵀ, and |μ|² = E|z|² minus the trace of the covariance. The k-th
    eigenvalue of E[zzᵀ] is between the k-th and the (k−1)-th of the covariance, the first one between max(|μ|², λ1)
    and |μ|² + λ1.
    """
    covariance = whole_spectrum(record)
    if covariance is None:
        return None
    mean = max(record["last"]["embedding_norm"] ** 2 - covariance.sum().item(), 0.0)
    first = covariance[0].item()
    least = int((covariance >= (mean + first) / 100).sum())
    most = int((covariance > max(mean, first) / 100).sum()) + (mean > 0)
    return max(least, 1), min(most, len(covariance))


def _uncentred(record: Record) -> float | None:
    bounds = distinct_uncentred(record)
    return None if bounds is None else sum(bounds) / 2


UNCENTRED = Column("distinct features, not centred", _uncentred, ".0f")


def largest(record: Record) -> float | None:
    spectrum = _spectrum(record)
    return None if spectrum is None else spectrum["eigenvalues"]["1"][-1]


LARGEST = Column("largest eigenvalue", largest, ".3g")


def _eigenvalue(record: Record, rank: int) -> list[float] | None:
    spectrum = _spectrum(record)
    return None if spectrum is None else spectrum["eigenvalues"].get(str(rank))


def condition_number(rank: int) -> Column:
    def read(record: Record) -> float | None:
        first, last = _eigenvalue(record, 1), _eigenvalue(record, rank)
        return None if first is None or last is None or last[-1] <= 0 else first[-1] / last[-1]

    return Column(f"λ1/λ{rank}", read)


def saturation_step(rank: int) -> Column:
    def read(record: Record) -> float | None:
        values = _eigenvalue(record, rank)
        return None if values is None else metrics.saturation_step(record["spectrum"]["step"], values)

    return Column(f"saturation of λ{rank}, step", read, ".0f")
