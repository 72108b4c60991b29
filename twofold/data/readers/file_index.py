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
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from twofold.array_files import read_member
from twofold.data import cache, parallel
from twofold.data.decode import COLOUR, GREY, Header, inspect_file, read_extremes, with_image
from twofold.data.decode_options import USUAL, DecodeOptions, Unreadable
from twofold.data.file_names import FileNames
from twofold.data.image_formats import silence_pillow
from twofold.data.item_split import ItemSplit
from twofold.data.parallel import Progress, map_in_order, with_progress
from twofold.data.pixel_range import Extremes, choose_range
from twofold.errors import TwofoldError
from twofold.files import atomic, cache_folder
from twofold.text import plural

INDEX_FORMAT = 3
PAGE = "#page="  # in the name of an image, between the file and the number of the page, from 2 on
INDEX_DTYPE = np.dtype(
    [
        ("size", "<i8"),
        ("modified", "<i8"),  # ns
        ("changed", "<i8"),  # ns, of the inode
        ("ends", "<u8"),  # `hash_of_ends`
        ("side", "<i4"),  # the shorter one; 0: unreadable
        ("longer", "<i4"),
        ("channels", "<i4"),
        ("bits", "<i4"),  # of each channel
        ("pages", "<i4"),
    ]
)
MOST_SAMPLED = 32  # images of more than 8 bits that are decoded to choose the range of their pixels
STATUS_FIELDS = ("size", "modified", "changed")  # if these are equal, the file has not changed


@dataclass(frozen=True, eq=False)
class FileIndex:
    """One row of INDEX_DTYPE for each file name, and the reason for each unreadable file."""

    names: FileNames
    rows: np.ndarray
    reasons: Mapping[str, str]
    options: DecodeOptions = USUAL
    first: int = 0  # the number of the first file in the whole index

    def part(self, rows: slice) -> "FileIndex":
        names = self.names[rows]
        reasons = {name: self.reasons[name] for name in names if name in self.reasons} if self.reasons else {}
        return FileIndex(names, self.rows[rows], reasons, self.options, rows.start or 0)


def split_of_files(
    root: Path,
    index: FileIndex,
    labels: np.ndarray | None,
    *,
    groups: np.ndarray | None = None,
    objects: np.ndarray | None = None,
    unopened: Mapping[str, str] | None = None,
) -> ItemSplit:
    """Return the split of the index's files below root.

    `unopened` maps folders and links that could not be opened to the reason.
    """
    index, (labels, groups, objects) = _with_pages(index, (labels, groups, objects))
    if groups is None:
        groups = objects  # so that the images of an object are never on both sides of a split
    files, options, page_of = index.names, index.options, _page_numbers(index)
    has_pages = bool(page_of.any())
    # Columns are taken one by one, because a copy of all rows would need 52 bytes for each file.
    is_readable = index.rows["side"] > 0
    if not is_readable.any():
        first, reason = next(iter(index.reasons.items()))
        raise TwofoldError(f"none of the image files can be read ({len(files):,} tried); {root / first}: {reason}")
    # Without the change time of the inode: a copy of the folder contains the same images.
    known = ("size", "modified", "ends")
    facts = hashlib.blake2b()
    for name in known:
        facts.update(np.ascontiguousarray(index.rows[name]).data)
    facts.update(options.changes_pixels)

    def row_hashes(rows: np.ndarray) -> np.ndarray:
        # The name is part of the hash, because different files can have equal sizes, times and ends.
        numbers = np.stack([index.rows[name][rows].astype(np.uint64) for name in known], axis=1)
        digests = (
            hashlib.blake2b(
                line.tobytes() + os.fsencode(name) + options.changes_pixels, digest_size=cache.ROW_HASH_BYTES
            ).digest()
            for name, line in zip(files.take(rows), numbers, strict=True)
        )
        return np.fromiter(digests, cache.ROW_HASHES, len(rows))

    return ItemSplit(
        fetch=lambda row, size, use: with_image(
            root / file_of(files[row], page_of[row]), size, use, options, page=int(page_of[row])
        ),
        path=None if has_pages else lambda row: root / files[row],
        count=len(files),
        labels=labels,
        sides=np.stack([index.rows[name][is_readable] for name in ("side", "longer")], axis=1, dtype=np.int64),
        channels=int(index.rows["channels"][is_readable].max()),
        facts=facts.digest(),
        files=files,
        unreadable={**(unopened or {}), **index.reasons},
        groups=groups,
        objects=objects,
        row_hashes=row_hashes,
        source=str(root.resolve()),
        remark=_describe_pages(index),
        options=options,
    )


