"""`picture_size=auto`: how large the pictures are from which a run takes random crops, and what they cost.

Pictures of twice `image_size` take about five times the memory of the squares. They are chosen only if they fit.
"""

from dataclasses import dataclass

import numpy as np
import torch

from twofold import dist
from twofold.config import Config
from twofold.data.cache import size_limit
from twofold.data.decode import REDUCING_GAP
from twofold.data.hold_out import training_rows
from twofold.data.item_split import ItemSplit
from twofold.data.picture_cache import count_lines
from twofold.data.registry import NAMED_SETS
from twofold.data.source import Source
from twofold.device import DEVICE_SHARE, choose_device, host_memory, total_memory

FACTORS = (REDUCING_GAP, 1.75, 1.5, 1.25, 1)  # times image_size; the first that fits is used
HOST_SHARE = 0.25  # of the memory of the host; each batch reads random pictures, which is slow from a disk


@dataclass(frozen=True)
class PictureChoice:
    size: int  # 0: no pictures fit
    largest: int  # the size without limits of memory and disk


def choose_picture_size(config: Config, source: Source) -> int:
    """Return the number that replaces `picture_size=auto`, the same in all processes. It is 0 without effect."""
    choice = picture_choice(config, source)
    return dist.from_first(lambda: 0 if choice is None else choice.size)


def picture_choice(config: Config, source: Source) -> PictureChoice | None:
    """Return the size that fits, or None if pictures would show no more than the squares, or if there are no crops.

    Named sets of arrays, such as cifar10, are not used as pictures even if `image_size` is smaller than their images:
    published experiments at reduced scale shrink the whole image first.
    """
    assert config.image_size is not None
    sides = source.train.sides
    shorter, is_square = int(sides[:, 0].max()), bool((sides[:, 0] == sides[:, 1]).all())
    is_named_array = source.location in NAMED_SETS and not isinstance(source.train, ItemSplit)
    crops = config.augment.crops or config.augment.local_views > 0
    if not crops or is_named_array or (is_square and shorter <= config.image_size):
        return None
    sizes = [min(round(factor * config.image_size), shorter) for factor in FACTORS]
    larger = [size for size in sizes if not is_square or size > config.image_size]
    fits = (size for size in larger if picture_bytes(config, source, size) <= room_for_pictures(config, source))
    return PictureChoice(next(fits, 0), larger[0])


def room_for_pictures(config: Config, source: Source) -> float:
    """Return the bytes that pictures may take: on the disk, in the memory of the host and in that of a GPU.

    A GPU without room for the squares gets all batches from the host, so its memory does not matter.
    """
    squares = square_bytes(config, source)
    room = HOST_SHARE * total_memory(torch.device("cpu"))
    # The limits do not depend on the memory that is free now, so that a restarted run chooses the same size. Arrays
    # are copied to memory, whereas pictures from files are mapped.
    room = min(room, size_limit() - squares if isinstance(source.train, ItemSplit) else host_memory() / 2)
    device = choose_device(config.device)
    if device.type != "cpu" and squares <= (on_device := DEVICE_SHARE * total_memory(device)):
        room = min(room, on_device - squares)
    return room


def square_bytes(config: Config, source: Source) -> int:
    """Return the bytes of the squares of all images of the source."""
    return len(source) * (config.channels or 1) * (config.image_size or 1) ** 2


def picture_bytes(config: Config, source: Source, picture_size: int) -> int:
    """Return the bytes of the pictures of all training images, about."""
    if not picture_size:
        return 0
    images = len(training_rows(source, config.test_fraction, config.unlabelled_fraction))
    sides = np.maximum(source.train.sides, 1)
    return int(images * count_lines(sides, picture_size) * (config.channels or 1) * picture_size)
