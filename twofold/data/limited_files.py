"""Files for Pillow whose reading has a limit: some of its decoders search a damaged file byte by byte for an image."""

import io
import os
from pathlib import Path
from typing import IO

from twofold.data.decode_options import Unreadable

MOST_READS = 10**6  # by one image; intact files need less than a thousand
MOST_BYTES = 2**30  # that a decoder may read at once
MOST_IN_ALL = 2**31  # bytes; an image with the most pixels has fewer without compression
JPEG_START = b"\xff\xd8\xff"


class _LimitedFile(io.BufferedReader):
    """A file that raises Unreadable if it is read too often, or too much of it at once."""

    reads = in_all = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.reads += 1
        self.in_all += max(0, size or 0)
        if self.reads > MOST_READS or self.in_all > MOST_IN_ALL:
            raise Unreadable("no complete image is in the first part of the file")
        if size is not None and size >= 0:
            return super().read(size)
        content = super().read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise Unreadable("the file is larger than any image of its format")
        return content


class _Bytes(io.RawIOBase):
    """Bytes as a raw file, without a copy."""

    def __init__(self, content: io.BytesIO):
        self._content = content

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray, /) -> int:  # type: ignore[override]
        return self._content.readinto(buffer)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._content.seek(offset, whence)

    def tell(self) -> int:
        return self._content.tell()


def open_limited(file: Path | bytes) -> IO[bytes]:
    """Open a file, or its content, to read it with limits. An empty file raises Unreadable.

    A small JPEG file needs no limits, because Pillow reads it at most twice: once for the header, and once for the
    pixels. Without limits, no read calls a method in Python, which would take longer than opening the image.
    """
    opened: io.BytesIO | io.BufferedReader
    if isinstance(file, bytes):
        opened, size, start = io.BytesIO(file), len(file), file[: len(JPEG_START)]
    else:
        opened = io.BufferedReader(io.FileIO(file))
        size, start = os.fstat(opened.fileno()).st_size, opened.peek(len(JPEG_START))
    if size == 0:
        opened.close()
        raise Unreadable("empty file")
    if size <= MOST_READS and start.startswith(JPEG_START):
        return opened
    raw = _Bytes(opened) if isinstance(opened, io.BytesIO) else opened.detach()
    raw.seek(0)  # `peek` has read the first block
    return _LimitedFile(raw)
