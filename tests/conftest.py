"""Fixtures for all tests: a temporary cache instead of the user's, and a fixed random seed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

# `make test` tries the same examples each time, so that only a change of the code can make it fail. `make test-full`
# searches for new examples. There is no deadline, because a slow machine is not an error.
settings.register_profile("deterministic", derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
settings.register_profile("search", deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("deterministic")


@pytest.fixture(autouse=True, scope="session")
def temporary_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.mktemp("cache")
        patch.setenv("TWOFOLD_CACHE", str(cache))
        yield cache


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(0)
