"""The settings that Twofold chooses from the images, the free memory and the training time."""

import math
from collections.abc import Mapping
from typing import Any

from torch import nn

from twofold import dist
from twofold.config import Config, refuse_unread, resolve
from twofold.config.resolve import default_encoder_keys
from twofold.data.hold_out import count_samples
from twofold.data.load import refuse_channels, refuse_large_pictures
from twofold.data.loader import refuse_large_batch, suggested_batch_size
from twofold.data.source import Source
from twofold.device import choose_device
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.keys import Schema
from twofold.methods import find
from twofold.text import plural, rough_duration
from twofold.train.micro_batches import refuse_uneven
from twofold.train.timing_run import Memory, available_memory, measure_memory, measure_step
from twofold.verbs.continued import nearest_size
from twofold.verbs.picture_size import choose_picture_size, picture_bytes, square_bytes
from twofold.verbs.precision import faster_precision

MEMORY_SHARE = 0.8  # of the free memory; the rest is left for other programs
# Upper bounds on the bytes that an encoder keeps for the backward pass, for each pixel of its input. Measured with a
# 3x3 stem: 4,700 for ResNet-18 and 25,000 for ResNet-50.
MOST_KEPT = {"conv": 3_000, "conv-patches": 3_000, "resnet18": 8_000, "resnet34": 13_000}
MOST_KEPT_BY_OTHERS = 36_000
FEWEST_EPOCHS = 0.25  # of those of the recipe: time is saved on epochs first, then on the image size
HEAD_SHARE = 0.25  # of the epochs: the most in which only the heads of a pretrained encoder are trained
USUAL_MINUTES = 5  # the time that a run from pretrained weights should take if the user does not set it
FEW_IMAGES = 512  # two batches of the default size
BLURRED_FROM = 81  # pixels; the papers blur images from this size on, and smaller ones have no fine detail


def resolve_config(
    keys: Schema,
    layers: Mapping[str, Mapping[str, Any]],
    source: Source,
    *,
    minutes: float | None,
    display: Display,
    module: nn.Module | None = None,
    may_shrink: bool = False,
    may_use_bf16: bool = False,
) -> Config:
    """Resolve the layers after adding the values that follow from the images to the layer `chosen`.

    Values of the user take precedence over chosen values. `module` is the user's own encoder. `may_shrink` states that
    a pretrained encoder, whose own image size is in `chosen`, also takes smaller images. `may_use_bf16` states that a
    long run on a CPU may compute in bfloat16.
    """
    if with_pictures := resolve(keys, layers).picture_size == "auto":
        layers = without(layers, "picture_size")
    chosen = dict(layers["chosen"])
    layers = {**layers, "chosen": chosen}
    if with_pictures:
        chosen["picture_size"] = choose_picture_size(resolve(keys, layers), source)
    chosen |= derived_defaults(resolve(keys, layers), source)
    config = resolve(keys, layers)
    usual_epochs = config.epochs
    refuse(config, source)
    if may_shrink and "image_size" not in layers["user"] and dist.count() == 1:
        chosen |= affordable(config, source, minutes, module, display)
        if with_pictures:
            chosen["picture_size"] = choose_picture_size(resolve(keys, layers), source)
        chosen |= derived_defaults(resolve(keys, layers), source)
        config = resolve(keys, layers)
    if config.origin.get("batch_size") != "user" and dist.count() == 1:
        fits = fitting_batch_size(config, source, module)
        if fits != config.batch_size:
            chosen["batch_size"] = fits
            chosen |= derived_defaults(resolve(keys, layers), source)
            display.say(f"batch_size={fits}, because {config.batch_size} needs too much memory; set pieces to keep it")
    if minutes is not None and dist.count() > 1:
        raise TwofoldError("--minutes works with one process only, and this run has several: set epochs")
    if may_use_bf16 and (config := resolve(keys, layers)).precision == "auto":
        layers = without(layers, "precision")
        chosen = layers["chosen"]
        steps = config.epochs * steps_per_epoch(config, source)
        chosen |= faster_precision(config, source, steps, minutes=minutes, module=module, display=display)
    if minutes is not None:
        display.say(f"timing a few steps, to choose the number of epochs for --minutes {minutes:g}")
        chosen.pop("warmup_epochs", None)
        config = resolve(keys, layers)
        chosen["epochs"] = epochs_within(minutes, config, source, module)
        if config.recipe == "continued":  # few epochs are enough, and more change the encoder more
            chosen["epochs"] = min(chosen["epochs"], usual_epochs)
        chosen |= derived_defaults(resolve(keys, layers), source)
    return resolve(keys, layers)


def without(layers: Mapping[str, Mapping[str, Any]], key: str) -> dict[str, dict[str, Any]]:
    """Return copies of the layers without a key whose value, auto, leaves the choice to Twofold."""
    return {name: {k: v for k, v in layer.items() if k != key} for name, layer in layers.items()}


def refuse(config: Config, source: Source) -> None:
    """Refuse what the run itself would refuse, before anything is measured, so that a dry run reports it too."""
    assert config.channels is not None
    refuse_unread(config)
    if config.head_epochs >= config.epochs:
        raise TwofoldError(
            f"head_epochs={config.head_epochs:g} leaves none of the {plural(config.epochs, 'epoch')} to train the "
            "encoder: set fewer"
        )
    assert config.image_size is not None
    assert config.picture_size != "auto"
    refuse_channels(source, config.channels)
    refuse_large_pictures(config.picture_size, config.image_size)
    samples = count_samples(source, config.test_fraction, config.unlabelled_fraction)
    refuse_large_batch(config.batch_size, samples, are_objects=source.train.objects is not None)
    if config.pieces > 1:
        refuse_uneven(config.pieces, config.batch_size)


