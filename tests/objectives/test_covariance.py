"""Covariance losses compared with sums over dimensions, and shards of a batch with the whole batch."""

import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from naive_covariance import naive_barlow_twins, naive_frossl, naive_vicreg, naive_w_mse
from trials import assert_same_in_a_cuda_graph
from twofold.errors import TwofoldError
from twofold.linalg import covariance, whitened
from twofold.objectives.covariance import (
    barlow_twins,
    barlow_twins_of_moments,
    frossl,
    frossl_of_moments,
    vicreg,
    vicreg_of_moments,
    w_mse,
)
from twofold.objectives.moments import Moments, moments
from twofold.types import LossTerms

Loss = Callable[[Tensor], LossTerms]
VICREG = {"invariance": 25.0, "variance": 25.0, "covariance": 1.0, "epsilon": 1e-4}
BARLOW = {"weight": 5e-3, "scale": 1.0, "epsilon": 0.0}
OF_MOMENTS: dict[str, tuple[Loss, Callable[[Tensor], Moments], Callable[[Moments], LossTerms]]] = {
    "frossl": (frossl, moments, frossl_of_moments),
    "frossl without logarithm": (
        functools.partial(frossl, logarithm=False),
        moments,
        functools.partial(frossl_of_moments, logarithm=False),
    ),
    "weighted frossl": (
        functools.partial(frossl, weight=0.3),
        moments,
        functools.partial(frossl_of_moments, weight=0.3),
    ),
    "frossl of unit trace": (
        functools.partial(frossl, logarithm=False, unit_trace=True),
        moments,
        functools.partial(frossl_of_moments, logarithm=False, unit_trace=True),
    ),
    "vicreg": (vicreg, moments, functools.partial(vicreg_of_moments, **VICREG)),
    "barlow_twins": (
        barlow_twins,
        functools.partial(moments, within=False, between=True),
        functools.partial(barlow_twins_of_moments, **BARLOW),
    ),
}
LOSSES: dict[str, Loss] = {name: loss for name, (loss, *_) in OF_MOMENTS.items()} | {
    "w_mse": w_mse,
    "w_mse euclidean": functools.partial(w_mse, normalize=False),
    "w_mse in parts": functools.partial(w_mse, sub_batch=6, shrinkage=0.1),
}
SHAPES = [(2, 11, 4), (2, 4, 11), (3, 7, 5), (3, 5, 7), (4, 6, 6)]


def views(V: int, N: int, D: int, mean: float = 3.0) -> Tensor:
    """Similar views with correlated dimensions of different scale."""
    shared = torch.randn(N, D, dtype=torch.float64)
    z = shared + 0.5 * torch.randn(V, N, D, dtype=torch.float64)
    return z @ torch.randn(D, D, dtype=torch.float64) * torch.logspace(-0.5, 0.5, D, dtype=torch.float64) + mean


def value_and_gradient(loss: Loss, z: Tensor) -> tuple[float, Tensor]:
    z = z.detach().clone().requires_grad_()
    total = loss(z).total
    return total.item(), torch.autograd.grad(total, z)[0]


@pytest.mark.parametrize("shape", SHAPES)
def test_values_equal_the_numpy_references(shape: tuple[int, int, int]) -> None:
    z = views(*shape)
    x = z.numpy()
    assert frossl(z).total.item() == pytest.approx(naive_frossl(x), rel=1e-9)
    assert frossl(z, logarithm=False).total.item() == pytest.approx(naive_frossl(x, logarithm=False), rel=1e-9)
    of_unit_trace = naive_frossl(x, logarithm=False, unit_trace=True)
    assert frossl(z, logarithm=False, unit_trace=True).total.item() == pytest.approx(of_unit_trace, rel=1e-9)
    for weight, centre in ((0.3, True), (1.0, False), (4.0, False)):
        expected = naive_frossl(x, weight=weight, centre=centre)
        assert frossl(z, weight=weight, centre=centre).total.item() == pytest.approx(expected, rel=1e-9)
    assert barlow_twins(z).total.item() == pytest.approx(naive_barlow_twins(x), rel=1e-9)
    for scale in (0.05, 0.3, 1.0):  # the hinge is active for all, some and no dimensions
        assert vicreg(scale * z).total.item() == pytest.approx(naive_vicreg(scale * x), rel=1e-9)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(
    ("sub_batch", "groups"),
    [(None, [range(11)]), (20, [range(11)]), (4, [range(4), range(4, 11)]), (5, [range(5), range(5, 11)])],
)
def test_w_mse_equals_the_numpy_reference(normalize: bool, sub_batch: int | None, groups: list[range]) -> None:
    z = torch.randn(11, 3, dtype=torch.float64) + 0.5 * torch.randn(3, 11, 3, dtype=torch.float64)
    order = torch.randperm(11)
    chosen = [[order[i].item() for i in group] for group in groups]
    for shrinkage in (0.0, 0.2):
        loss = w_mse(z, sub_batch=sub_batch, normalize=normalize, shrinkage=shrinkage, order=order)
        assert loss.total.item() == pytest.approx(naive_w_mse(z.numpy(), chosen, shrinkage, normalize), rel=1e-9)


