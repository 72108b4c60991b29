"""How much of the labels a frozen representation gives away: linear probe, few labels, nearest neighbours.

n rows, K features, C classes, F problems solved side by side (the folds of a cross-validation).
Random choices are counter hashes of the row number, so every representation of the same rows meets the same folds and
the same labelled subsets: differences between representations are paired.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from twofold.counter import key, permutation
from twofold.errors import TwofoldError
from twofold.evaluate.neighbours import nearest, unit

PENALTIES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
FOLDS = 5
CROSS_VALIDATED = 2000  # rows up to which every fold is held out once; above, only the first (20 %)
DOUBLE = 2**22  # n·K up to which a probe is solved in float64; above, and to choose a penalty, in float32
ROUNDS, ITERATIONS = 10, 100  # of L-BFGS; each round measures the curvature anew
ALONE = 2**25  # n·K·5·C up to which one thread of the CPU does it: threads and kernels would mostly wait
LABELS_PER_CLASS = 10
SELECTION_SLACK = 30.0  # how much looser the gradient may be while a penalty is chosen
NEVER = -1e4  # bias of a class without training rows: its probability, and so its gradient, is exactly 0


@dataclass(frozen=True)
class LinearProbe:
    """A fitted linear classifier of standardised features."""

    mean: Tensor  # [K]
    scale: Tensor  # [K]
    weight: Tensor  # [K, C], for features less the mean, over the scale
    bias: Tensor  # [C]
    penalty: float
    held_out_accuracy: float | None  # of that penalty, on the held-out training rows; None when there was no choice

    def logits(self, features: Tensor) -> Tensor:
        return (features.to(self.weight) - self.mean) / self.scale @ self.weight + self.bias

    def predict(self, features: Tensor) -> Tensor:
        return self.logits(features).argmax(1)

    def accuracy(self, features: Tensor, labels: Tensor) -> float:
        return _agreement(self.predict(features), labels)


@dataclass(frozen=True)
class Row:
    """One line of the table that sets representations side by side."""

    name: str
    linear_accuracy: float
    few_labels_accuracy: float
    few_labels_sd: float
    labels_per_class: int  # of the few
    knn_accuracy: float


@torch.no_grad()
def fit_linear(
    features: Tensor,
    labels: Tensor,
    *,
    classes: int,
    penalties: Sequence[float] = PENALTIES,
    seed: int = 0,
    tolerance: float = 1e-5,
) -> LinearProbe:
    """Multinomial logistic regression: mean cross entropy + penalty/2 · ‖W‖², the bias free.

    Features are standardised by their mean and deviation over all training rows. Of several penalties, the one with
    the best accuracy on held-out training rows is taken, the stronger of equals: by stratified 5-fold cross-validation
    up to 2,000 rows, on one 20 % hold-out above. L-BFGS runs, in coordinates in which the curvature is about 1, until
    no entry of the gradient exceeds `tolerance`, for at most 1,000 iterations; in float64 up to n·K = 2²², above in
    float32 (while choosing: 30 times the tolerance, 100 iterations, float32). It works on the features' device unless
    the problem is so small that one CPU core is faster.
    """
    labels = _checked(features, labels, classes)
    if not penalties or min(penalties) <= 0:
        raise TwofoldError(f"penalties of a linear probe must be above 0, got {list(penalties)}; give at least one")
    dtype = torch.float64 if features.numel() <= DOUBLE else torch.float32
    alone = features.numel() * FOLDS * classes <= ALONE
    device = torch.device("cpu") if alone else features.device
    x, labels = features.to(device, dtype), labels.to(device)
    variance, mean = torch.var_mean(x, 0, correction=0)
    scale = torch.maximum(variance.sqrt(), 1e-6 * mean.abs())  # constant up to rounding: noise is not blown up
    scale = torch.where(scale > 0, scale, 1.0)
    with _one_thread(when=alone):
        x, axes = _principal((x - mean) / scale)
        if len(penalties) > 1:
            slack = SELECTION_SLACK * tolerance
            penalty, start, accuracy = _choose_penalty(x.float(), labels, classes, penalties, seed, slack)
        else:
            penalty, start, accuracy = penalties[0], x.new_zeros(x.shape[1], classes), None
        problem = _Problems(x, labels, torch.ones_like(labels).unsqueeze(1), classes)
        weight, bias = problem.solve(start.to(dtype).unsqueeze(1), problem.initial_bias(), penalty, tolerance)
    mean, scale, weight, bias = (t.to(features.device) for t in (mean, scale, axes @ weight[:, 0], bias[0]))
    return LinearProbe(mean, scale, weight, bias, penalty, accuracy)


def _principal(x: Tensor) -> tuple[Tensor, Tensor]:
    """`x` along its principal axes, and the axes `[K, min(n, K)]`: a rotation, which the penalty does not notice."""
    axes = None
    if len(x) < x.shape[1]:  # the weights stay in the span of the rows
        axes = torch.linalg.qr(x.T).Q
        x = x @ axes
    rotation = torch.linalg.eigh((x.T @ x).double()).eigenvectors.to(x.dtype)
    return x @ rotation, rotation if axes is None else axes @ rotation


class _Problems:
    """F logistic regressions on subsets of the same rows, solved as one: a few wide products beat many narrow ones."""

    def __init__(self, x: Tensor, labels: Tensor, member: Tensor, classes: int) -> None:
        self.x = x  # [n, K], columns uncorrelated
        self.variance = x.square().mean(0)  # [K]
        self.share = member.to(x.dtype) / member.sum(0).clamp(min=1)  # [n, F], each column sums to 1
        self.target = functional.one_hot(labels, classes).to(x.dtype)  # [n, C]

    def initial_bias(self) -> Tensor:
        rows = self.share.T @ self.target
        return torch.zeros_like(rows).masked_fill(rows == 0, NEVER)  # [F, C]

    def logits(self, weight: Tensor, bias: Tensor) -> Tensor:
        return (self.x @ weight.flatten(1)).view(len(self.x), *bias.shape) + bias  # [n, F, C]

    def solve(self, weight: Tensor, bias: Tensor, penalty: float, tolerance: float) -> tuple[Tensor, Tensor]:
        """Weights `[K, F, C]` and biases `[F, C]` at the minimum: rounds until one finds nothing left to do."""
        for _ in range(ROUNDS):
            weight, bias, iterations = self.descend(weight, bias, penalty, tolerance)
            if iterations == 0:
                break
        return weight, bias

    def descend(self, weight: Tensor, bias: Tensor, penalty: float, tolerance: float) -> tuple[Tensor, Tensor, int]:
        """One round of L-BFGS on `u` and `v`, in units of weight and bias along which the curvature is about 1."""
        curvature = self._curvature(weight, bias)
        weight_unit = (curvature * self.variance + penalty).rsqrt().view(-1, 1, 1)
        bias_unit = curvature.rsqrt()
        u, v = weight / weight_unit, bias / bias_unit

        def loss_and_gradient() -> Tensor:
            weight, bias = u * weight_unit, v * bias_unit
            log_p = self.logits(weight, bias).log_softmax(2)
            residual = (log_p.exp() - self.target.unsqueeze(1)) * self.share.unsqueeze(2)
            u.grad = ((self.x.T @ residual.flatten(1)).view_as(weight) + penalty * weight) * weight_unit
            v.grad = residual.sum(0) * bias_unit
            # The line search compares losses that differ in the last digits of a float32 sum.
            likelihood = (log_p.mul_(self.target.unsqueeze(1)).sum(2) * self.share).sum(dtype=torch.float64)
            return penalty / 2 * weight.square().sum(dtype=torch.float64) - likelihood

        optimizer = torch.optim.LBFGS(
            [u, v],
            max_iter=ITERATIONS,
            tolerance_grad=tolerance,
            tolerance_change=torch.finfo(u.dtype).eps / 100,
            history_size=10,
            line_search_fn="strong_wolfe",
        )
        optimizer.step(loss_and_gradient)
        return u * weight_unit, v * bias_unit, optimizer.state[u]["n_iter"]

    def _curvature(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Mean of p(1 − p): the second derivative of the loss along a column of x, over the column's variance."""
        p = self.logits(weight, bias).softmax(2)
        by_problem = ((p - p.square()).mean(2) * self.share).sum(0)
        return by_problem.mean().clamp(min=1e-6)


