"""Kill one of two processes of a run; see `kills.py`."""

from torture import kills
from torture.row import Row


def run(seconds: float, seed: int) -> list[Row]:
    return kills.run(seconds, seed, count=2)