def test_whitened_samples_have_identity_covariance() -> None:
    mixing = torch.eye(6, dtype=torch.float64) + 0.2 * torch.randn(6, 6, dtype=torch.float64)
    z = torch.randn(2, 40, 6, dtype=torch.float64) @ mixing + 50
    white = whitened(z)
    torch.testing.assert_close(covariance(white), torch.eye(6, dtype=torch.float64).expand(2, 6, 6), rtol=0, atol=1e-11)
    torch.testing.assert_close(white.mean(dim=1), torch.zeros(2, 6, dtype=torch.float64), rtol=0, atol=1e-11)


def test_values_equal_those_computed_by_hand() -> None:
    # Columns (−1, 1), (−1, 1) in view 1 and (−1, 1), (1, −1) in view 2: all correlations are 1 or −1.
    z = torch.tensor([[[-1.0, -1.0], [1.0, 1.0]], [[-1.0, 1.0], [1.0, -1.0]]], dtype=torch.float64)
    # ‖ZᵀZ‖² = 4 for each view; the second columns are opposite: ‖Z_1 − Z_2‖² = 4, over N = 2.
    assert frossl(z).total.item() == pytest.approx(2 * np.log(4) + 2, abs=1e-12)
    # c = [[1, −1], [1, −1]]: the diagonal costs (1 − 1)² + (1 + 1)², and each off-diagonal entry 1.
    assert barlow_twins(z).total.item() == pytest.approx(4 + 5e-3 * 2, abs=1e-12)
    assert barlow_twins(z, weight=1.0, scale=0.1).total.item() == pytest.approx(0.6, abs=1e-12)
    # Differences 0 and ±2: mean square 2. Variances 2: no hinge. Covariances ±2: 2·4/2 for each view.
    terms = vicreg(z).terms
    assert {name: term.item() for name, term in terms.items()} == pytest.approx(
        {"invariance": 50.0, "variance": 0.0, "covariance": 8.0}, abs=1e-12
    )
    # At a tenth of the scale, variances are 0.02.
    assert vicreg(z / 10).terms["variance"].item() == pytest.approx(25 * 2 * (1 - np.sqrt(0.0201)), abs=1e-12)


@pytest.mark.parametrize("name", OF_MOMENTS)
@pytest.mark.parametrize("shape", [(2, 4, 11), (3, 5, 7)])
def test_losses_from_gram_and_covariance_matrices_are_equal(name: str, shape: tuple[int, int, int]) -> None:
    """With fewer samples than dimensions, the loss uses N×N matrices. It must equal the loss from D×D matrices."""
    loss, statistics, of_moments = OF_MOMENTS[name]
    z = views(*shape)
    value, gradient = value_and_gradient(loss, z)
    expected, expected_gradient = value_and_gradient(lambda z: of_moments(statistics(z)), z)
    assert value == pytest.approx(expected, rel=1e-10)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-10, atol=1e-10 * gradient.abs().max().item())


