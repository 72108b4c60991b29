"""Batch cross entropy compared with explicit softmaxes, and its sampled form averaged over all samples."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from twofold.errors import TwofoldError
from twofold.objectives.assignment import batch_cross_entropy, squared_error


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def naive(z: Tensor, rows: Tensor, labels: Tensor, smoothing: float, population: int | None) -> float:
    R = len(rows)
    n = population or R
    losses = []
    for anchor, label in zip(z.numpy(), labels.tolist(), strict=True):
        logits = [float(anchor @ row) for row in rows.numpy()]
        own = logits[label]
        others = [logit for j, logit in enumerate(logits) if j != label]
        times = (n - 1) / (R - 1)
        normaliser = math.log(math.exp(own) + times * sum(map(math.exp, others)))
        target = (1 - smoothing + smoothing / n) * own + smoothing / n * times * sum(others)
        losses.append(normaliser - target)
    return float(np.mean(losses))


@pytest.mark.parametrize("smoothing", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("population", [None, 6, 50])
def test_value_equals_the_formula(smoothing: float, population: int | None) -> None:
    z, rows = randn(5, 4), randn(6, 4)
    labels = torch.tensor([3, 0, 5, 3, 1])  # one label occurs twice, and some rows belong to no sample
    found = batch_cross_entropy(z, rows, labels, label_smoothing=smoothing, population=population)
    assert found.total.item() == pytest.approx(naive(z, rows, labels, smoothing, population), rel=1e-12)
    assert found.terms["cross_entropy"].item() == found.total.item()


@pytest.mark.parametrize("smoothing", [0.0, 0.8])
@pytest.mark.parametrize("population", [None, 9])
def test_loss_with_all_rows_equals_cross_entropy(smoothing: float, population: int | None) -> None:
    """Plain DIET, and the sampled form if the sample contains all rows."""
    z, rows, labels = randn(7, 4), randn(9, 4), torch.randint(0, 9, (7,))
    expected = torch.nn.functional.cross_entropy(z @ rows.T, labels, label_smoothing=smoothing)
    found = batch_cross_entropy(z, rows, labels, label_smoothing=smoothing, population=population)
    assert found.total.item() == pytest.approx(expected.item(), rel=1e-12)


def test_default_smoothing_is_that_of_the_paper() -> None:
    z, rows, labels = randn(7, 4), randn(7, 4), torch.arange(7)
    expected = torch.nn.functional.cross_entropy(z @ rows.T, labels, label_smoothing=0.8)
    assert batch_cross_entropy(z, rows, labels).total.item() == pytest.approx(expected.item(), rel=1e-12)


def test_views_are_averaged() -> None:
    z, rows, labels = randn(3, 5, 4), randn(6, 4), torch.tensor([3, 0, 5, 2, 1])
    each = [batch_cross_entropy(view, rows, labels, population=20).total.item() for view in z]
    assert batch_cross_entropy(z, rows, labels, population=20).total.item() == pytest.approx(np.mean(each), rel=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.8])
@pytest.mark.parametrize("R", [3, 5, 7])
def test_sampled_form_estimates_the_full_one(smoothing: float, R: int) -> None:
    """Average over every sample of R of the n = 8 rows that contains the own row.

    With S = e^own + (n−1)/(R−1) Σ e^others, E[S] is the full sum. The linear part is unbiased, too. The loss is
    E[log S], at most log E[S] (Jensen), and less by no more than Var S / (2 min(S)²), since
    log S ≥ log μ + (S − μ)/μ − (S − μ)²/(2 min(S, μ)²).
    """
    n, label = 8, 2
    z, rows = randn(1, 4), randn(n, 4)
    zero = torch.zeros(1, dtype=torch.long)
    full = batch_cross_entropy(z, rows, torch.tensor([label]), label_smoothing=smoothing).total.item()
    losses, sums, linear = [], [], []
    for others in combinations([j for j in range(n) if j != label], R - 1):
        sample = rows[[label, *others]]
        loss = batch_cross_entropy(z, sample, zero, label_smoothing=smoothing, population=n).total.item()
        logits = (z @ sample.T)[0]
        total = (logits[0].exp() + (n - 1) / (R - 1) * logits[1:].exp().sum()).item()
        losses.append(loss)
        sums.append(total)
        linear.append(math.log(total) - loss)
    logits = (z @ rows.T)[0]
    mean = logits.exp().sum().item()
    target = (1 - smoothing) * logits[label].item() + smoothing * logits.mean().item()
    assert np.mean(sums) == pytest.approx(mean, rel=1e-12)
    assert np.mean(linear) == pytest.approx(target, rel=1e-10, abs=1e-12)
    bias = full - np.mean(losses)
    assert 0 < bias < np.var(sums) / (2 * min(sums) ** 2)


def cosine(a: Tensor, b: Tensor) -> float:
    return torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0).item()


def gradients(z: Tensor, head: Tensor, index: Tensor, **options: float) -> tuple[Tensor, Tensor]:
    """Return dL/dz with all rows (without `population`), and with the rows of the batch only."""
    z = z.clone().requires_grad_()
    smoothing = options.get("label_smoothing", 0.8)
    full = batch_cross_entropy(z, head, index, label_smoothing=smoothing).total
    batch = batch_cross_entropy(z, head[index], torch.arange(len(index)), **options).total  # type: ignore[arg-type]
    return torch.autograd.grad(full, z)[0], torch.autograd.grad(batch, z)[0]


@pytest.mark.parametrize(("n", "b"), [(8, 2), (64, 16), (200, 199)])
def test_cosine_of_gradients_for_orthonormal_rows_and_equal_logits(n: int, b: int) -> None:
    """For orthonormal rows and equal logits, cos = √((1−1/b)/(1−1/n)) exactly."""
    full, batch = gradients(torch.zeros(b, n, dtype=torch.float64), torch.eye(n, dtype=torch.float64), torch.arange(b))
    assert cosine(full, batch) == pytest.approx(math.sqrt((1 - 1 / b) / (1 - 1 / n)), abs=1e-12)


def test_cosine_of_gradients_for_random_rows() -> None:
    """For rows N(0, 1/D) and unit embeddings, the cosine is 0.99817 at n = 4096 and b = 256.

    1 − cos is half of ‖mean of b rows − mean of n rows‖², a χ² with D degrees of freedom. Its relative standard
    deviation is √(2/D).
    """
    n, b, D = 4096, 256, 1024
    head = torch.randn(n, D) / math.sqrt(D)
    z = torch.nn.functional.normalize(torch.randn(b, D), dim=1)
    full, batch = gradients(z, head, torch.randperm(n)[:b], label_smoothing=0.0)
    assert cosine(full, batch) == pytest.approx(0.99817, abs=4 * math.sqrt(2 / D) * (1 - 0.99817))


@pytest.mark.parametrize(("scale", "smoothing", "below", "above"), [(20.0, 0.0, 0.9, 0.95), (10.0, 0.8, 0.2, 0.9)])
def test_population_turns_the_gradient_towards_the_full_one(
    scale: float, smoothing: float, below: float, above: float
) -> None:
    """After some training z points towards its own row. Then batch and full cross entropy have different gradients."""
    n, b, D = 4096, 256, 128
    head = torch.nn.functional.normalize(torch.randn(n, D), dim=1)
    index = torch.randperm(n)[:b]
    other = torch.nn.functional.normalize(torch.randn(b, D), dim=1)
    z = scale * torch.nn.functional.normalize(head[index] + 2 * other, dim=1)
    full, batch = gradients(z, head, index, label_smoothing=smoothing)
    _, sampled = gradients(z, head, index, label_smoothing=smoothing, population=n)
    assert cosine(full, batch) < below
    assert cosine(full, sampled) > above


@pytest.mark.parametrize("population", [None, 30])
def test_gradient_equals_finite_differences(population: int | None) -> None:
    z, rows = randn(5, 4).requires_grad_(), randn(6, 4).requires_grad_()
    labels = torch.tensor([3, 0, 5, 3, 1])
    assert torch.autograd.gradcheck(
        lambda z, rows: batch_cross_entropy(z, rows, labels, population=population).total, (z, rows)
    )


def test_squared_error_equals_a_loop_over_samples_and_finite_differences() -> None:
    z, rows, labels = randn(2, 5, 4).requires_grad_(), randn(6, 4).requires_grad_(), torch.tensor([3, 0, 5, 3, 1])
    found = squared_error(z, rows, labels)
    losses = [
        sum((float(row @ anchor) - (number == label)) ** 2 for number, row in enumerate(rows.detach())) / 2
        for view in z.detach()
        for anchor, label in zip(view, labels.tolist(), strict=True)
    ]
    assert found.total.item() == pytest.approx(np.mean(losses), rel=1e-12)
    assert torch.autograd.gradcheck(lambda z, rows: squared_error(z, rows, labels).total, (z, rows))


@pytest.mark.parametrize("population", [None, 30])
def test_loss_is_invariant_to_permutations_and_rotations(population: int | None) -> None:
    z, rows, labels = randn(5, 4), randn(6, 4), torch.tensor([3, 0, 5, 3, 1])
    value = batch_cross_entropy(z, rows, labels, population=population).total.item()
    order, place = torch.randperm(5), torch.randperm(6)
    moved = batch_cross_entropy(z[order], rows[place], place.argsort()[labels[order]], population=population)
    assert moved.total.item() == pytest.approx(value, rel=1e-12)
    rotation = torch.linalg.qr(randn(4, 4)).Q
    turned = batch_cross_entropy(z @ rotation, rows @ rotation, labels, population=population)
    assert turned.total.item() == pytest.approx(value, rel=1e-12)


@settings(max_examples=40)
@given(
    scale=st.sampled_from([1e-4, 1.0, 1e4]),
    dtype=st.sampled_from([torch.bfloat16, torch.float32, torch.float64]),
    kind=st.sampled_from(["random", "identical samples", "zero"]),
    shape=st.sampled_from([(2, 1), (2, 3), (9, 4)]),
    population=st.sampled_from([None, 50_000]),
)
def test_degenerate_inputs_give_finite_losses_and_gradients(
    scale: float, dtype: torch.dtype, kind: str, shape: tuple[int, int], population: int | None
) -> None:
    z, rows = randn(*shape), randn(*shape)
    if kind == "identical samples":
        z[:], rows[:] = z[:1].clone(), rows[:1].clone()
    elif kind == "zero":
        z[0], rows[0] = 0, 0
    z, rows = ((x * scale).to(dtype).requires_grad_() for x in (z, rows))
    total = batch_cross_entropy(z, rows, torch.arange(shape[0]), population=population).total
    total.backward()
    assert total.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    for value in (total, z.grad, rows.grad):
        assert value is not None
        assert torch.isfinite(value).all()


def test_logits_are_float32_under_autocast() -> None:
    z, rows, labels = torch.randn(8, 16), torch.randn(8, 16), torch.arange(8)
    expected = batch_cross_entropy(z, rows, labels).total.item()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert batch_cross_entropy(z, rows, labels).total.item() == expected


def test_loss_and_gradient_are_zero_with_one_row() -> None:
    z = torch.randn(1, 3, requires_grad=True)
    total = batch_cross_entropy(z, torch.randn(1, 3), torch.zeros(1, dtype=torch.long)).total
    total.backward()
    assert total.item() == pytest.approx(0, abs=1e-6)
    assert z.grad is not None
    assert z.grad.abs().max().item() == pytest.approx(0, abs=1e-6)


def test_loss_does_not_synchronize_with_the_host() -> None:
    with FakeTensorMode():
        z = torch.randn(5, 4, requires_grad=True)
        batch_cross_entropy(z, torch.randn(6, 4), torch.zeros(5, dtype=torch.long), population=9).total.backward()


@pytest.mark.parametrize("population", [None, 5000])
@pytest.mark.parametrize("label", [-1, 4])
def test_label_without_a_row_raises_an_error(population: int | None, label: int) -> None:
    with pytest.raises(RuntimeError, match="out of bounds"):
        batch_cross_entropy(randn(1, 3), randn(4, 3), torch.tensor([label]), population=population)


def test_invalid_arguments_raise_errors() -> None:
    z, labels = torch.randn(3, 2), torch.zeros(3, dtype=torch.long)
    for rows, population in [(3, 2), (1, 5)]:
        with pytest.raises(TwofoldError, match=f"population={population}"):
            batch_cross_entropy(z, torch.randn(rows, 2), labels, population=population)
    for smoothing in (-0.1, 1.5):
        with pytest.raises(TwofoldError, match="label_smoothing"):
            batch_cross_entropy(z, torch.randn(3, 2), labels, label_smoothing=smoothing)
