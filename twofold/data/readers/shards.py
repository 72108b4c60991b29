"""Read images from tar files in WebDataset's layout: members with the same name up to the first dot form a sample.

For example, `00017.jpg` is an image, and its label is in `00017.cls` (a number or a name) or in `00017.json` (under
"label"). The name of the image is `00017`. Twofold reads members directly at their offset in the tar file. It unpacks
nothing, and the order of the members does not matter.
"""

import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from twofold.data.decode import Header, hash_of_ends, read_header, with_image
from twofold.data.decode_options import USUAL, DecodeOptions, Unreadable
from twofold.data.image_formats import extensions, silence_pillow
from twofold.data.item_split import ItemSplit, ItemSplits
from twofold.data.parallel import Progress, map_in_order
from twofold.data.pixel_range import choose_range
from twofold.data.readers.columns import Cell, number_labels, parse_label
from twofold.data.readers.file_index import MOST_SAMPLED, attempt_extremes
from twofold.data.readers.splits import TEST_NAMES, TRAIN_NAMES
from twofold.errors import TwofoldError

MAX_INSPECTED_HEADERS = 1024  # headers read, over all shards, to find the size and kind of the images
MAX_LABEL_BYTES = 2**16
MAX_HEADER_BYTES = 2**20  # of the long names of a member
MAX_IMAGE_BYTES = 2**30  # of one image, which is read into memory
BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")
MAX_SHARDS = 100_000


@dataclass(frozen=True)
class Member:
    shard: Path
    name: str  # the name of the sample
    offset: int
    size: int
    label: Cell


def is_pattern(data: str) -> bool:
    return data.endswith(".tar") and BRACES.search(data) is not None


def is_shards(path: Path) -> bool:
    """Whether a path is a tar file, a folder of tar files, or a pattern that stands for several tar files."""
    if path.is_dir():
        # A folder that contains images is read as images, even if it also contains an archive.
        return any(path.glob("*.tar")) and not any(file.suffix.lower() in extensions() for file in path.iterdir())
    return path.suffix.lower() == ".tar" and (path.is_file() or is_pattern(str(path)))


def shards_of(path: Path) -> list[Path]:
    """Return the tar files that a path stands for: itself, those in a folder, or those of a pattern like {000..012}."""
    if path.is_dir():
        return sorted(path.rglob("*.tar"))
    match = BRACES.search(str(path))
    if match is None or path.exists():
        return [path]
    first, last = int(match[1]), int(match[2])
    if last - first >= MAX_SHARDS:
        raise TwofoldError(f"{path} stands for {last - first + 1} files; use a pattern of at most {MAX_SHARDS}")
    before, behind = str(path)[: match.start()], str(path)[match.end() :]
    return [Path(f"{before}{number:0{len(match[1])}d}{behind}") for number in range(first, last + 1)]


def read_shards(path: Path, progress: Progress | None = None, options: DecodeOptions = USUAL) -> ItemSplits:
    shards = shards_of(path)
    missing = [shard for shard in shards if not shard.is_file()]
    if missing or not shards:
        raise TwofoldError(
            f"{missing[0]} does not exist; check the path or the numbers of the pattern"
            if missing
            else f"{path} contains no .tar files"
        )
    parts: dict[bool, list[Member]] = {True: [], False: []}
    held = _test_shards(shards)
    for done, shard in enumerate(shards, start=1):
        parts[shard in held] += members(shard)
        if progress is not None:
            progress(done, len(shards))
    train, test = parts[False], parts[True]
    if not train:
        raise TwofoldError(f"no images in {path}; supported file extensions: {' '.join(sorted(extensions()))}")
    labels, classes = number_labels([member.label for member in train], [member.label for member in test])
    root = path if path.is_dir() else path.parent
    headers = {member: header for part in (train, test) for member, header in _read_some_headers(part, options)}
    options = _with_chosen_range(headers, options)

    def to_split(part: Sequence[Member], labels: np.ndarray | None) -> ItemSplit:
        return _item_split(root, part, labels, [headers[member] for member in part if member in headers], options)

    return to_split(train, labels[0]), to_split(test, labels[1]) if test else None, classes