@pytest.mark.parametrize("name", OF_MOMENTS)
@pytest.mark.parametrize("sizes", [(4, 9), (1, 12), (2, 3, 8)])
@pytest.mark.parametrize("mean", [0.0, 100.0])
def test_loss_of_merged_shards_equals_that_of_the_batch(name: str, sizes: tuple[int, ...], mean: float) -> None:
    loss, statistics, of_moments = OF_MOMENTS[name]
    z = views(3, 13, 5, mean=mean)
    z[:, :4] += 2.0  # shards have different means

    def sharded(z: Tensor) -> LossTerms:
        return of_moments(functools.reduce(Moments.merge, map(statistics, z.split(sizes, dim=1))))

    def summed(z: Tensor) -> LossTerms:
        parts = [vars(statistics(part).about(13, z.mean(dim=1).detach())) for part in z.split(sizes, dim=1)]
        sums = {name: sum(part[name] for part in parts) for name, value in parts[0].items() if value is not None}
        return of_moments(Moments(**sums | {"count": 13, "mean_VD": z.mean(dim=1).detach()}))

    expected, expected_gradient = value_and_gradient(loss, z)
    for from_shards in (sharded, summed):
        value, gradient = value_and_gradient(from_shards, z)
        assert value == pytest.approx(expected, rel=1e-10)
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-10, atol=1e-10 * gradient.abs().max().item())


def test_vicreg_is_accurate_for_small_differences_at_a_large_mean() -> None:
    """Views differ by 1e-3 at a mean of 1000, in float32. Differences of means or second moments would be
    inaccurate."""
    base = torch.randn(64, 4, dtype=torch.float64)
    step = torch.randn(64, 4, dtype=torch.float64) * 2.0**-10
    z = (torch.stack([base, base + step]) + 1000).float()
    exact = (z[0].double() - z[1].double()).square().mean().item()
    for terms in (vicreg(z).terms, vicreg_of_moments(moments(z[:, :20]).merge(moments(z[:, 20:])), **VICREG).terms):
        assert terms["invariance"].item() / 25 == pytest.approx(exact, rel=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradient_of_frossl_without_centring_equals_finite_differences(shape: tuple[int, int, int]) -> None:
    z = views(*shape, mean=0.5).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: frossl(z, centre=False).total, (z,))


def test_centring_changes_the_gradient_of_frossl_only_if_columns_have_large_means() -> None:
    z = views(2, 64, 8, mean=0.0)
    z = (z - z.mean(dim=1, keepdim=True)) / z.std(dim=1, keepdim=True)
    agreements = []
    for mean in (0.0, 0.1, 1.0):
        _, one = value_and_gradient(frossl, z + mean)
        _, other = value_and_gradient(functools.partial(frossl, centre=False), z + mean)
        agreements.append(torch.cosine_similarity(one.flatten(), other.flatten(), dim=0).item())
    assert agreements[0] == pytest.approx(1, abs=1e-12)
    assert agreements[1] > 0.9
    assert agreements[2] < 0.5


def test_frossl_equals_its_form_in_correlations() -> None:
    z = views(2, 12, 5)
    R = torch.corrcoef(torch.cat([z[0], z[1]], dim=1).T)
    own = [R[:5, :5].square().sum().log(), R[5:, 5:].square().sum().log()]
    expected = own[0] + own[1] + (2 / 12) * (5 - R[:5, 5:].trace())
    assert frossl(z).total.item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shape", [(2, 9, 4), (3, 4, 6)])
def test_gradient_equals_finite_differences(name: str, shape: tuple[int, int, int]) -> None:
    if name in ("w_mse", "w_mse euclidean") and shape[1] <= shape[2]:
        shape = (3, 8, 6)
    z = views(*shape, mean=0.0).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: LOSSES[name](z).total, (z,))


@pytest.mark.parametrize("name", LOSSES)
def test_loss_is_invariant_to_the_order_of_views_and_samples(name: str) -> None:
    loss = LOSSES[name]
    z = views(3, 9, 4)
    value, gradient = value_and_gradient(loss, z)
    swapped, swapped_gradient = value_and_gradient(loss, z.flip(0))
    assert swapped == pytest.approx(value, rel=1e-11)
    torch.testing.assert_close(swapped_gradient.flip(0), gradient, rtol=1e-9, atol=1e-9)
    order = torch.randperm(9)
    assert loss(z[:, order]).total.item() == pytest.approx(value, rel=1e-11)


