"""bfloat16 copies of the weights, made by one kernel: what autocast does with a kernel for each, twice a step."""

from typing import Any

import torch
from torch import nn


class NarrowWeights:
    """Calls a module with copies in place of its convolutions' and linear layers' weights, and brings gradients back.

    Numbers are those of autocast, which narrows the same tensors.
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype):
        self.module = module
        self.wide: dict[str, nn.Parameter] = {}
        for path, part in module.named_modules():
            if type(part) in (nn.Conv2d, nn.Linear):
                prefix = f"{path}." if path else ""
                self.wide |= {prefix + name: parameter for name, parameter in part.named_parameters(recurse=False)}
        self.narrow = {
            name: torch.empty_like(weight, dtype=dtype).requires_grad_(weight.requires_grad)
            for name, weight in self.wide.items()
        }
        self.trained = [name for name, weight in self.wide.items() if weight.requires_grad]

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        with torch.no_grad():
            torch._foreach_copy_(list(self.narrow.values()), list(self.wide.values()))
        return torch.func.functional_call(self.module, self.narrow, inputs, options)

    @torch.no_grad()
    def collect_gradients(self) -> None:
        """After a backward pass: add what the copies got to the weights' gradients; an unused weight gets nothing."""
        got = {name: self.narrow[name].grad for name in self.trained}
        gradients = {name: gradient for name, gradient in got.items() if gradient is not None}
        targets = {name: torch.empty_like(self.wide[name]) for name in gradients}
        torch._foreach_copy_(list(targets.values()), list(gradients.values()))
        for name, target in targets.items():
            before, self.narrow[name].grad = self.wide[name].grad, None
            self.wide[name].grad = target if before is None else before + target
