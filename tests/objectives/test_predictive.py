"""Predictive losses compared with sums over samples, and IsoLoss with the gradients of the paper's equations."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from twofold.errors import TwofoldError
from twofold.objectives.predictive import Distance, asymmetric, isoloss

DISTANCES: list[Distance] = ["cosine", "euclidean"]


def embeddings(n: int = 7, d: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """z, target, and a symmetric positive W_P whose eigenvalues are far apart."""
    z, target = torch.randn(2, n, d, dtype=torch.float64)
    rotation = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64)).Q
    return z, target, rotation @ torch.logspace(0, -2, d, dtype=torch.float64).diag() @ rotation.T


def gradient(loss: Tensor, z: Tensor) -> Tensor:
    return torch.autograd.grad(loss, z, retain_graph=True)[0]


def distance_by_hand(prediction: list[float], target: list[float], distance: Distance) -> float:
    if distance == "euclidean":
        return sum((a - b) ** 2 for a, b in zip(prediction, target, strict=True)) / 2
    dot = sum(a * b for a, b in zip(prediction, target, strict=True))
    return -dot / (math.hypot(*prediction) * math.hypot(*target))


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("with_matrix", [True, False])
def test_value_is_the_mean_over_samples(distance: Distance, with_matrix: bool) -> None:
    z, target, _ = embeddings()
    matrix = torch.randn(4, 4, dtype=torch.float64) if with_matrix else None  # not symmetric, to tell W z from Wᵀ z
    total = 0.0
    for row, other in zip(z.tolist(), target.tolist(), strict=True):
        if matrix is not None:
            row = [sum(w * x for w, x in zip(weights, row, strict=True)) for weights in matrix.tolist()]
        total += distance_by_hand(row, other, distance) / len(z)
    loss = asymmetric(z, target, matrix, distance=distance)
    assert loss.total.item() == pytest.approx(total, abs=1e-12)
    assert loss.terms[distance].item() == loss.total.item()
    if matrix is not None:
        assert isoloss(z, target, matrix, distance=distance).total.item() == pytest.approx(total, abs=1e-12)


def test_values_equal_those_computed_by_hand() -> None:
    z, target = torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 2.0]])
    halve = torch.tensor([[1.0, 0.0], [0.0, 0.5]])  # W z = (3, 2)
    assert asymmetric(z, target).total.item() == pytest.approx(-0.8)
    assert asymmetric(z, target, distance="euclidean").total.item() == pytest.approx(6.5)
    assert isoloss(z, target, halve).total.item() == pytest.approx(-2 / math.sqrt(13))
    assert isoloss(z, target, halve, distance="euclidean").total.item() == pytest.approx(4.5)


@pytest.mark.parametrize("distance", DISTANCES)
def test_gradients_of_asymmetric_equal_finite_differences(distance: Distance) -> None:
    z, target, matrix = (x.requires_grad_() for x in embeddings())
    fixed_target = target.detach()

    def stopped(z: Tensor, matrix: Tensor) -> Tensor:
        return asymmetric(z, fixed_target, matrix, distance=distance).total

    def free(z: Tensor, target: Tensor, matrix: Tensor) -> Tensor:
        return asymmetric(z, target, matrix, distance=distance, stop_gradient=False).total

    assert torch.autograd.gradcheck(stopped, (z, matrix))
    assert torch.autograd.gradcheck(free, (z, target, matrix))


@pytest.mark.parametrize("distance", DISTANCES)
def test_targets_and_the_predictor_of_isoloss_get_no_gradient(distance: Distance) -> None:
    z, target, matrix = (x.requires_grad_() for x in embeddings())
    loss = asymmetric(z, target, matrix, distance=distance)
    assert torch.autograd.grad(loss.total, target, allow_unused=True)[0] is None
    assert not any(term.requires_grad for term in loss.terms.values())
    loss = isoloss(z, target, matrix, distance=distance)
    assert torch.autograd.grad(loss.total, (target, matrix), allow_unused=True, retain_graph=True) == (None, None)
    assert gradient(loss.total, z).abs().sum() > 0


def test_euclidean_isoloss_equals_equation_15() -> None:
    z, target, matrix = embeddings()
    z.requires_grad_()
    fixed = (target + z - z @ matrix).detach()
    equation = 0.5 * (z - fixed).square().sum(dim=1).mean()
    loss = isoloss(z, target, matrix, distance="euclidean").total
    assert loss.item() == pytest.approx(equation.item(), abs=1e-12)
    torch.testing.assert_close(gradient(loss, z), gradient(equation, z), rtol=1e-12, atol=1e-14)


def test_cosine_isoloss_has_the_gradient_of_equation_17() -> None:
    z, target, matrix = embeddings()
    z.requires_grad_()
    values, vectors = torch.linalg.eigh(matrix)
    root = vectors @ values.sqrt().diag() @ vectors.T
    equation = torch.zeros((), dtype=torch.float64)
    for row, other in zip(z, target, strict=True):
        length = (matrix @ row).norm().detach()
        pull = (other / (length * other.norm())).detach()
        push = ((matrix @ row) @ other / (length**3 * other.norm())).detach()
        equation = equation - row @ pull + 0.5 * push * (root @ row).square().sum()
    torch.testing.assert_close(
        gradient(isoloss(z, target, matrix).total, z), gradient(equation / len(z), z), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("distance", DISTANCES)
def test_isoloss_removes_one_factor_of_the_predictor_from_the_gradient(distance: Distance) -> None:
    z, target, matrix = embeddings()
    z.requires_grad_()
    plain = gradient(asymmetric(z, target, matrix, distance=distance).total, z)
    iso = gradient(isoloss(z, target, matrix, distance=distance).total, z)
    torch.testing.assert_close(iso @ matrix, plain, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("distance", DISTANCES)
def test_isoloss_has_exactly_the_value_of_asymmetric_for_small_predictions(distance: Distance) -> None:
    z, target, matrix = (x.float() for x in embeddings())
    loss = isoloss(z, target, 1e-6 * matrix, distance=distance)
    assert loss.total.item() == asymmetric(z, target, 1e-6 * matrix, distance=distance).total.item()


@pytest.mark.parametrize("distance", DISTANCES)
def test_loss_and_gradient_are_invariant_to_rotations_and_sample_order(distance: Distance) -> None:
    z, target, matrix = embeddings()
    z.requires_grad_()
    rotation, order = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q, torch.randperm(len(z))
    turned = (z[order] @ rotation, target[order] @ rotation, rotation.T @ matrix @ rotation)
    for objective in (asymmetric, isoloss):
        loss, same = objective(z, target, matrix, distance=distance), objective(*turned, distance=distance)
        assert same.total.item() == pytest.approx(loss.total.item(), abs=1e-12)
        torch.testing.assert_close(gradient(same.total, z), gradient(loss.total, z), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("distance", DISTANCES)
def test_loss_without_predictor_is_symmetric(distance: Distance) -> None:
    z, target, _ = embeddings()
    loss, swapped = asymmetric(z, target, distance=distance), asymmetric(target, z, distance=distance)
    assert swapped.total.item() == pytest.approx(loss.total.item(), abs=1e-14)


@settings(max_examples=60)
@given(
    n=st.sampled_from([1, 2, 5]),
    d=st.sampled_from([1, 3]),
    scale=st.sampled_from([1e-4, 1.0, 1e4]),
    kind=st.sampled_from(["random", "identical", "zero row", "all zero", "target without variance"]),
    dtype=st.sampled_from([torch.bfloat16, torch.float32, torch.float64]),
    distance=st.sampled_from(DISTANCES),
    matrix_kind=st.sampled_from(["zero", "identity", "rank one"]),
)
def test_loss_and_gradient_stay_finite(
    n: int, d: int, scale: float, kind: str, dtype: torch.dtype, distance: Distance, matrix_kind: str
) -> None:
    z, target = scale * torch.randn(2, n, d)
    if kind == "identical":
        z = target = z[:1].expand(n, d)
    elif kind == "zero row":
        z, target = (torch.cat([torch.zeros(1, d), x[1:]]) for x in (z, target))
    elif kind == "all zero":
        z, target = torch.zeros(2, n, d)
    elif kind == "target without variance":
        target = target[:1].expand(n, d)
    matrix = {"zero": torch.zeros(d, d), "identity": torch.eye(d), "rank one": torch.ones(d, d) / d}[matrix_kind]
    z = z.to(dtype).clone().requires_grad_()
    for loss in (
        asymmetric(z, target.to(dtype), matrix, distance=distance),
        isoloss(z, target.to(dtype), matrix, distance=distance),
    ):
        assert loss.total.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert torch.isfinite(loss.total)
        assert torch.isfinite(gradient(loss.total, z)).all()


@pytest.mark.parametrize("distance", DISTANCES)
def test_losses_do_not_synchronize_with_the_host(distance: Distance) -> None:
    with FakeTensorMode():  # fake tensors raise an error if code reads a value
        z = torch.randn(5, 4, requires_grad=True)
        asymmetric(z, torch.randn(5, 4), torch.randn(4, 4), distance=distance).total.backward()
        isoloss(z, torch.randn(5, 4), torch.randn(4, 4), distance=distance).total.backward()


def test_invalid_arguments_raise_errors() -> None:
    z = torch.randn(3, 2)
    with pytest.raises(TwofoldError, match="'cosin' is unknown, did you mean 'cosine'"):
        asymmetric(z, z, distance="cosin")  # type: ignore[arg-type]
    with pytest.raises(TwofoldError, match=r"\[3, 2\] and \[1, 2\]"):
        isoloss(z, z[:1], torch.eye(2))
    with pytest.raises(TwofoldError, match="N at least 1"):
        asymmetric(z[:0], z[:0])
