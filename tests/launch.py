"""Run functions in several processes that are joined like those of torchrun."""

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing

from twofold import dist


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def in_processes(count: int, work: Callable[..., Any], *arguments: Any, folder: Path, joined: bool = True) -> list[Any]:
    """Return what `work(*arguments)` returns in each process.

    `work` must be a function of a module. Results are passed through files. With `joined=False`, the processes have to
    join by themselves.
    """
    # Processes are forked from a server that has imported everything, because importing torch takes seconds.
    multiprocessing.set_forkserver_preload(["twofold.verbs.pretrain", "twofold.train.trainer"])
    torch.multiprocessing.start_processes(
        _enter, (count, free_port(), work, arguments, folder, joined), nprocs=count, start_method="forkserver"
    )
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(count)]


def _enter(
    rank: int, count: int, port: int, work: Callable[..., Any], arguments: tuple[Any, ...], folder: Path, joined: bool
) -> None:
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    try:
        with dist.joined() if joined else nullcontext():
            torch.save(work(*arguments), folder / f"{rank}.pt")
        with dist.joined():  # a program may train more than once
            assert dist.from_first(lambda: "again") == "again"
    except BaseException:
        traceback.print_exc()
        raise
