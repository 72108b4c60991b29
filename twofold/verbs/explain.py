"""What was chosen for a run and why, what it will cost, and the command that repeats it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

import torch

from twofold.config import RUN_KEYS, Config, flat
from twofold.data.hold_out import training_rows
from twofold.data.item_split import ItemSplit
from twofold.data.load import load_sample
from twofold.data.loader import suggested_batch_size
from twofold.data.source import ARRAY, DATASET, Source
from twofold.device import choose_device
from twofold.files import cache_folder
from twofold.keys import shown
from twofold.methods import find
from twofold.models import has_name
from twofold.precision import computes_bf16
from twofold.text import bytes_in_words, rough_duration
from twofold.train.timing_run import available_memory, measure_memory, measure_step
from twofold.verbs.choose import BLURRED_FROM, FEW_IMAGES, decoded_bytes, steps_per_epoch

STATISTICS_IMAGES = 256
LONG_RUN = 600.0  # seconds on a CPU, from which it is measured whether fewer bits would be quicker
QUICKER = 0.8  # of the time, or less, is worth a word
MEASURED = ("epochs", "batch_size")  # keys that are chosen by what a machine can do, where they are


@dataclass(frozen=True)
class ChosenValue:
    key: str
    value: str
    origin: str  # the layer that set it
    why: str


def explained(config: Config, source: Source) -> list[ChosenValue]:
    """Every value that is not the default, with who set it and why."""
    values = flat(config)
    rows = [
        ChosenValue(name, shown(values[name]), layer, _why(name, layer, config, source))
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
    images = len(training_rows(source, config.test_fraction))
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
    some = load_sample(source, STATISTICS_IMAGES, image_size=config.image_size, channels=config.channels).train
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
        "time": f"{rough_duration(costs.seconds)}: {costs.steps:,} steps of {costs.step_seconds:.3g} s, "
        "as measured just now",
        "memory": f"{bytes_in_words(costs.memory)} of {bytes_in_words(costs.available)} free, "
        f"and {bytes_in_words(costs.images)} for the images",
    }
    if costs.bf16_seconds is not None and costs.bf16_seconds < QUICKER * costs.step_seconds:
        lines["quicker"] = f"{rough_duration(costs.steps * costs.bf16_seconds)} with precision=bf16, on this processor"
    if source.remark:
        lines["note"] = source.remark
    if isinstance(source.train, ItemSplit):
        lines["on disk"] = f"{bytes_in_words(costs.images)} of decoded images in {cache_folder()}"
    return lines


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
