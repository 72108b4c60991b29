"""Lays layers of values over each other: checks every key and value, and remembers which layer set it.

Layers are plain dicts of dotted keys. `refuse_unread` is for commands: a key that was asked for must do something.
"""

from collections.abc import Mapping
from typing import Any

from twofold.config.sections import RUN_KEYS, SECTIONS, Config, Graph, flat
from twofold.errors import TwofoldError, nearest
from twofold.keys import Schema, checked, shown


def resolve(schema: Schema, layers: Mapping[str, Mapping[str, Any]]) -> Config:
    """Lay the layers over the defaults, later ones on top; check every key and value; remember who set what."""
    values = {name: key.default for name, key in schema.items()}
    origin: dict[str, str] = {}
    for layer, given in layers.items():
        for name, value in given.items():
            if name not in schema:
                raise TwofoldError(f"unknown key '{name}'{nearest(name, list(schema))}")
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
    for name in ("crop_scale", "crop_ratio", "scale", "blur_sigma", "local_scale", "extra_scale"):
        low, high = getattr(config.augment, name) or (1.0, 1.0)
        if low > high:
            raise TwofoldError(f"augment.{name}={low:g},{high:g}: the first is larger than the second")
    for name in ("crop_scale", "local_scale", "extra_scale"):
        if (getattr(config.augment, name) or (1.0, 1.0))[0] <= 0:
            raise TwofoldError(f"augment.{name} must be above 0: a crop without pixels has nothing to show")
    for name in ("flip", "jitter", "grayscale", "blur", "extra_blur", "solarize"):
        value = getattr(config.augment, name)
        # A shorter list is repeated: 0,0.2 is BYOL's pair of views, for any number of them.
        asked = config.origin.get(f"augment.{name}") == "user"
        if asked and isinstance(value, tuple) and len(value) > config.views:
            raise TwofoldError(f"augment.{name} has {len(value)} values for {config.views} views")


def refuse_unread(config: Config) -> None:
    """A key that was asked for must do something: these depend on another."""
    read = {
        "momentum": ("optimizer", config.optimizer in ("sgd", "lars")),
        "betas": ("optimizer", config.optimizer in ("adam", "adamw")),
        "lars_eta": ("optimizer", config.optimizer == "lars"),
        "restart_epochs": ("schedule", config.schedule == "restarts"),
        "augment.interpolation": ("augment.crop_scale", config.augment.crops or config.augment.local_views > 0),
    }
    graph = config.parameters.get("graph")
    if isinstance(graph, Graph):
        read |= {
            "graph.labelled_fraction": ("graph.source", graph.source == "labels"),
            "graph.neighbours": ("graph.source", graph.source == "neighbours"),
            "graph.balance": ("graph.source", graph.source not in ("views", "neighbours")),
        }
    values = flat(config)
    for name, (other, does) in read.items():
        default = RUN_KEYS[name].default if name in RUN_KEYS else getattr(Graph(), name.partition(".")[2])
        if config.origin.get(name) == "user" and not does and values[name] != default:
            raise TwofoldError(
                f"{name} has no effect with {other}={shown(values[other])}: leave it out, or set {other}"
            )
