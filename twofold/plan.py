"""What is chosen for the user, why, and what the run will cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

import torch

from twofold import dist
from twofold.config import RUN_KEYS, Config, flat, refuse_unread, resolve
from twofold.data.cache import folder as cache_folder
from twofold.data.cache import size
from twofold.data.items import Items
from twofold.data.loader import refuse_large, suggested_batch_size
from twofold.data.sources import ARRAY, DATASET, Source, network_for, refuse_channels, sample
from twofold.errors import TwofoldError
from twofold.keys import Schema, shown
from twofold.methods import find
from twofold.models import has_name
from twofold.train.device import choose_device
from twofold.train.pieces import refuse_uneven
from twofold.train.precision import computes_bf16
from twofold.train.progress import Display
from twofold.train.trial import Memory, available_memory, measure_memory, measure_step

MEMORY_SHARE = 0.8  # of what is free: others need some too
# Networks keep fewer bytes than this for each pixel: with a 3x3 stem ResNet-18 4,700, ResNet-50 25,000.
MOST_KEPT = {"conv": 3_000, "resnet18": 8_000, "resnet34": 13_000}
MOST_KEPT_BY_OTHERS = 36_000
FEW_IMAGES = 512  # two of the usual batches
BLURRED_FROM = 81  # pixels: from this size on the papers blur, below it there is no detail to lose
STATISTICS_IMAGES = 256
LONG_RUN = 600.0  # seconds on a CPU, from which it is measured whether fewer bits would be quicker
QUICKER = 0.8  # of the time, or less, is worth a word
MEASURED = ("epochs", "batch_size")  # keys that are chosen by what a machine can do, where they are


def settle(
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
    chosen |= follow(resolve(keys, layers), source)
    config = resolve(keys, layers)
    refuse(config, source)
    if config.origin.get("batch_size") != "user" and dist.count() == 1:
        fits = fitting_batch_size(config, source)
        if fits != config.batch_size:
            chosen["batch_size"] = fits
            chosen |= follow(resolve(keys, layers), source)
            display.say(f"batch_size={fits}, as {config.batch_size} would need too much memory; see also pieces")
    if minutes is not None and dist.count() > 1:
        raise TwofoldError("--minutes measures the pace of one process, and there are several: give epochs")
    if minutes is not None:
        display.say(f"taking a few steps, to see what {minutes:g} minutes are enough for")
        chosen.pop("warmup_epochs", None)
        chosen["epochs"] = epochs_within(minutes, resolve(keys, layers), source)
        chosen |= follow(resolve(keys, layers), source)
    return resolve(keys, layers)


def refuse(config: Config, source: Source) -> None:
    """What a run would refuse, before anything is measured: a dry run must not promise it."""
    assert config.channels is not None
    refuse_unread(config)
    refuse_channels(source, config.channels)
    refuse_large(config.batch_size, source.training_images(config.test_fraction))
    if config.pieces > 1:
        refuse_uneven(config.pieces, config.batch_size)


def follow(config: Config, source: Source) -> dict[str, Any]:
    """Values that follow from image size, number of images, memory and epochs, where nobody asked for others."""
    assert config.image_size is not None
    chosen = network_for(config.image_size)
    if config.image_size >= BLURRED_FROM and "augment.blur" not in config.origin:
        chosen["augment.blur"] = 0.5
    if (shorter := warm_up(config.warmup_epochs, config.epochs)) != config.warmup_epochs:
        chosen["warmup_epochs"] = shorter
    images = source.training_images(config.test_fraction)
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
    images = source.training_images(config.test_fraction)
    full, rest = divmod(images, config.batch_size)
    return max(1, full + (not config.drop_last and rest >= 2))


@dataclass(frozen=True)
class Row:
    key: str
    value: str
    origin: str  # the layer that set it
    why: str


def explained(config: Config, source: Source) -> list[Row]:
    """Every value that is not the default, with who set it and why."""
    values = flat(config)
    rows = [
        Row(name, shown(values[name]), layer, _why(name, layer, config, source))
        for name, layer in config.origin.items()
        if name in values and name not in ("data", "data_dir", "method")
    ]
    order = {name: place for place, name in enumerate([*RUN_KEYS, *values])}
    return sorted(rows, key=lambda row: order[row.key])


def _why(name: str, layer: str, config: Config, source: Source) -> str:
    if layer == "user":
        return "you asked for it"
    if layer == "method":
        return f"the recipe of {config.method}"
    if layer == "data":
        return f"suits {source.name}"
    images = source.training_images(config.test_fraction)
    few = config.batch_size == suggested_batch_size(images)
    reasons = {
        "image_size": f"the shorter sides of the images are {source.train.side} pixels, in the median",
        "channels": "all images are grey" if config.channels == 1 else "there are images in colour",
        "stem": f"for images of {config.image_size} pixels",
        "encoder": f"images of {config.image_size} pixels are too small for a ResNet",
        "augment.blur": f"images of {BLURRED_FROM} pixels and more have detail to lose",
        "warmup_epochs": "a tenth of the epochs",
        "batch_size": f"there are {images:,} images: two steps in an epoch, or more" if few else "fits the memory",
        "epochs": "as many as the minutes allow",
    }
    if images < FEW_IMAGES and name in find(config.method).few_images:
        return f"{config.method} with {images:,} images, and so small batches"
    if name in find(config.method).by_batch(config.batch_size):
        return f"{config.method} with batches of {config.batch_size}"
    return reasons.get(name, "follows from the images")


@dataclass(frozen=True)
class Estimate:
    step_seconds: float
    steps: int  # of the whole run
    memory: float  # bytes, while training, without the images
    available: float  # bytes, on the device
    images: float  # bytes, decoded
    mean: tuple[float, ...]  # of some images' pixels, 0 to 1: what they are normalised by
    std: tuple[float, ...]
    bf16_seconds: float | None = None  # of a step with precision=bf16, where that is worth asking

    @property
    def seconds(self) -> float:
        return self.steps * self.step_seconds


def estimate(config: Config, source: Source) -> Estimate:
    assert config.image_size is not None
    assert config.channels is not None
    some = sample(source, STATISTICS_IMAGES, image_size=config.image_size, channels=config.channels).train
    mean, std = some.statistics()
    memory = measure_memory(config, source).bytes(config.batch_size // config.pieces)
    device = choose_device(config.device)
    seconds, steps = measure_step(config, source), config.epochs * steps_per_epoch(config, source)
    narrow = config.precision == "auto" and steps * seconds >= LONG_RUN and computes_bf16(device)
    return Estimate(
        step_seconds=seconds,
        steps=steps,
        memory=memory,
        available=available_memory(device, decoded_bytes(config, source)),
        images=decoded_bytes(config, source),
        mean=tuple(mean.tolist()),
        std=tuple(std.tolist()),
        bf16_seconds=measure_step(replace(config, precision="bf16"), source) if narrow else None,
    )


def shape_in_words(config: Config) -> str:
    unusual = "" if config.channels in (1, 3) else f", {config.channels} channels"
    return f"{config.image_size} pixels{unusual}"


def labels_in_words(config: Config, classes: Sequence[str] | None) -> str:
    """How many classes there are, and what they are for; of a method of the user's own that is not known."""
    if not classes:
        return "no labels"
    graph = config.parameters.get("graph")
    trained_on = config.method == "supervised" or (graph is not None and graph.source == "labels")
    purpose = "trained on" if trained_on else "for evaluation only"
    return f"{len(classes)} classes" + ("" if find(config.method).family == "own" else f" ({purpose})")


