"""The precision of long runs on a CPU: measured, said, saved, and obeyed afterwards."""

import json
from typing import Any

import numpy as np
import pytest
from torch import nn

from twofold.config import Config, dump
from twofold.data.source import Source
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.verbs import explain, precision, pretrain

IMAGES = np.random.default_rng(0).integers(0, 256, (64, 32, 32, 3), np.uint8)
LONG: dict[str, Any] = {"device": "cpu", "encoder": "conv", "epochs": 3000}


class Spoken(Display):
    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.lines: list[str] = []

    def say(self, *words: Any) -> None:
        self.lines += map(str, words)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The precisions that were measured, on a CPU with bfloat16 whose steps take 1 s, or 0.5 s with bf16."""
    found: list[str] = []

    def measure_step(config: Config, _: Source, *__: float | nn.Module | None) -> float:
        found.append(config.precision)
        return 0.5 if config.precision == "bf16" else 1.0

    monkeypatch.setattr(precision, "measure_step", measure_step)
    monkeypatch.setattr(precision, "computes_bf16", lambda device: device.type == "cpu")
    return found


@pytest.mark.parametrize("asked", [{}, {"precision": "auto"}])
def test_long_run_on_a_cpu_uses_bf16_and_says_so(asked: dict[str, Any], measured: list[str]) -> None:
    display = Spoken()
    config, source = pretrain.configure(IMAGES, "simclr", LONG | asked, display, for_use=True)
    assert measured == ["float32", "bf16"]
    assert (config.precision, config.origin["precision"]) == ("bf16", "chosen")
    assert any("precision=bf16, because a step is 2.0 times as fast" in line for line in display.lines)
    assert json.loads(dump(config))["values"]["precision"] == "bf16"  # what a resumed run reads
    (why,) = [row.why for row in explain.explained(config, source) if row.key == "precision"]
    assert "measured" in why


@pytest.mark.parametrize(
    ("overrides", "for_use", "expected"),
    [
        ({"epochs": 10}, True, []),  # too few images to take long, so nothing is timed
        ({"precision": "float32"}, True, []),
        ({}, False, []),  # experiments of papers and benchmarks
        ({"epochs": 250}, True, ["float32"]),  # timed, and short
    ],
)
def test_other_runs_keep_their_precision(
    overrides: dict[str, Any], for_use: bool, expected: list[str], measured: list[str]
) -> None:
    config, _ = pretrain.configure(IMAGES, "simclr", LONG | overrides, for_use=for_use)
    assert measured == expected
    assert config.precision == overrides.get("precision", "auto")


def test_run_keeps_float32_if_bf16_is_hardly_faster(measured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "FASTER", 0.4)
    config, _ = pretrain.configure(IMAGES, "simclr", LONG, for_use=True)
    assert (measured, config.precision) == (["float32", "bf16"], "auto")


def test_settings_that_cannot_be_measured_are_left_to_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> float:
        raise TwofoldError("too few images")

    monkeypatch.setattr(precision, "measure_step", fails)
    monkeypatch.setattr(precision, "computes_bf16", lambda _: True)
    config, _ = pretrain.configure(IMAGES, "simclr", LONG, for_use=True)
    assert config.precision == "auto"


@pytest.mark.parametrize(("minutes", "expected"), [(12.0, "bf16"), (5.0, "auto")])
def test_minutes_decide_whether_a_run_is_long(
    minutes: float, expected: str, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.verbs.choose.measure_step", precision.measure_step)
    overrides = {name: value for name, value in LONG.items() if name != "epochs"}
    config, _ = pretrain.configure(IMAGES, "simclr", overrides, minutes=minutes, for_use=True)
    assert config.precision == expected
    assert measured[-1] == expected  # the epochs follow from the speed in this precision
