"""Moves the rows of a per-image classifier: those of the batch to the device before a step, their gradient back.

A thread next to the training thread reads the rows of the next step and writes those of the last steps. The rows are
known in advance, because the order of images is a function of (seed, step). The thread never calls the GPU. Rows and
gradients go through a few slots of (pinned) memory that are used again and again, with copies that nobody waits for. On
CUDA, the GPU also updates the rows, on side streams.

While the device computes step k, the gradient of step k−1 may still be on its way. Meanwhile the thread reads the rows
of step k+1, unless they are also rows of step k or k−1; then it reads them after these steps updated them. So no row is
ever stale.

With several processes, each process has a range of the rows, on disk, and nothing else of the classifier. All processes
know which images the whole batch has. Each reads its own rows of the batch; they exchange these rows (N·D numbers), so
that every process computes the whole loss; and each updates its own rows with its own copy of their gradient, which is
the same everywhere. An alternative is to split the softmax, so that each process computes the logits of its own rows.
Then the processes would have to add up the gradients of the embeddings: 2·V·N·D numbers, and more messages to wait for.
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
from twofold.checksums import seal
from twofold.config import Config
from twofold.data.loader import BatchOrder
from twofold.device import host_memory
from twofold.errors import TwofoldError
from twofold.files import write_atomically
from twofold.models import BatchRows, SampleHead
from twofold.models.sample_head.row_store import HEADER
from twofold.schema import fields, read_json, text
from twofold.train.optim import learning_rates
from twofold.train.row_slots import RowSlot, make_slots

SLOTS = 4  # for the current step, the two before, whose rows are being updated, and the next
MEMORY_SHARE, MOST_MEMORY = (
    0.25,
    2**30,
)  # part of free memory, and at most so many bytes


class NoRows:
    """Does nothing: used instead of `SampleRows` by methods without a per-image classifier."""

    def __str__(self) -> str:
        return ""

    def send(self, step: int) -> None: ...

    def receive(self, step: int) -> None: ...

    def all_save(self, step: int, wish: bool) -> bool:  # noqa: ARG002 — as in SampleRows
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
    """In each step: call `send(step)`, run the step, call `receive(step)`. Rows on disk must be `opened` first."""

    def __init__(self, config: Config, part: BatchRows, order: BatchOrder):
        """`order` must have its samples in host memory. This writes nothing."""
        if config.optimizer not in ("adamw", "sgd"):
            raise TwofoldError(
                f"optimizer={config.optimizer} cannot update the rows of a per-image classifier: use adamw or sgd"
            )
        self.config, self.part, self.order, self.settings = config, part, order, part.settings
        self.total_steps = config.epochs * order.steps_per_epoch
        part.make_room(config.batch_size)
        self._in_flight: deque[int] = deque()  # steps whose gradients the worker does not have yet
        self._asked: int | None = None  # the step whose rows were requested in advance
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="twofold-rows")
        self._wish = False  # to save; only the first of several processes has one
        row = self._build(rows=1)  # raises an error for invalid settings
        self._slots = make_slots(SLOTS, part, row)
        self.bytes = part.count * row.bytes
        fits = self.settings.path is None and self.bytes <= memory_allowed()
        self.on_disk = not fits or dist.count() > 1
        self.head = self._build() if fits else row  # the steps of a timing run never open it
        self.mark = 0  # the step of the checkpoint, for rows on disk
        self._from_memory: dict[str, Any] | None = None  # rows of a checkpoint that must be written to disk

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
        """Copy the rows of this step to the device, and request those of the next step."""
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
            self._ask(step + 1, other_steps=(*self._in_flight, step))

    def receive(self, step: int) -> None:
        """Start copying back the gradient of this step."""
        self._slots[step % SLOTS].receive(self.head)
        self._in_flight.append(step)

    def _ask(self, step: int, other_steps: tuple[int, ...] = ()) -> RowSlot:
        """Request the rows of a step; they are not read if `other_steps` still have to update one of them."""
        slot = self._slots[step % SLOTS]
        slot.wait_until_free()
        others = [self._slots[other % SLOTS].loaded for other in other_steps]
        slot.read = self._worker.submit(self._read, step, slot, [other.index_R for other in others if other])
        self._asked = step
        return slot

    def _read(self, step: int, slot: RowSlot, taken: list[np.ndarray]) -> bool:
        sorted_R, place_R = self.order.rows(step).sort()
        batch_R = sorted_R.numpy()  # ascending, which is fast on disk; each row occurs once
        ends = np.searchsorted(batch_R, self.head.edges)
        index_R = batch_R[slice(*ends[dist.rank() :][:2])]
        if any(len(np.intersect1d(index_R, other, assume_unique=True)) for other in taken):
            return False
        slot.fill(self.head, index_R, step, place_R.argsort(), np.diff(ends).tolist())
        return True

    def _hand_over(self, before: int) -> None:
        """Give the worker the gradients of steps before this one, after they have arrived."""
        while self._in_flight and self._in_flight[0] < before:
            slot = self._slots[self._in_flight.popleft() % SLOTS]
            slot.arrived.wait()
            slot.moved = self._worker.submit(slot.apply, self.head)

    def all_save(self, step: int, wish: bool) -> bool:
        """Whether to save now, after `step` steps.

        Several processes all save three steps after the first one wished to. The wish travels with the rows of a step
        and arrives with their gradient, so that nobody waits for it.
        """
        if dist.count() == 1:
            return wish
        self._wish = wish
        return bool(self._slots[(step - 3) % SLOTS].wish.item())

    def save(self) -> dict[str, Any]:
        """The state of the rows for a checkpoint, after all steps so far updated them. All processes call it."""
        self._hand_over(self.total_steps)
        for slot in self._slots:
            slot.wait_until_free()
            slot.wish.zero_()
        self._worker.submit(self.head.mark).result()
        dist.meet()
        return self.head.state_dict()

    def saved(self) -> None:
        """Called by all processes after the checkpoint is written: rows no longer need to return to an older one."""
        dist.meet()
        self._worker.submit(self.head.forget_older).result()

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the state of a checkpoint.

        Rows on disk return to it when they are opened. Rows in memory stay in memory with a single process; several
        processes move them to disk.
        """
        self.mark, in_memory = state["steps"], "rows" in state
        self.on_disk = not in_memory or dist.count() > 1
        if in_memory and self.on_disk:
            self._from_memory = state if dist.is_first() else None
        elif in_memory:
            self.head = self._build()
            self.head.load_state_dict(state)

    def can_return(self, folder: Path) -> bool:
        """Whether the rows can return to an older checkpoint than the newest; rows on disk cannot."""
        return not (self._place(folder) / HEADER).exists()

    def _place(self, folder: Path) -> Path:
        return folder / "head" if self.settings.path is None else Path(self.settings.path)

    def refuse_place(self) -> None:
        """Raise an error if the folder for the rows of a new run cannot be written, or has the rows of another run."""
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
        """Open rows on disk for the duration of the training."""
        if self.on_disk:
            self._open({"path": self._place(folder), "run": dist.from_first(lambda: own_name(folder))})
        try:
            yield
        finally:
            self._worker.shutdown(cancel_futures=True)
            self.head.close()

    def _open(self, place: dict[str, Any]) -> None:
        """Open rows on disk at the step of the checkpoint.

        With several processes, the first does so for all rows, and then each opens its own range.
        """
        if dist.is_first():
            mark = self.mark if self._from_memory is None else 0  # undoes what an earlier attempt left
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
        mebibytes = f"{self.bytes / 2**20:,.1f} MiB"
        return f"{self.part.count:,} classifier rows of width {self.part.dim}, in {place}, at most {mebibytes}"


def own_name(folder: Path) -> str:
    """The name of this run's rows, chosen before they exist, so that the rows of another run are never used."""
    path = folder / HEADER
    if not path.exists():
        write_atomically(path, json.dumps(seal({"run": secrets.token_hex(8)})) + "\n")
    return read_json(path, fields({"run": text}), "restore the folder of the rows, or start a new run")["run"]


def memory_allowed() -> float:
    """The bytes that rows may use in memory."""
    return min(MEMORY_SHARE * host_memory(), MOST_MEMORY)
