"""bfloat16 copies of the weights, made by one kernel: what autocast does with a kernel for each, twice a step.

A compiled step (`train/step.py`) calls the method through `Bf16Weights`, every other one through `NoCopies`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Bf16Weights:
    """Calls a module with copies in place of its convolutions' and linear layers' weights, and brings gradients back.

    Numbers are those of autocast, which narrows the same tensors.
    """

    def __init__(self, module: nn.Module, networks: Iterable[nn.Module], dtype: torch.dtype):
        """`networks` are the parts of the module that its `forward` runs."""
        self.module = module
        run = {part for network in networks for part in network.modules()}
        self.masters: dict[str, nn.Parameter] = {}
        for path, part in module.named_modules():
            if part in run and type(part) in (nn.Conv2d, nn.Linear):
                self.masters |= dict(part.named_parameters(path, recurse=False))
        self._names = {id(weight): name for name, weight in self.masters.items()}
        self.masters = {
            name: self.masters[name] for name in self._names.values()
        }  # one name for a weight that two parts use
        self.copies = {
            name: torch.empty_like(weight, dtype=dtype).requires_grad_(weight.requires_grad)
            for name, weight in self.masters.items()
        }
        self.trained = [name for name, weight in self.masters.items() if weight.requires_grad]
        self._written: dict[str, int] = {}  # copies that an optimizer wrote, with the versions of their weights

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        self.refresh([name for name, weight in self.masters.items() if self._written.get(name) != weight._version])
        return torch.func.functional_call(self.module, self.copies, inputs, options)

    @torch.no_grad()
    def refresh(self, names: Sequence[str]) -> None:
        if names:
            torch._foreach_copy_([self.copies[name] for name in names], [self.masters[name] for name in names])

    @torch.no_grad()
    def collect_gradients(self) -> None:
        """After a backward pass: add what the copies got to the weights' gradients; an unused weight gets nothing."""
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
        """Where the weight's copy lies, and what gradient it got; None if there is no copy."""
        name = self._names.get(id(weight))
        return None if name is None else self.copies[name]

    def zero_grad(self) -> None:
        """A step that was broken off may have left some."""
        for name in self.trained:
            self.copies[name].grad = None

    def moved(self) -> None:
        """An optimizer has moved the trained weights, and written their copies: they are good until torch changes one.

        What it does is unknown to torch, and so are the replays of a recording, which repeat it. A recording takes for
        granted that nobody else changes a trained weight between them.
        """
        self.zero_grad()
        self._written = {name: self.masters[name]._version for name in self.trained}


class NoCopies:
    """In place of `Bf16Weights` where the networks compute with their own weights."""

    def __init__(self, module: nn.Module):
        self.module = module

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        return self.module(*inputs, **options)

    def zero_grad(self) -> None: ...

    def collect_gradients(self) -> None: ...
