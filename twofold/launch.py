"""What torchrun tells each process that it starts, read from the environment without importing torch."""

import os


def is_alone() -> bool:
    """Whether this process trains by itself: torchrun has started no others."""
    return "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) < 2
