"""The batch's rows of a sample head, to the device before a step and their gradient back after it.

One thread beside the training reads the rows of the next step and writes those of the last ones. Which rows they are is
known, since an order is a function of (seed, step). The thread makes no call to the accelerator; rows and gradients
travel through a few slots of (pinned) memory that are used over and over, by copies that nobody waits for. CUDA also
catches rows up and moves them, on streams beside the computation's.

While the device computes step k, the gradient of step k−1 may be on its way. The rows of step k+1 are read meanwhile if
they are not among those of both; else they are read after these have moved. So no row is ever stale.

Several processes each have a range of the rows, on disk, and never more of the head. All know which images the whole
batch has. Each reads its own rows of it, they are exchanged (N·D numbers), every process computes the whole loss, and
moves its own rows by its own copy of their gradient, which all have alike. With the softmax shared out instead, each
process with the logits of its own rows, the gradient of the embeddings would have to be added up over all processes:
2·V·N·D numbers, and more messages, that are waited for.
"""

import json
import secrets
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from twofold import dist
from twofold.config import Config
from twofold.data.loader import BatchOrder
from twofold.device import host_memory
from twofold.errors import TwofoldError
from twofold.files import write_atomically
from twofold.models import BatchRows, SampleHead
from twofold.models.sample_head.row_store import HEADER
from twofold.train.optim import learning_rates
from twofold.train.row_slots import RowSlot, make_slots

SLOTS = 4  # of the step in progress, the two before, whose rows are moved meanwhile, and the one after
MEMORY_SHARE, MOST_MEMORY = 0.25, 2**30  # of what is free, and bytes at most: each checkpoint writes them all


class NoRows:
    """In place of `SampleRows` where the method has no head with a row for each image."""

    def __str__(self) -> str:
        return ""

    def send(self, step: int) -> None: ...

    def receive(self, step: int) -> None: ...

    def all_save(self, step: int, wish: bool) -> bool:  # noqa: ARG002 — the signature is that of SampleRows
        return wish

    def save(self) -> None: ...

    def saved(self) -> None: ...

    def restore(self, state: None) -> None: ...

    def can_return(self, folder: Path) -> bool:  # noqa: ARG002
        return True

    def refuse_place(self) -> None: ...

    def opened(self, folder: Path) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()


