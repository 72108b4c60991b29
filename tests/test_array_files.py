"""Damaged .npy and .npz files raise a ValueError with one line of text."""

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from twofold.array_files import names_of, read_array, read_member, read_members

ARRAY = np.arange(6, dtype=np.uint8).reshape(2, 3)


def npy(header: str, content: bytes = ARRAY.tobytes()) -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content


# Each of them led to another type of error in numpy: TokenError, OverflowError, SyntaxError, TypeError, MemoryError, …
HEADERS = [
    npy(header)
    for header in (
        "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (2, -3), }",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (1.5,), }",
        f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({2**62},), }}",
        f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({10**30}, 2), }}",
        "{'descr': None, 'fortran_order': False, 'shape': (2, 3), }",
        "{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (2, 3), }",
        "(" * 300,
        "1" * 9000,
        "\0",
        "  {\n 'descr'",
    )
]


def npz(member: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.npy", member)
    return file.getvalue()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("content", [*HEADERS, b"", b"\x80\x04N.", npz(b"")[:-5]], ids=range(len(HEADERS) + 3))
def test_damaged_arrays_raise_a_value_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a"
    for whole in (content, npz(content)):
        path.write_bytes(whole)
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            read_member(path, "x") if read_array(path) is None else None


def test_arrays_are_read(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ARRAY)
    np.savez_compressed(tmp_path / "b.npz", x=ARRAY, y=ARRAY[0])
    found = read_array(tmp_path / "a.npy")
    assert isinstance(found, np.memmap)
    assert np.array_equal(found, ARRAY)
    assert read_array(tmp_path / "b.npz") is None
    assert names_of(tmp_path / "b.npz") == ["x", "y"]
    assert np.array_equal(read_members(tmp_path / "b.npz")["y"], ARRAY[0])
