"""What a user asked of a run, checked before images are looked for: `pretrain.configure` begins with it.

The command line calls it earlier still. It needs no torch, so a misspelt key is reported at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold.config import RUN_KEYS, Config, resolve
from twofold.errors import TwofoldError
from twofold.keys import Schema
from twofold.methods import Entry, find, refuse_keys_of_others, schema


@dataclass(frozen=True)
class Asked:
    """Settings that a run can have. `config` has defaults where nothing was asked."""

    given: dict[str, Any]  # values as the user gave them, data and method among them
    method: Entry
    keys: Schema
    config: Config


def check_settings(data: Any, method: str | None, overrides: Mapping[str, Any], minutes: float | None) -> Asked:
    given = dict(overrides)
    if minutes is not None and ("epochs" in given or not 0 < minutes < float("inf")):
        raise TwofoldError("give either epochs or minutes of training, and more than 0")
    asked_for = {"data": str(data) if is_named(data) and data is not None else None, "method": method}
    for name, value in asked_for.items():
        if value is not None and given.setdefault(name, value) != value:
            raise TwofoldError(f"{name} is given twice: {value} and {name}={given[name]}")
    method = given.get("method", RUN_KEYS["method"].default)
    keys = schema(method)
    refuse_keys_of_others(method, given)
    config = resolve(keys, {"user": given})
    return Asked(given, find(method), keys, config)


def is_named(data: Any) -> bool:
    """Whether the images are asked for by a name or path, and not handed over."""
    return data is None or isinstance(data, (str, Path))
