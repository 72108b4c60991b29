"""Measure the share of checksums in the processor time of a run.

    python -m benchmarks.checksums [--steps 60] [--out FILE]

Three runs: `conv` on digits, ResNet-18 on random images of 32 pixels, and S-DIET with `conv` and its rows on disk. A
step computes checksums only for rows on disk; a checkpoint computes those of its files and of the records. "step ms"
and "checkpoint ms" are the processor time of both, each followed by the part of it that Twofold's checksum functions
take. "share" is that of the whole run with a checkpoint every 60 seconds, the default.
"""

import argparse
import functools
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.measure import head_commit
from benchmarks.results import Table, keep
from twofold.config import Checkpoint
from twofold.display import Display
from twofold.errors import Interrupted
from twofold.models.sample_head import row_store
from twofold.runs import checkpoint_folder, records
from twofold.train.guards import ask_to_stop
from twofold.train.trainer import Trainer
from twofold.verbs.pretrain import configure, start

COLUMNS = ("run", "step ms", "of it ms", "checkpoint ms", "of it checksums ms", "share %")
# The functions that compute checksums, in each module that calls them.
COMPUTING = (
    (checkpoint_folder, "file_checksum"),
    (records, "extend"),
    (row_store, "set_checksums"),
    (row_store, "find_damaged"),
    (row_store, "undo_block"),
)
CASES: dict[str, dict[str, Any]] = {
    "conv, digits": {"data": "digits", "method": "simclr"},
    "resnet18, 32 px": {"data": 32, "method": "simclr", "encoder": "resnet18", "batch_size": 64},
    "s-diet, rows on disk": {"data": "digits", "method": "s-diet", "head.path": None},
}


def measured(name: str, steps: int, folder: Path) -> tuple[float, ...]:
    """Return the processor time of a step and of a checkpoint, and how much of each are checksums, in ms."""
    settings = dict(CASES[name])
    data, method = settings.pop("data"), settings.pop("method")
    if isinstance(data, int):
        data = np.random.default_rng(0).integers(0, 256, (1000, data, data, 3), dtype=np.uint8)
    if "head.path" in settings:
        settings["head.path"] = str(folder / "rows")
    settings |= {"epochs": 1000, "device": "cpu", "precision": "float32", "map_points": 0}
    spent, steps_done = {"step": [0.0, 0.0], "save": [0.0, 0.0]}, 0
    place = "step"

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            since = time.process_time()
            try:
                return function(*arguments, **options)
            finally:
                spent[place][1] += time.process_time() - since

        return call

    take, save = Trainer.take_step, Trainer.save

    def take_step(self: Trainer, step: int) -> None:
        nonlocal steps_done
        if step == steps + 3:
            ask_to_stop()
        if step == 3:  # the first steps are slower
            spent["step"][:] = [0.0, 0.0]
            steps_done = 0
        since = time.process_time()
        take(self, step)
        spent["step"][0] += time.process_time() - since
        steps_done += 1

    def save_all(self: Trainer) -> None:
        nonlocal place
        since, place = time.process_time(), "save"
        save(self)
        spent["save"][0] += time.process_time() - since
        place = "step"

    display = Display(quiet=True)
    with ExitStack() as stack:
        stack.enter_context(patch.object(Trainer, "take_step", take_step))
        stack.enter_context(patch.object(Trainer, "save", save_all))
        for module, function in COMPUTING:
            stack.enter_context(patch.object(module, function, timed(getattr(module, function))))
        config, source = configure(data, method, settings, display)
        with suppress(Interrupted):
            start(config, source, out=folder / "run", display=display)
    return (*(1000 * part / steps_done for part in spent["step"]), *(1000 * part for part in spent["save"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--commit", default=head_commit())
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/checksums-DATE.json")
    arguments = parser.parse_args()
    table = Table(*COLUMNS)
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            step, in_step, saving, in_save = measured(name, arguments.steps, Path(folder))
        share = 100 * (in_step / step + in_save / (1000 * Checkpoint().seconds))
        table.add(dict(zip(COLUMNS, (name, step, in_step, saving, in_save, share), strict=True)))
    print(keep("checksums", table, {"steps": arguments.steps}, "cpu", arguments.commit, arguments.out))


if __name__ == "__main__":
    main()
