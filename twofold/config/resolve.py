"""Resolves layers of values into a configuration, writes it as the JSON text of a run's config.json, and reads it.

Layers are plain dictionaries of dotted keys, such as `{"augment.flip": 0.5}`. Each key and value is checked, and the
configuration records which layer set it.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from twofold.checksums import seal, unseal
from twofold.config.sections import RUN_KEYS, SECTIONS, Config, Graph, flat
from twofold.errors import TwofoldError, other_format
from twofold.keys import Schema, checked, nearest_key, shown
from twofold.text import plural
from twofold.version import __version__

SIZES = (64, 96, 128, 160, 224)  # images larger than the first size are resized to one of these
FORMAT = 2  # of config.json, and so of the run folder
READABLE = (1, FORMAT)  # format 1 has no checksums
MOST_NAMED = 5  # unknown keys in a message
MOST_DEPTH = 2  # of lists in a value


def resolve(schema: Schema, layers: Mapping[str, Mapping[str, Any]]) -> Config:
    """Apply the layers to the defaults of the schema.

    Parameters
    ----------
    schema : Schema
        The keys that are allowed.
    layers : mapping
        Dictionaries of dotted keys by the name of the layer; a later layer overrides an earlier one.

    Returns
    -------
    Config
        `origin` has the name of the layer that set each key.
    """
    values = {name: key.default for name, key in schema.items()}
    origin: dict[str, str] = {}
    for layer, given in layers.items():
        for name, value in given.items():
            if name not in schema:
                raise TwofoldError(f"unknown key '{name}'{nearest_key(name, schema)}")
            values[name] = checked(name, value, schema[name].hint)
            origin[name] = layer
    return _build(values, origin)


def _build(values: Mapping[str, Any], origin: Mapping[str, str]) -> Config:
    sections: dict[str, dict[str, Any]] = {}
    top: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    for name, value in values.items():
        section, dot, rest = name.partition(".")
        if dot:
            sections.setdefault(section, {})[rest] = value
        else:
            (top if name in RUN_KEYS else parameters)[name] = value
    for section, given in sections.items():
        belongs = top if section in Config.__dataclass_fields__ else parameters
        belongs[section] = SECTIONS[section](**given)
    config = Config(**top, parameters=parameters, origin=dict(origin))
    _check(config)
    return config


def _check(config: Config) -> None:
    if (config.mean is None) != (config.std is None) or len(config.mean or ()) != len(config.std or ()):
        raise TwofoldError("mean and std belong together: set one value of each for every channel, or neither")
    for name in ("crop_scale", "crop_ratio", "scale", "blur_sigma", "local_scale", "extra_scale"):
        low, high = getattr(config.augment, name) or (1.0, 1.0)
        if low > high:
            raise TwofoldError(f"augment.{name}={low:g},{high:g}: the first value must not be larger than the second")
    if isinstance(config.pixel_range, tuple) and config.pixel_range[0] >= config.pixel_range[1]:
        raise TwofoldError(
            f"pixel_range={shown(config.pixel_range)}: the value of black must be less than that of white"
        )
    for name in ("crop_scale", "local_scale", "extra_scale"):
        if (getattr(config.augment, name) or (1.0, 1.0))[0] <= 0:
            raise TwofoldError(f"augment.{name} must be above 0, because a crop of size 0 has no pixels")
    for name in ("flip", "jitter", "grayscale", "blur", "extra_blur", "solarize"):
        value = getattr(config.augment, name)
        # A shorter list is repeated: 0,0.2 alternates between two values, as in BYOL, for any number of views.
        asked = config.origin.get(f"augment.{name}") == "user"
        if asked and isinstance(value, tuple) and len(value) > config.views:
            views = plural(config.views, "view")
            raise TwofoldError(f"augment.{name} has {len(value)} values for {views}: give at most one for each view")


# Keys that have an effect with augment.transform_mode=instead.
INSTEAD = ("augment.transform", "augment.local_", "augment.interpolation")


def refuse_unread(config: Config) -> None:
    """Raise an error if the user set a key that has no effect, because it depends on the value of another key."""
    read = {
        "momentum": ("optimizer", config.optimizer in ("sgd", "lars")),
        "betas": ("optimizer", config.optimizer in ("adam", "adamw")),
        "lars_eta": ("optimizer", config.optimizer == "lars"),
        "restart_epochs": ("schedule", config.schedule == "restarts"),
        "picture_size": ("augment.crop_scale", config.augment.crops or config.augment.local_views > 0),
        "augment.interpolation": ("augment.crop_scale", config.augment.crops or config.augment.local_views > 0),
    }
    read["augment.transform_mode"] = ("augment.transform", config.augment.transform is not None)
    if config.augment.transform is not None and config.augment.transform_mode == "instead":
        names = [name for name in RUN_KEYS if name.startswith("augment.") and not name.startswith(INSTEAD)]
        read |= dict.fromkeys([*names, "picture_size"], ("augment.transform_mode", False))
    graph = config.parameters.get("graph")
    if isinstance(graph, Graph):
        read |= {
            "graph.labelled_fraction": ("graph.source", graph.source == "labels"),
            "graph.neighbours": ("graph.source", graph.source == "neighbours"),
            "graph.balance": ("graph.source", graph.source not in ("views", "neighbours")),
        }
    values = flat(config)
    for name, (other, has_effect) in read.items():
        default = RUN_KEYS[name].default if name in RUN_KEYS else getattr(Graph(), name.partition(".")[2])
        if config.origin.get(name) == "user" and not has_effect and values[name] != default:
            raise TwofoldError(
                f"{name} has no effect with {other}={shown(values[other])}: leave it out, or change {other}"
            )


def default_image_size(side: int) -> int:
    """The `image_size` for images with this median shorter side: the same up to 64 pixels, else the nearest size."""
    return side if side <= SIZES[0] else min(SIZES, key=lambda size: abs(size - side))


def default_encoder_keys(image_size: int) -> dict[str, Any]:
    """The stem and, below 20 pixels, the encoder, for a run or `diagnose` if the user did not set them.

    The stem has 3x3 convolutions up to 48 pixels, in addition max-pool up to 80 pixels, and 7x7 convolutions above.
    Below 20 pixels the encoder is `conv` instead of a ResNet.
    """
    stem = "small" if image_size <= 48 else "small-pool" if image_size <= 80 else "large"
    return {"stem": stem} if image_size >= 20 else {"stem": stem, "encoder": "conv"}


def dump(config: Config) -> str:
    """JSON text with the value of every key, the layer that set it, and the learning rate that follows."""
    record = {
        "format": FORMAT,
        "values": flat(config),
        "origin": dict(config.origin),
        "derived": {"scaled_lr": config.scaled_lr},
        "twofold": __version__,
    }
    return json.dumps(seal(record), indent=2) + "\n"


def load(text: str, schema_of: Callable[[str, Mapping[str, Any]], Schema]) -> Config:
    """The configuration that `dump` wrote. `schema_of(method, values)` returns its keys."""
    try:
        record = json.loads(text)
        _, values, origin = record["format"], record["values"], record["origin"]
        method = values["method"]
        if not isinstance(method, str) or not isinstance(origin, dict):
            raise TypeError("method is text, and origin a table")
        if any(_depth_above(value, MOST_DEPTH) for value in values.values()):
            raise ValueError("a value has more than two levels of lists")
    except (AttributeError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise TwofoldError(f"this is not a configuration that Twofold wrote ({str(error)[:200]!r})") from None
    unseal(record, "config.json", remedy="restore it from a copy, such as the one in checkpoints/step-N")
    refuse_other_format(record, "this run")
    keys = schema_of(method, values)
    if keys is RUN_KEYS:  # the method is not registered
        values = {name: value for name, value in values.items() if name in keys}
    unknown = sorted(values.keys() - keys.keys())
    if unknown:
        writer = f"Twofold {record['twofold']}" if "twofold" in record else "another version"
        raise TwofoldError(
            f"it has keys that Twofold {__version__} does not know ({', '.join(unknown[:MOST_NAMED])}"
            f"{', …' if len(unknown) > MOST_NAMED else ''}): {writer} wrote this run; open it with that version"
        )
    config = resolve(keys, {"saved": values})
    return dataclasses.replace(config, origin=origin)


def refuse_other_format(record: Any, what: str) -> None:
    """Raise an error if config.json has a format that this version does not read. It has none without a run."""
    written = record.get("format", FORMAT) if isinstance(record, dict) else FORMAT
    if written not in READABLE:
        version = record.get("twofold")
        raise other_format(what, written, version if isinstance(version, str) else None, READABLE)


def _depth_above(value: Any, most: int) -> bool:
    return isinstance(value, list) and (most == 0 or any(_depth_above(item, most - 1) for item in value))
