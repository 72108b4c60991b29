"""Named methods. The module can be called: `twofold.methods()` lists their names."""

import sys
from types import ModuleType

from twofold.methods import catalog as _catalog  # noqa: F401 — fills the registry
from twofold.methods.method import Method, Parts
from twofold.methods.registry import (
    CATALOG,
    Entry,
    entry,
    find,
    refuse_keys_of_others,
    refuse_unregistered,
    schema,
    schema_of_run,
)

__all__ = [
    "CATALOG",
    "Entry",
    "Method",
    "Parts",
    "entry",
    "find",
    "refuse_keys_of_others",
    "refuse_unregistered",
    "schema",
    "schema_of_run",
]


class _Callable(ModuleType):
    """`twofold.methods` is both this package and, for users, a function; importing the first hides the second."""

    def __call__(self) -> list[str]:
        return sorted(CATALOG)


sys.modules[__name__].__class__ = _Callable
