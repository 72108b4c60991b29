"""Keys are built from the annotations of keyword parameters, which may be types or strings."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from twofold.config import RUN_KEYS
from twofold.keys import SYNONYMS, Positive, Widths, coerce, key_close_to, keyword_hints, parameter_keys
from twofold.methods import CATALOG, schema

if TYPE_CHECKING:
    from nowhere import Unknown


def textual(parts: Unknown, *, tau: Positive = 0.5, widths: Widths | None = (8, 4)) -> Unknown: ...


def real(parts, *, tau=0.5, widths=(8, 4)): ...  # type: ignore[no-untyped-def]


real.__annotations__ = {"parts": int, "tau": Positive, "widths": Widths | None, "return": int}


@functools.wraps(textual)
def wrapped(*arguments: Any, **values: Any) -> Any:
    return textual(*arguments, **values)


@pytest.mark.parametrize("function", [textual, real, wrapped])
def test_annotations_may_be_types_or_strings(function: Callable[..., Any]) -> None:
    assert keyword_hints(function) == {"tau": Positive, "widths": Widths | None}
    assert {key.name: key.default for key in parameter_keys(function).values()} == {"tau": 0.5, "widths": (8, 4)}


def test_an_unknown_annotation_is_an_error() -> None:
    def mine(parts: Any, *, tau: Unknown = 1.0) -> None: ...

    with pytest.raises(NameError, match="Unknown"):
        parameter_keys(mine)


@pytest.mark.parametrize(
    "value, hint, expected",
    [
        (np.float32(0.5), float, 0.5),
        (np.arange(3), tuple[int, ...], (0, 1, 2)),
        (np.True_, bool, True),
        (torch.device("cuda:1"), str, "cuda:1"),
    ],
)
def test_values_from_numpy_and_torch_become_python_values(value: Any, hint: Any, expected: Any) -> None:
    found = coerce(value, hint)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "word, key",
    [
        ("lerning_rate", "lr"),
        ("flip", "augment.flip"),
        ("backbone", "encoder"),
        ("batchsize", "batch_size"),
        ("qqqq", None),
    ],
)
def test_suggested_keys_follow_names_parts_and_synonyms(word: str, key: str | None) -> None:
    assert key_close_to(word, RUN_KEYS) == key


def test_synonyms_name_keys_of_runs_and_methods() -> None:
    known = {key for method in CATALOG for key in schema(method)}
    assert set(SYNONYMS.values()) <= known
    assert not set(SYNONYMS) & known
