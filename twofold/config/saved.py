"""Writes a configuration as the JSON text of a run's config.json, and reads it."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from twofold.config.resolve import resolve
from twofold.config.sections import RUN_KEYS, Config, flat
from twofold.errors import TwofoldError
from twofold.keys import Schema

FORMAT = 1


def dump(config: Config) -> str:
    """JSON text with the value of every key, the layer that set it, and the learning rate that follows."""
    record = {
        "format": FORMAT,
        "values": flat(config),
        "origin": dict(config.origin),
        "derived": {"scaled_lr": config.scaled_lr},
    }
    return json.dumps(record, indent=2) + "\n"


def load(text: str, schema_of: Callable[[str, Mapping[str, Any]], Schema]) -> Config:
    """The configuration that `dump` wrote. `schema_of(method, values)` returns its keys."""
    try:
        record = json.loads(text)
        version, values, origin = record["format"], record["values"], record["origin"]
        method = values["method"]
        if not isinstance(method, str) or not isinstance(origin, dict):
            raise TypeError("method is text, and origin a table")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TwofoldError(f"this is not a configuration that Twofold wrote ({str(error)[:200]!r})") from None
    if version != FORMAT:
        raise TwofoldError(f"this run has format {version}, but this version of Twofold reads format {FORMAT}")
    keys = schema_of(method, values)
    if keys is RUN_KEYS:  # the method is not registered
        values = {name: value for name, value in values.items() if name in keys}
    config = resolve(keys, {"saved": values})
    return dataclasses.replace(config, origin=origin)
