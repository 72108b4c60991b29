"""The methods: `Method`, the registry, and the catalog. `twofold.methods()` returns the names of all methods.

This package imports torch only when a method is built, so that commands which list methods or check keys start quickly.
`Method` and the other names that need torch are imported when they are first used.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from twofold.methods import catalog as _catalog  # noqa: F401 — the import fills the registry
from twofold.methods.registry import (
    CATALOG,
    Entry,
    entry,
    find,
    name_of_method,
    refuse_keys_of_others,
    refuse_unregistered,
    schema,
    schema_of_run,
)

if TYPE_CHECKING:
    from twofold.methods import relations
    from twofold.methods.method import Method, OfMoments, Parts

__all__ = [
    "CATALOG",
    "Entry",
    "Method",
    "OfMoments",
    "Parts",
    "entry",
    "find",
    "name_of_method",
    "refuse_keys_of_others",
    "refuse_unregistered",
    "relations",
    "schema",
    "schema_of_run",
]


def __getattr__(name: str) -> Any:
    if name in ("Method", "OfMoments", "Parts"):
        return getattr(import_module("twofold.methods.method"), name)
    if name == "relations":
        return import_module("twofold.methods.relations")
    raise AttributeError(f"module 'twofold.methods' has no attribute '{name}'")


class _CallableModule(ModuleType):
    def __call__(self) -> list[str]:
        return sorted(CATALOG)


# `twofold.methods` is this package, and users also call it: `twofold.methods()` is documented. A function of the same
# name would disappear as soon as anything imports the package. Python looks up `__call__` in the class of the module,
# so the module gets a class that has it.
sys.modules[__name__].__class__ = _CallableModule
