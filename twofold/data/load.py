"""Decode an opened source: `read_data` for a run, `load_data` for any image size, `load_sample` for a few images.

Verbs and reports call these functions after the configuration is complete. `data/cache.py` stores the images that are
decoded from files.
"""

from dataclasses import replace

import numpy as np
import torch

from twofold import dist
from twofold.config import Config
from twofold.data.cache import Decoded
from twofold.data.decode import REDUCING_GAP
from twofold.data.hold_out import SplitPart, parts_of
from twofold.data.item_split import SLOW_SECONDS
from twofold.data.objects import Objects
from twofold.data.parallel import Progress
from twofold.data.pictures import Pictures
from twofold.data.source import Data, Skipped, Source, digest_of
from twofold.data.store import ImageStore, readonly_tensor
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.text import duration, plural

MOST_NAMED = 3  # slow images in messages


def read_data(config: Config, source: Source, display: Display, *, rest: bool = False, pictures: bool = False) -> Data:
    """Decode the images of a source in the size and with the channels of the configuration, with a progress bar.

    With `pictures`, the training images have the pictures from which the run takes random crops, if it uses them.

    With several processes, the first process fills the cache for the others.
    """
    with dist.one_before_the_others(), display.stage("reading images", len(source)) as stage:
        data = load_configured(config, source, stage, rest=rest, pictures=pictures)
    dist.same_everywhere("images", f"{data.fingerprint}, {len(data.train)} read")
    slowest = sorted(data.slow, key=lambda image: -image[1])[:MOST_NAMED]
    for name, seconds in slowest:
        display.say(f"slow     {name} took {duration(seconds)} to decode; a smaller copy is read faster")
    if len(data.slow) > len(slowest):
        display.say(
            f"slow     {plural(len(data.slow) - len(slowest), 'other image')} took more than {SLOW_SECONDS:g} s"
        )
    return data


def load_configured(
    config: Config, source: Source, progress: Progress | None = None, *, rest: bool = False, pictures: bool = False
) -> Data:
    """Decode the images of a source in the size and with the channels of the configuration."""
    assert config.image_size is not None
    assert config.channels is not None
    assert config.picture_size != "auto"
    return load_data(
        source,
        image_size=config.image_size,
        channels=config.channels,
        test_fraction=config.test_fraction,
        unlabelled_fraction=config.unlabelled_fraction,
        progress=progress,
        rest=rest,
        picture_size=config.picture_size if pictures else 0,
    )


def load_data(
    source: Source,
    *,
    image_size: int,
    channels: int,
    test_fraction: float,
    unlabelled_fraction: float = 0.0,
    progress: Progress | None = None,
    rest: bool = False,
    picture_size: int = 0,
) -> Data:
    """Decode the images of a source.

    If there are labels but no test set, `test_fraction` of each class is held out as the test set, by whole groups if
    groups are known. Without labels it is `unlabelled_fraction` of all images. With `rest`, images that belong to
    neither set are decoded too. With a `picture_size`, the training images have pictures too.
    """
    refuse_channels(source, channels)
    refuse_large_pictures(picture_size, image_size)
    kind = repr((image_size, channels, test_fraction)) + (" by group" if source.train.groups is not None else "")
    kind += f" unlabelled {unlabelled_fraction}" if unlabelled_fraction else ""
    held = () if source.held_out is None else (source.held_out.tobytes(),)
    fingerprint = digest_of(source.fingerprint.encode(), kind.encode(), *held)
    skipped = [
        Skipped(*item)
        for split in (source.train, source.test)
        if split is not None
        for item in split.unreadable.items()
    ]
    parts = parts_of(source, test_fraction, rest, unlabelled_fraction)
    stores, undecodable, slow = _decode_parts(parts, (image_size, channels, picture_size), fingerprint, progress)
    skipped += undecodable
    train, test = stores["train"], stores.get("test")
    if len(train) < source.min_images:
        first = f"; {skipped[0].path}: {skipped[0].reason}" if skipped else ""
        raise TwofoldError(
            f"{source.name} has {len(train)} images that can be decoded; at least {source.min_images} are needed{first}"
        )
    test = test if test is not None and len(test) else None
    found = tuple(skipped), fingerprint, slow, stores.get("rest"), source.remark
    return Data(source.name, train, test, source.classes, *found)


