"""Read the pickles of CIFAR without running the code that a pickle can contain.

The result contains only built-in values and arrays. A name in the pickle refers to one of the stand-ins below, never to
a function or class of a library. numpy makes an array only from plain bytes and only after its type was checked.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from twofold.errors import TwofoldError
from twofold.files import open_regular

ALLOWED_DTYPES = ("u1", "i1", "i2", "i4", "i8", "f4", "f8")


class _Dtype:
    def __init__(self, name: object, *_: object) -> None:
        if name not in ALLOWED_DTYPES:
            raise pickle.UnpicklingError(f"it contains an array of type {name!r}, which CIFAR files do not have")
        self.name = str(name)

    def __setstate__(self, state: tuple[object, ...]) -> None:
        if state[1] == ">":
            raise pickle.UnpicklingError("it contains big-endian numbers")


class _Array:
    array: np.ndarray

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, by_column, raw = state
        content = raw.encode("latin1") if isinstance(raw, str) else raw
        if not isinstance(dtype, _Dtype) or not isinstance(content, bytes):
            raise pickle.UnpicklingError("it contains an array that is not made of plain bytes")
        self.array = np.frombuffer(content, dtype.name).reshape(shape, order="F" if by_column else "C")


def _latin1(text: str, _: str) -> bytes:
    """Decode bytes as Python 3 writes them in pickle protocol 2."""
    return text.encode("latin1")


ALLOWED_NAMES: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: _Array(),
    ("numpy._core.multiarray", "_reconstruct"): lambda *_: _Array(),
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _latin1,
}


class _RestrictedUnpickler(pickle._Unpickler):
    """The Python unpickler, because in the C version a tiny file can allocate a table of tens of gigabytes."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED_NAMES:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}, which CIFAR files do not need")
        return ALLOWED_NAMES[module, name]


def read_pickle(path: Path) -> dict[str, Any]:
    """Return the dict in a pickle file, with its arrays."""
    try:
        with open_regular(path) as file:
            content = _RestrictedUnpickler(file, encoding="latin1").load()
        plain = {key.decode() if isinstance(key, bytes) else key: value for key, value in content.items()}
        return {key: value.array if isinstance(value, _Array) else value for key, value in plain.items()}
    except Exception as error:  # a damaged pickle can fail in any operation
        raise TwofoldError(f"{path} cannot be read: {' '.join(str(error).split())}; download it again") from error
