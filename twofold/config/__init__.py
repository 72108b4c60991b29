"""The configuration of a run: its keys, and how values are resolved, saved and loaded.

This package knows nothing about data or the machine.
"""

from twofold.config.resolve import dump, load, refuse_other_format, refuse_unread, resolve
from twofold.config.sections import RUN_KEYS, SECTIONS, Augment, Checkpoint, Config, Graph, Head, flat

__all__ = [
    "RUN_KEYS",
    "SECTIONS",
    "Augment",
    "Checkpoint",
    "Config",
    "Graph",
    "Head",
    "dump",
    "flat",
    "load",
    "refuse_other_format",
    "refuse_unread",
    "resolve",
]
