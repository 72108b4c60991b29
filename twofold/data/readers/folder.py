"""Read a folder of images: find the image files, and assign each to a split and a class.

- Splits: the folder `train` (or `training`) and a test folder next to it. The name of the test folder is `test`,
  `testing`, `val`, `valid`, `validation`, `eval` or `dev`. If there are several, the first in this order that has
  classes is used.
- Classes: the sub-folders are classes if no images lie next to them. Images at any depth inside a class belong to it.
- Otherwise, all images at any depth form one set without labels.
- If a folder contains nothing except one sub-folder, that sub-folder is read instead.
- If a test folder contains `val_annotations.txt`, as in tiny-imagenet-200, that file states the classes of its images.

Hidden files are ignored. Other files that are not images are left out and counted by their extension. Symbolic links
are followed, and each folder is read once.
Broken links are reported as unreadable and do not affect the rules above.
"""

import os
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from itertools import chain, compress, islice
from pathlib import Path

import numpy as np

from twofold.data.decode_options import USUAL, DecodeOptions
from twofold.data.file_names import FileNames
from twofold.data.image_formats import extensions
from twofold.data.item_split import UNKNOWN, ItemSplit, ItemSplits
from twofold.data.parallel import Progress
from twofold.data.readers.file_index import index_files, split_of_files
from twofold.data.readers.splits import TEST_NAMES, TRAIN_NAMES
from twofold.errors import TwofoldError, how_to_install
from twofold.files import MOST_TABLE_BYTES, read_regular, read_table
from twofold.text import plural

ANNOTATIONS = "val_annotations.txt"
SHOWN_REASONS = 3
SHOWN_EXTENSIONS = 5
HEIF = (".heic", ".heif", ".hif")  # extensions that Twofold reads if pillow-heif is installed


@dataclass(frozen=True)
class _Part:
    """The files of a split, and the class of each, or None."""

    files: list[str]
    classes: list[str | None]


class NoImages(TwofoldError):
    """The folder contains no image files."""


def read_class_list(class_list: str | Path) -> tuple[str, ...]:
    """Return the class names in a text file, in order and without repeats."""
    path = Path(class_list).expanduser()
    try:
        names = tuple(read_table(path).split("\n"))
    except (OSError, UnicodeDecodeError) as error:
        raise TwofoldError(f"class_list={path} cannot be read: {error}") from None
    found = tuple(dict.fromkeys(name.strip() for name in names if name.strip()))
    if not found:
        raise TwofoldError(f"class_list={path} contains no class names; write one name per line")
    return found


def read_folder(
    root: Path,
    progress: Progress | None = None,
    *,
    only: Collection[str] = (),
    options: DecodeOptions = USUAL,
) -> ItemSplits:
    """List the images and read their headers. If `only` is not empty, keep just the classes it names."""
    files, unopened, left_out = find_image_files(root)
    if not files:
        reason = "".join(f" ({root / name}: {why})" for name, why in islice(unopened.items(), SHOWN_REASONS))
        others = f" ({describe_left_out(left_out)})" if left_out else ""
        raise NoImages(
            f"no images in {root}{reason}{others}; supported file extensions: {' '.join(sorted(extensions()))}"
        )
    train_part, test_part = _find_splits(root, files)
    remark = "; ".join(filter(None, (_describe_unused(files, train_part, test_part), describe_left_out(left_out))))
    if only:
        train_part, test_part = (_keep_classes(root, part, only) for part in (train_part, test_part))
    names = FileNames.of(chain(train_part.files, test_part.files))
    train_classes, test_classes = train_part.classes, test_part.classes
    del files, train_part, test_part  # a million strings need about 80 MB
    index = index_files(root, names, of=root, progress=progress, options=options)
    readable = zip(names, chain(train_classes, test_classes), strict=True)
    classes = sorted({of for file, of in readable if of is not None and file not in index.reasons})
    number = {name: place for place, name in enumerate(classes)}

    def to_split(part: list[str | None], rows: slice, unopened: Mapping[str, str]) -> ItemSplit:
        # A class without a readable image has no number.
        labels = np.fromiter((number.get(name, UNKNOWN) for name in part if name is not None), np.int64)
        return split_of_files(root, index.part(rows), labels if len(labels) else None, unopened=unopened)

    train = to_split(train_classes, slice(0, len(train_classes)), unopened)
    train = replace(train, remark="; ".join(filter(None, (remark, train.remark))))
    test = to_split(test_classes, slice(len(train_classes), None), {}) if test_classes else None
    return train, test, tuple(classes) or None


def find_image_files(root: Path) -> tuple[list[str], dict[str, str], Counter[str]]:
    """Return the image files below root, sorted, and what is not among them.

    That is: the folders and links that cannot be opened, with the reason, and the number of other files by extension.
    """
    found: list[str] = []
    left_out: Counter[str] = Counter()
    unopened: dict[str, str] = {}
    seen: set[tuple[int, int]] = set()
    folders, links = deque([""]), deque[str]()
    while folders or links:
        folder = folders.popleft() if folders else links.popleft()
        below: list[tuple[str, bool]] = []  # the sub-folders, and whether they are links
        try:
            status = os.stat(root / folder)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(root / folder) as entries:  # a list of them would need 250 bytes for each file
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    name = f"{folder}/{entry.name}" if folder else entry.name
                    if _entry_is(entry.is_dir):
                        below.append((name, entry.is_symlink()))
                    elif (extension := os.path.splitext(entry.name)[1].lower()) not in extensions():
                        left_out[extension] += 1
                    elif _entry_is(entry.is_file):
                        found.append(name)
                    elif entry.is_symlink() and (reason := _why_missing(entry)):
                        unopened[name] = reason
        except OSError as error:
            unopened[folder] = str(error.strerror)
        for name, is_link in sorted(below):
            (links if is_link else folders).append(name)
    found.sort(key=lambda name: name.replace("/", "\0"))  # folder by folder
    return found, dict(sorted(unopened.items())), left_out


