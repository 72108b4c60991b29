"""The index of image files: size and kind of each image, read from the headers without decoding.

The readers of folders and lists call `index_files`, and then `split_of_files` for each split.

Twofold saves the index of a folder, together with the size and the times of each file. At the next start, it opens only
files whose size or times differ. The change time of the inode cannot be set back, so Twofold also notices a file that
was replaced by another with the same size and modification time.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from twofold.array_files import read_member
from twofold.data import cache, parallel
from twofold.data.decode import Header, inspect_file, silence_pillow, with_image
from twofold.data.item_split import ItemSplit
from twofold.data.parallel import Progress, map_in_order, with_progress
from twofold.errors import TwofoldError
from twofold.files import atomic, cache_folder

INDEX_FORMAT = 2
INDEX_DTYPE = np.dtype(
    [
        ("size", "<i8"),
        ("modified", "<i8"),  # ns
        ("changed", "<i8"),  # ns, of the inode
        ("ends", "<u8"),  # `hash_of_ends`
        ("side", "<i4"),  # the shorter one; 0: unreadable
        ("longer", "<i4"),
        ("grey", "?"),
    ]
)
STATUS_FIELDS = ("size", "modified", "changed")  # if these are equal, the file has not changed


@dataclass(frozen=True, eq=False)
class FileIndex:
    """One row of INDEX_DTYPE for each file name, and the reason for each unreadable file."""

    names: Sequence[str]
    rows: np.ndarray
    reasons: Mapping[str, str]

    def part(self, rows: slice) -> "FileIndex":
        names = self.names[rows]
        reasons = {name: self.reasons[name] for name in names if name in self.reasons} if self.reasons else {}
        return FileIndex(names, self.rows[rows], reasons)


def split_of_files(
    root: Path,
    index: FileIndex,
    labels: np.ndarray | None,
    *,
    groups: np.ndarray | None = None,
    unopened: Mapping[str, str] | None = None,
) -> ItemSplit:
    """Return the split of the index's files below root.

    `unopened` maps folders and links that could not be opened to the reason.
    """
    files = index.names
    readable = index.rows[index.rows["side"] > 0]
    if not len(readable):
        first, reason = next(iter(index.reasons.items()))
        raise TwofoldError(f"none of the image files can be read ({len(files):,} tried); {root / first}: {reason}")
    # Without the change time of the inode: a copy of the folder contains the same images.
    known = ("size", "modified", "ends")
    content = b"".join(np.ascontiguousarray(index.rows[name]).tobytes() for name in known)

    def row_hashes(rows: np.ndarray) -> list[bytes]:
        # The name is part of the hash, because different files can have equal sizes, times and ends.
        numbers = np.stack([index.rows[name][rows].astype(np.uint64) for name in known], axis=1)
        return [
            hashlib.blake2b(line.tobytes() + os.fsencode(files[row]), digest_size=cache.ROW_HASH_BYTES).digest()
            for row, line in zip(rows.tolist(), numbers, strict=True)
        ]

    return ItemSplit(
        fetch=lambda row, size, use: with_image(root / files[row], size, use),
        path=lambda row: root / files[row],
        count=len(files),
        labels=labels,
        sides=np.stack([readable["side"], readable["longer"]], axis=1).astype(np.int64),
        grey=bool(readable["grey"].all()),
        facts=hashlib.blake2b(content).digest(),
        files=tuple(files),
        unreadable={**(unopened or {}), **index.reasons},
        groups=groups,
        row_hashes=row_hashes,
        source=str(root.resolve()),
    )


def index_files(root: Path, files: Sequence[str], *, of: Path, progress: Progress | None = None) -> FileIndex:
    """Inspect the files that are new or changed since the index of the folder or list `of` was saved, and save it."""
    times, reasons = _read_statuses(root, files)
    rows = np.zeros(len(files), INDEX_DTYPE)
    for column, name in enumerate(STATUS_FIELDS):
        rows[name] = times[:, column]
    known = load_index(of)
    is_new = np.ones(len(files), bool)
    is_new[[row for row, name in enumerate(files) if name in reasons]] = False
    if known is not None:
        is_new &= ~_take_unchanged(files, rows, known, is_new)
    new_rows = np.flatnonzero(is_new).tolist()
    reasons |= _inspect_rows(root, files, rows, new_rows, progress)
    index = FileIndex(files, rows, reasons)
    if new_rows or known is None or len(known.names) != len(files):
        save_index(of, index)
    return index


def _take_unchanged(files: Sequence[str], rows: np.ndarray, known: FileIndex, candidates: np.ndarray) -> np.ndarray:
    """Copy the rows of unchanged files from `known`, and return which files these are, bool [n]."""
    places = dict(zip(known.names, range(len(known.names)), strict=True))
    place = np.array([places.get(name, -1) for name in files], np.int64)
    before = known.rows[place]
    same = (place >= 0) & candidates & np.all([rows[name] == before[name] for name in STATUS_FIELDS], axis=0)
    same &= before["side"] > 0  # unreadable files are tried again
    rows[same] = before[same]
    return same


def _inspect_rows(
    root: Path, files: Sequence[str], rows: np.ndarray, new_rows: list[int], progress: Progress | None
) -> dict[str, str]:
    """Fill these rows from the files, and return the reason for each file that cannot be read."""
    reasons: dict[str, str] = {}
    paths = (root / files[row] for row in new_rows)
    with silence_pillow():
        found = (
            parallel.inspect_files(paths)
            if parallel.is_worthwhile(len(new_rows))
            else map_in_order(inspect_file, paths)
        )
        for row, (ends, header) in zip(new_rows, with_progress(found, len(new_rows), progress), strict=True):
            rows["ends"][row] = ends
            if isinstance(header, Header):
                rows["side"][row], rows["grey"][row], rows["longer"][row] = header.side, header.grey, header.longer
            else:
                reasons[files[row]] = header
    return reasons


def _read_statuses(root: Path, files: Sequence[str]) -> tuple[np.ndarray, dict[str, str]]:
    """Return size and times of each file, int64 [n, 3], and the reason for each file that has none."""
    found: list[tuple[int, int, int]] = []
    reasons: dict[str, str] = {}
    for name in files:
        try:
            status = os.stat(os.path.join(root, name))
            if not stat.S_ISREG(status.st_mode):  # reading a pipe would block
                raise OSError(errno.EINVAL, "not a file")
            found.append((status.st_size, status.st_mtime_ns, status.st_ctime_ns))
        except (OSError, ValueError) as error:  # ValueError: a name in a list contains a null character
            found.append((0, 0, 0))
            reasons[name] = getattr(error, "strerror", None) or "not a valid file name"
    return np.array(found, np.int64).reshape(-1, len(STATUS_FIELDS)), reasons


def index_path(of: Path) -> Path:
    name = hashlib.blake2b(os.fsencode(of.resolve()), digest_size=16).hexdigest()
    return cache_folder() / cache.INDEX_FOLDER / f"{name}-{INDEX_FORMAT}.npz"


def load_index(of: Path) -> FileIndex | None:
    """Return the saved index of a folder or list, or None if it does not exist or is damaged."""
    try:
        path = index_path(of)
        names, rows = os.fsdecode(read_member(path, "names").tobytes()).split("\0"), read_member(path, "rows")
    except ValueError:  # the index is built again
        return None
    return FileIndex(names, rows, {}) if rows.dtype == INDEX_DTYPE and rows.shape == (len(names),) else None


def save_index(of: Path, index: FileIndex) -> None:
    """Save an index. A failure is ignored, because an index only saves time."""
    path = index_path(of)
    blob = os.fsencode("\0".join(index.names))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path, durable=False, concurrent=True) as aside, aside.open("wb") as file:
            np.savez(file, names=np.frombuffer(blob, np.uint8), rows=index.rows)
    except OSError:
        return
