"""Safetensors files with a checksum. `save_tensors` writes them and `load_tensors` reads them and those of others.

The checksum is the entry `crc32` of the metadata, so it stays with the file if it is copied, and other libraries ignore
it. It is that of the whole file with zeros in its own place.
"""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from twofold.checksums import BLOCK_BYTES, KEY, Damaged, as_text
from twofold.errors import TwofoldError
from twofold.files import open_regular, write_atomically

UNKNOWN = as_text(0)
ENTRY = f'"{KEY}":"'.encode()  # in the header; inside another entry of the metadata, the quotes would be escaped


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    """Write tensors to a safetensors file with a checksum. Equal tensors and metadata give equal bytes."""
    # Cloned, because safetensors refuses tensors that share memory, such as tied weights.
    copies = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    try:
        write_atomically(path, with_sorted_header(save(copies, metadata={"format": "pt", **metadata})))
    except (OSError, SafetensorError) as error:
        raise TwofoldError(
            f"{path} could not be written: {error}; free some disk space, or make {path.parent} writable"
        ) from None


def with_sorted_header(content: bytes) -> bytes:
    """Return the content of a safetensors file with its metadata sorted by key, and with its checksum.

    safetensors writes the keys in random order, but equal runs must write equal bytes.
    """
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header["__metadata__"] = dict(sorted((header["__metadata__"] | {KEY: UNKNOWN}).items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # so that the tensors start at a multiple of 8 bytes
    before, after = text.split(ENTRY + UNKNOWN.encode(), 1)
    length = len(text).to_bytes(8, "little")
    checksum = as_text(zlib.crc32(content[start:], zlib.crc32(length + text)))
    return b"".join((length, before, ENTRY, checksum.encode(), after, content[start:]))


def refuse_damaged(path: Path) -> None:
    """Raise `Damaged` if a safetensors file has a checksum and another content. Files of others have no checksum."""
    with open_regular(path) as file:
        length = file.read(8)
        header = file.read(min(int.from_bytes(length, "little"), path.stat().st_size))
        at = header.find(ENTRY) + len(ENTRY)
        if at < len(ENTRY):
            return
        end = at + len(UNKNOWN)
        checksum = zlib.crc32(length + header[:at] + UNKNOWN.encode() + header[end:])
        while content := file.read(BLOCK_BYTES):
            checksum = zlib.crc32(content, checksum)
    if header[at:end] != as_text(checksum).encode():
        raise Damaged(f"{path} is damaged: it does not have the checksum in its metadata; restore the file from a copy")


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file. If it is damaged, this raises `Damaged` or an error of safetensors."""
    refuse_damaged(path)
    return load_file(path)
