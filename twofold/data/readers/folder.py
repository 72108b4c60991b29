"""A folder of images: what is in it, which split and class each file belongs to, and its decoded pixels.

- `train` or `training`, and one of `test`, `testing`, `val`, `valid`, `validation`, `eval`, `dev` next to it, are the
  splits (where several are there: the first of these with classes).
- Sub-folders with images, and no images next to them, are classes; what is nested in a class belongs to it.
- Otherwise all images, at any depth, are one set without labels.
- A folder that holds nothing but one folder stands for that folder.
- `val_annotations.txt`, as in tiny-imagenet-200, names the classes of the images of a test folder.
Hidden and non-image files are ignored. Links are followed; each real folder is read once. Links that lead nowhere are
listed among what cannot be read, and change nothing of the above.
"""

import os
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from twofold.data.decode import extensions
from twofold.data.item_split import UNKNOWN, ItemSplit, ItemSplits
from twofold.data.parallel import Progress
from twofold.data.readers.file_index import index_files, split_of_files
from twofold.data.readers.splits import TEST_NAMES, TRAIN_NAMES
from twofold.errors import TwofoldError

ANNOTATIONS = "val_annotations.txt"
SHOWN_REASONS = 3


class NoImages(TwofoldError):
    """A folder without any file that could be an image."""


def read_class_list(class_list: str | Path) -> tuple[str, ...]:
    """The class names of a text file, each once, in their order."""
    path = Path(class_list).expanduser()
    try:
        names = tuple(path.read_text(encoding="utf-8-sig").split("\n"))
    except (OSError, UnicodeDecodeError) as error:
        raise TwofoldError(f"class_list={path} cannot be read: {error}") from None
    found = tuple(dict.fromkeys(name.strip() for name in names if name.strip()))
    if not found:
        raise TwofoldError(f"class_list={path} names no class; write one on each line")
    return found


def read_folder(root: Path, progress: Progress | None = None, *, only: Collection[str] = ()) -> ItemSplits:
    """List the images and read their headers; of classes, `only` these where there are any."""
    files, unopened = find_image_files(root)
    if not files:
        reason = "".join(f" ({root / name}: {why})" for name, why in islice(unopened.items(), SHOWN_REASONS))
        raise NoImages(f"no images in {root}{reason}; endings that count: {' '.join(sorted(extensions()))}")
    train_files, test_files = _find_splits(root, files)
    remark = _describe_unused(files, train_files, test_files)
    if only:
        train_files, test_files = (_keep_classes(root, part, only) for part in (train_files, test_files))
    index = index_files(root, [*train_files, *test_files], of=root, progress=progress)
    class_of = {**train_files, **test_files}
    names = sorted({name for file, name in class_of.items() if name is not None and file not in index.reasons})
    number = {name: place for place, name in enumerate(names)}

    def to_split(part: Mapping[str, str | None], rows: slice, unopened: Mapping[str, str]) -> ItemSplit:
        labels = [number.get(name, UNKNOWN) for name in part.values() if name is not None]  # of none that can be read
        return split_of_files(root, index.part(rows), np.array(labels, np.int64) if labels else None, unopened=unopened)

    train = replace(to_split(train_files, slice(0, len(train_files)), unopened), remark=remark)
    test = to_split(test_files, slice(len(train_files), None), {}) if test_files else None
    return train, test, tuple(names) or None


def find_image_files(root: Path) -> tuple[list[str], dict[str, str]]:
    """Image files below root, sorted; and with the reason, folders that cannot be opened and links to nowhere."""
    found: list[str] = []
    unopened: dict[str, str] = {}
    seen: set[tuple[int, int]] = set()
    folders, links = deque([""]), deque[str]()
    while folders or links:
        folder = folders.popleft() if folders else links.popleft()
        try:
            status = os.stat(root / folder)
            entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
        except OSError as error:
            unopened[folder] = str(error.strerror)
            continue
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        for entry in entries:
            if entry.name.startswith("."):
                continue
            name = f"{folder}/{entry.name}" if folder else entry.name
            if _entry_is(entry.is_dir):
                (links if entry.is_symlink() else folders).append(name)
            elif os.path.splitext(entry.name)[1].lower() not in extensions():
                continue
            elif _entry_is(entry.is_file):
                found.append(name)
            elif entry.is_symlink() and (reason := _why_missing(entry)):
                unopened[name] = reason
    return sorted(found, key=lambda name: name.split("/")), unopened