class _HeaderReader(io.FileIO):
    """The file from which tarfile reads headers. One that says it is very large would reserve the memory for it."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of it has {size} bytes")
        return super().read(size)


def members(shard: Path) -> list[Member]:
    """Return the images of a tar file in order, each with its label."""
    images: dict[str, tuple[int, int]] = {}
    labels: dict[str, Cell] = {}
    try:
        # "r:" accepts only uncompressed tar files; in a compressed one, members cannot be read by their offset.
        with shard.open("rb") as file, _HeaderReader(shard) as headers, tarfile.open(fileobj=headers, mode="r:") as tar:
            behind = 0
            for member in tar:
                if member.offset_data < behind or member.size < 0:
                    raise tarfile.TarError("its members overlap")  # reading on could loop forever
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
            f"{shard} cannot be read as a tar file: {' '.join(str(error).split())}; if it is compressed, decompress "
            "it first (gunzip)"
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
        raise TwofoldError(f"{where} contains no label: write text in a .cls, and a JSON object in a .json") from None
    return parse_label(found, where)


def _test_shards(shards: Sequence[Path]) -> set[Path]:
    """Return the shards of the test set, by the names of files and folders; none if no name says training."""

    def says(shard: Path, words: Sequence[str]) -> bool:
        return bool({*re.split(r"[^a-z]+", f"{shard.parent.name}/{shard.name}".lower())} & {*words})

    if not any(says(shard, TRAIN_NAMES) for shard in shards):
        return set()
    return {shard for shard in shards if says(shard, TEST_NAMES) and not says(shard, TRAIN_NAMES)}


def _item_split(
    root: Path, images: Sequence[Member], labels: np.ndarray | None, headers: list[Header], options: DecodeOptions
) -> ItemSplit:
    # If names repeat between shards, the name of the shard becomes part of the image's name.
    names_repeat = len({member.name for member in images}) < len(images)
    return ItemSplit(
        fetch=lambda row, size, use: with_image(_read_member(images[row]), size, use, options),
        count=len(images),
        labels=labels,
        sides=np.array([(header.side, header.longer) for header in headers]),
        channels=max(header.channels for header in headers),
        facts=_hash_shards(images) + options.changes_pixels,
        files=tuple(
            f"{os.path.relpath(member.shard, root)}/{member.name}" if names_repeat else member.name for member in images
        ),
        source=str(root.resolve()),
        options=options,
    )


def _read_member(member: Member) -> bytes:
    if member.size > MAX_IMAGE_BYTES:
        raise Unreadable(f"the file has {member.size} bytes; the limit is {MAX_IMAGE_BYTES}")
    try:
        with member.shard.open("rb") as file:
            file.seek(member.offset)
            found = file.read(member.size)
    except OSError as error:
        raise Unreadable(str(error.strerror)) from error
    if len(found) < member.size:
        raise Unreadable("the tar file ends before the end of this image")
    return found


def _with_chosen_range(headers: dict[Member, Header], options: DecodeOptions) -> DecodeOptions:
    """Choose the range of images of more than 8 bits from a sample of them, unless the user has chosen it."""
    if options.pixel_range != "auto":
        return options
    deep = [member for member, header in headers.items() if header.bits > 8]
    some = deep[:: -(-len(deep) // MOST_SAMPLED)] if deep else []
    with silence_pillow():
        found = map_in_order(lambda member: attempt_extremes(_read_member(member)), some)
        return replace(options, pixel_range=choose_range(each for each in found if each is not None))


def _read_some_headers(images: Sequence[Member], options: DecodeOptions) -> list[tuple[Member, Header]]:
    """Read the headers of images that are evenly spaced over all shards, and skip unreadable ones."""

    def attempt(member: Member) -> Header | str:
        try:
            return read_header(_read_member(member), options)
        except Unreadable as error:
            return str(error)

    if not images:
        return []
    rows = np.unique(np.linspace(0, len(images) - 1, MAX_INSPECTED_HEADERS, dtype=np.int64))
    with silence_pillow():
        some = [images[row] for row in rows]
        found = list(map_in_order(attempt, some))
    headers = [(member, header) for member, header in zip(some, found, strict=True) if isinstance(header, Header)]
    if not headers:
        first = images[0]
        raise TwofoldError(f"none of the inspected images can be read; {first.name} in {first.shard}: {found[0]}")
    return headers


def _hash_shards(images: Sequence[Member]) -> bytes:
    """Hash the size, time and ends of each shard, and the positions of the images in them."""
    facts = hashlib.blake2b(digest_size=16)
    for shard in dict.fromkeys(member.shard for member in images):
        status = shard.stat()
        facts.update(repr((status.st_size, status.st_mtime_ns, hash_of_ends(shard))).encode())
    facts.update(repr([(member.offset, member.size) for member in images]).encode())
    return facts.digest()
