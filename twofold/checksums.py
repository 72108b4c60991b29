"""CRC-32 checksums of files and JSON records. They detect every flipped bit, and other damage almost always.

A file that is replaced as a whole carries its own checksum, so that a kill between two writes cannot separate them:
JSON records have the key `crc32` (`seal`). Checkpoints have a list of their files with one checksum for each block
(`file_checksum`). A file that only grows has a checksum of its beginning (`extend`).
"""

import json
import os
import zlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from twofold.errors import TwofoldError
from twofold.files import open_regular

KEY = "crc32"
BLOCK_BYTES = 2**22
MOST_THREADS = 8


class Damaged(TwofoldError):
    """The content of a file is not what Twofold wrote."""


def seal(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON record with its checksum."""
    return {**record, KEY: _json_checksum(record)}


def unseal(record: Any, name: object, remedy: str = "restore the file from a copy") -> Any:
    """Return a record of the file `name` without its checksum, or raise `Damaged` if they do not agree.

    Records of earlier versions have no checksum. They are returned unchanged. A flipped bit in the name of the checksum
    must not make a record look like one of them.
    """
    if not isinstance(record, dict):
        return record
    content = {key: value for key, value in record.items() if key != KEY}
    if KEY not in record:
        if not any(_differs_in_one_character(key, KEY) for key in record):
            return record
    elif record[KEY] == _json_checksum(content):
        return content
    raise Damaged(
        f"{name} is damaged, or was edited: its content does not have the checksum that Twofold wrote; {remedy}"
    )


def _differs_in_one_character(text: str, other: str) -> bool:
    return len(text) == len(other) and sum(a != b for a, b in zip(text, other, strict=True)) == 1


def _json_checksum(record: Mapping[str, Any]) -> str:
    return as_text(zlib.crc32(json.dumps(record, sort_keys=True).encode()))


def as_text(checksum: int) -> str:
    """Return a checksum as eight hexadecimal digits."""
    return f"{checksum:08x}"


def file_checksum(path: Path, expected: int | None = None) -> dict[str, Any]:
    """Return the size of a file and the checksum of each block, as JSON values.

    If the file does not have the expected size, it is not read, because it can be huge.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        is_wanted = expected in (None, size)
        return {"bytes": size, KEY: list(block_checksums(file.fileno(), size)) if is_wanted else []}


def block_checksums(file: int, size: int, block_bytes: int | None = None) -> Iterable[int]:
    """Yield the checksum of each block of the first `size` bytes of an open file. Threads share the work."""

    step = block_bytes or BLOCK_BYTES

    def checksum(start: int) -> int:
        return zlib.crc32(os.pread(file, min(step, size - start), start))

    starts = range(0, size, step)
    if len(starts) < 2:
        return map(checksum, starts)
    with ThreadPoolExecutor(min(MOST_THREADS, len(starts), os.cpu_count() or 1)) as threads:
        return list(threads.map(checksum, starts))


def find_damage(path: Path, recorded: Mapping[str, Any]) -> str:
    """Return how a file differs from its recorded checksum, in words, or "" if it does not."""
    try:
        found = file_checksum(path, recorded["bytes"])
    except OSError as error:
        return f"{path.name} cannot be read ({error.strerror or error})"
    if found["bytes"] != recorded["bytes"]:
        return f"{path.name} has {found['bytes']:,} bytes instead of {recorded['bytes']:,}"
    if found[KEY] != recorded[KEY]:
        return f"{path.name} has another checksum than the one that was recorded"
    return ""


def extend(path: Path, start: int, checksum: int, end: int | None = None) -> tuple[int, int]:
    """Continue the checksum of the first `start` bytes of a file to byte `end`, by default to the end of the file.

    Returns the number of bytes, which is smaller than `end` if the file is shorter, and their checksum.
    """
    with open_regular(path) as file:
        file.seek(start)
        size = start
        while content := file.read(BLOCK_BYTES if end is None else min(BLOCK_BYTES, end - size)):
            size, checksum = size + len(content), zlib.crc32(content, checksum)
    return size, checksum
