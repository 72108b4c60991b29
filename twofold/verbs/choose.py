"""What is chosen for the user: values that follow from the images, the memory and the minutes."""

from collections.abc import Mapping
from typing import Any

from twofold import dist
from twofold.config import Config, refuse_unread, resolve
from twofold.config.image_size import default_encoder_keys
from twofold.data.hold_out import training_rows
from twofold.data.load import refuse_channels
from twofold.data.loader import refuse_large_batch, suggested_batch_size
from twofold.data.source import Source
from twofold.device import choose_device
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.keys import Schema
from twofold.methods import find
from twofold.train.micro_batches import refuse_uneven
from twofold.train.timing_run import Memory, available_memory, measure_memory, measure_step

MEMORY_SHARE = 0.8  # of what is free: others need some too
# Networks keep fewer bytes than this for each pixel: with a 3x3 stem ResNet-18 4,700, ResNet-50 25,000.
MOST_KEPT = {"conv": 3_000, "resnet18": 8_000, "resnet34": 13_000}
MOST_KEPT_BY_OTHERS = 36_000
FEW_IMAGES = 512  # two of the usual batches
BLURRED_FROM = 81  # pixels: from this size on the papers blur, below it there is no detail to lose


def resolve_config(
    keys: Schema,
    layers: Mapping[str, Mapping[str, Any]],
    source: Source,
    *,
    minutes: float | None,
    display: Display,
) -> Config:
    """The layers, with what follows from the images added to `chosen`; the user's own values stay above it."""
    chosen = dict(layers["chosen"])
    layers = {**layers, "chosen": chosen}
    chosen |= derived_defaults(resolve(keys, layers), source)
    config = resolve(keys, layers)
    refuse(config, source)
    if config.origin.get("batch_size") != "user" and dist.count() == 1:
        fits = fitting_batch_size(config, source)
        if fits != config.batch_size:
            chosen["batch_size"] = fits
            chosen |= derived_defaults(resolve(keys, layers), source)
            display.say(f"batch_size={fits}, as {config.batch_size} would need too much memory; see also pieces")
    if minutes is not None and dist.count() > 1:
        raise TwofoldError("--minutes measures the pace of one process, and there are several: give epochs")
    if minutes is not None:
        display.say(f"taking a few steps, to see what {minutes:g} minutes are enough for")
        chosen.pop("warmup_epochs", None)
        chosen["epochs"] = epochs_within(minutes, resolve(keys, layers), source)
        chosen |= derived_defaults(resolve(keys, layers), source)
    return resolve(keys, layers)


def refuse(config: Config, source: Source) -> None:
    """What a run would refuse, before anything is measured: a dry run must not promise it."""
    assert config.channels is not None
    refuse_unread(config)
    refuse_channels(source, config.channels)
    refuse_large_batch(config.batch_size, len(training_rows(source, config.test_fraction)))
    if config.pieces > 1:
        refuse_uneven(config.pieces, config.batch_size)


def derived_defaults(config: Config, source: Source) -> dict[str, Any]:
    """Values that follow from image size, number of images, memory and epochs, where nobody asked for others."""
    assert config.image_size is not None
    chosen = default_encoder_keys(config.image_size)
    if config.image_size >= BLURRED_FROM and "augment.blur" not in config.origin:
        chosen["augment.blur"] = 0.5
    if (shorter := warm_up(config.warmup_epochs, config.epochs)) != config.warmup_epochs:
        chosen["warmup_epochs"] = shorter
    images = len(training_rows(source, config.test_fraction))
    if images < 2 * config.batch_size:
        chosen["batch_size"] = suggested_batch_size(images)
    entry = find(config.method)
    suited = entry.few_images if images < FEW_IMAGES else {}
    suited = suited or entry.by_batch(chosen.get("batch_size", config.batch_size))
    chosen |= {key: value for key, value in suited.items() if config.origin.get(key, "chosen") == "chosen"}
    return chosen


def warm_up(epochs: float, of: int) -> float:
    """As many epochs of warm-up as a run of so many will have, unless it is asked for more."""
    return min(epochs, of / 10)


def fitting_batch_size(config: Config, source: Source) -> int:
    """The configuration's, or the largest half, quarter, … of it that the device's memory holds."""
    assert config.image_size is not None
    free = MEMORY_SHARE * available_memory(choose_device(config.device), decoded_bytes(config, source))
    views = config.views + config.augment.local_views
    pixels = config.batch_size * views * config.image_size**2
    if config.pieces > 1 or free == 0 or MOST_KEPT.get(config.encoder, MOST_KEPT_BY_OTHERS) * pixels < free:
        return config.batch_size
    try:
        memory = measure_memory(config, source)
    except TwofoldError:  # what is wrong is said where the run is built
        return config.batch_size
    return halved_to_fit(config.batch_size, memory, free)


def decoded_bytes(config: Config, source: Source) -> int:
    return len(source) * (config.channels or 1) * (config.image_size or 1) ** 2


def halved_to_fit(batch_size: int, memory: Memory, free: float) -> int:
    while batch_size > 8 and memory.bytes(batch_size) > free:
        batch_size //= 2
    return batch_size


def epochs_within(minutes: float, config: Config, source: Source) -> int:
    """As many as fit into the time, by the pace of a few steps; one where not even that does."""
    return max(1, int(60 * minutes / epoch_seconds(config, source, 60 * minutes)))


def epoch_seconds(config: Config, source: Source, budget: float | None = None) -> float:
    return steps_per_epoch(config, source) * measure_step(config, source, budget)


def steps_per_epoch(config: Config, source: Source) -> int:
    images = len(training_rows(source, config.test_fraction))
    full, rest = divmod(images, config.batch_size)
    return max(1, full + (not config.drop_last and rest >= 2))