class SampleRows:
    """`send(step)`, the step, `receive(step)`; steps one after another. Rows on disk need to be `opened` before."""

    def __init__(self, config: Config, part: BatchRows, order: BatchOrder):
        """`order` must know its samples in host memory. Nothing is written yet."""
        if config.optimizer not in ("adamw", "sgd"):
            raise TwofoldError(
                f"optimizer={config.optimizer}: rows that are seldom used can follow adamw or sgd only; choose one"
            )
        self.config, self.part, self.order, self.settings = config, part, order, part.settings
        self.total_steps = config.epochs * order.steps_per_epoch
        part.make_room(config.batch_size)
        self._in_flight: deque[int] = deque()  # steps whose gradients are not yet with the worker
        self._asked: int | None = None  # the step whose rows were asked for ahead
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="twofold-rows")
        self._wish = False  # to save, if this is the first of several processes
        row = self._build(rows=1)  # refuses settings that cannot be
        self._slots = make_slots(SLOTS, part, row)
        self.bytes = part.count * row.bytes
        fits = self.settings.path is None and self.bytes <= memory_allowed()
        self.on_disk = not fits or dist.count() > 1
        self.head = self._build() if fits else row  # steps of a trial never open it
        self.mark = 0  # of rows on disk: the step of the checkpoint
        self._from_memory: dict[str, Any] | None = None  # rows of a checkpoint that are to go to disk

    def _build(self, rows: int | None = None, **place: Any) -> SampleHead:
        config, steps_per_epoch = self.config, self.order.steps_per_epoch
        return SampleHead(
            rows or self.part.count,
            self.part.dim,
            schedule=learning_rates(config, steps_per_epoch),
            update=self.settings.update,
            steps_per_epoch=steps_per_epoch if self.settings.update == "multistep" else None,
            optimizer="sgd" if config.optimizer == "sgd" else "adamw",
            weight_decay=config.weight_decay,
            betas=config.betas,
            momentum=config.momentum,
            seed=config.seed,
            dtype=self.part.rows.dtype,
            **{"share": (dist.rank(), dist.count())} | place,
        )

    def send(self, step: int) -> None:
        """Put the step's rows where it reads them, and have those of the next one read."""
        self._hand_over(step - 1)
        slot = self._slots[step % SLOTS]
        if self._asked != step or slot.read is None or not slot.read.result():
            self._hand_over(step)
            slot = self._ask(step)
            assert slot.read is not None
            slot.read.result()
        slot.send(self.head)
        if dist.count() > 1:
            slot.tell(self._wish)
        if step + 1 < self.total_steps:
            self._ask(step + 1, beside=(*self._in_flight, step))

    def receive(self, step: int) -> None:
        """Begin to bring back the gradient that the step left."""
        self._slots[step % SLOTS].receive(self.head)
        self._in_flight.append(step)

    def _ask(self, step: int, beside: tuple[int, ...] = ()) -> RowSlot:
        """Have the rows of a step read, unless they are among those of steps whose gradients are still to come."""
        slot = self._slots[step % SLOTS]
        slot.wait_until_free()
        others = [self._slots[other % SLOTS].loaded for other in beside]
        slot.read = self._worker.submit(self._read, step, slot, [other.index_R for other in others if other])
        self._asked = step
        return slot

    def _read(self, step: int, slot: RowSlot, taken: list[np.ndarray]) -> bool:
        sorted_R, place_R = self.order.rows(step).sort()
        batch_R = sorted_R.numpy()  # ascending, as a disk likes it; an order has each row once
        ends = np.searchsorted(batch_R, self.head.edges)
        index_R = batch_R[slice(*ends[dist.rank() :][:2])]
        if any(len(np.intersect1d(index_R, other, assume_unique=True)) for other in taken):
            return False
        slot.fill(self.head, index_R, step, place_R.argsort(), np.diff(ends).tolist())
        return True

    def _hand_over(self, before: int) -> None:
        """Gradients of steps before this one go to the worker; the host waits for those that are on their way."""
        while self._in_flight and self._in_flight[0] < before:
            slot = self._slots[self._in_flight.popleft() % SLOTS]
            slot.arrived.wait()
            slot.moved = self._worker.submit(slot.apply, self.head)

    def all_save(self, step: int, wish: bool) -> bool:
        """Whether to save now, after `step` steps. Several processes all do three steps after the first wished it.

        The wish travels with the rows of a step, and is known to all when its gradient is: nobody waits for it.
        """
        if dist.count() == 1:
            return wish
        self._wish = wish
        return bool(self._slots[(step - 3) % SLOTS].wish.item())

    def save(self) -> dict[str, Any]:
        """What a checkpoint keeps of the rows, once all steps so far have moved them; in all processes."""
        self._hand_over(self.total_steps)
        for slot in self._slots:
            slot.wait_until_free()
            slot.wish.zero_()
        self._worker.submit(self.head.mark).result()
        dist.meet()
        return self.head.state_dict()

    def saved(self) -> None:
        """The checkpoint is written, once all processes are here: rows need not return to an older one."""
        dist.meet()
        self._worker.submit(self.head.forget_older).result()

    def restore(self, state: dict[str, Any]) -> None:
        """Of a checkpoint; rows on disk return to it when they are opened. They stay there; so do those in memory,
        until several processes share them."""
        self.mark, in_memory = state["steps"], "rows" in state
        self.on_disk = not in_memory or dist.count() > 1
        if in_memory and self.on_disk:
            self._from_memory = state if dist.is_first() else None
        elif in_memory:
            self.head = self._build()
            self.head.load_state_dict(state)

    def can_return(self, folder: Path) -> bool:
        """To a checkpoint before the newest; rows on disk know only that one."""
        return not (self._place(folder) / HEADER).exists()

    def _place(self, folder: Path) -> Path:
        return folder / "head" if self.settings.path is None else Path(self.settings.path)

    def refuse_place(self) -> None:
        """A new run makes a new head, in one process, where there is none yet and one can be written."""
        path = self.settings.path
        if path is None or not dist.is_first():
            return
        if (Path(path) / HEADER).exists():
            raise TwofoldError(f"head.path={path} has the rows of another run: choose another folder")
        try:
            Path(path).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TwofoldError(f"head.path={path} cannot be written: {error.strerror}") from None

    @contextmanager
    def opened(self, folder: Path) -> Iterator[None]:
        if self.on_disk:
            self._open({"path": self._place(folder), "run": dist.from_first(lambda: own_name(folder))})
        try:
            yield
        finally:
            self._worker.shutdown(cancel_futures=True)
            self.head.close()

    def _open(self, place: dict[str, Any]) -> None:
        """Of several processes the first opens the whole head, which returns to the mark; then each opens its share."""
        if dist.is_first():
            mark = self.mark if self._from_memory is None else 0  # whatever came of an earlier attempt is undone
            self.head = self._build(**place, step=mark, share=(0, 1))
            if self._from_memory is not None:
                self.head.load_state_dict(self._from_memory)
                self._from_memory = None
        if dist.count() > 1:
            self.head.close()
            dist.wait()
            self.head = self._build(**place, step=self.mark)

    def __str__(self) -> str:
        place = (self.settings.path or "the run folder") if self.on_disk else "memory"
        return f"{self.part.count:,} rows of {self.part.dim}, in {place}, {self.bytes / 2**20:,.1f} MiB at most"


def own_name(folder: Path) -> str:
    """What the head of this run is called, from before there is one: no other run's rows are taken for it."""
    path = folder / HEADER
    if not path.exists():
        write_atomically(path, json.dumps({"run": secrets.token_hex(8)}) + "\n")
    return json.loads(path.read_text())["run"]


def memory_allowed() -> float:
    """Bytes that rows may take in memory."""
    return min(MEMORY_SHARE * host_memory(), MOST_MEMORY)
