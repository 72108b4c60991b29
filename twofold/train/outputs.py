"""Files that a command leaves where `--out` says: one that cannot be written is refused in a sentence, and early."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from twofold.errors import TwofoldError

FULL = (errno.ENOSPC, errno.EDQUOT)


def is_writable(folder: Path) -> bool:
    """Whether files can be made in it, by its rights and its file system; whether there is room, only writing tells."""
    return os.access(folder, os.W_OK | os.X_OK)


def refuse_unwritable(out: Path) -> None:
    """Before the work, not after it."""
    folder = out.resolve().parent
    if not folder.is_dir() or out.is_dir():
        raise TwofoldError(f"--out {out}: give a file in a folder that exists")
    if not is_writable(folder):
        raise TwofoldError(f"--out {out}: the folder {folder} cannot be written; choose another")


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Around all that writes `out`: what the disk refuses is said with the folder and the way on."""
    try:
        yield
    except OSError as error:
        way_on = "make room, or choose another --out" if error.errno in FULL else "choose another --out"
        raise TwofoldError(
            f"{out.name} could not be written into {out.resolve().parent} ({error.strerror or error}): {way_on}"
        ) from None
