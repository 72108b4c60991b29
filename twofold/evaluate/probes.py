"""Accuracies of frozen representations: linear probe, linear probe with few labels, and nearest neighbours.

Shapes: n rows, K features, C classes. Random choices are hashes of the row number. So all representations of the same
rows use the same labelled subsets, and their accuracies can be compared pair by pair.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from twofold.counter import key
from twofold.data.source import Data
from twofold.data.store import ImageStore
from twofold.evaluate.linear import agreement, fit_linear, probe_labels, ranked, shuffled_by_class
from twofold.evaluate.neighbours import nearest_rows, unit
from twofold.evaluate.protocols import SOLVERS

LABELS_PER_CLASS = 10


@dataclass(frozen=True)
class Scores:
    """Accuracies of a classifier on test rows."""

    top1: float
    top5: float | None  # None with five classes or fewer
    per_class: list[float | None]  # top-1 accuracy of each class; None if it has no test row
    confusion: list[list[int]]  # [true class][predicted class]


@dataclass(frozen=True)
class Row:
    """A row of the table that compares representations."""

    name: str
    linear_accuracy: float
    few_labels_accuracy: float | None  # this and the next two are None if no class has more labels than that
    few_labels_sd: float | None
    labels_per_class: int | None  # how many labels `few_labels_accuracy` uses
    knn_accuracy: float


@dataclass(frozen=True, eq=False)
class Measured:
    """The accuracies of a representation, and which test images it classifies correctly."""

    row: Row
    correct: dict[str, Tensor]  # `linear_accuracy` and `knn_accuracy`: bool [n], on the CPU


@dataclass(frozen=True, eq=False)
class LabelledSplits:
    """The labelled images of both splits: a probe is fitted to `train` and tested on `test`."""

    train: ImageStore
    test: ImageStore
    train_labels: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]


def labelled_splits(data: Data) -> LabelledSplits | None:
    """Return the labelled images of both splits, or None if one of them has none."""
    train, test = data.train.labelled(), None if data.test is None else data.test.labelled()
    if data.classes is None or train.labels is None or test is None or test.labels is None or not len(test):
        return None
    return LabelledSplits(train, test, train.labels, test.labels, data.classes)


def is_few(labels: Tensor, labels_per_class: int) -> bool:
    """Return whether some class has more labels than that. If not, a probe with few labels uses all labels."""
    return int(labels.unique(return_counts=True)[1].max()) > labels_per_class


def labelled_subset(labels: Tensor, labels_per_class: int, *, subset: int, seed: int = 0) -> Tensor:
    """Return the rows of a random labelled subset, ascending.

    It has `labels_per_class` rows of each class, or all rows of a class that has fewer. `subset` is its number.
    """
    rows = torch.arange(len(labels), device=labels.device)
    order = shuffled_by_class(labels, key(seed, "labelled subset", subset, rows))
    _, sizes = labels[order].unique_consecutive(return_counts=True)
    first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    return order[rows - first < labels_per_class].sort().values


def scores(ranked_classes: Tensor, labels: Tensor, *, classes: int) -> Scores:
    """Return the scores of ranked classes `[n, at most 5]`, the prediction first. −1 means no class."""
    labels = labels.to(ranked_classes.device)
    right = ranked_classes == labels.unsqueeze(1)
    confusion = torch.bincount(labels * classes + ranked_classes[:, 0], minlength=classes**2).view(classes, classes)
    rows = confusion.sum(1).tolist()
    return Scores(
        right[:, 0].double().mean().item(),
        right.any(1).double().mean().item() if classes > 5 else None,
        [hits / count if count else None for hits, count in zip(confusion.diagonal().tolist(), rows, strict=True)],
        confusion.tolist(),
    )


def linear_scores(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    *,
    classes: int,
    solver: str = "lbfgs",
) -> Scores:
    """Fit a linear probe to the training rows with the named solver and return its scores on the test rows."""
    probe = SOLVERS[solver](train_features, train_labels, classes=classes)
    return scores(probe.ranked(test_features), test_labels, classes=classes)


def linear_accuracy(
    train_features: Tensor, train_labels: Tensor, test_features: Tensor, test_labels: Tensor, *, classes: int
) -> float:
    """Return the test accuracy of a linear probe, whose fit and penalty depend on the training rows only."""
    return fit_linear(train_features, train_labels, classes=classes).accuracy(test_features, test_labels)


def few_label_accuracy(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    *,
    classes: int,
    labels_per_class: int = LABELS_PER_CLASS,
    subsets: int = 5,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the mean and the standard deviation of `linear_accuracy` over random labelled subsets.

    The standard deviation has n − 1 in its denominator and is 0 for a single subset.
    """
    train_labels = train_labels.to(train_features.device)
    accuracies = []
    for subset in range(subsets):
        rows = labelled_subset(train_labels, labels_per_class, subset=subset, seed=seed)
        accuracies.append(
            linear_accuracy(train_features[rows], train_labels[rows], test_features, test_labels, classes=classes)
        )
    return statistics.mean(accuracies), statistics.stdev(accuracies) if subsets > 1 else 0.0


