"""Seed torch's random generator for initial weights, and restore the caller's state afterwards.

Twofold itself uses counter-based random numbers (`counter.py`). torch's layers and modules of a user draw from torch's
generator.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# All threads share torch's generator. The lock is reentrant, because building a method may load an encoder.
_one_at_a_time = threading.RLock()


@contextmanager
def own_randomness() -> Iterator[None]:
    """Restore the state of torch's generator at the end of the block."""
    state = torch.get_rng_state()
    try:
        yield
    finally:
        with _one_at_a_time:
            torch.set_rng_state(state)


def seed_all(seed: int, device: torch.device) -> None:
    # On a CPU, seed only its generator: torch.manual_seed visits all types of devices and stores a stack trace for each
    # that is not initialised.
    generator = torch.default_generator if device.type == "cpu" else torch
    with _one_at_a_time:
        generator.manual_seed(seed)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's generator for the block, and restore its state at the end."""
    with _one_at_a_time, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
