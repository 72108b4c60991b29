"""What is known of many image files without decoding them: sizes, kinds, and whether they changed since last time.

Headers are read once. The index of a folder keeps them beside size and times of each file; at the next start only files
whose size or times differ are opened. The time of the last change of the inode cannot be set back, so a file that was
replaced by another of the same size and time is noticed too.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from twofold.data import cache, decoders
from twofold.data.decode import Header, decode, look
from twofold.data.item_split import ItemSplit
from twofold.data.work import Progress, counted, in_order, quiet_pillow
from twofold.errors import TwofoldError
from twofold.files import atomic, cache_folder

INDEX_FORMAT = 1
LISTED = np.dtype(
    [
        ("size", "<i8"),
        ("modified", "<i8"),  # ns
        ("changed", "<i8"),  # ns, of the inode
        ("ends", "<u8"),
        ("side", "<i4"),  # 0: unreadable
        ("grey", "?"),
    ]
)
TIMES = ("size", "modified", "changed")  # what tells that a file is as it was


@dataclass(frozen=True, eq=False)
class Index:
    """A row of LISTED for each name, and why those without a side are unreadable."""

    names: Sequence[str]
    rows: np.ndarray
    reasons: Mapping[str, str]

    def part(self, rows: slice) -> "Index":
        names = self.names[rows]
        reasons = {name: self.reasons[name] for name in names if name in self.reasons} if self.reasons else {}
        return Index(names, self.rows[rows], reasons)


def file_items(
    root: Path,
    index: Index,
    labels: np.ndarray | None,
    *,
    groups: np.ndarray | None = None,
    closed: Mapping[str, str] | None = None,
) -> ItemSplit:
    """The index's files below root; `closed` are folders and links that could not be opened, with the reason."""
    files = index.names
    readable = index.rows[index.rows["side"] > 0]
    if not len(readable):
        first, reason = next(iter(index.reasons.items()))
        raise TwofoldError(f"none of the {len(files)} image files can be read; {root / first}: {reason}")
    # Not the time of the inode's change: a copy of the folder has the same images.
    known = ("size", "modified", "ends")
    content = b"".join(np.ascontiguousarray(index.rows[name]).tobytes() for name in known)

    def row_hashes(rows: np.ndarray) -> list[bytes]:
        # With the name: files of one size, time and border can be many, and different.
        numbers = np.stack([index.rows[name][rows].astype(np.uint64) for name in known], axis=1)
        return [
            hashlib.blake2b(line.tobytes() + os.fsencode(files[row]), digest_size=cache.ROW_HASH_BYTES).digest()
            for row, line in zip(rows.tolist(), numbers, strict=True)
        ]

    return ItemSplit(
        fetch=lambda row, size, channels: decode(root / files[row], size, channels),
        path=lambda row: root / files[row],
        count=len(files),
        labels=labels,
        side=int(np.median(readable["side"])),
        grey=bool(readable["grey"].all()),
        facts=hashlib.blake2b(content).digest(),
        files=tuple(files),
        unreadable={**(closed or {}), **index.reasons},
        groups=groups,
        row_hashes=row_hashes,
    )


def inspect(root: Path, files: Sequence[str], *, of: Path, progress: Progress | None = None) -> Index:
    """Look at every file that the index `of` a folder or list does not know as it is now, and keep what was seen."""
    times, reasons = _statuses(root, files)
    rows = np.zeros(len(files), LISTED)
    for column, name in enumerate(TIMES):
        rows[name] = times[:, column]
    known = recall(of)
    unseen = np.ones(len(files), bool)
    unseen[[row for row, name in enumerate(files) if name in reasons]] = False
    if known is not None:
        places = dict(zip(known.names, range(len(known.names)), strict=True))
        place = np.array([places.get(name, -1) for name in files], np.int64)
        before = known.rows[place]
        same = (place >= 0) & unseen & np.all([rows[name] == before[name] for name in TIMES], axis=0)
        same &= before["side"] > 0  # what could not be read is tried again
        rows[same] = before[same]
        unseen &= ~same

    looked_at = np.flatnonzero(unseen).tolist()
    paths = (root / files[row] for row in looked_at)
    with quiet_pillow():
        found = decoders.look_at_all(paths) if decoders.worth_it(len(looked_at)) else in_order(look, paths)
        seen = counted(found, len(looked_at), progress)
        for row, (ends, header) in zip(looked_at, seen, strict=True):
            rows["ends"][row] = ends
            if isinstance(header, Header):
                rows["side"][row], rows["grey"][row] = header.side, header.grey
            else:
                reasons[files[row]] = header
    index = Index(files, rows, reasons)
    if looked_at or known is None or len(known.names) != len(files):
        keep(of, index)
    return index


def _statuses(root: Path, files: Sequence[str]) -> tuple[np.ndarray, dict[str, str]]:
    """Size and times of each file, int64 [n, 3], and why some have none."""
    found: list[tuple[int, int, int]] = []
    reasons: dict[str, str] = {}
    for name in files:
        try:
            status = os.stat(os.path.join(root, name))
            if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for
                raise OSError(errno.EINVAL, "not a file")
            found.append((status.st_size, status.st_mtime_ns, status.st_ctime_ns))
        except (OSError, ValueError) as error:  # ValueError: a name with a null character, from a list
            found.append((0, 0, 0))
            reasons[name] = getattr(error, "strerror", None) or "not a file name"
    return np.array(found, np.int64).reshape(-1, len(TIMES)), reasons


def index_path(of: Path) -> Path:
    name = hashlib.blake2b(os.fsencode(of.resolve()), digest_size=16).hexdigest()
    return cache_folder() / cache.INDEX_FOLDER / f"{name}-{INDEX_FORMAT}.npz"


def recall(of: Path) -> Index | None:
    """The index of a folder or list; None where there is none, or it is damaged."""
    try:
        with np.load(index_path(of), allow_pickle=False) as content:
            names, rows = os.fsdecode(content["names"].tobytes()).split("\0"), content["rows"]
    except Exception:  # numpy and zipfile have many ways to say that a file is damaged; it is then made anew
        return None
    return Index(names, rows, {}) if rows.dtype == LISTED and rows.shape == (len(names),) else None


def keep(of: Path, index: Index) -> None:
    """An index saves time and nothing else: where it cannot be written, there is none."""
    path = index_path(of)
    blob = os.fsencode("\0".join(index.names))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path, durable=False, concurrent=True) as aside, aside.open("wb") as file:
            np.savez(file, names=np.frombuffer(blob, np.uint8), rows=index.rows)
    except OSError:
        return
