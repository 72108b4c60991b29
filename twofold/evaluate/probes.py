"""How much of the labels a frozen representation gives away: linear probe, few labels, nearest neighbours.

n rows, K features, C classes. Random choices are counter hashes of the row number, so every representation of the same
rows meets the same labelled subsets: differences between representations are paired.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from twofold.counter import key
from twofold.data.source import Data
from twofold.data.store import ImageStore
from twofold.evaluate.linear import SOLVERS, agreement, fit_linear, probe_labels, ranked, shuffled_by_class
from twofold.evaluate.neighbours import nearest_rows, unit

LABELS_PER_CLASS = 10


@dataclass(frozen=True)
class Scores:
    """How well classes are told apart on test rows."""

    top1: float
    top5: float | None  # None where there are no more than five classes
    per_class: list[float | None]  # top1 of each class; None where it has no test row
    confusion: list[list[int]]  # [true class][predicted class]


@dataclass(frozen=True)
class Row:
    """One line of the table that sets representations side by side."""

    name: str
    linear_accuracy: float
    few_labels_accuracy: float | None  # None, as the next two, where so few labels are all that there are
    few_labels_sd: float | None
    labels_per_class: int | None  # of the few
    knn_accuracy: float


@dataclass(frozen=True, eq=False)
class LabelledSplits:
    """The images that a probe is fitted to and tested on: those of each split that have a label."""

    train: ImageStore
    test: ImageStore
    train_labels: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]


def labelled_splits(data: Data) -> LabelledSplits | None:
    """None of data that no probe can be fitted to or tested on."""
    train, test = data.train.labelled(), None if data.test is None else data.test.labelled()
    if data.classes is None or train.labels is None or test is None or test.labels is None or not len(test):
        return None
    return LabelledSplits(train, test, train.labels, test.labels, data.classes)


def is_few(labels: Tensor, labels_per_class: int) -> bool:
    """Whether some class has more labels than that; else a probe of so few is the probe of all of them."""
    return int(labels.unique(return_counts=True)[1].max()) > labels_per_class


def labelled_subset(labels: Tensor, labels_per_class: int, *, subset: int, seed: int = 0) -> Tensor:
    """Rows of the subset with this number, ascending: of each class that many, or all where it has fewer."""
    rows = torch.arange(len(labels), device=labels.device)
    order = shuffled_by_class(labels, key(seed, "labelled subset", subset, rows))
    _, sizes = labels[order].unique_consecutive(return_counts=True)
    first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    return order[rows - first < labels_per_class].sort().values


def scores(ranked_classes: Tensor, labels: Tensor, *, classes: int) -> Scores:
    """Of classes named for each row `[n, at most 5]`, the prediction first; −1 names none."""
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
    """Of the linear probe fitted to the training rows by a solver of that name."""
    probe = SOLVERS[solver](train_features, train_labels, classes=classes)
    return scores(probe.ranked(test_features), test_labels, classes=classes)


def linear_accuracy(
    train_features: Tensor, train_labels: Tensor, test_features: Tensor, test_labels: Tensor, *, classes: int
) -> float:
    """Test accuracy of the linear probe fitted to the training rows, its penalty chosen on them alone."""
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
    """Mean and standard deviation (n − 1; 0 for one subset) of `linear_accuracy` over random labelled subsets."""
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
    """The classes `[n, min(C, 5)]` with most votes of the k training rows of highest cosine similarity s (all of them
    where there are fewer), a vote's weight being exp(s/τ); −1 where no neighbour is left to vote.

    Exact; on the device of the training features, which may lie in a mapped file. Beside the features it holds about
    block·(block + 2K + 2k + 3C) numbers.
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
    """The first of `knn_ranked`."""
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
    """Test accuracy of `knn_predict`."""
    predicted = knn_predict(train_features, train_labels, test_features, k=k, temperature=temperature, block=block)
    return agreement(predicted, test_labels)


def measure_accuracies(
    representations: Mapping[str, tuple[Tensor, Tensor]], train_labels: Tensor, test_labels: Tensor, *, classes: int
) -> list[Row]:
    """Every number of the table for each representation: name → (training features, test features), rows aligned."""
    labels_per_class = LABELS_PER_CLASS if is_few(train_labels, LABELS_PER_CLASS) else None
    rows = []
    for name, (train, test) in representations.items():
        data = (train, train_labels, test, test_labels)
        linear = linear_accuracy(*data, classes=classes)
        mean, sd = few_label_accuracy(*data, classes=classes) if labels_per_class else (None, None)
        rows.append(Row(name, linear, mean, sd, labels_per_class, knn_accuracy(*data)))
    return rows
