"""Relational objectives compared with ridge regression, Procrustes and SVDs, and the theorems that relate them."""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, Ridge
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from trials import assert_same_in_a_cuda_graph
from twofold.errors import TwofoldError
from twofold.linalg import cholesky, polar_factor, whitened
from twofold.objectives.covariance import vicreg, w_mse
from twofold.objectives.graphs import label_graph, view_graph
from twofold.objectives.relational import graph_vicreg, orthogonal_head, ridge_graph, ridge_labels
from twofold.types import LossTerms

SHAPES = [(12, 4), (4, 12), (7, 7), (7, 6)]  # rows, features
RIDGES = [1e-3, 0.3, 10.0]


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def gradient(loss: Callable[[Tensor], LossTerms], features: Tensor) -> Tensor:
    features = features.detach().clone().requires_grad_()
    return torch.autograd.grad(loss(features).total, features)[0]


def centring(N: int) -> Tensor:
    return torch.eye(N, dtype=torch.float64) - 1 / N


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ridge", RIDGES)
def test_ridge_labels_equals_the_loss_of_ridge_regression(shape: tuple[int, int], ridge: float) -> None:
    N, K = shape
    f, y = randn(N, K) + 2, randn(N, 3) - 1
    model = Ridge(alpha=ridge * N, solver="svd").fit(f.numpy(), y.numpy())
    error = ((model.predict(f.numpy()) - y.numpy()) ** 2).sum() / N + ridge * (model.coef_**2).sum()
    assert ridge_labels(f, y, ridge).total.item() == pytest.approx(error, rel=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_loss_without_ridge_equals_least_squares(shape: tuple[int, int]) -> None:
    N, K = shape
    f, y = randn(N, K) + 2, randn(N, 3) - 1
    f[:, -1] = f[:, 0] - 2 * f[:, 1]  # linearly dependent features: FᵀF is singular
    error = ((LinearRegression().fit(f.numpy(), y.numpy()).predict(f.numpy()) - y.numpy()) ** 2).sum() / N
    assert ridge_labels(f, y, 0.0).total.item() == pytest.approx(error, rel=1e-9, abs=1e-12)
    assert ridge_graph(f, y @ y.T, 0.0).total.item() == pytest.approx(error, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("shape", [(12, 4), (7, 5)])
def test_loss_without_ridge_is_the_limit_of_small_ridges(shape: tuple[int, int]) -> None:
    f = torch.linalg.qr(randn(*shape)).Q + 0.1 * randn(*shape)
    y = randn(shape[0], 3)
    head = LinearRegression().fit(f.numpy(), y.numpy()).coef_
    above = ridge_labels(f, y, 1e-11).total.item() - ridge_labels(f, y, 0.0).total.item()
    assert -1e-13 < above < 1e-11 * (head**2).sum() + 1e-13  # the penalty of the head without ridge
    expected = gradient(lambda f: ridge_labels(f, y, 1e-11), f)
    for loss in (lambda f: ridge_labels(f, y, 0.0), lambda f: ridge_graph(f, y @ y.T, 0.0)):
        torch.testing.assert_close(gradient(loss, f), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ridge", [0.0, *RIDGES])
def test_absolute_and_relative_objectives_are_equal(shape: tuple[int, int], ridge: float) -> None:
    """Theorem 1, in value and gradient."""
    f, y = randn(*shape) + 1, randn(shape[0], 3) + 1
    graph = y @ y.T
    absolute, relative = ridge_labels(f, y, ridge), ridge_graph(f, graph, ridge)
    assert relative.total.item() == pytest.approx(absolute.total.item(), rel=1e-9, abs=1e-12)
    expected = gradient(lambda f: ridge_labels(f, y, ridge), f)
    torch.testing.assert_close(gradient(lambda f: ridge_graph(f, graph, ridge), f), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ridge", RIDGES)
def test_ridge_graph_equals_its_formula_for_any_graph(shape: tuple[int, int], ridge: float) -> None:
    N, K = shape
    f, graph = randn(N, K) + 1, randn(N, N)  # neither symmetric nor positive
    H = centring(N)
    inverse = np.linalg.inv((H @ f @ f.T @ H + ridge * N * torch.eye(N, dtype=torch.float64)).numpy())
    expected = ridge * np.trace((H @ graph @ H).numpy() @ inverse)
    assert ridge_graph(f, graph, ridge).total.item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("shape", [(9, 4), (5, 8)])
@pytest.mark.parametrize("ridge", RIDGES)
def test_gradient_with_respect_to_singular_values_equals_theorem_2(shape: tuple[int, int], ridge: float) -> None:
    """Theorem 2. The gradient vanishes as σ grows."""
    N, K = shape
    U = torch.linalg.qr(centring(N) @ randn(N, 4)).Q  # orthogonal to the vector of ones, so that F is centred
    Q = torch.linalg.qr(randn(K, 4)).Q
    y = randn(N, 3)
    graph = y @ y.T
    sigma = torch.tensor([0.5, 1.0, 3.0, 100.0], dtype=torch.float64, requires_grad=True)
    values = sigma.detach()
    expected = (U.T @ graph @ U).diagonal() * (-2 * values * ridge) / (values**2 + ridge * N) ** 2
    for total in (
        ridge_graph(U @ sigma.diag() @ Q.T, graph, ridge).total,
        ridge_labels(U @ sigma.diag() @ Q.T, y, ridge).total,
    ):
        found = torch.autograd.grad(total, sigma)[0]
        torch.testing.assert_close(found[:3], expected[:3], rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(found[3], expected[3], rtol=1e-6, atol=0)


@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_view_graph_equals_labels_of_one_class_per_image(ridge: float) -> None:
    """Proposition 1."""
    N, V = 5, 3
    f = randn(V, N, 6).flatten(0, 1)
    image = torch.arange(N).repeat(V)
    expected = ridge_graph(f, view_graph(N, V), ridge).total.item()
    assert ridge_labels(f, image, ridge).total.item() == pytest.approx(expected, rel=1e-9)
    one_hot = torch.nn.functional.one_hot(image)
    assert ridge_labels(f, one_hot, ridge).total.item() == pytest.approx(expected, rel=1e-9)


def test_class_numbers_may_have_gaps_or_be_unknown() -> None:
    f = randn(6, 3)
    labels = torch.tensor([700, 3, -1, 700, 3, -1])
    one_hot = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]])
    expected = ridge_labels(f, one_hot, 0.2).total.item()
    assert ridge_labels(f, labels, 0.2).total.item() == pytest.approx(expected, rel=1e-12)
    assert ridge_graph(f, label_graph(labels), 0.2).total.item() == pytest.approx(expected, rel=1e-12)
    assert orthogonal_head(f, labels).total.item() == pytest.approx(orthogonal_head(f, one_hot).total.item())


@pytest.mark.parametrize("V", [2, 3])
@pytest.mark.parametrize("ridge", RIDGES)
def test_vicreg_and_w_mse_equal_the_relative_objective_for_white_features(V: int, ridge: float) -> None:
    """Corollary 1. With M = V·N rows, every view white, s = V(N−1) and F_cᵀF_c = s·I:

    ridge_graph = [tr HGH − (V·s·K − Σ_{v<w} ‖z_v − z_w‖²)/(s + ridge·M)] / M, and Σ_{v<w} ‖·‖² = P·N·K · w_mse.
    """
    N, K = 20, 4
    shared = randn(N, K)
    z = whitened(shared + 0.5 * randn(V, N, K))
    M, P, s = V * N, V * (V - 1) / 2, V * (N - 1)
    H = centring(M)
    trace = (H @ view_graph(N, V, dtype=torch.float64) @ H).trace().item()
    relative = ridge_graph(z.flatten(0, 1), view_graph(N, V), ridge).total.item()
    for distance in (w_mse(z, normalize=False).total.item(), vicreg(z).total.item() / 25):
        expected = (trace - (V * s * K - P * N * K * distance) / (s + ridge * M)) / M
        assert relative == pytest.approx(expected, rel=1e-9)


def test_vicreg_has_no_cost_above_its_constraint() -> None:
    """Corollary 1 with σ ≥ 1: for wider, uncorrelated features, the variance and covariance terms are 0."""
    z = whitened(randn(2, 20, 4)) * torch.tensor([1.0, 2.0, 5.0, 9.0], dtype=torch.float64)
    terms = vicreg(z).terms
    assert terms["variance"].item() == 0
    assert terms["covariance"].item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_graph_vicreg_equals_its_formula(shape: tuple[int, int]) -> None:
    N, K = shape
    f, graph = randn(N, K) + 1, randn(N, N)
    H = centring(N)
    alignment = -torch.trace(H @ graph @ H @ f @ f.T) / N
    distance = (f.T @ H @ f - torch.eye(K)).square().sum()
    result = graph_vicreg(f, graph, 0.7)
    assert result.total.item() == pytest.approx((alignment + 0.7 * distance).item(), rel=1e-9)
    assert result.terms["alignment"].item() == pytest.approx(alignment.item(), rel=1e-9)
    assert result.terms["orthogonality"].item() == pytest.approx(0.7 * distance.item(), rel=1e-9)


def test_graph_vicreg_equals_its_pairwise_form_for_orthonormal_features() -> None:
    """Σ_ij G_ij ‖f_i − f_j‖² / 2N + weight ‖·‖² for a graph of constant degree V, minus the constant V·K/N."""
    N, V, K = 6, 2, 3
    f = torch.linalg.qr(centring(V * N) @ randn(V * N, K)).Q
    graph = view_graph(N, V, dtype=torch.float64)
    pairs = sum(graph[i, j].item() * (f[i] - f[j]).square().sum().item() for i in range(V * N) for j in range(V * N))
    expected = pairs / (2 * V * N) - V * K / (V * N)
    assert graph_vicreg(f, graph, 5.0).total.item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("K", "C"), [(3, 3), (3, 5), (1, 4)])
def test_orthogonal_head_is_optimal(K: int, C: int) -> None:
    f, y = randn(8, K), randn(8, C)
    found = orthogonal_head(f, y).total.item()
    # Procrustes needs square heads: zero features pad K to C without changing the result.
    padded = np.pad(f.numpy(), ((0, 0), (0, C - K)))
    best, _ = scipy.linalg.orthogonal_procrustes(padded, y.numpy())
    assert found == pytest.approx(((padded @ best - y.numpy()) ** 2).sum() / 8, rel=1e-9)
    for _ in range(20):
        head = torch.linalg.qr(randn(C, K)).Q.T
        assert (f @ head - y).square().sum().item() / 8 > found


def test_orthogonal_head_depends_on_the_labels_only_through_the_graph() -> None:
    """Appendix B, last line: tr √(FᵀGF)."""
    f, y = randn(9, 4), randn(9, 6)
    graph = y @ y.T
    root = scipy.linalg.sqrtm((f.T @ graph @ f).numpy()).real
    expected = (f.square().sum() + graph.trace() - 2 * np.trace(root)) / 9
    assert orthogonal_head(f, y).total.item() == pytest.approx(expected.item(), rel=1e-9)


@pytest.mark.parametrize("case", ["repeated", "zero", "all zero"])
def test_orthogonal_head_has_a_gradient_at_every_singular_value(case: str) -> None:
    """The gradient is 2(F − YPᵀ)/N, P = UVᵀ over the nonzero singular values of FᵀY. That of an SVD is infinite."""
    y = torch.linalg.qr(randn(8, 5)).Q
    values = {"repeated": [2.0, 2.0, 2.0], "zero": [2.0, 1.0, 0.0], "all zero": [0.0, 0.0, 0.0]}[case]
    U = torch.linalg.qr(randn(3, 3)).Q
    f = y[:, :3] @ torch.tensor(values, dtype=torch.float64).diag() @ U.T
    rank = sum(value > 0 for value in values)
    polar = U[:, :rank] @ torch.eye(3, 5, dtype=torch.float64)[:rank]
    found = gradient(lambda f: orthogonal_head(f, y), f)
    torch.testing.assert_close(found, 2 * (f - y @ polar.T) / 8, rtol=0, atol=1e-7)


@pytest.mark.parametrize("shape", [(3, 7), (7, 3), (5, 5)])
@pytest.mark.parametrize("smallest", [1.0, 1e-3, 1e-7])
def test_polar_factor_equals_that_of_the_svd(shape: tuple[int, int], smallest: float) -> None:
    rank = min(shape)
    U, V = torch.linalg.qr(randn(shape[0], rank)).Q, torch.linalg.qr(randn(shape[1], rank)).Q
    a = U @ torch.logspace(0, np.log10(smallest), rank, dtype=torch.float64).diag() @ V.T * 1e5
    torch.testing.assert_close(polar_factor(a), U @ V.T, rtol=0, atol=1e-14 / smallest + 1e-12)


def test_cholesky_of_a_singular_matrix_is_finite_and_close() -> None:
    x = randn(3, 200, 2) * 1e4
    a = x @ x.mT  # 200 × 200 of rank 2
    factor = cholesky(a)
    torch.testing.assert_close(
        factor @ factor.mT, a, rtol=0, atol=1e-15 * a.diagonal(dim1=1, dim2=2).sum(1).max().item()
    )


LOSSES: dict[str, Callable[[Tensor, Tensor], LossTerms]] = {
    "ridge_labels": lambda f, y: ridge_labels(f, y, 0.1),
    "ridge_labels without ridge": lambda f, y: ridge_labels(f, y, 0.0),
    "ridge_graph": lambda f, y: ridge_graph(f, y @ y.T, 0.1),
    "ridge_graph without ridge": lambda f, y: ridge_graph(f, y @ y.T, 0.0),
    "graph_vicreg": lambda f, y: graph_vicreg(f, y @ y.T, 0.3),
    "orthogonal_head": orthogonal_head,
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shape", [(8, 3), (4, 6), (5, 5)])
def test_gradient_equals_finite_differences(name: str, shape: tuple[int, int]) -> None:
    f, y = randn(*shape).requires_grad_(), randn(shape[0], 7)
    assert torch.autograd.gradcheck(lambda f: LOSSES[name](f, y).total, (f,))


@pytest.mark.parametrize("shape", [(8, 3), (4, 6)])
def test_ridge_has_second_derivatives(shape: tuple[int, int]) -> None:
    f, y = randn(*shape).requires_grad_(), randn(shape[0], 3)
    assert torch.autograd.gradgradcheck(lambda f: LOSSES["ridge_labels"](f, y).total, (f,))
    assert torch.autograd.gradgradcheck(lambda f: LOSSES["ridge_graph"](f, y).total, (f,))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shape", [(8, 3), (4, 6)])
def test_loss_is_invariant_to_permutations_rotations_and_shifts(name: str, shape: tuple[int, int]) -> None:
    f, y = randn(*shape), randn(shape[0], 7)
    loss = LOSSES[name]
    value = loss(f, y).total.item()
    order = torch.randperm(shape[0])
    assert loss(f[order], y[order]).total.item() == pytest.approx(value, rel=1e-9, abs=1e-12)
    rotation = torch.linalg.qr(randn(shape[1], shape[1])).Q
    assert loss(f @ rotation, y).total.item() == pytest.approx(value, rel=1e-9, abs=1e-12)
    if name != "orthogonal_head":  # the only objective whose head has no bias
        assert loss(f + randn(shape[1]), y).total.item() == pytest.approx(value, rel=1e-9, abs=1e-12)


def operations(result: Tensor) -> set[str]:
    seen, waiting = set(), [result.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [before for before, _ in node.next_functions]
    return {node.name() for node in seen}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shape", [(8, 3), (4, 6)])
def test_backward_pass_uses_no_decomposition_that_divides_by_differences(name: str, shape: tuple[int, int]) -> None:
    names = operations(LOSSES[name](randn(*shape).requires_grad_(), randn(shape[0], 7)).total)
    assert len(names) > 3
    assert not any(word in name for name in names for word in ("Svd", "Eigh", "Pinv", "Qr"))


@pytest.mark.parametrize("name", [name for name in LOSSES if "without" not in name])
@pytest.mark.parametrize("shape", [(8, 3), (4, 6)])
def test_losses_do_not_synchronize_with_the_host(name: str, shape: tuple[int, int]) -> None:
    with FakeTensorMode():
        f = torch.randn(*shape, requires_grad=True)
        LOSSES[name](f, torch.randn(shape[0], 7)).total.backward()
        ridge_labels(f, torch.randint(0, 3, (shape[0],)), 0.1)
        orthogonal_head(f, torch.randint(0, 3, (shape[0],)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", [name for name in LOSSES if "without" not in name])
@pytest.mark.parametrize("shape", [(96, 32), (32, 96)])
def test_losses_can_be_captured_in_a_cuda_graph(name: str, shape: tuple[int, int]) -> None:
    f, y = randn(*shape).float().cuda().requires_grad_(), randn(shape[0], 100).float().cuda()

    def step() -> Tensor:
        return torch.autograd.grad(LOSSES[name](f, y).total, f)[0]

    assert_same_in_a_cuda_graph(step)


def degenerate(kind: str, f: Tensor) -> Tensor:
    f = f.clone()
    if kind == "identical samples":
        f[:] = f[:1]
    elif kind == "a zero vector":
        f[0] = 0
    elif kind == "all zero":
        f[:] = 0
    elif kind == "one direction":
        f[:] = f[:, :1]
    elif kind == "one view without variance":
        f[: len(f) // 2] = f[0].clone()
    return f


@settings(max_examples=80)
@given(
    name=st.sampled_from(sorted(LOSSES)),
    kind=st.sampled_from(
        ["random", "identical samples", "a zero vector", "all zero", "one direction", "one view without variance"]
    ),
    scale=st.sampled_from([1e-4, 1.0, 1e4]),
    dtype=st.sampled_from([torch.bfloat16, torch.float32, torch.float64]),
    shape=st.sampled_from([(2, 1), (2, 3), (5, 1), (12, 7), (3, 7), (64, 7)]),
)
def test_degenerate_inputs_give_finite_losses_and_gradients(
    name: str, kind: str, scale: float, dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    f = (degenerate(kind, randn(*shape)) * scale).to(dtype).requires_grad_()
    total = LOSSES[name](f, randn(shape[0], 7)).total
    total.backward()
    assert f.grad is not None
    assert torch.isfinite(total)
    assert torch.isfinite(f.grad).all()


@pytest.mark.parametrize("shape", [(256, 64), (64, 256)])
@pytest.mark.parametrize("ridge", [1e-8, 1e-3])
def test_ridge_is_accurate_in_float32_with_one_strong_direction(shape: tuple[int, int], ridge: float) -> None:
    """σ² ranges from 1e8 to 1e-2. In float32 a Gram matrix loses all directions but one, and its Cholesky fails.

    With the SVD F_c = U diag(σ) Qᵀ and the head W = Q diag(σ/(σ² + ridge·N)) UᵀY, the residual is
    R = Y − UUᵀY + U diag(ridge·N/(σ² + ridge·N)) UᵀY. The loss is ‖R‖²/N + ridge‖W‖², and its gradient −2RWᵀ/N.
    """
    N = shape[0]
    f = torch.randn(*shape) * 0.01 + 100 * torch.randn(N, 1) + 1000
    y = torch.randint(-3, 4, (N, 5)).float()  # YYᵀ is exact in float32
    f_c, y_c = centring(N) @ f.double(), centring(N) @ y.double()
    U, sigma, Qt = torch.linalg.svd(f_c, full_matrices=False)
    coordinates = U.T @ y_c
    shrunk = (ridge * N / (sigma**2 + ridge * N))[:, None] * coordinates
    residual = y_c - U @ coordinates + U @ shrunk
    head = Qt.T @ ((sigma / (sigma**2 + ridge * N))[:, None] * coordinates)
    value = (residual.square().sum() / N + ridge * head.square().sum()).item()
    expected = -2 * residual @ head.T / N
    for loss in (lambda f: ridge_labels(f, y, ridge), lambda f: ridge_graph(f, y @ y.T, ridge)):
        assert loss(f).total.item() == pytest.approx(value, rel=1e-5)
        found = gradient(loss, f)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5 * expected.abs().max().item())


def test_invalid_arguments_raise_errors() -> None:
    f = randn(5, 3)
    with pytest.raises(TwofoldError, match="two rows"):
        ridge_labels(f[:1], torch.zeros(1, dtype=torch.long), 0.1)
    with pytest.raises(TwofoldError, match="5 rows of features"):
        ridge_labels(f, torch.zeros(4, dtype=torch.long), 0.1)
    with pytest.raises(TwofoldError, match="negative"):
        ridge_graph(f, torch.eye(5), -1.0)
    for loss in (ridge_graph, graph_vicreg):
        with pytest.raises(TwofoldError, match="a graph must be"):
            loss(f, torch.ones(5, 4), 0.1)
    with pytest.raises(TwofoldError, match="as many classes as features"):
        orthogonal_head(f, randn(5, 2))
    integers = torch.arange(8).view(4, 2)
    for loss in (ridge_labels, ridge_graph, graph_vicreg):
        with pytest.raises(TwofoldError, match=r"must be floats \[rows, dim\] .* not int64 \[4, 2\]"):
            loss(integers, torch.eye(4), 0.1)
    with pytest.raises(TwofoldError, match="must be floats"):
        orthogonal_head(integers, torch.eye(4))