@torch.no_grad()
def knn_ranked(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    *,
    k: int = 20,
    temperature: float = 0.07,
    block: int = 4096,
) -> Tensor:
    """Rank classes by the votes of the k training rows with the highest cosine similarity s; a vote weighs exp(s/τ).

    The search is exact and runs on the device of the training features, which may be a memory-mapped file. It needs
    memory for about block·(block + 2K + 2k + 3C) numbers in addition to the features.

    Parameters
    ----------
    train_features : Tensor
        Features `[m, K]` of the training rows.
    train_labels : Tensor
        Their labels `[m]`.
    test_features : Tensor
        Features `[n, K]` of the test rows.
    k : int
        The number of neighbours; all training rows if there are fewer.
    temperature : float
        τ, which weighs the votes.
    block : int
        The number of rows that are compared at a time.

    Returns
    -------
    Tensor
        Classes `[n, min(C, 5)]`, most votes first; −1 after the last class that has votes.
    """
    classes = int(train_labels.max()) + 1
    labels = probe_labels(train_features, train_labels, classes)
    named = []
    for queries in test_features.split(block):
        query = unit(queries.to(train_features.device))
        similarity, neighbour = nearest_rows(query, train_features, min(k, len(labels)), block)
        weight = ((similarity - similarity[:, :1]).double() / temperature).exp()
        votes = weight.new_zeros(len(query), classes).scatter_add_(1, labels[neighbour], weight)
        best = ranked(votes)
        named.append(best.masked_fill(votes.gather(1, best) == 0, -1))
    return torch.cat(named)


def knn_predict(train_features: Tensor, train_labels: Tensor, test_features: Tensor, **options: float) -> Tensor:
    """Return the classes with the most votes `[n]`; see `knn_ranked`."""
    return knn_ranked(train_features, train_labels, test_features, **options)[:, 0]  # type: ignore[arg-type]


def knn_accuracy(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    *,
    k: int = 20,
    temperature: float = 0.07,
    block: int = 4096,
) -> float:
    """Return the test accuracy of a vote of the `k` nearest training rows.

    A neighbour with cosine similarity s has a vote of weight exp(s / temperature). Twofold compares `block` rows at a
    time.
    """
    predicted = knn_predict(train_features, train_labels, test_features, k=k, temperature=temperature, block=block)
    return agreement(predicted, test_labels)


def measure_accuracies(
    representations: Mapping[str, tuple[Tensor, Tensor]], train_labels: Tensor, test_labels: Tensor, *, classes: int
) -> list[Measured]:
    """Measure the accuracies of each representation.

    `representations` maps a name to training and test features, whose rows match the labels.
    """
    labels_per_class = LABELS_PER_CLASS if is_few(train_labels, LABELS_PER_CLASS) else None
    truth = test_labels.cpu()
    found = []
    for name, (train, test) in representations.items():
        data = (train, train_labels, test, test_labels)
        predicted = {
            "linear_accuracy": fit_linear(train, train_labels, classes=classes).predict(test),
            "knn_accuracy": knn_predict(train, train_labels, test),
        }
        mean, sd = few_label_accuracy(*data, classes=classes) if labels_per_class else (None, None)
        correct = {measure: named.cpu() == truth for measure, named in predicted.items()}
        linear, knn = (right.double().mean().item() for right in correct.values())
        found.append(Measured(Row(name, linear, mean, sd, labels_per_class, knn), correct))
    return found
