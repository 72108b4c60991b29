"""A folder of images: what is in it, which split and class each file belongs to, and its decoded pixels.

- `train` and one of `test`, `val`, `valid` beside it are the splits (where several are there: the first with classes).
- Sub-folders with images, and no images beside them, are classes; what is nested in a class belongs to it.
- Otherwise all images, at any depth, are one set without labels.
- A folder that holds nothing but one folder stands for that folder.
Hidden and non-image files are ignored. Links are followed; each real folder is read once.
"""

import hashlib
import os
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from twofold.data import cache
from twofold.data.arrays import Progress
from twofold.data.decode import Header, Unreadable, decode, extensions, read_header
from twofold.errors import TwofoldError

TRAIN_FOLDER = "train"
TEST_FOLDERS = ("test", "val", "valid")
ENDS = 4096
WORKERS = min(32, os.cpu_count() or 1)

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class FileSplit:
    root: Path
    files: tuple[str, ...]  # below root, with "/"
    labels: np.ndarray | None  # int64 [n]
    unreadable: Mapping[str, str]  # file or folder → reason, where not even a header can be read
    side: int  # median of the shorter sides
    grey: bool  # all of them
    facts: bytes  # hash of sizes and times of change

    def __len__(self) -> int:
        return len(self.files)

    @property
    def channels(self) -> int:
        return 1 if self.grey else 3

    def readable(self) -> np.ndarray:
        return np.array([row for row, name in enumerate(self.files) if name not in self.unreadable], np.int64)

    def digest(self) -> bytes:
        """Of names, sizes and times of change, below the root: the folder itself may be moved."""
        state = hashlib.blake2b(self.facts, digest_size=16)
        state.update(b"\0".join(os.fsencode(name) for name in self.files))
        state.update(repr(sorted(self.unreadable)).encode())
        state.update(b"" if self.labels is None else self.labels.tobytes())
        return state.digest()

    def names(self, rows: np.ndarray) -> tuple[str, ...]:
        return tuple(self.files[row] for row in rows)

    def decode(self, rows: np.ndarray, size: int, channels: int, key: str, progress: Progress | None) -> cache.Decoded:
        """The rows' pixels, from the cache where they are complete in it."""
        shape = (channels, size, size)
        known = cache.recall(key, shape)
        if known is not None and len(known.images) + len(known.skipped) == len(rows):
            return known

        def attempt(name: str) -> np.ndarray | str:
            try:
                return decode(self.root / name, size, channels)
            except Unreadable as error:
                return str(error)

        with _quiet_pillow():
            results = in_order(attempt, self.names(rows))
            return cache.record(key, shape, counted(results, len(rows), progress))


Splits = tuple[FileSplit, FileSplit | None, tuple[str, ...] | None]  # train, test, class names


def read_folder(root: Path, progress: Progress | None = None) -> Splits:
    """List the images and read their headers."""
    files, closed = image_files(root)
    if not files:
        reason = "".join(f" ({root / name}: {why})" for name, why in closed.items())
        raise TwofoldError(f"no images in {root}{reason}; endings that count: {' '.join(sorted(extensions()))}")
    train_files, test_files = _splits(files)
    names = sorted({name for part in (train_files, test_files) for name in part.values() if name is not None})
    done = 0

    def advance(part_done: int, _: int) -> None:
        if progress is not None:
            progress(done + part_done, len(train_files) + len(test_files))

    train = _inspect(root, train_files, names, closed, advance)
    done = len(train_files)
    test = _inspect(root, test_files, names, {}, advance) if test_files else None
    return train, test, tuple(names) or None


def image_files(root: Path) -> tuple[list[str], dict[str, str]]:
    """Image files below root, sorted, and the folders that cannot be opened, with the reason."""
    found: list[str] = []
    closed: dict[str, str] = {}
    seen: set[tuple[int, int]] = set()
    folders, links = deque([""]), deque[str]()
    while folders or links:
        folder = folders.popleft() if folders else links.popleft()
        try:
            status = os.stat(root / folder)
            entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
        except OSError as error:
            closed[folder] = str(error.strerror)
            continue
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        for entry in entries:
            if entry.name.startswith("."):
                continue
            name = f"{folder}/{entry.name}" if folder else entry.name
            if os.path.isdir(entry.path):
                (links if entry.is_symlink() else folders).append(name)
            elif os.path.splitext(entry.name)[1].lower() in extensions() and os.path.isfile(entry.path):
                found.append(name)
    return sorted(found, key=lambda name: name.split("/")), closed


