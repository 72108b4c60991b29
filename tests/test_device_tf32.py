"""Objectives may use TF32 matrix products next to a network in bfloat16: the loss of accuracy, emulated."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from twofold import objectives
from twofold.types import LossTerms

PRODUCTS = {
    torch.ops.aten.mm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.baddbmm.default,
}
OBJECTIVES: dict[str, Callable[[Tensor], LossTerms]] = {
    "frossl": objectives.frossl,
    "barlow_twins": objectives.barlow_twins,
    "vicreg": objectives.vicreg,
    "spectral_contrastive": objectives.spectral_contrastive,
    "info_nce": lambda z: objectives.info_nce(z, 0.2),
    "alpha_cl": objectives.alpha_cl,
}


def rounded(x: Tensor) -> Tensor:
    """Round float32 to TF32, which has 10 mantissa bits."""
    if x.dtype != torch.float32:
        return x
    bits = x.contiguous().view(torch.int32)
    return ((bits + (1 << 12)) & ~((1 << 13) - 1)).view(torch.float32)


class Tf32(TorchDispatchMode):
    """Emulate float32 matrix products in TF32: factors are rounded, sums are not."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in PRODUCTS:
            self.count += args[-1].dtype == torch.float32
            args = [*args[:-2], rounded(args[-2]), rounded(args[-1])]
        return func(*args, **(kwargs or {}))


def gradient(objective: Callable[[Tensor], LossTerms], z: Tensor) -> Tensor:
    z = z.clone().requires_grad_()
    objective(z).total.backward()
    assert z.grad is not None
    return z.grad.double()


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("mean", [0.0, 3.0, 30.0])
def test_error_of_tf32_is_small_compared_with_that_of_bfloat16_embeddings(name: str, mean: float) -> None:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    true = normal(256, 128) @ normal(128, 128) / 11 + 0.5 * normal(2, 256, 128) + mean * normal(128)
    z = true.bfloat16()
    exact = gradient(OBJECTIVES[name], z.double())
    with Tf32() as products:
        found = gradient(OBJECTIVES[name], z.float())
    lost = (exact - gradient(OBJECTIVES[name], true)).norm()
    assert products.count > 0
    assert (found - exact).norm() < lost / 5
