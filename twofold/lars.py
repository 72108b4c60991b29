"""The LARS optimizer, which torch does not provide. `train/optim.py` builds it; `cuda/fused_optimizer.py` fuses it."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class LARS(Optimizer):
    """SGD with momentum and a layer-wise learning rate of at most η‖w‖ / (‖∇‖ + λ‖w‖) (LARS, You et al. 2017).

    g ← (∇ + λw) · min(η‖w‖ / (‖∇‖ + λ‖w‖) / lr, 1), so the learning rate of a layer never exceeds `lr`. Parameter
    groups with `adapt=False` (biases, norms) use plain momentum. `lr` may be a tensor, whose value is never copied to
    the host.
    """

    def __init__(self, params: Iterable[dict[str, Any]], lr: Tensor | float, momentum: float, eta: float):
        super().__init__(params, {"lr": lr, "momentum": momentum, "eta": eta, "weight_decay": 0.0, "adapt": True})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "LARS does not support closures"
        for group in self.param_groups:
            self._move([w for w in group["params"] if w.grad is not None], group)

    def _move(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        """m ← momentum · m + g, w ← w − lr · m."""
        if not weights:
            return
        for w in weights:
            if "momentum" not in self.state[w]:
                self.state[w]["momentum"] = torch.zeros_like(w)
        slopes = [w.grad for w in weights if w.grad is not None]
        buffers = [self.state[w]["momentum"] for w in weights]
        gradients = torch._foreach_add(slopes, weights, alpha=group["weight_decay"])
        if group["adapt"]:
            size, slope = (torch.stack(torch._foreach_norm(tensors)) for tensors in (weights, slopes))
            ratio = group["eta"] * size / (slope + group["weight_decay"] * size + 1e-12)
            # A weight or gradient that is exactly 0 has no direction to scale, so it uses the plain step.
            ratio = torch.where((size > 0) & (slope > 0), (ratio / group["lr"]).clamp(max=1), 1.0)
            torch._foreach_mul_(gradients, list(ratio.unbind()))
        torch._foreach_mul_(buffers, group["momentum"])
        torch._foreach_add_(buffers, gradients)
        torch._foreach_sub_(weights, torch._foreach_mul(buffers, group["lr"]))
