"""Points that are evenly spaced on a log scale. This module needs no torch, because charts of reports use it, too."""

import math


def log_spaced(total: int, count: int) -> list[int]:
    """At most `count` whole numbers from 1 to total, evenly spaced on a log scale, both ends included."""
    return sorted({round(math.exp(math.log(total) * i / max(count - 1, 1))) for i in range(count)} | {total})
