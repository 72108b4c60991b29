"""How Twofold writes files: checked before the work, replaced as a whole, and locked while in use."""

import errno
import os
import tempfile
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
TEMPORARY = ".part"  # the ending of a file that is still being written


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


@contextmanager
def atomic(path: Path, *, durable: bool, concurrent: bool = False) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`, which replaces `path` when the block ends without an error.

    Readers see the old file or the new one, never a part of it, whenever this process is killed. After an error the old
    file is still there and the temporary one is not.

    Parameters
    ----------
    durable
        Also survive a loss of power: the content reaches the disk before the rename, and the rename before this
        returns. It is for what a run cannot do without, and for results that the user keeps. What Twofold can make
        again does without it, since each sync waits for the disk.
    concurrent
        Other processes may write the same file at the same time, so each writes to a temporary file of its own. Its
        owner alone can read it, as the decoded images of someone may be private. Otherwise the name is always the same,
        and the next attempt overwrites what a killed process left.
    """
    aside = _temporary_file(path, concurrent)
    try:
        yield aside
        if durable:
            sync(aside)
        aside.replace(path)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise
    if durable:
        sync(path.parent)


def _temporary_file(path: Path, concurrent: bool) -> Path:
    """The only place that chooses the names of temporary files; `is_temporary` knows them again."""
    if not concurrent:
        return path.with_name(f".{path.name}{TEMPORARY}")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=TEMPORARY)
    os.close(handle)
    return Path(name)


def is_temporary(path: Path) -> bool:
    """Whether `atomic` gave the file its name. Where nothing is being written, a killed process left it."""
    return path.name.startswith(".") and path.name.endswith(TEMPORARY)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file by this content, durably."""
    if isinstance(content, str):  # names of files, which it may hold, need not be text
        content = content.encode("utf-8", "backslashreplace")
    with atomic(path, durable=True) as aside:
        aside.write_bytes(content)


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
