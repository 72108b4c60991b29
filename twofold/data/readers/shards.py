"""Images in tar files, as WebDataset lays them out: what has one name up to its first dot is one sample.

`00017.jpg` with `00017.cls` (a number or name) or `00017.json` (its "label") next to it. An image is known by its
sample's name. Members are read where they lie, by their offset: nothing is unpacked, and the files need no order.
"""

import hashlib
import json
import os
import re
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from twofold.data.decode import Header, Unreadable, decode_image, extensions, hash_of_ends, read_header, silence_pillow
from twofold.data.item_split import ItemSplit, ItemSplits
from twofold.data.parallel import Progress, map_in_order
from twofold.data.readers.columns import Cell, number_labels, parse_label
from twofold.data.readers.splits import TEST_NAMES, TRAIN_NAMES
from twofold.errors import TwofoldError

MAX_INSPECTED_HEADERS = 1024  # of all shards together, to know the images' size and kind
MAX_LABEL_BYTES = 2**16
MAX_IMAGE_BYTES = 2**30  # of one image: it is read whole
BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")
MAX_SHARDS = 100_000


@dataclass(frozen=True)
class Member:
    shard: Path
    name: str  # of the sample
    offset: int
    size: int
    label: Cell


def is_pattern(data: str) -> bool:
    return data.endswith(".tar") and BRACES.search(data) is not None


def is_shards(path: Path) -> bool:
    """Whether a path is a folder of tar files, a tar file or a pattern of some."""
    if path.is_dir():
        # A folder of images may hold an archive, too.
        return any(path.glob("*.tar")) and not any(file.suffix.lower() in extensions() for file in path.iterdir())
    return path.suffix.lower() == ".tar" and (path.is_file() or is_pattern(str(path)))


def shards_of(path: Path) -> list[Path]:
    """The tar files that a path stands for: itself, those in a folder, or a pattern with {000..012}."""
    if path.is_dir():
        return sorted(path.rglob("*.tar"))
    match = BRACES.search(str(path))
    if match is None or path.exists():
        return [path]
    first, last = int(match[1]), int(match[2])
    if last - first >= MAX_SHARDS:
        raise TwofoldError(f"{path} stands for {last - first + 1} files; give at most {MAX_SHARDS}")
    before, behind = str(path)[: match.start()], str(path)[match.end() :]
    return [Path(f"{before}{number:0{len(match[1])}d}{behind}") for number in range(first, last + 1)]


def read_shards(path: Path, progress: Progress | None = None) -> ItemSplits:
    shards = shards_of(path)
    missing = [shard for shard in shards if not shard.is_file()]
    if missing or not shards:
        raise TwofoldError(f"there is no {missing[0] if missing else f'.tar file in {path}'}")
    parts: dict[bool, list[Member]] = {True: [], False: []}
    held = _test_shards(shards)
    for done, shard in enumerate(shards, start=1):
        parts[shard in held] += members(shard)
        if progress is not None:
            progress(done, len(shards))
    train, test = parts[False], parts[True]
    if not train:
        raise TwofoldError(f"no images in {path}; endings that count: {' '.join(sorted(extensions()))}")
    labels, classes = number_labels([member.label for member in train], [member.label for member in test])
    root = path if path.is_dir() else path.parent
    return _item_split(root, train, labels[0]), _item_split(root, test, labels[1]) if test else None, classes


def members(shard: Path) -> list[Member]:
    """The images of a tar file in their order, each with its label."""
    images: dict[str, tuple[int, int]] = {}
    labels: dict[str, Cell] = {}
    try:
        # "r:" reads plain tar alone: in a compressed one nothing can be found by its offset.
        with tarfile.open(shard, "r:") as tar, shard.open("rb") as file:
            behind = 0
            for member in tar:
                if member.offset_data < behind or member.size < 0:
                    raise tarfile.TarError("its members overlap")  # it would lead round in circles
                behind = member.offset_data + member.size if member.isreg() else member.offset_data
                name, ending = _split_name(member.name)
                if not member.isreg() or member.sparse is not None:
                    continue
                if ending.rpartition(".")[2] and f".{ending.rpartition('.')[2]}" in extensions():
                    images.setdefault(name, (member.offset_data, member.size))
                elif ending in ("cls", "json") and member.size <= MAX_LABEL_BYTES:
                    file.seek(member.offset_data)
                    label = _read_label(f"{shard}, {member.name}", ending, file.read(member.size))
                    labels[name] = label if label is not None else labels.get(name)
    except (OSError, tarfile.TarError, ValueError, OverflowError) as error:
        raise TwofoldError(
            f"{shard} cannot be read as a tar file: {' '.join(str(error).split())}; compressed ones must be unpacked "
            "first (gunzip)"
        ) from None
    return [Member(shard, name, *place, labels.get(name)) for name, place in images.items()]