def _choose_penalty(
    x: Tensor, labels: Tensor, classes: int, penalties: Sequence[float], seed: int, tolerance: float
) -> tuple[float, Tensor, float]:
    """The penalty, weights `[K, C]` to start its fit to all rows from, and its held-out accuracy."""
    count = FOLDS if len(x) <= CROSS_VALIDATED else 1
    fold = stratified_folds(labels, seed=seed)
    held = (fold < count).nonzero().squeeze(1)
    problems = _Problems(x, labels, fold.unsqueeze(1) != torch.arange(count, device=x.device), classes)
    weight, bias = x.new_zeros(x.shape[1], count, classes), problems.initial_bias()
    best: tuple[float, Tensor, float] | None = None
    for penalty in sorted(penalties, reverse=True):
        weight, bias, _ = problems.descend(weight, bias, penalty, tolerance)
        predicted = problems.logits(weight, bias).argmax(2)[held, fold[held]]
        accuracy = _agreement(predicted, labels[held])
        if best is None or accuracy > best[2]:
            best = penalty, weight.mean(1), accuracy
    assert best is not None
    return best


def stratified_folds(labels: Tensor, *, seed: int = 0) -> Tensor:
    """A fold from 0 to 4 for each row, by a hash of the row number; every class is spread evenly."""
    order = _shuffled_by_class(labels, key(seed, "probe fold", torch.arange(len(labels), device=labels.device)))
    fold = torch.empty_like(order)
    fold[order] = torch.arange(len(order), device=order.device) % FOLDS
    return fold


