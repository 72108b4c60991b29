"""The communication between processes in a training step, so that each computes the loss of the whole batch."""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from twofold import dist
from twofold.methods import Method
from twofold.objectives import Moments
from twofold.train.observers import Observers
from twofold.types import Batch, Embeddings, LossTerms

Shares = Callable[[int, torch.device], dist.Shares]  # (batch size, device)


class NoExchange:
    """Does nothing: used instead of `Exchange` by a single process, which has the whole batch."""

    samples = None

    def __init__(self, method: Method):
        self.method = method

    def begin(self, size: int) -> None: ...

    def gather_batch(self, own: Embeddings, batch: Batch) -> tuple[Embeddings, Batch]:
        return own, batch

    def loss(self, embeddings: Embeddings) -> LossTerms:
        return self.method.objective(embeddings)

    def sum_gradients(self) -> None: ...


class Exchange:
    """Used in each step in this order: `begin`, `gather_batch`, `loss`, and after the backward pass `sum_gradients`.

    The processes gather their embeddings. If the objective is a function of moments and these are fewer numbers, the
    processes add up their moments instead and keep their embeddings.
    """

    def __init__(self, method: Method, shares: Shares, batch_size: int, views: int, observers: Observers):
        self.method, self.shares = method, shares
        self.size = batch_size
        self.of_moments = method.of_moments
        if self.of_moments is not None:
            K, D = (len(observers.spectra[name].covariance) for name in ("features", "embeddings"))
            probe = 0 if observers.probe is None else observers.probe.weight.numel()
            # A sum over all processes sends each number twice: to be added, and as part of the result.
            added = 2 * (self.of_moments.matrices * D**2 + D**2 + K**2 + probe)
            if views * batch_size * (D + K) <= added:
                self.of_moments = None

    def begin(self, size: int) -> None:
        """Start a step whose batch has `size` samples."""
        self.size = size

    def gather_batch(self, own: Embeddings, batch: Batch) -> tuple[Embeddings, Batch]:
        """Gather the samples of all processes and prepare the method for its loss, unless moments are exchanged."""
        if self.of_moments is not None:
            return own, batch
        gather = self.shares(self.size, batch.index.device).gather
        index, labels = gather(batch.index), None if batch.labels is None else gather(batch.labels)
        embeddings = Embeddings(
            features=gather(own.features, 1),
            z=gather(own.z, 1),
            index=index,
            prediction=None if own.prediction is None else gather(own.prediction, 1),
            target=None if own.target is None else gather(own.target, 1),
        )
        self.method.prepare(embeddings.z)
        return embeddings, dataclasses.replace(batch, index=index, labels=labels)

    @property
    def samples(self) -> int | None:
        """The number of samples of all processes if observers see only a share of them, otherwise None."""
        return None if self.of_moments is None else self.size

    def loss(self, embeddings: Embeddings) -> LossTerms:
        if self.of_moments is None:
            return self.method.objective(embeddings)
        own = self.of_moments.statistics(embeddings.z)
        mean = dist.sum_(own.mean_VD.detach() * (own.count / self.size), "moments")
        parts = vars(own.about(self.size, mean))
        added = {name: value for name, value in parts.items() if isinstance(value, Tensor) and name != "mean_VD"}
        sums = dict(zip(added, dist.add_up(list(added.values())), strict=True))
        return self.of_moments.loss(Moments(**parts | sums))

    def sum_gradients(self) -> None:
        dist.sum_gradients(*self.method.gradients())