def _split_name(member: str) -> tuple[str, str]:
    folder, slash, file = member.rpartition("/")
    stem, _, ending = file.partition(".")
    return folder + slash + stem, ending.lower()


def _read_label(where: str, ending: str, content: bytes) -> Cell:
    try:
        text = content.decode()
        if ending == "cls":
            return text.strip() or None
        record = json.loads(text)
        found = next((record[key] for key in ("label", "cls", "class") if key in record), None)
    except (ValueError, RecursionError, TypeError):
        raise TwofoldError(f"{where} holds no label: it is neither text nor JSON") from None
    return parse_label(found, where)


def _test_shards(shards: Sequence[Path]) -> set[Path]:
    """Shards whose name or folder says that they are for the test, where others are for training."""

    def says(shard: Path, words: Sequence[str]) -> bool:
        return bool({*re.split(r"[^a-z]+", f"{shard.parent.name}/{shard.name}".lower())} & {*words})

    if not any(says(shard, TRAIN_NAMES) for shard in shards):
        return set()
    return {shard for shard in shards if says(shard, TEST_NAMES) and not says(shard, TRAIN_NAMES)}


def _item_split(root: Path, images: Sequence[Member], labels: np.ndarray | None) -> ItemSplit:
    headers = _read_some_headers(images)
    # Where two shards count from the same number, the shard is part of the name.
    names_repeat = len({member.name for member in images}) < len(images)
    return ItemSplit(
        fetch=lambda row, size, channels: decode_image(_read_member(images[row]), size, channels),
        count=len(images),
        labels=labels,
        side=int(np.median([header.side for header in headers])),
        grey=all(header.grey for header in headers),
        facts=_hash_shards(images),
        files=tuple(
            f"{os.path.relpath(member.shard, root)}/{member.name}" if names_repeat else member.name for member in images
        ),
    )


def _read_member(member: Member) -> bytes:
    if member.size > MAX_IMAGE_BYTES:
        raise Unreadable(f"{member.size} bytes are more than the {MAX_IMAGE_BYTES} allowed")
    try:
        with member.shard.open("rb") as file:
            file.seek(member.offset)
            found = file.read(member.size)
    except OSError as error:
        raise Unreadable(str(error.strerror)) from error
    if len(found) < member.size:
        raise Unreadable("the tar file ends before it")
    return found


def _read_some_headers(images: Sequence[Member]) -> list[Header]:
    """Of images evenly spaced over all shards, as far as they can be read."""

    def attempt(member: Member) -> Header | str:
        try:
            return read_header(_read_member(member))
        except Unreadable as error:
            return str(error)

    rows = np.unique(np.linspace(0, len(images) - 1, MAX_INSPECTED_HEADERS, dtype=np.int64))
    with silence_pillow():
        found = list(map_in_order(attempt, [images[row] for row in rows]))
    headers = [header for header in found if isinstance(header, Header)]
    if not headers:
        raise TwofoldError(f"no image of {images[0].shard} can be read; {images[0].name}: {found[0]}")
    return headers


def _hash_shards(images: Sequence[Member]) -> bytes:
    """Of size, time and ends of each shard, and of where the images lie in them."""
    facts = hashlib.blake2b(digest_size=16)
    for shard in dict.fromkeys(member.shard for member in images):
        status = shard.stat()
        facts.update(repr((status.st_size, status.st_mtime_ns, hash_of_ends(shard))).encode())
    facts.update(repr([(member.offset, member.size) for member in images]).encode())
    return facts.digest()
