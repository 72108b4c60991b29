"""Shared by all tests: nothing is read from or written to the user's own cache, and randomness is fixed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.mktemp("cache")
        patch.setenv("TWOFOLD_CACHE", str(cache))
        yield cache


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(0)
