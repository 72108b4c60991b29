"""Sends metrics to TensorBoard and Weights & Biases, in addition to metrics.jsonl."""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from twofold import dist
from twofold.config import Config, flat
from twofold.errors import TwofoldError, how_to_install
from twofold.runs.folder import RunFolder

Write = Callable[[int, Mapping[str, float]], None]


def require(names: Sequence[str] | None) -> None:
    """Raise an error before the run starts if a logger is not installed."""
    for name in names or ():
        try:
            importlib.import_module(name)
        except ImportError:
            raise TwofoldError(f"log={name} needs the package {name}: {how_to_install(name)}") from None


@contextmanager
def logging_to(config: Config, folder: RunFolder, step: int) -> Iterator[Write]:
    """A function that sends the values of a step to all loggers; `step` is where a resumed run continues."""
    kinds = {"tensorboard": _tensorboard, "wandb": _wandb}
    names = (config.log or ()) if dist.is_first() else ()
    with ExitStack() as stack:
        writers = [stack.enter_context(kinds[name](config, folder, step)) for name in names]

        def write(step: int, values: Mapping[str, float]) -> None:
            for writer in writers:
                writer(step, values)

        yield write


@contextmanager
def _tensorboard(_: Config, folder: RunFolder, step: int) -> Iterator[Write]:
    from torch.utils.tensorboard import SummaryWriter

    # Values after the checkpoint are logged again and must not appear twice.
    with SummaryWriter(str(folder.path / "tensorboard"), purge_step=step + 1 if step else None) as writer:

        def write(step: int, values: Mapping[str, float]) -> None:
            for name, value in values.items():
                writer.add_scalar(name, value, step)

        yield write


@contextmanager
def _wandb(config: Config, folder: RunFolder, _: int) -> Iterator[Write]:
    import wandb

    known = folder.path / "wandb-id.txt"
    identity: dict[str, Any] = {"id": known.read_text().strip(), "resume": "allow"} if known.exists() else {}
    try:
        run = wandb.init(
            project="twofold", name=folder.path.name, dir=str(folder.path), config=flat(config), **identity
        )
    except Exception as error:  # no account, no network, no permission, ...
        raise TwofoldError(
            f"log=wandb could not start ({error}): run `wandb login`, set WANDB_MODE=offline, or leave log out"
        ) from None
    folder.write("wandb-id.txt", f"{run.id}\n")
    try:
        yield lambda step, values: run.log(dict(values), step=step)
    finally:
        run.finish()
