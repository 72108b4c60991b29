"""Read .npy and .npz files that may be damaged or malicious. Every failure is a ValueError with one line of text."""

import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from twofold.files import open_regular

BOMB_BYTES, BOMB_RATIO = 2**28, 200  # what would unpack to more than both limits is refused


def read_array(path: Path) -> np.ndarray | None:
    """Return the array of a .npy file, memory-mapped, or None if the file is an archive of arrays."""
    with _errors(), open_regular(path):
        if zipfile.is_zipfile(path):
            return None
        return _with_valid_text(np.load(path, mmap_mode="r", allow_pickle=False))


def names_of(path: Path) -> list[str]:
    """Return the names of the arrays in an .npz file."""
    with _errors(), open_regular(path), np.load(path, allow_pickle=False) as content:
        return list(content.files)


def read_member(path: Path, name: str) -> np.ndarray:
    """Return an array of an .npz file."""
    with _errors(), open_regular(path), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.filename in (name, f"{name}.npy"):
                _refuse_bomb(member)
    with _errors(), np.load(path, allow_pickle=False) as content:
        found = content[name]
        if not isinstance(found, np.ndarray):
            raise ValueError("it contains no plain array of numbers")
        return _with_valid_text(found)


def read_members(path: Path) -> dict[str, np.ndarray]:
    """Return all arrays of an .npz file."""
    return {name: read_member(path, name) for name in names_of(path)}


def is_bomb(packed: int, unpacked: int) -> bool:
    """Whether a file of `packed` bytes that says it has `unpacked` ones is likely made to fill the memory."""
    return unpacked > max(BOMB_BYTES, BOMB_RATIO * packed)


def _with_valid_text(found: np.ndarray) -> np.ndarray:
    """Return an array. If it has text with numbers that are no characters, raise ValueError."""
    codes = np.dtype(np.uint32).newbyteorder(found.dtype.byteorder)
    if found.dtype.kind == "U" and np.frombuffer(found.tobytes(), codes).max(initial=0) > sys.maxunicode:
        raise ValueError("it has text with characters that do not exist")
    return found


def _refuse_bomb(member: zipfile.ZipInfo) -> None:
    if is_bomb(member.compress_size, member.file_size):
        raise ValueError(
            f"it would unpack {member.filename} from {member.compress_size:,} to {member.file_size:,} bytes, which "
            "Twofold refuses, because a small file can fill the memory; an array in a .npy file is not packed"
        )


@contextmanager
def _errors() -> Iterator[None]:
    """Turn the many types of errors that numpy and zipfile raise for a damaged file into ValueError."""
    try:
        yield
    except Exception as error:
        # numpy takes every other file for a pickle and advises the user to trust it.
        is_pickle = "pickle" in str(error)
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ValueError(
            "it contains no plain array of numbers" if is_pickle else " ".join(str(reason).split())
        ) from None
