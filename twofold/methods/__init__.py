"""Named methods."""

from twofold.methods import catalog as _catalog  # noqa: F401 — fills the registry
from twofold.methods.method import Method
from twofold.methods.registry import CATALOG, Entry, entry, find, schema

__all__ = ["CATALOG", "Entry", "Method", "entry", "find", "schema"]
