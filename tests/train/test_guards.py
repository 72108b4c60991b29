"""Checks before training, errors during training, and signals."""

import os
import signal

import pytest
import torch

from twofold.cuda import step_graph
from twofold.errors import TwofoldError
from twofold.train import guards, objective_check, setup
from twofold.types import LossTerms


def test_images_raise_an_error_only_if_all_channels_are_blank() -> None:
    setup.refuse_blank(torch.tensor([1 / 255, 0.2, 0.3]))
    with pytest.raises(TwofoldError, match="are equal"):
        setup.refuse_blank(torch.full((3,), 1 / 255))


def test_out_of_memory_on_a_cpu_raises_a_clear_error() -> None:
    with (
        pytest.raises(TwofoldError, match="too little memory: lower batch_size, image_size or widths"),
        guards.memory_errors(),
    ):
        torch.empty(10**15)
    with pytest.raises(RuntimeError, match="something else"), guards.memory_errors():
        raise RuntimeError("something else")


@pytest.mark.parametrize("name", ["total", "part"])
def test_loss_of_shape_1_raises_an_error(name: str) -> None:
    values = {"total": torch.zeros(()), "part": torch.zeros(())} | {name: torch.zeros(1)}
    with pytest.raises(TwofoldError, match=f"'{name}' that is not a scalar tensor"):
        objective_check.check_loss("mine", LossTerms(values["total"], {"part": values["part"]}))


def test_signals_ignored_by_nohup_stay_ignored() -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with guards.stop_signals() as received:
            signal.raise_signal(signal.SIGHUP)
            assert received == []
    finally:
        signal.signal(signal.SIGHUP, former)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_first_signal_is_recorded_and_the_second_goes_to_the_caller(number: signal.Signals) -> None:
    class Second(Exception):
        pass

    def stop(*_: object) -> None:
        raise Second

    former = signal.signal(number, stop)
    try:
        with guards.stop_signals() as received:
            signal.raise_signal(number)
            assert received == [number]
            with pytest.raises(Second):
                signal.raise_signal(number)
        with guards.stop_signals():
            assert signal.getsignal(number) is not stop
        assert signal.getsignal(number) is stop
    finally:
        signal.signal(number, former)


def test_cache_folders_set_by_the_user_are_kept_for_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", "mine")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    step_graph.keep_compiled_code()
    assert os.environ["TRITON_CACHE_DIR"] == "mine"
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"].endswith(os.path.join("compiled", "inductor"))