def _decode_parts(
    parts: list[SplitPart], sizes: tuple[int, int, int], fingerprint: str, progress: Progress | None
) -> tuple[dict[str, ImageStore], list[Skipped], tuple[tuple[str, float], ...]]:
    """Return a store for each part by its name, the images that could not be decoded, and those that were slow.

    `sizes` are image_size, channels and picture_size. Only the training images have pictures.
    """
    image_size, channels, picture_size = sizes
    stores: dict[str, ImageStore] = {}
    skipped: list[Skipped] = []
    slow: list[tuple[str, float]] = []
    total, before = sum(len(part.rows) for part in parts), 0

    def advance(done: int, _: int) -> None:
        if progress is not None:
            progress(before + done, total)

    for part in parts:
        own_picture_size = picture_size if part.name == "train" else 0
        key = f"{fingerprint}-{part.name}"
        decoded = part.split.decode(part.rows, image_size, channels, key, advance, own_picture_size)
        names = part.split.names(part.rows)
        for number, reason in decoded.skipped.items():
            skipped.append(Skipped(names[number] if names else f"item {part.rows[number]}", reason))
        for row, seconds in decoded.slow.items():
            named = part.split.names(np.array([row]))
            slow.append((named[0] if named else f"item {row}", seconds))
        stores[part.name] = _make_store(part, decoded)
        before += len(part.rows)
    return stores, skipped, tuple(slow)


def load_sample(source: Source, count: int, *, image_size: int, channels: int, picture_size: int = 0) -> Data:
    """Decode about `count` evenly spaced training images in memory, without the cache.

    At least two images are requested. The result is smaller if some cannot be decoded.
    """
    rows = source.train.readable()
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), max(count, 2)), dtype=np.int64))]
    part = SplitPart("train", source.train, rows, 0)
    store = _make_store(part, part.split.decode(rows, image_size, channels, None, None, picture_size))
    store = replace(store, objects=None)  # each image counts as a sample, so that there are enough for a batch
    if len(store) < 2:
        raise TwofoldError(f"fewer than 2 of {len(rows)} images of {source.name} can be decoded; replace damaged files")
    return Data(source.name, store, None, source.classes, (), source.fingerprint)


def refuse_channels(source: Source, channels: int) -> None:
    """Refuse a number of channels that the images do not have, except for conversions between grey (1) and RGB (3)."""
    have = source.train.channels
    if channels != have and not {channels, have} <= {1, 3}:
        raise TwofoldError(
            f"the images of {source.name} have {have} channels, which cannot be converted to channels={channels}; "
            f"remove the key, or pass images with {channels} channels"
        )


def refuse_large_pictures(picture_size: int, image_size: int) -> None:
    """Refuse pictures that the fast decoding of JPEG files at twice `image_size` cannot make."""
    if picture_size > REDUCING_GAP * image_size:
        raise TwofoldError(
            f"picture_size={picture_size} is more than twice image_size={image_size}; use at most "
            f"{REDUCING_GAP * image_size}"
        )


def _make_store(part: SplitPart, decoded: Decoded) -> ImageStore:
    """Return the store of a part's decoded images."""
    rows = np.delete(part.rows, list(decoded.skipped))
    labels, groups = (
        None if column is None else torch.from_numpy(column[rows]) for column in (part.split.labels, part.split.groups)
    )
    images, index = readonly_tensor(decoded.images), torch.from_numpy(rows + part.first)
    array = decoded.pictures
    pictures = None if array is None else Pictures.of(array, readonly_tensor(array.lines))
    numbers = part.split.objects
    objects = None if numbers is None else Objects.of(numbers[rows])
    return ImageStore(images, labels, index, part.split.names(rows), groups, pictures=pictures, objects=objects)
