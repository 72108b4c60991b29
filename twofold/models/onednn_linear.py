"""Linear layers by oneDNN, on CPUs on which the default library multiplies float32 matrices at half the speed.

On a CPU, PyTorch computes convolutions with oneDNN, but float32 matrix products with MKL. MKL uses the AVX-512
instructions of Intel's processors only. On an AMD processor with AVX-512, oneDNN is about twice as fast.
"""

import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

LEAST_PRODUCTS = 2**27  # multiplications of a layer; smaller layers take less than 2 ms and keep the default


def fast_linear_layers(device: torch.device) -> AbstractContextManager[Any]:
    """Inside this context, large linear layers use oneDNN if the device is a CPU on which this is faster."""
    return OneDnnLinear() if device.type == "cpu" and is_faster() else nullcontext()


@cache
def is_faster() -> bool:
    """Whether MKL multiplies float32 matrices on this CPU without AVX-512, although the CPU has it."""
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return False
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX512"):
        return False
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text() and _has_operator()
    except OSError:
        return "AuthenticAMD" in platform.processor() and _has_operator()  # Windows


def _has_operator() -> bool:
    try:
        x = torch.ones(2, 2)
        return torch.equal(_product(x, x, None), x @ x)
    except (AttributeError, RuntimeError):  # not in every version of torch
        return False


class OneDnnLinear(TorchFunctionMode):
    """Computes `torch.nn.functional.linear` of large float32 matrices with oneDNN."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is F.linear and not kwargs and _is_suitable(*args):
            return Linear.apply(*args, *(3 - len(args)) * (None,))
        return func(*args, **(kwargs or {}))


def _is_suitable(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """Whether all are ordinary float32 tensors on a CPU, and large enough."""
    given = [x, weight] if bias is None else [x, weight, bias]
    return (
        all(type(each) in (Tensor, torch.nn.Parameter) for each in given)
        and all(each.dtype == torch.float32 and each.device.type == "cpu" for each in given)
        and x.ndim > 1
        and x.numel() * len(weight) > LEAST_PRODUCTS
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


class Linear(torch.autograd.Function):
    """y = x Wᵀ + b for x[..., K], W[M, K] and b[M] or None."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return _product(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], _: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        (slope,) = slopes
        x, weight = ctx.saved_tensors
        rows, slopes_of_rows = x.flatten(0, -2), slope.flatten(0, -2)
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        # By `Linear` again, so that the gradient can be differentiated, too.
        return (
            Linear.apply(slope, weight.T, None) if needs_x else None,
            Linear.apply(slopes_of_rows.T, rows.T, None) if needs_weight else None,
            slopes_of_rows.sum(0) if needs_bias else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
