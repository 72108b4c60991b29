"""Section 5.2.1: cross entropy over the rows of the batch (CE_b) compared with cross entropy over all n rows (CE_n).

The batch has b samples and their b classifier rows, each of dimension D. s is the label smoothing.
"""

import math
from itertools import combinations

import torch
from torch import Tensor

from twofold.linalg import normalized
from twofold.models import SampleHead
from twofold.objectives import batch_cross_entropy
from twofold_papers.s_diet.claims.linear import stack
from twofold_papers.verify.claim import Sides, claim
from twofold_papers.verify.numerics import randn


def embedding_gradient(
    z: Tensor, rows: Tensor, *, label_smoothing: float = 0.8, population: int | None = None
) -> Tensor:
    """dL/dz. The rows of the batch come first in `rows`."""
    z = z.clone().requires_grad_()
    labels = torch.arange(len(z))
    loss = batch_cross_entropy(z, rows, labels, label_smoothing=label_smoothing, population=population)
    return torch.autograd.grad(loss.total, z)[0]


def cosine(one: Tensor, other: Tensor) -> Tensor:
    return (one * other).sum() / (one.norm() * other.norm())


@claim(
    "s-diet",
    "eq 5 (gradient)",
    "If all logits are equal, b dL/dz_i = (1−s)(w̄ − w_i), where w̄ is the mean of the rows in the softmax. Checked: "
    "the gradient by autograd for z = 0, and this formula, for CE_b and CE_n",
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
    "If all logits are equal, the cosine between the gradients of CE_b and CE_n is √(S/(S + b‖w̄_b − w̄_n‖²)) with "
    "S = Σ_i ‖w_i − w̄_b‖². Checked: the cosine from autograd for z = 0, and this formula",
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
    "If all logits are equal, the cosine between the gradients of CE_b and CE_n with respect to the embeddings, taken "
    "over all batches of b of the n rows, is √((1−1/b)/(1−1/n)) for any rows. This does not cover the gradient of the "
    "encoder, which Table 2 reports; `benchmarks.gradient_cosine` measures it. Checked: the gradients by autograd for "
    "z = 0 and every batch, and this formula",
    tolerance=1e-12,
)
def cosine_over_all_batches() -> Sides:
    found, expected = [], []
    for n, b, dim in ((5, 2, 3), (7, 3, 4), (9, 6, 2), (6, 6, 3)):
        rows, z = randn(n, dim) + 0.3, torch.zeros(b, dim, dtype=torch.float64)
        pairs = []
        for batch in combinations(range(n), b):
            own_first = [*batch, *(row for row in range(n) if row not in batch)]
            pairs.append((embedding_gradient(z, rows[list(batch)]), embedding_gradient(z, rows[own_first])))
        found.append(cosine(*(stack(slopes) for slopes in zip(*pairs, strict=True))))
        expected.append(math.sqrt((1 - 1 / b) / (1 - 1 / n)))
    return Sides(torch.stack(found), torch.tensor(expected, dtype=torch.float64))


@claim(
    "s-diet",
    "eq 5 (population)",
    "With population = n, the expectation of CE_b over random negatives is at most CE_n. Checked: the mean of CE_b "
    "over all batches that contain the own row, and CE_n",
    tolerance=1e-12,
)
def population_is_a_lower_bound() -> Sides:
    """By Jensen's inequality: the sum of exponentials and the smoothed targets are unbiased, and log is concave."""
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
    "With population = n and equal logits, CE_b equals CE_n = log n. Checked: CE_b for z = 0, and log n",
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
    "With population = n, the gradients of CE_b and CE_n stay similar during training. Checked: their cosine is above "
    "0.8 for embeddings that are partly aligned with their rows, n = 4096, b = 256",
    tolerance=0.0,
)
def cosine_later() -> Sides:
    return Sides(_later(population=4096), 0.8, ">")


@claim(
    "s-diet",
    "eq 5 (in training, as it is)",
    "Without population, ∇CE_n ≈ ∇CE_b, which the paper reports for random initialisation, does not hold during "
    "training. Checked: their cosine is below 0 for embeddings that are partly aligned with their rows, n = 4096, "
    "b = 256",
    tolerance=0.0,
)
def cosine_later_as_it_is() -> Sides:
    return Sides(_later(population=None), 0.0, "<")


def _later(population: int | None) -> Tensor:
    """The cosine of both gradients for logits of 10 times the cosines, and embeddings between start and optimum."""
    n, b, dim = 4096, 256, 128
    rows = normalized(randn(n, dim))
    z = 10 * normalized(0.8 * rows[:b] + normalized(randn(b, dim)))
    near = embedding_gradient(z, rows[:b], population=population)
    return cosine(near, embedding_gradient(z, rows))


DIM, BYTES = 512, 4  # the width of our S-DIET embeddings, and of a float32; the paper does not give its width
CIFAR, IMAGENET = 32 * 32 * 3, 224 * 224 * 3  # values of an image
ROW = 3 * DIM * BYTES  # a row and two moments of AdamW


@claim(
    "s-diet",
    "section 5.2.1, loading",
    "A classifier row with the two moments of AdamW has 12 D bytes in float32, which is 6,144 for D = 512. Checked: "
    "the bytes that the library's SampleHead stores for a row, without the 8 for the number of its last step, for D = "
    "128, 512 and 2048, and with the single moment of SGD, 8 D",
    tolerance=0.0,
)
def bytes_of_a_row() -> Sides:
    stored, values = [], []
    for dim in (128, DIM, 2048):
        heads = (SampleHead(4, dim, schedule=[1e-3]), SampleHead(4, dim, schedule=[1e-3], optimizer="sgd"))
        stored += [head.bytes / 4 - 8 for head in heads]
        values += [3 * dim * BYTES, 2 * dim * BYTES]
    return Sides(torch.tensor(stored), torch.tensor(values))


@bytes_of_a_row.published(
    "loading the rows and any information for the optimizer requires only a fraction of the cost of loading the input, "
    "in the standard case that m is much smaller than the input dimension"
)
def _() -> Sides:
    return Sides(float(ROW), float(CIFAR), "<")


@bytes_of_a_row.holds_if(
    "a CIFAR image is loaded as float32 (12,288 bytes), or images have 224 pixels (150,528 bytes)",
    fails_if="a CIFAR image is loaded as 3,072 bytes of pixels: a row is then twice as large as an image",
)
def _() -> Sides:
    return Sides(float(ROW), torch.tensor([CIFAR * BYTES, IMAGENET]).double(), "<")