def _splits(files: list[str], prefix: str = "") -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Training and test files, each with its class or None; all of `files` begin with `prefix`."""
    tops = {_top(name, prefix) for name in files}
    if None not in tops and len(tops) == 1:
        return _splits(files, f"{prefix}{tops.pop()}/")
    by_lower = {top.lower(): top for top in sorted(top for top in tops if top is not None)}
    candidates = [by_lower[name] for name in TEST_FOLDERS if name in by_lower]
    if TRAIN_FOLDER not in by_lower or not candidates:
        return _classes(files, prefix), {}

    def part(top: str, known: Collection[str | None] = ()) -> dict[str, str | None]:
        below = f"{prefix}{top}/"
        return _classes([name for name in files if name.startswith(below)], below, known)

    train = part(by_lower[TRAIN_FOLDER])
    tests = [part(top, set(train.values())) for top in candidates]
    labelled = [test for test in tests if None not in test.values()]
    return train, (labelled or tests)[0]


def _classes(files: list[str], prefix: str, known: Collection[str | None] = ()) -> dict[str, str | None]:
    """Each file with its class; a single folder is one only where it is `known` from the training images."""
    tops = [_top(name, prefix) for name in files]
    if None in tops:
        return dict.fromkeys(files)
    if len(set(tops)) == 1 and tops[0] not in known:
        return _classes(files, f"{prefix}{tops[0]}/", known)
    return dict(zip(files, tops, strict=True))


def _top(name: str, prefix: str) -> str | None:
    """The first folder below the prefix; None for a file directly in it."""
    folder, slash, _ = name[len(prefix) :].partition("/")
    return folder if slash else None


def ends_of(path: Path) -> bytes:
    """A hash of a file's first and last bytes: archives may give different files one name, size and time."""
    with path.open("rb") as file:
        first = file.read(ENDS)
        file.seek(max(os.fstat(file.fileno()).st_size - ENDS, 0))
        return hashlib.blake2b(first + file.read(ENDS), digest_size=8).digest()


def _inspect(
    root: Path, files: Mapping[str, str | None], names: list[str], closed: Mapping[str, str], progress: Progress
) -> FileSplit:
    def attempt(name: str) -> tuple[Header | str, tuple[int, int, bytes]]:
        try:
            status = os.stat(root / name)
            facts = (status.st_size, status.st_mtime_ns, ends_of(root / name))
        except OSError as error:
            return str(error.strerror), (0, 0, b"")
        try:
            return read_header(root / name), facts
        except Unreadable as error:
            return str(error), facts

    with _quiet_pillow():
        results = list(counted(in_order(attempt, files), len(files), progress))
    headers = [header for header, _ in results if isinstance(header, Header)]
    unreadable = {name: header for name, (header, _) in zip(files, results, strict=True) if isinstance(header, str)}
    if not headers:
        first, reason = next(iter(unreadable.items()))
        raise TwofoldError(f"none of the {len(files)} image files can be read; {root / first}: {reason}")
    number = {name: place for place, name in enumerate(names)}
    labels = [number[name] for name in files.values() if name is not None]
    return FileSplit(
        root=root,
        files=tuple(files),
        labels=np.array(labels, np.int64) if labels else None,
        unreadable={**closed, **unreadable},
        side=int(np.median([header.side for header in headers])),
        grey=all(header.grey for header in headers),
        facts=hashlib.blake2b(repr([facts for _, facts in results]).encode()).digest(),
    )


def in_order(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """`map` over threads, with few results waiting, so that memory stays flat. Pillow decodes without the GIL."""
    pool = ThreadPoolExecutor(WORKERS)
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > 4 * WORKERS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def counted(results: Iterable[Result], total: int, progress: Progress | None) -> Iterator[Result]:
    for done, result in enumerate(results, start=1):
        yield result
        if progress is not None:
            progress(done, total)


@contextmanager
def _quiet_pillow() -> Iterator[None]:
    """What Pillow warns of in a file (size, EXIF, palette) is either harmless or in the list of skipped files."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield
