"""How Twofold writes files: checked before the work, replaced as a whole, and locked while in use."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from twofold.errors import TwofoldError

try:
    import fcntl
except ImportError:  # Windows: nobody else is asked
    fcntl = None  # type: ignore[assignment]

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


def sync(path: Path) -> None:
    """Ask the disk to have it; also for a folder, whose entries are what a rename changes."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}.part")
    try:
        # Names of files may be bytes that are no text.
        aside.write_text(text, encoding="utf-8", errors="backslashreplace")
        sync(aside)
        aside.replace(path)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise
    sync(path.parent)


def hold(file: IO[Any]) -> bool:
    """Take a file until it is closed or the process ends; False where another process has it."""
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system that knows no locks
        pass
    return True


def cache_folder() -> Path:
    return Path(os.environ.get("TWOFOLD_CACHE") or "~/.cache/twofold").expanduser()