def file_of(name: str, page: int) -> str:
    """Return the file of an image."""
    return name.rpartition(PAGE)[0] if page else name


def index_files(
    root: Path,
    files: Sequence[str],
    *,
    of: Path,
    progress: Progress | None = None,
    options: DecodeOptions = USUAL,
) -> FileIndex:
    """Inspect the files that are new or changed since the index of the folder or list `of` was saved, and save it.

    In the result, all readable files have one kind of channels, and the range of pixels is chosen.
    """
    files = FileNames.of(files)
    times, reasons = _read_statuses(root, files)
    rows = np.zeros(len(files), INDEX_DTYPE)
    for column, name in enumerate(STATUS_FIELDS):
        rows[name] = times[:, column]
    del times
    known = load_index(of, options)
    is_new = np.ones(len(files), bool)
    if reasons:
        is_new[[row for row, name in enumerate(files) if name in reasons]] = False
    if known is not None:
        is_new &= ~_take_unchanged(files, rows, known, is_new)
    new_rows = np.flatnonzero(is_new)
    reasons |= _inspect_rows(root, files, rows, new_rows, progress, options)
    index = FileIndex(files, rows, reasons, options)
    if len(new_rows) or known is None or len(known.names) != len(files):
        save_index(of, index)
    return _with_chosen_range(root, _of_one_kind(index))


def _of_one_kind(index: FileIndex) -> FileIndex:
    """Leave out images that cannot be used together with the others: images of grey or colour, or of C channels.

    The kind that most images have stays.
    """
    kinds = np.where(np.isin(index.rows["channels"], (GREY, COLOUR)), COLOUR, index.rows["channels"])
    found, counts = np.unique(kinds[index.rows["side"] > 0], return_counts=True)
    if len(found) < 2:
        return index
    kept = int(found[counts.argmax()])
    others = np.flatnonzero((index.rows["side"] > 0) & (kinds != kept))
    rows, words = index.rows.copy(), "1 or 3" if kept == COLOUR else str(kept)
    rows["side"][others] = 0
    reasons = {
        index.names[row]: f"{kinds[row]} channels, but most images have {words}; pass a list of images of one kind"
        for row in others.tolist()
    }
    return replace(index, rows=rows, reasons={**index.reasons, **reasons})


def _with_chosen_range(root: Path, index: FileIndex) -> FileIndex:
    """Choose the range of images of more than 8 bits from a sample of them, unless the user has chosen it."""
    if index.options.pixel_range != "auto":
        return index
    deep = np.flatnonzero((index.rows["side"] > 0) & (index.rows["bits"] > 8))
    some = deep[np.unique(np.linspace(0, max(len(deep) - 1, 0), MOST_SAMPLED, dtype=np.int64))] if len(deep) else deep
    with silence_pillow():
        found = map_in_order(attempt_extremes, [root / index.names[row] for row in some.tolist()])
        chosen = choose_range(each for each in found if each is not None)
    return replace(index, options=replace(index.options, pixel_range=chosen))


def attempt_extremes(file: Path | bytes) -> Extremes | None:
    """Return the smallest and the largest value of an image, or None if it cannot be decoded."""
    try:
        return read_extremes(file)
    except Unreadable:
        return None


def _with_pages(
    index: FileIndex, columns: tuple[np.ndarray | None, ...]
) -> tuple[FileIndex, tuple[np.ndarray | None, ...]]:
    """With pages=all, repeat each file for its pages. They form a group, unless groups are given."""
    counts = np.maximum(index.rows["pages"], 1)
    if index.options.pages == "first" or counts.max(initial=1) == 1:
        return index, columns
    names = FileNames.of(
        name if page == 0 else f"{name}{PAGE}{page + 1}"
        for name, count in zip(index.names, counts.tolist(), strict=True)
        for page in range(count)
    )
    labels, groups, objects = columns
    if groups is None and objects is None:
        groups = index.first + np.arange(len(counts))
    repeated = tuple(None if column is None else np.repeat(column, counts) for column in (labels, groups, objects))
    return replace(index, names=names, rows=np.repeat(index.rows, counts)), repeated


def _page_numbers(index: FileIndex) -> np.ndarray:
    """Return the page of each image, from 0, int32. With pages=all, `_with_pages` has added the pages to the names."""
    if index.options.pages == "first":
        return np.zeros(len(index.names), np.int32)
    ends = (
        name.rpartition(PAGE)[2] if pages > 1 else ""
        for name, pages in zip(index.names, index.rows["pages"].tolist(), strict=True)
    )
    return np.fromiter((int(end) - 1 if end.isdigit() else 0 for end in ends), np.int32)


