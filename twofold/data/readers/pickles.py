"""CIFAR's own files are pickles; this reads them without giving a pickle the power that it has elsewhere.

Built-in values and arrays of bytes or numbers come out. A name in the pickle stands for one of three stand-ins below,
never for a function or class of a library; numpy makes the array from plain bytes only after all of it was checked.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from twofold.errors import TwofoldError

ALLOWED_DTYPES = ("u1", "i1", "i2", "i4", "i8", "f4", "f8")


class _Dtype:
    def __init__(self, name: object, *_: object) -> None:
        if name not in ALLOWED_DTYPES:
            raise pickle.UnpicklingError(f"it has an array of {name!r}, which no CIFAR file has")
        self.name = str(name)

    def __setstate__(self, state: tuple[object, ...]) -> None:
        if state[1] == ">":
            raise pickle.UnpicklingError("it has numbers in another order of bytes")


class _Array:
    array: np.ndarray

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, by_column, raw = state
        content = raw.encode("latin1") if isinstance(raw, str) else raw
        if not isinstance(dtype, _Dtype) or not isinstance(content, bytes):
            raise pickle.UnpicklingError("it has an array that is not made of plain bytes")
        self.array = np.frombuffer(content, dtype.name).reshape(shape, order="F" if by_column else "C")


def _latin1(text: str, _: str) -> bytes:
    """How Python 3 writes bytes in protocol 2."""
    return text.encode("latin1")


ALLOWED_NAMES: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: _Array(),
    ("numpy._core.multiarray", "_reconstruct"): lambda *_: _Array(),
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _latin1,
}


class _RestrictedUnpickler(pickle._Unpickler):
    """In Python and not in C: there a file of a few bytes can ask for a table of tens of gigabytes."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED_NAMES:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no CIFAR file needs")
        return ALLOWED_NAMES[module, name]


def read_pickle(path: Path) -> dict[str, Any]:
    """The dict that a file holds, with its arrays."""
    try:
        with path.open("rb") as file:
            content = _RestrictedUnpickler(file, encoding="latin1").load()
        plain = {key.decode() if isinstance(key, bytes) else key: value for key, value in content.items()}
        return {key: value.array if isinstance(value, _Array) else value for key, value in plain.items()}
    except Exception as error:  # a damaged pickle can fail in any of its operations
        raise TwofoldError(f"{path} cannot be read: {' '.join(str(error).split())}; fetch the file again") from error