@pytest.mark.parametrize("name", ["frossl", "frossl without logarithm", "barlow_twins"])
@pytest.mark.parametrize("shape", [(2, 9, 4), (2, 4, 9)])
def test_correlation_losses_are_invariant_to_scale_and_mean(name: str, shape: tuple[int, int, int]) -> None:
    z = views(*shape)
    moved = z * torch.rand(2, 1, shape[2], dtype=torch.float64).add(0.1) + torch.randn(2, 1, shape[2]).double()
    assert LOSSES[name](moved).total.item() == pytest.approx(LOSSES[name](z).total.item(), rel=1e-10)


def test_w_mse_is_invariant_to_lower_triangular_maps_of_each_view() -> None:
    z = views(2, 12, 4)
    maps = torch.randn(2, 4, 4, dtype=torch.float64).tril()
    maps.diagonal(dim1=1, dim2=2).abs_().add_(0.2)
    for loss in (LOSSES["w_mse"], LOSSES["w_mse euclidean"]):
        assert loss(z @ maps.mT).total.item() == pytest.approx(loss(z).total.item(), rel=1e-9)


def test_barlow_twins_with_epsilon_equals_batch_norm() -> None:
    z = views(2, 10, 4) * 0.01
    one, other = (torch.nn.functional.batch_norm(view, None, None, training=True, eps=1e-5) for view in z)
    c = one.T @ other / 10
    expected = (1 - c.diagonal()).square().sum() + 5e-3 * (c - c.diag().diag()).square().sum()
    assert barlow_twins(z, epsilon=1e-5).total.item() == pytest.approx(expected.item(), rel=1e-10)
    assert abs(barlow_twins(z).total.item() / expected.item() - 1) > 1e-3


@pytest.mark.parametrize("name", LOSSES)
def test_terms_are_the_parts_of_the_total(name: str) -> None:
    result = LOSSES[name](views(2, 9, 4).requires_grad_())
    assert sum(term.item() for term in result.terms.values()) == pytest.approx(result.total.item(), rel=1e-12)
    assert not any(term.requires_grad for term in result.terms.values())


@pytest.mark.parametrize("name", LOSSES)
def test_autocast_and_half_inputs_are_computed_in_float32(name: str) -> None:
    z = views(2, 16, 4, mean=0.0).bfloat16()
    expected = LOSSES[name](z.float()).total
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = LOSSES[name](z).total
    assert result.dtype == torch.float32
    assert result.item() == expected.item()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shape", [(2, 9, 4), (3, 5, 8)])
def test_losses_do_not_synchronize_with_the_host(name: str, shape: tuple[int, int, int]) -> None:
    """Fake tensors raise an error if code reads a value or needs a shape that depends on values."""
    if name in ("w_mse", "w_mse euclidean") and shape[1] <= shape[2]:
        shape = (3, 12, 8)
    with FakeTensorMode():
        z = torch.randn(*shape, requires_grad=True)
        LOSSES[name](z).total.backward()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shape", [(2, 96, 32), (2, 32, 96)])
def test_losses_can_be_captured_in_a_cuda_graph(name: str, shape: tuple[int, int, int]) -> None:
    if name in ("w_mse", "w_mse euclidean") and shape[1] <= shape[2]:
        pytest.skip("w_mse needs more samples than dimensions")
    z = views(*shape, mean=0.0).float().cuda().requires_grad_()

    def step() -> Tensor:
        return torch.autograd.grad(LOSSES[name](z).total, z)[0]

    assert_same_in_a_cuda_graph(step)


def degenerate(kind: str, z: Tensor) -> Tensor:
    """Embeddings that may cause a division by zero."""
    z = z.clone()
    if kind == "identical samples":
        z[:] = z[:, :1]
    elif kind == "identical views":
        z[:] = z[:1]
    elif kind == "a zero vector":
        z[:, 0] = 0
    elif kind == "all zero":
        z[:] = 0
    elif kind == "one view without variance":
        z[0] = z[0, :1]
    elif kind == "one dimension without variance":
        z[:, :, 0] = 1
    return z


KINDS = [
    "random",
    "identical samples",
    "identical views",
    "a zero vector",
    "all zero",
    "one view without variance",
    "one dimension without variance",
]


