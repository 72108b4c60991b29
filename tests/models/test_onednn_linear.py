"""Linear layers by oneDNN, compared with float64 products, and where they are used."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from running import trainer
from twofold.models import onednn_linear
from twofold.models.onednn_linear import fast_linear_layers

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(not onednn_linear._has_operator(), reason="this PyTorch has no oneDNN")


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the inputs of the products, on a CPU on which oneDNN is faster, for layers of any size."""
    shapes: list[tuple[int, ...]] = []
    product = onednn_linear._product

    def seen(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        shapes.append(tuple(x.shape))
        return product(x, weight, bias)

    monkeypatch.setattr(onednn_linear, "is_faster", lambda: True)
    monkeypatch.setattr(onednn_linear, "LEAST_PRODUCTS", 0)
    monkeypatch.setattr(onednn_linear, "_product", seen)
    return shapes


@pytest.mark.parametrize("bias", [True, False])
def test_outputs_and_gradients_equal_float64_products(bias: bool, used: list[tuple[int, ...]]) -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(7, 5, bias=bias), torch.randn(3, 4, 7, requires_grad=True)
    slope = torch.randn(3, 4, 5)
    with fast_linear_layers(CPU):
        y = layer(x)
    y.backward(slope)
    wide, weight, g = x.detach().numpy().astype(float), layer.weight.detach().numpy().astype(float), slope.numpy()
    expected = wide @ weight.T + (layer.bias.detach().numpy() if bias else 0)
    np.testing.assert_allclose(y.detach().numpy(), expected, atol=1e-5)
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), g @ weight, atol=1e-5)
    assert layer.weight.grad is not None
    np.testing.assert_allclose(layer.weight.grad.numpy(), np.einsum("abm,abk->mk", g, wide), atol=1e-5)
    if bias:
        np.testing.assert_allclose(layer.bias.grad.numpy(), g.sum((0, 1)), atol=1e-5)
    assert used == [(3, 4, 7), (3, 4, 5), (5, 12)]


def test_gradients_can_be_differentiated(used: list[tuple[int, ...]]) -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(4, 3), torch.randn(5, 4, requires_grad=True)

    def penalty() -> Tensor:
        (slope,) = torch.autograd.grad(layer(x).tanh().sum(), x, create_graph=True)
        return slope.square().sum()

    (expected,) = torch.autograd.grad(penalty(), layer.weight)
    with fast_linear_layers(CPU):
        (ours,) = torch.autograd.grad(penalty(), layer.weight)
    torch.testing.assert_close(ours, expected)
    assert used


def test_training_and_features_use_it(used: list[tuple[int, ...]]) -> None:
    trained = trainer()
    trained.take_step(0)
    projector = len(used)
    assert projector >= 3  # forward, and both gradients
    trained.encoder(nn.Sequential(nn.Flatten(), nn.Linear(64, 2))).features(trained.data.train)
    assert len(used) > projector


@pytest.mark.parametrize("case", ["autocast", "float64", "vector", "small", "another processor"])
def test_other_layers_keep_the_default(case: str, used: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    dtype = torch.float64 if case == "float64" else torch.float32
    layer, x = nn.Linear(4, 3, dtype=dtype), torch.randn(4 if case == "vector" else (5, 4), dtype=dtype)
    if case == "small":
        monkeypatch.setattr(onednn_linear, "LEAST_PRODUCTS", 60)
    if case == "another processor":
        monkeypatch.setattr(onednn_linear, "is_faster", lambda: False)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=case == "autocast"):
        expected = layer(x)
        with fast_linear_layers(CPU):
            assert torch.equal(layer(x), expected)
    assert used == []
