"""Linear probe: multinomial logistic regression on frozen features, by L-BFGS. `protocols.py` has those of papers.

Shapes: n rows, K features, C classes, F problems that are solved together (the folds of a cross-validation).

Rows are processed in blocks. Features of up to 2²⁷ numbers are standardised once and stored. Larger ones may be a
memory-mapped file, and each pass standardises them again, block by block. Random choices are hashes of the row number,
so that all representations of the same rows use the same folds and their accuracies can be compared pair by pair.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from twofold.counter import key, permutation
from twofold.device import one_thread
from twofold.errors import TwofoldError

PENALTIES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
FOLDS = 5
CROSS_VALIDATED = 2000  # up to this many rows, each fold is held out once; above, only the first fold (20 %)
DOUBLE = 2**22  # largest n·K for float64; above, and for choosing a penalty, the probe uses float32
KEPT = 2**27  # largest n·K for which standardised features are stored; above, each pass computes them again
BLOCK = 2**22  # numbers in a block of rows, counting its features or its logits
SAMPLED = 2**15  # rows that are sampled to estimate correlations if features are not stored
ROUNDS, ITERATIONS = 10, 100  # rounds of L-BFGS and iterations in each; each round measures the curvature again
ALONE = 2**25  # largest n·K·5·C for one CPU thread; with less work, more threads or a GPU would mostly wait
SELECTION_SLACK = 30.0  # factor of the tolerance while a penalty is chosen
NEVER = -1e4  # bias of a class without training rows, so that its probability and gradient are exactly 0
RANKED = 5  # largest number of classes per row that `ranked` returns


@dataclass(frozen=True)
class LinearProbe:
    """A fitted linear classifier on standardised features."""

    mean: Tensor  # [K], the mean of the features
    scale: Tensor  # [K], the standard deviation of the features
    weight: Tensor  # [K, C], for (features − mean) / scale
    bias: Tensor  # [C]
    penalty: float  # the penalty of the weights
    held_out_accuracy: float | None  # accuracy on held-out training rows; None if a single penalty was given

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits `[n, C]` of features `[n, K]`."""
        return (features.to(self.weight) - self.mean) / self.scale @ self.weight + self.bias

    def ranked(self, features: Tensor) -> Tensor:
        """Return the most likely classes `[n, min(C, 5)]` of each row, the prediction first."""
        size = block_rows(*self.weight.shape)
        return torch.cat([ranked(self.logits(block)) for block in features.split(size)])

    def predict(self, features: Tensor) -> Tensor:
        """Return the predicted class `[n]` of each row."""
        return self.ranked(features)[:, 0]

    def accuracy(self, features: Tensor, labels: Tensor) -> float:
        """Return the fraction of rows whose class is predicted correctly."""
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
    """Fit a multinomial logistic regression: minimise mean cross entropy + penalty/2 · ‖W‖². The bias has no penalty.

    Features are standardised by their mean and standard deviation over the training rows. L-BFGS makes at most 1,000
    iterations, in coordinates in which the curvature is about 1. It uses float64 if n·K is at most 2²², else float32.

    If you pass several penalties, this function chooses the one with the best accuracy on held-out training rows, and
    among equals the strongest. Up to 2,000 rows, it uses stratified 5-fold cross-validation. With more rows, it holds
    out 20 % of the rows once. The fits that choose the penalty use float32, at most 100 iterations, and 30 times the
    tolerance.

    Parameters
    ----------
    features : Tensor
        Features `[n, K]`, which may be a memory-mapped file.
    labels : Tensor
        Labels `[n]` from 0 to `classes` − 1.
    classes : int
        The number of classes.
    penalties : sequence of float
        The penalties to choose from.
    seed : int
        Seed of the folds.
    tolerance : float
        The fit ends when no entry of the gradient exceeds it.
    device : torch.device or str, optional
        Where to compute, by default the device of the features. Small problems use one CPU core, which is faster.

    Returns
    -------
    LinearProbe
        The classifier, on the device of the features.
    """
    labels = probe_labels(features, labels, classes)
    if not penalties or min(penalties) <= 0:
        raise TwofoldError(f"penalties of a linear probe must be above 0, got {list(penalties)}; give one or more")
    dtype = torch.float64 if features.numel() <= DOUBLE else torch.float32
    alone = features.numel() * FOLDS * classes <= ALONE
    place = torch.device("cpu") if alone else torch.device(device or features.device)
    labels = labels.to(place)
    with one_thread(when=alone):
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
    """Standardised rows, rotated to coordinates that are about uncorrelated. The rotation does not change the penalty.

    Stored rows are rotated once. Other rows are standardised in each pass, and the weights are rotated instead.
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
        """The number of weights of each class."""
        return self.axes.shape[1]

    def __len__(self) -> int:
        return len(self.features)

    def narrowed(self) -> "_Rows":
        """Return a copy in float32."""
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
        """Rotate weights `[width, ...]` to the coordinates of `blocks`; `from_rows` rotates gradients back."""
        return weight if self.kept is not None else (self.axes @ weight.flatten(1)).view(-1, *weight.shape[1:])

    def from_rows(self, gradient: Tensor) -> Tensor:
        return gradient if self.kept is not None else self.axes.T @ gradient


def _mean_and_scale(features: Tensor, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    size = block_rows(features.shape[1])
    wide = torch.float64 if device.type != "mps" else torch.float32
    shift = features[:size].to(device, wide).mean(0)  # so that sums of squares lose no precision
    first, second = torch.zeros_like(shift), torch.zeros_like(shift)
    for block in features.split(size):
        x = block.to(device, wide) - shift
        first += x.sum(0)
        second += x.square().sum(0)
    offset = first / len(features)
    mean = shift + offset
    deviation = (second / len(features) - offset.square()).clamp(min=0).sqrt()
    scale = torch.maximum(
        deviation, 1e-6 * mean.abs()
    )  # for a feature that is constant up to rounding, noise is not amplified
    return mean.to(dtype), torch.where(scale > 0, scale, 1.0).to(dtype)


def _principal(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return `x` along its principal axes, and the axes `[K, min(n, K)]`, a rotation that keeps the penalty."""
    axes = None
    if len(x) < x.shape[1]:  # the weights are in the span of the rows
        axes = torch.linalg.qr(x.T).Q
        x = x @ axes
    rotation = torch.linalg.eigh((x.T @ x).double()).eigenvectors.to(x.dtype)
    return x @ rotation, rotation if axes is None else axes @ rotation


