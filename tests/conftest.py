"""Fixtures for all tests: a temporary cache instead of the user's, and a fixed random seed."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

from twofold.evaluate.gain import HANDMADE, PIXELS
from twofold.verbs import evaluation

# `make test` tries the same examples each time, so that only a change of the code can make it fail. `make test-full`
# searches for new examples. There is no deadline, because a slow machine is not an error.
settings.register_profile("deterministic", derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
settings.register_profile("search", deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("deterministic")

# `make test-extras` sets this: the optional packages are there, so no test that needs one may be skipped.
WITH_EXTRAS = "TWOFOLD_TEST_EXTRAS" in os.environ
if WITH_EXTRAS:
    import torchvision_operators

    torchvision_operators.declare_missing()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if WITH_EXTRAS and report.skipped and item.get_closest_marker("extras"):
        report.outcome = "failed"
        report.longrepr = f"skipped, although `make test-extras` installs what it needs: {report.longrepr}"
    return report


@pytest.fixture(autouse=True, scope="session")
def temporary_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.mktemp("cache")
        patch.setenv("TWOFOLD_CACHE", str(cache))
        yield cache


@pytest.fixture(autouse=True, scope="session")
def baselines_measured_once() -> Iterator[None]:
    """Measure features that need no encoder only once for the same images: many tests train on digits, and fitting the
    classifiers takes seconds each time."""
    measure, known = evaluation.measure_accuracies, {}

    def measure_once(representations: Any, *labels: torch.Tensor, classes: int) -> Any:
        (name,) = representations
        if name not in (HANDMADE, PIXELS):
            return measure(representations, *labels, classes=classes)
        content = [part.cpu().numpy().tobytes() for part in (*representations[name], *labels)]
        found = name, classes, *map(hash, content)
        if found not in known:
            known[found] = measure(representations, *labels, classes=classes)
        return known[found]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "measure_accuracies", measure_once)
        yield


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(0)
