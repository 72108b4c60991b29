"""`is_of` checks the type of a value without importing the library that defines the type."""

import numpy as np
import torch

from twofold.types import is_of


def test_is_of_is_false_for_libraries_that_are_not_imported() -> None:
    assert not is_of(torch.zeros(1), "a_library_that_is_not_there", "Tensor")


def test_is_of_recognizes_types_by_name() -> None:
    assert is_of(torch.zeros(1), "torch", "Tensor")
    assert is_of(torch.nn.Parameter(torch.zeros(1)), "torch", "Tensor")  # a subclass
    assert is_of(np.float32(1), "numpy", "ndarray", "generic")
    assert not is_of(np.zeros(1), "torch", "Tensor")
    assert not is_of([1.0], "numpy", "ndarray", "no_such_type")
