"""Modules that the catalog builds methods from, imported when the first method is built.

`twofold methods` and the check of keys read the catalog but need no tensors, and importing torch takes a second.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any


class LazyModule:
    """A module that is imported when one of its names is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


if TYPE_CHECKING:
    import torch
    from torch import nn

    from twofold import methods, models, objectives
    from twofold.methods import relations
else:
    torch, nn = LazyModule("torch"), LazyModule("torch.nn")
    models, objectives = LazyModule("twofold.models"), LazyModule("twofold.objectives")
    methods, relations = LazyModule("twofold.methods"), LazyModule("twofold.methods.relations")

__all__ = ["methods", "models", "nn", "objectives", "relations", "torch"]
