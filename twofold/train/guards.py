"""Contexts around the training loop: stop signals, and readable errors for lack of memory and lost processes.

`Trainer.train` enters them. `ask_to_stop` is for callers that cannot send a signal.
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
    """Turn an out-of-memory error into an error that says what to change."""
    try:
        yield
    except RuntimeError as error:
        # On a CPU it is a plain RuntimeError.
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        reason = str(error).splitlines()[0]
        raise TwofoldError(
            f"there is too little memory: lower batch_size, image_size or widths, or set pieces ({reason})"
        ) from None


_in_training: list[list[int]] = []  # the signals received by each loop that runs now


def ask_to_stop() -> None:
    """Ask all runs that are training to save and stop, as SIGTERM does."""
    for received in _in_training:
        if not received:
            received.append(signal.SIGTERM)


@contextmanager
def lost_processes(path: Path) -> Iterator[None]:
    """Add to the error for a lost process how to resume the run."""
    try:
        yield
    except LostProcess as error:
        raise LostProcess(f"{error}; the last checkpoint is intact: continue with `{how_to_resume(path)}`") from None


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """A list that is empty until the run should stop: Ctrl-C, SIGTERM, a closed terminal, or `ask_to_stop`.

    With a single process, a second Ctrl-C stops immediately. With several processes it does not, because each of them
    receives a Ctrl-C twice, from the terminal and from torchrun. Under nohup, a closed terminal does not stop the run.
    """
    received: list[int] = []
    former: dict[int, Any] = {}

    def record(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 — Python passes the frame
        received.append(number)
        if dist.count() == 1:
            signal.signal(number, former[number])

    if threading.current_thread() is threading.main_thread():  # Python delivers signals to the main thread only
        numbers = [signal.SIGINT, signal.SIGTERM]
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # Windows has no SIGHUP
            numbers.append(signal.SIGHUP)
        for number in numbers:
            former[number] = signal.signal(number, record)
    _in_training.append(received)
    try:
        yield received
    finally:
        _in_training[:] = [other for other in _in_training if other is not received]
        for caught, handler in former.items():
            signal.signal(caught, handler)
