"""`Row`: what a part of the campaign tried, and how often it failed."""

from typing import NamedTuple


class Row(NamedTuple):
    """A row of the table that `make torture` prints."""

    test: str  # what was tried
    tried: int
    failed: int
    note: str = ""  # the first failures, for people who repair them
