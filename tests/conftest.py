"""Shared by all tests: nothing is read from or written to the user's own cache, and randomness is fixed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

# `make test` tries the same examples each time, so that it fails for a change and for nothing else; `make test-full`
# looks for new ones. No limits of time: a slow machine is not a fault.
settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
settings.register_profile("search", deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("steady")


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.mktemp("cache")
        patch.setenv("TWOFOLD_CACHE", str(cache))
        yield cache


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(0)