def labelled_subset(labels: Tensor, labels_per_class: int, *, subset: int, seed: int = 0) -> Tensor:
    """Rows of the subset with this number, ascending: of each class that many, or all where it has fewer."""
    rows = torch.arange(len(labels), device=labels.device)
    order = _shuffled_by_class(labels, key(seed, "labelled subset", subset, rows))
    _, sizes = labels[order].unique_consecutive(return_counts=True)
    first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    return order[rows - first < labels_per_class].sort().values


def _shuffled_by_class(labels: Tensor, keys: Tensor) -> Tensor:
    """Rows ordered by class, and by their keys within a class."""
    shuffled = permutation(keys)
    return shuffled[torch.argsort(labels[shuffled], stable=True)]


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
def knn_predict(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    *,
    k: int = 20,
    temperature: float = 0.07,
    block: int = 4096,
) -> Tensor:
    """Vote of the k training rows of highest cosine similarity s (all of them where there are fewer), weight exp(s/τ).

    Exact; on the device of the training features. Beside the features it holds about block·(block + 2K + 2k) numbers.
    """
    classes = int(train_labels.max()) + 1
    labels = _checked(train_features, train_labels, classes)
    predicted = []
    for queries in test_features.split(block):
        query = unit(queries.to(train_features.device))
        similarity, neighbour = nearest(query, train_features, min(k, len(labels)), block)
        weight = ((similarity - similarity[:, :1]).double() / temperature).exp()
        votes = weight.new_zeros(len(query), classes).scatter_add_(1, labels[neighbour], weight)
        predicted.append(votes.argmax(1))
    return torch.cat(predicted)


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
    return _agreement(predicted, test_labels)


def compare(
    representations: Mapping[str, tuple[Tensor, Tensor]], train_labels: Tensor, test_labels: Tensor, *, classes: int
) -> list[Row]:
    """Every number of the table for each representation: name → (training features, test features), rows aligned."""
    rows = []
    for name, (train, test) in representations.items():
        data = (train, train_labels, test, test_labels)
        few, few_sd = few_label_accuracy(*data, classes=classes)
        rows.append(
            Row(name, linear_accuracy(*data, classes=classes), few, few_sd, LABELS_PER_CLASS, knn_accuracy(*data))
        )
    return rows


def _agreement(predicted: Tensor, labels: Tensor) -> float:
    return (predicted == labels.to(predicted.device)).double().mean().item()


def _checked(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The labels as int64 on the features' device, when both can be probed."""
    if len(features) != len(labels) or len(features) == 0:
        raise TwofoldError(f"a probe needs one label for each row, got {len(features)} rows and {len(labels)} labels")
    if not bool(torch.isfinite(features).all()):
        raise TwofoldError(
            "features hold NaN or infinite values, so they cannot be probed; look for where training diverged"
        )
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise TwofoldError(f"labels must be from 0 to {classes - 1}, found {low} to {high}; leave out unlabelled rows")
    return labels.to(device=features.device, dtype=torch.int64)


@contextmanager
def _one_thread(*, when: bool) -> Iterator[None]:
    threads = torch.get_num_threads()
    if when:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