class _Problems:
    """F logistic regressions on subsets of the same rows. Together they need fewer and wider matrix products."""

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
        """Yield rows, their features, and logits `[rows, F, C]`, block by block."""
        along = self.rows.to_rows(weight).flatten(1)
        for part, x in self.rows.blocks(self.block):
            yield part, x, (x @ along).view(len(x), *bias.shape) + bias

    def solve(self, weight: Tensor, bias: Tensor, penalty: float, tolerance: float) -> tuple[Tensor, Tensor]:
        """Return weights `[K, F, C]` and biases `[F, C]` at the minimum: run rounds until one needs no iteration."""
        for _ in range(ROUNDS):
            weight, bias, iterations = self.descend(weight, bias, penalty, tolerance)
            if iterations == 0:
                break
        return weight, bias

    def descend(self, weight: Tensor, bias: Tensor, penalty: float, tolerance: float) -> tuple[Tensor, Tensor, int]:
        """Run one round of L-BFGS on `u` and `v`: weight and bias in units in which the curvature is about 1."""
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
        """Return the negative log likelihood, summed over problems, and its gradients."""
        gradient = weight.new_zeros(self.rows.axes.shape[0 if self.rows.kept is None else 1], bias.numel())
        bias_gradient = torch.zeros_like(bias)
        # float64, because the line search compares losses that differ only in the last digits of a float32 sum.
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
        """Return the mean of p(1 − p): the second derivative of the loss along a column of x, over its variance."""
        by_problem = torch.zeros_like(bias[:, 0])
        for part, _, logits in self.logits(weight, bias):
            p = logits.softmax(2)
            by_problem += ((p - p.square()).mean(2) * self.share[part]).sum(0)
        return by_problem.mean().clamp(min=1e-6)


def _choose_penalty(
    rows: _Rows, labels: Tensor, classes: int, penalties: Sequence[float], seed: int, tolerance: float
) -> tuple[float, Tensor, float]:
    """Return the best penalty, weights `[K, C]` to start its fit to all rows with, and its held-out accuracy."""
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
    """Return a fold from 0 to 4 for each row, by a hash of the row number. Each class is spread evenly over folds."""
    order = shuffled_by_class(labels, key(seed, "probe fold", torch.arange(len(labels), device=labels.device)))
    fold = torch.empty_like(order)
    fold[order] = torch.arange(len(order), device=order.device) % FOLDS
    return fold


def shuffled_by_class(labels: Tensor, keys: Tensor) -> Tensor:
    """Return the rows ordered by class, and by their keys within a class."""
    shuffled = permutation(keys)
    return shuffled[torch.argsort(labels[shuffled], stable=True)]


@torch.no_grad()
def ranked(scores: Tensor) -> Tensor:
    """Return the columns of the largest scores of each row, at most five. Equal scores keep their order."""
    return scores.sort(dim=1, descending=True, stable=True).indices[:, :RANKED]


def block_rows(*widths: int) -> int:
    """Return the number of rows in a block, for rows of this many numbers."""
    return max(1, BLOCK // max(widths))


def agreement(predicted: Tensor, labels: Tensor) -> float:
    """Return the fraction of equal entries."""
    return (predicted == labels.to(predicted.device)).double().mean().item()


def probe_labels(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Check features and labels, and return the labels as int64 on the device of the features."""
    if len(features) != len(labels) or len(features) == 0:
        raise TwofoldError(f"a probe needs one label per row, got {len(features)} rows and {len(labels)} labels")
    if not all(bool(torch.isfinite(block).all()) for block in features.split(block_rows(features.shape[1]))):
        raise TwofoldError(
            "features contain NaN or infinite values, so no probe can be fitted; check whether training diverged"
        )
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise TwofoldError(f"labels must be from 0 to {classes - 1}, found {low} to {high}; leave out unlabelled rows")
    return labels.to(device=features.device, dtype=torch.int64)