def derived_defaults(config: Config, source: Source) -> dict[str, Any]:
    """Return the values that follow from the image size, the number of images and the epochs.

    Values of the user take precedence over them.
    """
    assert config.image_size is not None
    chosen = default_encoder_keys(config.image_size)
    if config.origin.get("encoder") == "recipe":  # the recipe has its own encoder for images of any size
        chosen.pop("encoder", None)
    if config.image_size >= BLURRED_FROM and "augment.blur" not in config.origin:
        chosen["augment.blur"] = 0.5
    # Grey images are often text, drawings or scans, where a mirrored image means something else.
    if config.recipe == "short" and config.channels == 1 and config.origin.get("augment.flip", "chosen") == "chosen":
        chosen["augment.flip"] = 0.0
    if (shorter := warm_up(config.warmup_epochs, config.epochs)) != config.warmup_epochs:
        chosen["warmup_epochs"] = shorter
    if (shorter := min(config.head_epochs, HEAD_SHARE * config.epochs)) != config.head_epochs:
        chosen["head_epochs"] = shorter
    images = count_samples(source, config.test_fraction, config.unlabelled_fraction)
    if images < 2 * config.batch_size:
        chosen["batch_size"] = suggested_batch_size(images)
    entry = find(config.method)
    suited = entry.few_images if images < FEW_IMAGES else {}
    suited = suited or entry.by_batch(chosen.get("batch_size", config.batch_size))
    chosen |= {key: value for key, value in suited.items() if config.origin.get(key, "chosen") == "chosen"}
    return chosen


def affordable(
    config: Config, source: Source, minutes: float | None, module: nn.Module | None, display: Display
) -> dict[str, Any]:
    """Return the image size and the epochs with which the run takes at most `minutes`, or else USUAL_MINUTES.

    The size in the configuration is that of the pretrained encoder. With more than the time allows, the run first has
    fewer epochs than the recipe, and then smaller images: the size matters more.
    """
    own, epochs = config.image_size, config.epochs
    assert own is not None
    display.say(f"timing a few steps at {own} pixels, the image size of the pretrained encoder")
    seconds = epoch_seconds(config, source, module=module)
    limit = 60 * (USUAL_MINUTES if minutes is None else minutes)
    fewest = epochs if config.origin.get("epochs") == "user" else max(1, round(FEWEST_EPOCHS * epochs))
    if epochs * seconds <= limit:
        return {}
    size, usually = own, epochs * seconds
    if fewest * seconds > limit:
        size = nearest_size(own, round(own * math.sqrt(limit / (fewest * seconds))), 1)
        seconds *= (size / own) ** 2  # the time is proportional to the number of pixels
    fits = min(epochs, max(fewest, int(limit / seconds)))
    advice = "set image_size and epochs to choose yourself" if minutes is None else "allow more minutes for more"
    usual = f"{plural(epochs, 'epoch')} at {own} pixels would take {rough_duration(usually)}"
    display.say(f"image_size={size}, epochs={fits}: {usual}; {advice}")
    return {"image_size": size, "epochs": fits}


def warm_up(epochs: float, of: int) -> float:
    """Return the epochs of warm-up: those of the configuration, but at most a tenth of all epochs."""
    return min(epochs, of / 10)


def fitting_batch_size(config: Config, source: Source, module: nn.Module | None = None) -> int:
    """Return the batch size of the configuration, halved until the batch fits into the memory of the device."""
    assert config.image_size is not None
    free = MEMORY_SHARE * available_memory(choose_device(config.device), decoded_bytes(config, source))
    views = config.views + config.augment.local_views
    pixels = config.batch_size * views * config.image_size**2
    if config.pieces > 1 or free == 0 or MOST_KEPT.get(config.encoder, MOST_KEPT_BY_OTHERS) * pixels < free:
        return config.batch_size
    try:
        memory = measure_memory(config, source, module)
    except TwofoldError:  # the run itself reports what is wrong
        return config.batch_size
    return halved_to_fit(config.batch_size, memory, free)


def decoded_bytes(config: Config, source: Source) -> int:
    """Return the bytes of all images of the source after decoding, and of the pictures for random crops."""
    assert config.picture_size != "auto"
    return square_bytes(config, source) + picture_bytes(config, source, config.picture_size)


def halved_to_fit(batch_size: int, memory: Memory, free: float) -> int:
    """Halve a batch size until it fits into the free memory, but not below 8."""
    while batch_size > 8 and memory.bytes(batch_size) > free:
        batch_size //= 2
    return batch_size


def epochs_within(minutes: float, config: Config, source: Source, module: nn.Module | None = None) -> int:
    """Return the number of epochs that fit into the time, at least 1. Twofold times a few steps."""
    return max(1, int(60 * minutes / epoch_seconds(config, source, 60 * minutes, module)))


def epoch_seconds(
    config: Config, source: Source, budget: float | None = None, module: nn.Module | None = None
) -> float:
    """Return the measured duration of an epoch."""
    return steps_per_epoch(config, source) * measure_step(config, source, budget, module)


def steps_per_epoch(config: Config, source: Source) -> int:
    """Return the number of optimizer steps in an epoch."""
    images = count_samples(source, config.test_fraction, config.unlabelled_fraction)
    full, rest = divmod(images, config.batch_size)
    return max(1, full + (not config.drop_last and rest >= 2))