def _describe_pages(index: FileIndex) -> str:
    """Return a note on pages that are not used; "" if there are none."""
    several = int((index.rows["pages"] > 1).sum()) if index.options.pages == "first" else 0
    if not several:
        return ""
    return f"only the first page of {plural(several, 'TIFF file')} is used (pages=all uses every page)"


def _take_unchanged(files: FileNames, rows: np.ndarray, known: FileIndex, candidates: np.ndarray) -> np.ndarray:
    """Copy the rows of unchanged files from `known`, and return which files these are, bool [n]."""
    if files == known.names:
        before, same = known.rows, candidates.copy()
    else:
        places = dict(zip(known.names, range(len(known.names)), strict=True))
        place = np.fromiter((places.get(name, -1) for name in files), np.int64, len(files))
        before, same = known.rows[place], candidates & (place >= 0)
    for name in STATUS_FIELDS:
        same &= rows[name] == before[name]
    same &= before["side"] > 0  # unreadable files are tried again
    np.copyto(rows, before, where=same)
    return same


def _inspect_rows(
    root: Path,
    files: FileNames,
    rows: np.ndarray,
    new_rows: np.ndarray,
    progress: Progress | None,
    options: DecodeOptions,
) -> dict[str, str]:
    """Fill these rows from the files, and return the reason for each file that cannot be read."""
    reasons: dict[str, str] = {}
    paths = (root / name for name in files.take(new_rows))
    with silence_pillow():
        found = (
            parallel.inspect_files(paths, options)
            if parallel.is_worthwhile(len(new_rows))
            else map_in_order(lambda path: inspect_file(path, options), paths)
        )
        for row, (ends, header) in zip(map(int, new_rows), with_progress(found, len(new_rows), progress), strict=True):
            rows["ends"][row] = ends
            if isinstance(header, Header):
                for name, value in vars(header).items():
                    rows[name][row] = value
            else:
                reasons[files[row]] = header
    return reasons


def _read_statuses(root: Path, files: Sequence[str]) -> tuple[np.ndarray, dict[str, str]]:
    """Return size and times of each file, int64 [n, 3], and the reason for each file that has none."""
    found = np.zeros((len(files), len(STATUS_FIELDS)), np.int64)
    reasons: dict[str, str] = {}
    folder = os.fspath(root)  # joining paths and keeping objects costs as much as asking the file system
    for row, name in enumerate(files):
        try:
            status = os.stat(name if name.startswith("/") else f"{folder}/{name}")
            if not stat.S_ISREG(status.st_mode):  # reading a pipe would block
                raise OSError(errno.EINVAL, "not a file")
            found[row] = status.st_size, status.st_mtime_ns, status.st_ctime_ns
        except (OSError, ValueError) as error:  # ValueError: a name in a list contains a null character
            reasons[name] = getattr(error, "strerror", None) or "not a valid file name"
    return found, reasons


def index_path(of: Path, options: DecodeOptions = USUAL) -> Path:
    """Return the index file of a folder or list. The facts of a file depend on some options."""
    facts = (options.pages, options.pixel_limit, options.pixel_range in ("type", "auto"))
    chosen = b"" if facts == ("first", None, True) else repr(facts).encode()
    name = hashlib.blake2b(os.fsencode(of.resolve()) + chosen, digest_size=16).hexdigest()
    return cache_folder() / cache.INDEX_FOLDER / f"{name}-{INDEX_FORMAT}.npz"


def load_index(of: Path, options: DecodeOptions = USUAL) -> FileIndex | None:
    """Return the saved index of a folder or list, or None if it does not exist or is damaged."""
    try:
        path = index_path(of, options)
        names, rows = FileNames(read_member(path, "names").tobytes()), read_member(path, "rows")
    except ValueError:  # the index is built again
        return None
    return FileIndex(names, rows, {}) if rows.dtype == INDEX_DTYPE and rows.shape == (len(names),) else None


def save_index(of: Path, index: FileIndex) -> None:
    """Save an index. A failure is ignored, because an index only saves time."""
    path = index_path(of, index.options)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path, durable=False, concurrent=True) as aside, aside.open("wb") as file:
            np.savez(file, names=np.frombuffer(index.names.joined, np.uint8), rows=index.rows)
    except OSError:
        return
