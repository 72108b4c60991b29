"""What a value is can be said without importing the library that its type is from."""

import numpy as np
import torch

from twofold.types import is_of


def test_types_of_a_library_that_nobody_imported_have_no_values() -> None:
    assert not is_of(torch.zeros(1), "a_library_that_is_not_there", "Tensor")


def test_types_are_found_by_name_and_others_are_not_taken_for_them() -> None:
    assert is_of(torch.zeros(1), "torch", "Tensor")
    assert is_of(torch.nn.Parameter(torch.zeros(1)), "torch", "Tensor")  # a subclass
    assert is_of(np.float32(1), "numpy", "ndarray", "generic")
    assert not is_of(np.zeros(1), "torch", "Tensor")
    assert not is_of([1.0], "numpy", "ndarray", "no_such_type")