def described(config: Config, source: Source, costs: Estimate) -> Mapping[str, str]:
    """What the estimate says, in words, title by title."""
    device: torch.device = choose_device(config.device)
    splits = [split for split in (source.train, source.test) if split is not None]
    unreadable = sum(len(split.unreadable) for split in splits)
    besides = f"; {unreadable:,} more cannot be read" if unreadable else ""
    images = sum(len(split.readable()) for split in splits)
    kinds = labels_in_words(config, source.classes)
    normal = ", ".join(f"{mean:.3f} ± {std:.3f}" for mean, std in zip(costs.mean, costs.std, strict=True))
    lines = {
        "data": f"{source.name}: {images:,} images, {kinds}{besides}",
        "method": f"{config.method}, encoder {config.encoder}, {device}",
        "normalised": f"by the pixels' mean and deviation, about {normal}",
        "learning rate": f"{config.scaled_lr:g} at its top: lr={config.lr:g}, scaled to the batch",
        "time": f"{duration(costs.seconds)}: {costs.steps:,} steps of {costs.step_seconds:.3g} s, as measured just now",
        "memory": f"{size(costs.memory)} of {size(costs.available)} free, and {size(costs.images)} for the images",
    }
    if costs.bf16_seconds is not None and costs.bf16_seconds < QUICKER * costs.step_seconds:
        lines["quicker"] = f"{duration(costs.steps * costs.bf16_seconds)} with precision=bf16, on this processor"
    if source.remark:
        lines["note"] = source.remark
    if isinstance(source.train, Items):
        lines["on disk"] = f"{size(costs.images)} of decoded images in {cache_folder()}"
    return lines


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"about {max(round(seconds), 1)} seconds"
    return f"about {round(seconds / 60)} minutes" if seconds < 5400 else f"about {seconds / 3600:.1f} hours"


def command(config: Config, path: Path) -> str | None:
    """The command that repeats this run; None where a program handed over what the shell cannot."""
    if config.data in (ARRAY, DATASET) or not has_name(config.encoder) or find(config.method).family == "own":
        return None
    values = flat(config)
    keys = [
        quote(f"{name}={shown(values[name])}")
        for name, layer in config.origin.items()
        if name not in ("data", "method") and (layer == "user" or (layer == "chosen" and name in MEASURED))
    ]
    return " ".join(
        ["twofold pretrain", quote(config.data), "--method", config.method, "--out", quote(str(path)), *keys]
    )
