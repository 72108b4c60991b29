"""Read torchrun's environment variables without importing torch."""

import os


def is_alone() -> bool:
    """Whether this process trains alone, because torchrun has not started others."""
    return "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) < 2
