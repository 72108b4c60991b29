"""The check of a run's settings, before Twofold looks for images. `pretrain.configure` begins with it.

The command line calls it first of all. It does not import torch, so a misspelt key is reported at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold.config import RUN_KEYS, Config, resolve
from twofold.errors import TwofoldError
from twofold.keys import Schema
from twofold.methods import Entry, find, name_of_method, refuse_keys_of_others, schema
from twofold.methods.catalog.common import CONTINUED_METHOD, SHORT_METHOD, continued_recipe, short_recipe

RECIPES = {"continued": continued_recipe, "short": short_recipe}  # the others are the methods' own
METHODS = {"continued": CONTINUED_METHOD, "short": SHORT_METHOD}  # if the user names none


@dataclass(frozen=True)
class Asked:
    """Checked settings of a run. In `config`, every setting that the user did not give has its default."""

    given: dict[str, Any]  # the values that the user gave, including data and method
    method: Entry
    keys: Schema
    config: Config
    recipe: Mapping[str, Any]  # the recipe that takes the place of the method's own, if any


def check_settings(
    data: Any,
    method: str | None,
    overrides: Mapping[str, Any],
    minutes: float | None,
    *,
    module_has_weights: bool = False,
    recipe: str | None = None,
) -> Asked:
    """Check the names and values of all settings and fill in the defaults of the method.

    `module_has_weights` states that the user passed a module with weights to keep. `recipe` is the recipe if the user
    names none.
    """
    given = dict(overrides)
    method = None if method is None else name_of_method(method)
    if "method" in given:
        given["method"] = name_of_method(str(given["method"]))
    if minutes is not None and ("epochs" in given or not 0 < minutes < float("inf")):
        both = "epochs" in given
        problem = f"epochs={given['epochs']} and minutes={minutes:g}" if both else f"minutes={minutes:g}"
        advice = "give either epochs or minutes" if both else "give a finite number above 0"
        raise TwofoldError(f"{problem}: {advice}")
    asked_for = {"data": str(data) if is_named(data) and data is not None else None, "method": method}
    for name, value in asked_for.items():
        if value is not None and given.setdefault(name, value) != value:
            raise TwofoldError(f"{name} is given twice: {value} and {name}={given[name]}; leave one out")
    has_weights = module_has_weights or given.get("init") not in (None, "none")
    kind = given.get("recipe", recipe or ("continued" if has_weights else "scratch"))
    if kind == "continued" and not has_weights:
        raise TwofoldError("recipe=continued needs weights to start from: set init, or pass a module as encoder")
    method = given.get("method", METHODS.get(kind, RUN_KEYS["method"].default))
    keys = schema(method)
    refuse_keys_of_others(method, given)
    of_all = RECIPES[kind](find(method)) if kind in RECIPES else {}
    config = resolve(keys, {"recipe": of_all, "user": given})
    return Asked(given, find(method), keys, config, of_all)


def is_named(data: Any) -> bool:
    """Return whether the data is given by a name or path (or by default), and not as arrays or a Dataset."""
    return data is None or isinstance(data, (str, Path))
