"""Fixtures for all tests: a temporary cache instead of the user's, and a fixed random seed."""

import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import HealthCheck, settings
from torch import Tensor

from twofold.evaluate import probes
from twofold.evaluate.probes import Measured, few_label_accuracy, measure_accuracies
from twofold.verbs import adapt, encoder_report, evaluation

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


class MeasuredOnce:
    """`measure_accuracies`, which computes the accuracies of equal features only once.

    Many tests train on digits, and fitting the classifiers of a run takes seconds: longer than training it. The
    baselines, the untrained encoder and repeated runs have equal features. The accuracy with few labels comes from one
    random subset, except within `five_subsets()`.
    """

    def __init__(self) -> None:
        self.subsets = 1
        self.known: dict[Any, Measured] = {}

    @contextmanager
    def five_subsets(self) -> Iterator[None]:
        """Average the accuracy with few labels over five random subsets, as runs of users do."""
        with patch.object(self, "subsets", 5):
            yield

    def __call__(
        self, representations: Mapping[str, tuple[Tensor, Tensor]], *labels: Tensor, classes: int
    ) -> list[Measured]:
        return [self._measured(name, pair, labels, classes) for name, pair in representations.items()]

    def _measured(self, name: str, pair: tuple[Tensor, Tensor], labels: tuple[Tensor, ...], classes: int) -> Measured:
        content = [part.cpu().numpy().tobytes() for part in (*pair, *labels)]
        found = self.subsets, classes, *map(hash, content)
        if found not in self.known:
            few = partial(few_label_accuracy, subsets=self.subsets)
            with patch.object(probes, "few_label_accuracy", few):
                (self.known[found],) = measure_accuracies({name: pair}, *labels, classes=classes)
        measured = self.known[found]
        return replace(measured, row=replace(measured.row, name=name))


@pytest.fixture(autouse=True, scope="session")
def measured_once() -> Iterator[MeasuredOnce]:
    measure = MeasuredOnce()
    with pytest.MonkeyPatch.context() as patched:
        for module in (adapt, encoder_report, evaluation):
            patched.setattr(module, "measure_accuracies", measure)
        yield measure


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(0)
