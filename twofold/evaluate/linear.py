"""Multinomial logistic regression on frozen features: by L-BFGS to the minimum, or by the papers' SGD protocol.

n rows, K features, C classes, F problems solved side by side (the folds of a cross-validation).
Rows are visited in blocks. Features of up to 2²⁷ numbers are standardised once and kept; larger ones may lie in a
mapped file, and each pass standardises a block at a time. Random choices are counter hashes of the row number, so that
every representation of the same rows meets the same folds: differences between representations are paired.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from twofold.counter import key, permutation
from twofold.errors import TwofoldError

PENALTIES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
FOLDS = 5
CROSS_VALIDATED = 2000  # rows up to which every fold is held out once; above, only the first (20 %)
DOUBLE = 2**22  # n·K up to which a probe is solved in float64; above, and to choose a penalty, in float32
KEPT = 2**27  # n·K up to which standardised features are kept; above, they are made anew for each pass
BLOCK = 2**22  # numbers in a block of rows: of its features, or of its logits
SAMPLED = 2**15  # rows that say how features are correlated, where they are not kept
ROUNDS, ITERATIONS = 10, 100  # of L-BFGS; each round measures the curvature anew
ALONE = 2**25  # n·K·5·C up to which one thread of the CPU does it: threads and kernels would mostly wait
SELECTION_SLACK = 30.0  # how much looser the gradient may be while a penalty is chosen
NEVER = -1e4  # bias of a class without training rows: its probability, and so its gradient, is exactly 0
RANKED = 5  # classes of each row that `ranked` names


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

    def ranked(self, features: Tensor) -> Tensor:
        """The likeliest classes `[n, min(C, 5)]` of each row, first of all its prediction; in blocks."""
        size = block_rows(*self.weight.shape)
        return torch.cat([ranked(self.logits(block)) for block in features.split(size)])

    def predict(self, features: Tensor) -> Tensor:
        return self.ranked(features)[:, 0]

    def accuracy(self, features: Tensor, labels: Tensor) -> float:
        return agreement(self.predict(features), labels)


@torch.no_grad()
def fit_linear(
    features: Tensor,
    labels: Tensor,
    *,
    classes: int,
    penalties: Sequence[float] = PENALTIES,
    seed: int = 0,
    tolerance: float = 1e-5,
    device: torch.device | str | None = None,
) -> LinearProbe:
    """Multinomial logistic regression: mean cross entropy + penalty/2 · ‖W‖², the bias free.

    Features are standardised by their mean and deviation over all training rows. Of several penalties, the one with
    the best accuracy on held-out training rows is taken, the stronger of equals: by stratified 5-fold cross-validation
    up to 2,000 rows, on one 20 % hold-out above. L-BFGS runs, in coordinates in which the curvature is about 1, until
    no entry of the gradient exceeds `tolerance`, for at most 1,000 iterations; in float64 up to n·K = 2²², above in
    float32 (while choosing: 30 times the tolerance, 100 iterations, float32). It works on `device`, by default that of
    the features, unless the problem is so small that one CPU core is faster.
    """
    labels = probe_labels(features, labels, classes)
    if not penalties or min(penalties) <= 0:
        raise TwofoldError(f"penalties of a linear probe must be above 0, got {list(penalties)}; give at least one")
    dtype = torch.float64 if features.numel() <= DOUBLE else torch.float32
    alone = features.numel() * FOLDS * classes <= ALONE
    place = torch.device("cpu") if alone else torch.device(device or features.device)
    labels = labels.to(place)
    with _one_thread(when=alone):
        rows = _Rows(features, place, dtype)
        if len(penalties) > 1:
            slack = SELECTION_SLACK * tolerance
            penalty, start, accuracy = _choose_penalty(rows.narrowed(), labels, classes, penalties, seed, slack)
        else:
            penalty, start, accuracy = penalties[0], rows.mean.new_zeros(rows.width, classes), None
        problem = _Problems(rows, labels, torch.ones_like(labels).unsqueeze(1), classes)
        weight, bias = problem.solve(start.to(dtype).unsqueeze(1), problem.initial_bias(), penalty, tolerance)
        weight = rows.axes @ weight[:, 0]
    mean, scale, weight, bias = (t.to(features.device) for t in (rows.mean, rows.scale, weight, bias[0]))
    return LinearProbe(mean, scale, weight, bias, penalty, accuracy)


class _Rows:
    """Standardised rows in coordinates in which they are about uncorrelated: a rotation, unseen by the penalty.

    Kept rows are rotated once. Those that are not are standardised for each pass, and their weights are rotated.
    """

    def __init__(self, features: Tensor, device: torch.device, dtype: torch.dtype):
        self.features, self.device, self.dtype = features, device, dtype
        self.mean, self.scale = _mean_and_scale(features, device, dtype)
        self.kept: Tensor | None = None
        if features.numel() <= KEPT:
            self.kept, self.axes = _principal(self.standardised(features))
            self.variance = self.kept.square().mean(0)
        else:
            sample = features[:: -(-len(features) // SAMPLED)]
            rotated, self.axes = _principal(self.standardised(sample))
            self.variance = rotated.square().mean(0)

    @property
    def width(self) -> int:
        """The number of weights of a class."""
        return self.axes.shape[1]

    def __len__(self) -> int:
        return len(self.features)

    def narrowed(self) -> "_Rows":
        """In float32."""
        other = object.__new__(_Rows)
        other.__dict__.update({name: v.float() if isinstance(v, Tensor) else v for name, v in vars(self).items()})
        other.features, other.dtype = self.features, torch.float32
        return other

    def standardised(self, features: Tensor) -> Tensor:
        return (features.to(self.device, self.dtype) - self.mean) / self.scale

    def blocks(self, size: int) -> Iterator[tuple[slice, Tensor]]:
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            yield part, self.kept[part] if self.kept is not None else self.standardised(self.features[part])

    def to_rows(self, weight: Tensor) -> Tensor:
        """Weights `[width, ...]` as those of what `blocks` gives; `from_rows` takes gradients back."""
        return weight if self.kept is not None else (self.axes @ weight.flatten(1)).view(-1, *weight.shape[1:])

    def from_rows(self, gradient: Tensor) -> Tensor:
        return gradient if self.kept is not None else self.axes.T @ gradient


def _mean_and_scale(features: Tensor, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    size = block_rows(features.shape[1])
    wide = torch.float64 if device.type != "mps" else torch.float32
    shift = features[:size].to(device, wide).mean(0)  # so that sums of squares keep their digits
    first, second = torch.zeros_like(shift), torch.zeros_like(shift)
    for block in features.split(size):
        x = block.to(device, wide) - shift
        first += x.sum(0)
        second += x.square().sum(0)
    offset = first / len(features)
    mean = shift + offset
    deviation = (second / len(features) - offset.square()).clamp(min=0).sqrt()
    scale = torch.maximum(deviation, 1e-6 * mean.abs())  # constant up to rounding: noise is not blown up
    return mean.to(dtype), torch.where(scale > 0, scale, 1.0).to(dtype)


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

    def __init__(self, rows: _Rows, labels: Tensor, member: Tensor, classes: int) -> None:
        self.rows = rows
        self.labels = labels
        self.share = member.to(rows.dtype) / member.sum(0).clamp(min=1)  # [n, F], each column sums to 1
        self.classes = classes
        self.block = block_rows(rows.width, member.shape[1] * classes)

    def initial_bias(self) -> Tensor:
        rows = self.share.new_zeros(self.classes, self.share.shape[1]).index_add_(0, self.labels, self.share).T
        return torch.zeros_like(rows).masked_fill(rows == 0, NEVER)  # [F, C]

    def logits(self, weight: Tensor, bias: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Rows, their features, and logits `[rows, F, C]`, block by block."""
        along = self.rows.to_rows(weight).flatten(1)
        for part, x in self.rows.blocks(self.block):
            yield part, x, (x @ along).view(len(x), *bias.shape) + bias

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
        weight_unit = (curvature * self.rows.variance + penalty).rsqrt().view(-1, 1, 1)
        bias_unit = curvature.rsqrt()
        u, v = weight / weight_unit, bias / bias_unit

        def loss_and_gradient() -> Tensor:
            weight = u * weight_unit
            loss, gradient, bias_gradient = self.likelihood(weight, v * bias_unit)
            u.grad = (gradient + penalty * weight) * weight_unit
            v.grad = bias_gradient * bias_unit
            return penalty / 2 * weight.square().sum(dtype=torch.float64) + loss

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

    def likelihood(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The negative log likelihood, summed over problems, and its gradients."""
        gradient = weight.new_zeros(self.rows.axes.shape[0 if self.rows.kept is None else 1], bias.numel())
        bias_gradient = torch.zeros_like(bias)
        # The line search compares losses that differ in the last digits of a float32 sum.
        loss = torch.zeros((), dtype=torch.float64, device=weight.device)
        for part, x, logits in self.logits(weight, bias):
            share = self.share[part].unsqueeze(2)
            label = self.labels[part].view(-1, 1, 1).expand(-1, len(bias), 1)
            log_p = logits.log_softmax(2)
            loss -= (log_p.gather(2, label) * share).sum(dtype=torch.float64)
            residual = log_p.exp_().scatter_add_(2, label, -torch.ones_like(share)).mul_(share)
            gradient.addmm_(x.T, residual.flatten(1))
            bias_gradient += residual.sum(0)
        return loss, self.rows.from_rows(gradient).view_as(weight), bias_gradient

    def _curvature(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Mean of p(1 − p): the second derivative of the loss along a column of x, over the column's variance."""
        by_problem = torch.zeros_like(bias[:, 0])
        for part, _, logits in self.logits(weight, bias):
            p = logits.softmax(2)
            by_problem += ((p - p.square()).mean(2) * self.share[part]).sum(0)
        return by_problem.mean().clamp(min=1e-6)


def _choose_penalty(
    rows: _Rows, labels: Tensor, classes: int, penalties: Sequence[float], seed: int, tolerance: float
) -> tuple[float, Tensor, float]:
    """The penalty, weights `[K, C]` to start its fit to all rows from, and its held-out accuracy."""
    count = FOLDS if len(rows) <= CROSS_VALIDATED else 1
    fold = stratified_folds(labels, seed=seed)
    problems = _Problems(rows, labels, fold.unsqueeze(1) != torch.arange(count, device=labels.device), classes)
    weight, bias = rows.mean.new_zeros(rows.width, count, classes), problems.initial_bias()
    best: tuple[float, Tensor, float] | None = None
    for penalty in sorted(penalties, reverse=True):
        weight, bias, _ = problems.descend(weight, bias, penalty, tolerance)
        right = torch.zeros((), dtype=torch.int64, device=labels.device)
        for part, _, logits in problems.logits(weight, bias):
            hits = logits.argmax(2) == labels[part].unsqueeze(1)
            right += (hits & (fold[part].unsqueeze(1) == torch.arange(count, device=labels.device))).sum()
        accuracy = right.item() / int((fold < count).sum())
        if best is None or accuracy > best[2]:
            best = penalty, weight.mean(1), accuracy
    assert best is not None
    return best


def stratified_folds(labels: Tensor, *, seed: int = 0) -> Tensor:
    """A fold from 0 to 4 for each row, by a hash of the row number; every class is spread evenly."""
    order = shuffled_by_class(labels, key(seed, "probe fold", torch.arange(len(labels), device=labels.device)))
    fold = torch.empty_like(order)
    fold[order] = torch.arange(len(order), device=order.device) % FOLDS
    return fold


def shuffled_by_class(labels: Tensor, keys: Tensor) -> Tensor:
    """Rows ordered by class, and by their keys within a class."""
    shuffled = permutation(keys)
    return shuffled[torch.argsort(labels[shuffled], stable=True)]


@torch.no_grad()
def fit_sgd(
    features: Tensor,
    labels: Tensor,
    *,
    classes: int,
    epochs: int = 100,
    lr: float = 0.3,
    milestones: Sequence[int] = (60, 80),
    batch_size: int = 256,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> LinearProbe:
    """The papers' protocol (solo-learn's linear evaluation): SGD with momentum 0.9 on the features as they are.

    Learning rate 0.3, a tenth of it from epoch 60 on and a hundredth from 80; no penalty; weights start at 0. The
    papers augment the training images anew in each epoch; here features are computed once, from images as they are.
    """
    labels = probe_labels(features, labels, classes)
    place = torch.device(device or features.device)
    weight = torch.zeros(features.shape[1], classes, device=place)
    bias = torch.zeros(classes, device=place)
    velocity, bias_velocity = torch.zeros_like(weight), torch.zeros_like(bias)
    numbers = torch.arange(len(features), device=features.device)
    for epoch in range(epochs):
        rate = lr * 0.1 ** sum(epoch >= milestone for milestone in milestones)
        for rows in permutation(key(seed, "probe order", epoch, numbers)).split(batch_size):
            x, label = features[rows].to(place, torch.float32), labels[rows].to(place)
            error = (x @ weight + bias).softmax(1)
            error.scatter_add_(1, label.unsqueeze(1), -torch.ones_like(error[:, :1])).div_(len(rows))
            velocity.mul_(0.9).addmm_(x.T, error)
            bias_velocity.mul_(0.9).add_(error.sum(0))
            weight -= rate * velocity
            bias -= rate * bias_velocity
    if not bool(torch.isfinite(weight).all()):
        raise TwofoldError(f"SGD at the papers' learning rate {lr:g} diverges on these features: use --solver lbfgs")
    weight, bias = weight.to(features.device), bias.to(features.device)
    return LinearProbe(torch.zeros_like(weight[:, 0]), torch.ones_like(weight[:, 0]), weight, bias, 0.0, None)


SOLVERS: dict[str, Callable[..., LinearProbe]] = {"lbfgs": fit_linear, "sgd": fit_sgd}


def ranked(scores: Tensor) -> Tensor:
    """Columns of the largest scores in each row, at most five, the first of equals first."""
    return scores.sort(dim=1, descending=True, stable=True).indices[:, :RANKED]


def block_rows(*widths: int) -> int:
    """Rows in a block, for so many numbers in a row."""
    return max(1, BLOCK // max(widths))


def agreement(predicted: Tensor, labels: Tensor) -> float:
    return (predicted == labels.to(predicted.device)).double().mean().item()


def probe_labels(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The labels as int64 on the features' device, when both can be probed."""
    if len(features) != len(labels) or len(features) == 0:
        raise TwofoldError(f"a probe needs one label for each row, got {len(features)} rows and {len(labels)} labels")
    if not all(bool(torch.isfinite(block).all()) for block in features.split(block_rows(features.shape[1]))):
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
