"""Write files safely: check the folder first, replace files atomically, follow no links, and lock files in use."""

import errno
import math
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from twofold.errors import TwofoldError

try:
    import fcntl
except ImportError:  # Windows has no fcntl, so files are not locked
    fcntl = None  # type: ignore[assignment]

FULL = (errno.ENOSPC, errno.EDQUOT)
MOST_TABLE_BYTES = 2**28  # of a list of images, a table of groups or of features: millions of rows
TEMPORARY = ".part"  # the extension of a file that is still being written
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)  # Windows does not have it


def is_writable(folder: Path) -> bool:
    """Whether the permissions and the file system allow new files. This does not check the free space."""
    return os.access(folder, os.W_OK | os.X_OK)


def refuse_unwritable(out: Path) -> None:
    """Raise an error if `out` cannot be written. Call this before the work, so that no work is lost."""
    folder = out.resolve().parent
    if not folder.is_dir():
        raise TwofoldError(f"--out {out}: the folder {folder} does not exist; create it, or choose another folder")
    if out.is_dir():
        raise TwofoldError(f"--out {out} is a folder; pass the path of a file")
    if not is_writable(folder):
        raise TwofoldError(f"--out {out}: the folder {folder} is not writable; choose another folder")


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Turn an OSError while `out` is written into a TwofoldError that names the folder and what to do."""
    try:
        yield
    except OSError as error:
        advice = "free some disk space, or choose another --out" if error.errno in FULL else "choose another --out"
        raise TwofoldError(
            f"{out.name} could not be written to {out.resolve().parent} ({error.strerror or error}): {advice}"
        ) from None


def sync(path: Path) -> None:
    """Flush a file to the disk. For a folder, this makes renames in it durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: Path) -> None:
    """Create a folder and missing parents, so that they survive a power failure. The folder may exist."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in new:
        with suppress(PermissionError):  # a folder that can be entered, but not read, cannot be opened to sync it
            sync(folder.parent)


@contextmanager
def atomic(path: Path, *, durable: bool, concurrent: bool = False) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`, which replaces `path` when the block ends without an error.

    Readers see either the old file or the complete new one, even if this process is killed. After an error, the old
    file is unchanged and the temporary file is removed.

    Parameters
    ----------
    path
        The file to write.
    durable
        Whether the file must survive a power failure. The content then reaches the disk before the rename, and the
        rename before this function returns. Use it for files that a run needs and for results that the user keeps. It
        is not necessary for files that Twofold can create again, and each sync waits for the disk.
    concurrent
        Whether other processes may write the same file at the same time. Only its owner can then read the file,
        because decoded images may be private. Otherwise, this function removes temporary files that killed processes
        left.

    The temporary file has a random name and is always a new file. So if someone has put links into the folder, nothing
    is written through them, and a link at `path` itself is replaced.
    """
    if not concurrent:
        _remove_leftovers(path)
    aside = _temporary_file(path, 0o600 if concurrent else 0o666)
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


def _temporary_file(path: Path, mode: int) -> Path:
    """Create a new, empty file next to `path`. `is_temporary` recognises its name."""
    while True:
        aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}{TEMPORARY}")
        with suppress(FileExistsError):
            os.close(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW, mode))
            return aside


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files of `path`, also those of earlier versions, whose names are not random."""
    name = re.compile(rf"\.{re.escape(path.name)}(\.[0-9a-f]{{8}})?{re.escape(TEMPORARY)}")
    with suppress(OSError):
        for entry in os.scandir(path.parent):
            if name.fullmatch(entry.name):
                os.unlink(entry)


def is_temporary(path: Path) -> bool:
    """Whether `atomic` chose this name. If no process is writing the file, a killed process left it."""
    return path.name.startswith(".") and path.name.endswith(TEMPORARY)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file by this content. It survives a power failure."""
    if isinstance(content, str):  # file names in the content may not be valid text
        content = content.encode("utf-8", "backslashreplace")
    with atomic(path, durable=True) as aside:
        aside.write_bytes(content)


def refuse_links(paths: Iterable[Path]) -> None:
    """Raise an error if a path is a link, because a write would then change a file or folder elsewhere."""
    for path in paths:
        try:
            status = path.lstat()
        except OSError:
            continue  # it does not exist
        if stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink > 1):
            kind = "a link" if stat.S_ISLNK(status.st_mode) else "the same file as another one (a hard link)"
            raise TwofoldError(f"{path} is {kind}, so Twofold does not write to it: replace it by a copy, or remove it")


def open_in_place(path: Path, flags: int) -> int:
    """Open a file that is appended to or cut off, and return its descriptor. Links are refused."""
    refuse_links([path])
    return os.open(path, flags | NO_FOLLOW, 0o666)


def open_regular(path: Path, most: float = math.inf) -> IO[bytes]:
    """Open a file to read it. Raise OSError if it has more than `most` bytes or is not a plain file.

    Reading a pipe would wait for another process, and a device may have no end.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    status = os.fstat(handle)
    if stat.S_ISREG(status.st_mode) and status.st_size <= most:
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISREG(status.st_mode):
        raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes, which is too large for such a file")
    raise OSError(errno.EINVAL, "it is not a file")


def read_regular(path: Path, most: float = math.inf) -> bytes:
    """Return the content of a file that `open_regular` opens."""
    with open_regular(path, most) as file:
        return file.read()


def read_table(path: Path) -> str:
    """Return the text of a file that people write or export, such as a list. A byte order mark is left out."""
    return read_regular(path, MOST_TABLE_BYTES).decode("utf-8-sig")


def refuse_special(paths: Iterable[Path]) -> None:
    """Raise an error if a path is a pipe, a socket or a device, because reading it could wait forever."""
    for path in paths:
        with suppress(OSError):  # it does not exist
            mode = path.stat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise TwofoldError(f"{path} is a pipe, a socket or a device, not a file; replace it by a file")


def try_lock(file: IO[Any]) -> bool:
    """Lock a file until it is closed or the process ends. Return False if another process holds the lock."""
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the file system does not support locks
        pass
    return True


def cache_folder() -> Path:
    """Return the folder of the cache: TWOFOLD_CACHE, or ~/.cache/twofold."""
    return Path(os.environ.get("TWOFOLD_CACHE") or "~/.cache/twofold").expanduser()
