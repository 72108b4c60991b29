"""Section 5.2.1: cross entropy over the batch's own rows, and how far it stands for that over all n.

b rows of the head are in the batch, one for each of its samples; D dimension; s label smoothing.
"""

import math
from itertools import combinations

import torch
from torch import Tensor

from twofold.linalg import normalized
from twofold.objectives import batch_cross_entropy
from twofold_papers.s_diet.claims.linear import stack
from twofold_papers.verify.claim import Sides, claim
from twofold_papers.verify.numerics import randn


def embedding_gradient(
    z: Tensor, rows: Tensor, *, label_smoothing: float = 0.8, population: int | None = None
) -> Tensor:
    """dL/dz; the batch's own rows are the first."""
    z = z.clone().requires_grad_()
    labels = torch.arange(len(z))
    loss = batch_cross_entropy(z, rows, labels, label_smoothing=label_smoothing, population=population)
    return torch.autograd.grad(loss.total, z)[0]


def cosine(one: Tensor, other: Tensor) -> Tensor:
    return (one * other).sum() / (one.norm() * other.norm())


@claim(
    "s-diet",
    "eq 5 (gradient)",
    "where all logits are equal, b dL/dz_i = (1−s)(w̄ − w_i), w̄ the mean of the rows compared",
    tolerance=1e-12,
)
def gradient_at_start() -> Sides:
    found, expected = [], []
    for n, b, dim, smoothing in ((20, 5, 3, 0.8), (50, 16, 8, 0.0), (64, 64, 4, 0.3)):
        rows, z = randn(n, dim), torch.zeros(b, dim, dtype=torch.float64)
        for compared in (rows[:b], rows):
            found.append(b * embedding_gradient(z, compared, label_smoothing=smoothing))
            expected.append((1 - smoothing) * (compared.mean(dim=0) - rows[:b]))
    return Sides(stack(found), stack(expected))


@claim(
    "s-diet",
    "eq 5 (cosine)",
    "there the cosine of both gradients is √(S/(S + b‖w̄_b − w̄_n‖²)), S = Σ_i ‖w_i − w̄_b‖²",
    tolerance=1e-12,
)
def cosine_at_start() -> Sides:
    found, expected = [], []
    for n, b, dim in ((20, 5, 3), (300, 32, 16), (64, 64, 4)):
        rows, z = randn(n, dim) + 0.3, torch.zeros(b, dim, dtype=torch.float64)
        found.append(cosine(embedding_gradient(z, rows[:b]), embedding_gradient(z, rows)))
        mean = rows[:b].mean(dim=0)
        scatter = (rows[:b] - mean).square().sum()
        expected.append((scatter / (scatter + b * (mean - rows.mean(dim=0)).square().sum())).sqrt())
    return Sides(stack(found), stack(expected))


@claim(
    "s-diet",
    "eq 5, Table 2",
    "for small logits and independent rows the cosine is √((1−1/b)/(1−1/n)) in the mean: n = 1024, b = 64 to 256",
    tolerance=3e-4,  # 1 − cos is 1/2b, known to a part √(2/D) from one head: over 32 heads to 1.7e-4 for b = 64
)
def cosine_for_random_rows() -> Sides:
    n, dim, sizes, heads = 1024, 128, (64, 128, 256), 32
    found = torch.zeros(len(sizes), dtype=torch.float64)
    for _ in range(heads):
        rows = randn(n, dim) / math.sqrt(dim)
        for k, b in enumerate(sizes):
            z = 0.1 * normalized(randn(b, dim))
            found[k] += cosine(embedding_gradient(z, rows[:b]), embedding_gradient(z, rows)) / heads
    return Sides(found, torch.tensor([math.sqrt((1 - 1 / b) / (1 - 1 / n)) for b in sizes], dtype=torch.float64))


@claim(
    "s-diet",
    "eq 5 (population)",
    "with population = n the mean over all samples of negatives is at most the full cross entropy",
    tolerance=1e-12,
)
def population_is_a_lower_bound() -> Sides:
    """By Jensen: the sum of exponentials and the smoothed targets are right in the mean, and log is concave."""
    found, full = [], []
    for n, b, scale in ((6, 3, 1.0), (7, 4, 3.0), (6, 6, 2.0)):
        rows, z, label = randn(n, 5), scale * randn(1, 5), torch.zeros(1, dtype=torch.int64)
        batches = [[0, *others] for others in combinations(range(1, n), b - 1)]
        losses = [batch_cross_entropy(z, rows[batch], label, population=n).total for batch in batches]
        found.append(torch.stack(losses).mean())
        full.append(torch.nn.functional.cross_entropy(z @ rows.T, label, label_smoothing=0.8))
    return Sides(torch.stack(found), torch.stack(full), "≤")


@claim(
    "s-diet",
    "eq 5 (mean of it)",
    "with population = n and equal logits the value is full cross entropy, log n",
    tolerance=1e-12,
)
def population_at_start() -> Sides:
    found, expected = [], []
    for n, b in ((6, 3), (100, 7), (5, 5)):
        rows, z = randn(b, 4), torch.zeros(b, 4, dtype=torch.float64)
        found.append(batch_cross_entropy(z, rows, torch.arange(b), population=n).total)
        expected.append(torch.tensor(math.log(n), dtype=torch.float64))
    return Sides(torch.stack(found), torch.stack(expected))


@claim(
    "s-diet",
    "eq 5 (in training)",
    "half-way to its rows the cosine with full cross entropy is above 0.8 with population = n: n = 4096, b = 256",
    tolerance=0.0,
)
def cosine_later() -> Sides:
    return Sides(_later(population=4096), 0.8, ">")


@claim(
    "s-diet",
    "eq 5 (in training, as it is)",
    "without that ∇CE_n ≈ ∇CE_b, which the paper saw at random initialisation, does not last: the cosine is below 0",
    tolerance=0.0,
)
def cosine_later_as_it_is() -> Sides:
    return Sides(_later(population=None), 0.0, "<")


def _later(population: int | None) -> Tensor:
    """Logits are 10 times the cosines; embeddings are drawn to their rows, not yet as far as smoothing lets them."""
    n, b, dim = 4096, 256, 128
    rows = normalized(randn(n, dim))
    z = 10 * normalized(0.8 * rows[:b] + normalized(randn(b, dim)))
    near = embedding_gradient(z, rows[:b], population=population)
    return cosine(near, embedding_gradient(z, rows))
