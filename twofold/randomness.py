"""torch's own generator: seeded where weights are drawn, and left to the caller as it was.

Twofold draws by hashes of a counter (`counter.py`). torch's layers and a user's modules draw from this generator.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# torch's layers draw from one generator for all threads; a method's function may load an encoder while it is built.
_one_at_a_time = threading.RLock()


@contextmanager
def own_randomness() -> Iterator[None]:
    """Leave torch's generator to the caller as it was."""
    state = torch.get_rng_state()
    try:
        yield
    finally:
        with _one_at_a_time:
            torch.set_rng_state(state)


def seed_all(seed: int, device: torch.device) -> None:
    # torch.manual_seed goes through all kinds of devices, and notes where it was called from for those not in use.
    generator = torch.default_generator if device.type == "cpu" else torch
    with _one_at_a_time:
        generator.manual_seed(seed)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Initial weights that follow from the seed; torch's generator is left as it was."""
    with _one_at_a_time, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