@settings(max_examples=80)
@given(
    name=st.sampled_from(sorted(LOSSES)),
    kind=st.sampled_from(KINDS),
    scale=st.sampled_from([1e-4, 1.0, 1e4]),
    dtype=st.sampled_from([torch.bfloat16, torch.float32, torch.float64]),
    shape=st.sampled_from([(2, 2, 1), (2, 2, 3), (3, 5, 1), (2, 9, 4), (3, 3, 8), (2, 64, 32)]),
)
def test_degenerate_inputs_give_finite_losses_and_gradients(
    name: str, kind: str, scale: float, dtype: torch.dtype, shape: tuple[int, int, int]
) -> None:
    z = (degenerate(kind, torch.randn(shape, dtype=torch.float64)) * scale).to(dtype).requires_grad_()
    if name in ("w_mse", "w_mse euclidean") and shape[1] <= shape[2]:
        with pytest.raises(TwofoldError, match="more samples than dimensions"):
            LOSSES[name](z)
        return
    total = LOSSES[name](z).total
    total.backward()
    assert z.grad is not None
    assert torch.isfinite(total)
    assert torch.isfinite(z.grad).all()


@pytest.mark.parametrize("name", LOSSES)
def test_fewer_than_two_views_raise_an_error(name: str) -> None:
    for shape in [(1, 8, 3), (8, 3)]:
        with pytest.raises(TwofoldError, match="two views"):
            LOSSES[name](torch.randn(shape))


@pytest.mark.parametrize("name", OF_MOMENTS)
def test_one_sample_raises_an_error(name: str) -> None:
    loss, statistics, of_moments = OF_MOMENTS[name]
    for D in (1, 3):
        with pytest.raises(TwofoldError, match="two samples"):
            loss(torch.randn(2, 1, D))
        with pytest.raises(TwofoldError, match="two samples"):
            of_moments(statistics(torch.randn(2, 1, D)))


def test_moments_without_a_needed_matrix_raise_an_error() -> None:
    with pytest.raises(TwofoldError, match="within=True"):
        frossl_of_moments(moments(torch.randn(2, 5, 3), within=False))
    with pytest.raises(TwofoldError, match="between=True"):
        barlow_twins_of_moments(moments(torch.randn(2, 5, 3)), **BARLOW)


@pytest.mark.parametrize("name", OF_MOMENTS)
@pytest.mark.parametrize("shape", [(2, 6, 3), (2, 3, 7), (3, 4, 3)])
def test_second_derivatives_equal_finite_differences(name: str, shape: tuple[int, int, int]) -> None:
    z = views(*shape, mean=0.0).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda z: LOSSES[name](z).total, (z,))


@pytest.mark.parametrize("name", ["frossl", "barlow_twins"])
@pytest.mark.parametrize("shape", [(2, 9, 4), (2, 4, 9)])
def test_gradient_of_a_constant_column_equals_that_from_moments(name: str, shape: tuple[int, int, int]) -> None:
    z = views(*shape, mean=0.0)
    z[0, :, 1] = 0.5
    z[0, 0, 1] += 1e-8
    gradient = value_and_gradient(LOSSES[name], z)[1]
    statistics, of_moments = OF_MOMENTS[name][1:]
    expected = value_and_gradient(lambda z: of_moments(statistics(z)), z)[1]
    torch.testing.assert_close(gradient, expected, rtol=1e-7, atol=1e-7 * expected.abs().max().item())


@pytest.mark.skipif(
    torch.__version__.startswith("2.11."), reason="torch 2.11 compiles wrong gradients of hand-written backward passes"
)
@pytest.mark.parametrize("name", OF_MOMENTS)
@pytest.mark.parametrize("shape", [(2, 9, 4), (2, 4, 9)])
def test_losses_compile_to_a_single_graph(name: str, shape: tuple[int, int, int]) -> None:
    z = views(*shape, mean=0.0)
    torch._dynamo.reset()  # all cases compile the same function, together more often than the recompilation limit
    compiled = torch.compile(lambda z: LOSSES[name](z), fullgraph=True, backend="aot_eager")
    value, gradient = value_and_gradient(compiled, z)
    expected, expected_gradient = value_and_gradient(LOSSES[name], z)
    assert value == pytest.approx(expected, rel=1e-12)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-10, atol=1e-10)