def _entry_is(kind: Callable[[], bool]) -> bool:
    """What an entry is, from the listing itself where it is no link; a link to itself is nothing."""
    try:
        return kind()
    except OSError:
        return False


def _why_missing(entry: os.DirEntry[str]) -> str:
    """Why a link leads nowhere; "" where it does lead somewhere."""
    try:
        entry.stat()
    except OSError as error:
        return str(error.strerror)
    return ""


def _read_annotations(listed: Path, files: list[str]) -> dict[str, str | None]:
    """Classes from rows `file name, class, …`, separated by tabs."""
    rows = [line.split("\t") for line in listed.read_text(encoding="utf-8", errors="replace").splitlines()]
    classes = {row[0]: row[1] for row in rows if len(row) > 1}
    missing = next((name for name in files if name.rpartition("/")[2] not in classes), None)
    if missing is not None:
        raise TwofoldError(f"{listed} does not name the class of {missing}")
    return {name: classes[name.rpartition("/")[2]] for name in files}


def _keep_classes(root: Path, part: dict[str, str | None], only: Collection[str]) -> dict[str, str | None]:
    missing = sorted(set(only) - {name for name in part.values() if name is not None}) if part else []
    if missing:
        raise TwofoldError(
            f"{root} has no images of {', '.join(missing[:3])}{' and others' if len(missing) > 3 else ''}; "
            f"{len(missing)} of the {len(only)} classes asked for are not there"
        )
    wanted = set(only)
    return {name: of for name, of in part.items() if of in wanted}


def _find_splits(root: Path, files: list[str], prefix: str = "") -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Training and test files, each with its class or None; all of `files` begin with `prefix`."""
    tops = {_top_folder(name, prefix) for name in files}
    if None not in tops and len(tops) == 1:
        return _find_splits(root, files, f"{prefix}{tops.pop()}/")
    by_lower = {top.lower(): top for top in sorted(top for top in tops if top is not None)}
    training = [by_lower[name] for name in TRAIN_NAMES if name in by_lower]
    candidates = [by_lower[name] for name in TEST_NAMES if name in by_lower]
    if not training or not candidates:
        return _find_classes(files, prefix), {}
    if len(training) > 1:
        folders = " and ".join(str(root / prefix / top) for top in training)
        raise TwofoldError(f"{folders} both look like the training images: rename or move one of them")

    def part(top: str, known: Collection[str | None] = ()) -> dict[str, str | None]:
        below = f"{prefix}{top}/"
        own = [name for name in files if name.startswith(below)]
        listed = root / below / ANNOTATIONS
        return _read_annotations(listed, own) if listed.is_file() else _find_classes(own, below, known)

    train = part(training[0])
    tests = [part(top, set(train.values())) for top in candidates]
    labelled = [test for test in tests if None not in test.values()]
    return train, (labelled or tests)[0]


def _describe_unused(files: list[str], train: Mapping[str, str | None], test: Mapping[str, str | None]) -> str:
    """What of the folder is not used, and why its folders are no classes where they could be meant as some."""
    unused = [name for name in files if name not in train and name not in test]
    if unused:
        folders = ", ".join(sorted({str(Path(name).parent) for name in unused})[:SHOWN_REASONS])
        return f"{len(unused):,} images are neither in the training nor in the test folder, and left out: {folders}, …"
    if None not in train.values():
        return ""
    top = os.path.commonpath({os.path.dirname(name) for name in train})
    loose = [name for name in train if os.path.dirname(name) == top]
    if not loose or len(loose) == len(train):
        return ""
    return f"folders are no classes here, since images lie beside them: {len(loose):,}, such as {loose[0]}"


def _find_classes(files: list[str], prefix: str, known: Collection[str | None] = ()) -> dict[str, str | None]:
    """Each file with its class; a single folder is one only where it is `known` from the training images."""
    tops = [_top_folder(name, prefix) for name in files]
    if None in tops:
        return dict.fromkeys(files)
    if len(set(tops)) == 1 and tops[0] not in known:
        return _find_classes(files, f"{prefix}{tops[0]}/", known)
    return dict(zip(files, tops, strict=True))


def _top_folder(name: str, prefix: str) -> str | None:
    """The first folder below the prefix; None for a file directly in it."""
    folder, slash, _ = name[len(prefix) :].partition("/")
    return folder if slash else None
