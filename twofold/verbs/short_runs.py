"""Short runs: a CPU often has time for hundreds of steps only, which need other settings than thousands of steps.

`pretrain` decides this for `--minutes`, from the measured time of a step. Then the run gets the recipe `short`, an
encoder that needs little training, and images that are small enough for hundreds of steps. A few tiny images get it
too: there is time for thousands of steps, but the features that are made from the images are better.
"""

from collections.abc import Mapping
from typing import Any

from torch import nn

from twofold import dist
from twofold.config import Config, resolve
from twofold.config.resolve import default_encoder_keys
from twofold.data.source import Source
from twofold.device import choose_device
from twofold.display import Display
from twofold.keys import Schema
from twofold.methods import schema
from twofold.methods.catalog.common import SHORT_METHOD
from twofold.models import has_name
from twofold.text import plural
from twofold.train.timing_run import measure_step
from twofold.verbs.choose import derived_defaults, refuse
from twofold.verbs.settings import Asked, check_settings

MANY_STEPS = 2_000  # from here on, the recipes of the methods are better
ENOUGH_STEPS = 300  # smaller images are used if there is time for fewer
FEW_TINY = 5_000  # training images; measured on 1,438 images of 8 pixels
SIZES = (64, 48)  # pixels, the best first; larger images are reduced to the first

Layers = Mapping[str, Mapping[str, Any]]


def may_be_short(config: Config, has_weights: bool) -> bool:
    """Return whether a run may get the settings for short runs: on a CPU, with new weights, in one process."""
    is_new = config.recipe == "scratch" and "recipe" not in config.origin and config.init is None and not has_weights
    return is_new and dist.count() == 1 and choose_device(config.device).type == "cpu"


def short_settings(usual: Asked, data: Any, minutes: float) -> Asked | None:
    """Return the settings of a short run, or None if the method has its own recipe for few steps.

    If the user names no method, but keys that only the usual default method has, the method stays that one.
    """
    is_free = "method" not in usual.given and usual.given.keys() <= schema(SHORT_METHOD).keys()
    if not is_free and not usual.method.has_short_recipe:
        return None
    return check_settings(data, None if is_free else usual.method.name, usual.given, minutes, recipe="short")


def is_short(
    keys: Schema, layers: Layers, source: Source, minutes: float, module: nn.Module | None, display: Display
) -> bool:
    """Return whether there is time for fewer than 2,000 steps with the recipe of the method, and say so.

    The usual encoder of tiny images takes thousands of steps within minutes. If there are few of them, the run is short
    nevertheless, unless the user names a method or the images are a named data set with settings of its own.
    """
    config = with_derived(keys, layers, source)  # on the command line, the user's values are text
    size = config.image_size
    assert size is not None
    if "encoder" in default_encoder_keys(size):
        images = len(source.train.readable())
        if "method" in layers["user"] or source.defaults or images >= FEW_TINY:
            return False
        display.say(
            f"recipe=short: {plural(images, 'image')} of {size} pixels are few for the usual settings; set "
            "recipe=scratch to keep them"
        )
        return True
    display.say(f"timing a few steps, to choose settings for --minutes {minutes:g}")
    steps = int(60 * minutes / measure_step(config, source, None, module))
    if steps >= MANY_STEPS:
        return False
    display.say(
        f"recipe=short: in {minutes:g} min there is time for {plural(steps, 'step')} with the usual settings "
        f"({config.method}, encoder {config.encoder}, {config.image_size} pixels), which need {MANY_STEPS:,} or more; "
        "set recipe=scratch to keep them"
    )
    return True


def short_size(
    keys: Schema, layers: Layers, source: Source, minutes: float, module: nn.Module | None
) -> dict[str, int]:
    """Return the image size of a short run. The images of the user's own module keep their size."""
    size = layers["chosen"]["image_size"]
    if "image_size" in layers["user"] or not has_name(resolve(keys, layers).encoder) or size <= min(SIZES):
        return {}
    for size in (each for each in SIZES if each <= size):
        config = with_derived(keys, {**layers, "chosen": {**layers["chosen"], "image_size": size}}, source)
        if 60 * minutes / measure_step(config, source, None, module) >= ENOUGH_STEPS:
            break
    return {"image_size": size}


def with_derived(keys: Schema, layers: Layers, source: Source) -> Config:
    """Resolve the layers with what follows from the images. `picture_size` does not matter for the time of a step."""
    layers = {name: {k: v for k, v in layer.items() if k != "picture_size"} for name, layer in layers.items()}
    derived = derived_defaults(resolve(keys, layers), source)
    config = resolve(keys, {**layers, "chosen": {**layers["chosen"], **derived}})
    refuse(config, source)
    return config
