"""bfloat16 copies of the weights, all made by one kernel. Autocast uses one kernel for each weight, twice per step.

A compiled step (`train/step.py`) calls the method through `Bf16Weights`, every other step through `NoCopies`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Bf16Weights:
    """Call a module with copies of the weights of its convolutions and linear layers, and collect their gradients.

    The results are those of autocast, which casts the same tensors.
    """

    def __init__(self, module: nn.Module, networks: Iterable[nn.Module], dtype: torch.dtype):
        """`networks` are the parts of the module that its `forward` uses."""
        self.module = module
        run = {part for network in networks for part in network.modules()}
        self.masters: dict[str, nn.Parameter] = {}
        for path, part in module.named_modules():
            if part in run and type(part) in (nn.Conv2d, nn.Linear):
                self.masters |= dict(part.named_parameters(path, recurse=False))
        self._names = {id(weight): name for name, weight in self.masters.items()}
        self.masters = {
            name: self.masters[name] for name in self._names.values()
        }  # a weight that two parts share has one name
        self.copies = {
            name: torch.empty_like(weight, dtype=dtype).requires_grad_(weight.requires_grad)
            for name, weight in self.masters.items()
        }
        self.trained = [name for name, weight in self.masters.items() if weight.requires_grad]
        self._written: dict[str, int] = {}  # the weight's version for each copy that an optimizer wrote

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        self.refresh([name for name, weight in self.masters.items() if self._written.get(name) != weight._version])
        return torch.func.functional_call(self.module, self.copies, inputs, options)

    @torch.no_grad()
    def refresh(self, names: Sequence[str]) -> None:
        """Copy these weights again."""
        if names:
            torch._foreach_copy_([self.copies[name] for name in names], [self.masters[name] for name in names])

    @torch.no_grad()
    def collect_gradients(self) -> None:
        """Add the copies' gradients to those of the weights. Call this after a backward pass.

        A weight that was not used gets no gradient.
        """
        got = {name: self.copies[name].grad for name in self.trained}
        gradients = {name: gradient for name, gradient in got.items() if gradient is not None}
        if not gradients:
            return
        targets = {name: torch.empty_like(self.masters[name]) for name in gradients}
        torch._foreach_copy_(list(targets.values()), list(gradients.values()))
        for name, target in targets.items():
            before, self.copies[name].grad = self.masters[name].grad, None
            self.masters[name].grad = target if before is None else before + target

    def copy_of(self, weight: Tensor) -> Tensor | None:
        """The copy of a weight, which also holds its gradient; None if there is no copy."""
        name = self._names.get(id(weight))
        return None if name is None else self.copies[name]

    def zero_grad(self) -> None:
        """Delete the copies' gradients, which an interrupted step may have left."""
        for name in self.trained:
            self.copies[name].grad = None

    def moved(self) -> None:
        """Note that an optimizer's kernels have updated the trained weights and their copies.

        The copies stay valid until PyTorch changes a weight, which increases its version. PyTorch does not see changes
        by our kernels or by the replays of a CUDA graph. Between replays, nobody else may change a trained weight.
        """
        self.zero_grad()
        self._written = {name: self.masters[name]._version for name in self.trained}


class NoCopies:
    """Replaces `Bf16Weights` if the networks compute with their own weights."""

    def __init__(self, module: nn.Module):
        self.module = module

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        return self.module(*inputs, **options)

    def zero_grad(self) -> None: ...

    def collect_gradients(self) -> None: ...