def describe_left_out(left_out: Mapping[str, int]) -> str:
    """Return how many files of each extension are left out, most frequent first; "" if there are none."""
    most_first = sorted(left_out.items(), key=lambda item: (-item[1], item[0]))
    shown = [
        plural(count, f"{name} file") if name else f"{plural(count, 'file')} without extension"
        for name, count in most_first[:SHOWN_EXTENSIONS]
    ]
    rest = sum(count for _, count in most_first[SHOWN_EXTENSIONS:])
    if rest:
        shown.append(plural(rest, "other file"))
    advice = f" (to read HEIC: {how_to_install('heif')})" if any(name in left_out for name in HEIF) else ""
    return f"left out {', '.join(shown)}{advice}" if shown else ""


def _entry_is(kind: Callable[[], bool]) -> bool:
    """Call `entry.is_dir` or `entry.is_file`; return False if that fails, as for a link to itself."""
    try:
        return kind()
    except OSError:
        return False


def _why_missing(entry: os.DirEntry[str]) -> str:
    """Return why a link is broken, or "" if it is not."""
    try:
        entry.stat()
    except OSError as error:
        return str(error.strerror)
    return ""


def _read_annotations(listed: Path, files: list[str]) -> _Part:
    """Read the classes from lines `file name, class, …`, separated by tabs."""
    rows = [line.split("\t") for line in read_regular(listed, MOST_TABLE_BYTES).decode(errors="replace").splitlines()]
    classes = {row[0]: row[1] for row in rows if len(row) > 1}
    missing = next((name for name in files if name.rpartition("/")[2] not in classes), None)
    if missing is not None:
        raise TwofoldError(f"{listed} does not state the class of {missing}; add a line for it, or remove the image")
    return _Part(files, [classes[name.rpartition("/")[2]] for name in files])


def _keep_classes(root: Path, part: _Part, only: Collection[str]) -> _Part:
    missing = sorted(set(only) - {name for name in part.classes if name is not None}) if part.files else []
    if missing:
        raise TwofoldError(
            f"{root} has no images of {', '.join(missing[:3])}{' and others' if len(missing) > 3 else ''}: "
            f"{len(missing)} of the {len(only)} requested classes are missing"
        )
    wanted = set(only)
    kept = [of in wanted for of in part.classes]
    return _Part(list(compress(part.files, kept)), list(compress(part.classes, kept)))


def _find_splits(root: Path, files: list[str], prefix: str = "") -> tuple[_Part, _Part]:
    """Return the training and the test files. All `files` start with `prefix`."""
    tops = {_top_folder(name, prefix) for name in files}
    if None not in tops and len(tops) == 1:
        return _find_splits(root, files, f"{prefix}{tops.pop()}/")
    by_lower = {top.lower(): top for top in sorted(top for top in tops if top is not None)}
    training = [by_lower[name] for name in TRAIN_NAMES if name in by_lower]
    candidates = [by_lower[name] for name in TEST_NAMES if name in by_lower]
    if not training or not candidates:
        return _find_classes(files, prefix), _Part([], [])
    if len(training) > 1:
        folders = " and ".join(str(root / prefix / top) for top in training)
        raise TwofoldError(f"{folders} both look like the training set; rename or move one of them")

    def part(top: str, known: Collection[str | None] = ()) -> _Part:
        below = f"{prefix}{top}/"
        own = [name for name in files if name.startswith(below)]
        listed = root / below / ANNOTATIONS
        return _read_annotations(listed, own) if listed.is_file() else _find_classes(own, below, known)

    train = part(training[0])
    tests = [part(top, set(train.classes)) for top in candidates]
    labelled = [test for test in tests if None not in test.classes]
    return train, (labelled or tests)[0]


def _describe_unused(files: list[str], train: _Part, test: _Part) -> str:
    """Return a note on images that are not used, or on why the sub-folders are not classes; "" if there is none."""
    if len(train.files) + len(test.files) < len(files):
        used = {*train.files, *test.files}
        unused = [name for name in files if name not in used]
        folders = ", ".join(sorted({str(Path(name).parent) for name in unused})[:SHOWN_REASONS])
        return f"skipped {len(unused):,} images that are in neither the training nor the test folder: {folders}, …"
    if None not in train.classes:
        return ""
    top = os.path.commonpath({os.path.dirname(name) for name in train.files})
    loose = [name for name in train.files if os.path.dirname(name) == top]
    if not loose or len(loose) == len(train.files):
        return ""
    return f"sub-folders are not used as classes, because images lie next to them ({len(loose):,}, such as {loose[0]})"


def _find_classes(files: list[str], prefix: str, known: Collection[str | None] = ()) -> _Part:
    """Return the class of each file, or None. A single folder is a class only if the training set has it (`known`)."""
    same: dict[str | None, str | None] = {}  # so that files of a class share one string
    tops = [same.setdefault(top, top) for top in (_top_folder(name, prefix) for name in files)]
    if None in same:
        return _Part(files, [None] * len(files))
    if len(same) == 1 and tops[0] not in known:
        return _find_classes(files, f"{prefix}{tops[0]}/", known)
    return _Part(files, tops)


def _top_folder(name: str, prefix: str) -> str | None:
    """Return the first folder below the prefix, or None for a file directly in the prefix."""
    folder, slash, _ = name[len(prefix) :].partition("/")
    return folder if slash else None
