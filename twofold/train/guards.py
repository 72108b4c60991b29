"""What surrounds the training loop: signals that stop it, and errors of memory and of other processes in words.

`Trainer.train` enters these contexts; `ask_to_stop` is for callers that have no signal to send.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from twofold import dist
from twofold.errors import LostProcess, TwofoldError, how_to_resume


@contextmanager
def memory_errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        # Of a CPU it is a plain RuntimeError.
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        reason = str(error).splitlines()[0]
        raise TwofoldError(f"there is too little memory, lower batch_size, image_size or widths: {reason}") from None


_in_training: list[list[int]] = []  # what each loop that runs now has received


def ask_to_stop() -> None:
    """Ask runs in training to save and stop, as SIGTERM does; for callers that have no signal to send."""
    for received in _in_training:
        if not received:
            received.append(signal.SIGTERM)


@contextmanager
def lost_processes(path: Path) -> Iterator[None]:
    try:
        yield
    except LostProcess as error:
        raise LostProcess(f"{error}; the last checkpoint is sound: {how_to_resume(path)}") from None


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """A list that stays empty until Ctrl-C, SIGTERM, a closed terminal or `ask_to_stop`; the second Ctrl-C stops at
    once, in one process. A closed terminal is ignored where nohup says so.

    Of several processes each gets a Ctrl-C twice, from the terminal and from torchrun.
    """
    received: list[int] = []
    former: dict[int, Any] = {}

    def remember(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 — the signature is Python's
        received.append(number)
        if dist.count() == 1:
            signal.signal(number, former[number])

    if threading.current_thread() is threading.main_thread():  # elsewhere Python gives us no signals
        numbers = [signal.SIGINT, signal.SIGTERM]
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # Windows has none
            numbers.append(signal.SIGHUP)
        for number in numbers:
            former[number] = signal.signal(number, remember)
    _in_training.append(received)
    try:
        yield received
    finally:
        _in_training[:] = [other for other in _in_training if other is not received]
        for caught, handler in former.items():
            signal.signal(caught, handler)
