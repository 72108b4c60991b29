"""The per-image classifier: a linear classifier with one row for each image (S-DIET, section 5.2).

A training step reads and writes only the rows of its batch.

Shapes: R rows in use, S tensors stored for each row (weights, then the optimizer's moments), D dimensions.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from twofold import counter
from twofold.config import Head
from twofold.errors import TwofoldError
from twofold.models.sample_head.row_checks import HEAD_BYTES, last_use
from twofold.models.sample_head.row_optimizers import RowAdamW, RowOptimizer, RowSGD
from twofold.models.sample_head.row_store import FORMAT, DiskRows, MemoryRows, edges

DENSE_ROWS = 2**14  # rows that `dense` reads at a time

Update: TypeAlias = Literal["exact", "multistep"]
Optimizer: TypeAlias = Literal["adamw", "sgd"]


def rates(schedule: Sequence[float] | Tensor) -> np.ndarray:
    """The learning rates of all steps as float64; an error if they are not numbers of at least 0."""
    try:
        given = np.asarray(schedule.detach().cpu() if isinstance(schedule, Tensor) else schedule, dtype=np.float64)
    except (TypeError, ValueError):
        given = np.array(np.nan)
    if given.ndim != 1 or not (np.isfinite(given) & (given >= 0)).all():
        raise TwofoldError("schedule must be a list of learning rates, one for each step, such as [0.1] * 1000")
    return given


@dataclass(frozen=True)
class Loaded:
    """Classifier rows for one step: as stored, and as the step changes them."""

    index_R: np.ndarray
    records: np.ndarray  # as stored
    state_RSD: Tensor
    lag: Tensor  # what RowOptimizer.catch_up needs to bring `state_RSD` from its last use to this step
    step: int  # number of steps before this one

    @property
    def weights(self) -> Tensor:
        return self.state_RSD[:, 0]


class SampleHead:
    """A per-image classifier whose rows are in memory or in a folder.

    The cost of a step does not depend on the number of rows. Initial rows are drawn from N(0, 1/D). A row that was
    never used is a hash of (seed, index) and is not stored, so a classifier of any size is ready at once.

    With momentum and weight decay, the optimizer changes a row in every step, also in steps that do not use the row.
    These changes are computed when a step next uses the row; `update` states how.

    Parameters
    ----------
    rows : int
        The number of rows, one for each image.
    dim : int
        The number D of dimensions of a row.
    schedule : sequence of float
        schedule[k], k = 0, 1, …, is the learning rate of step k + 1. For an existing folder, a new schedule applies
        from the next step on.
    path : str or Path, optional
        Folder of the rows. If it exists, training continues with its rows. Without a path, the rows are in memory.
    update : {"exact", "multistep"}
        "exact": compute all steps since the last use of the row. The result is that of AdamW, or SGD with momentum, on
        all rows, up to rounding and eps. "multistep", as in the paper: move the row by the steps of one epoch with each
        use.
    steps_per_epoch : int, optional
        The number of batches in an epoch; required with "multistep".
    optimizer : {"adamw", "sgd"}
        The optimizer of the rows.
    weight_decay : float
        The weight decay of the optimizer.
    betas : tuple of float
        Coefficients of the moments of AdamW.
    eps : float
        The epsilon of AdamW.
    momentum : float
        The momentum of SGD.
    seed : int
        Seed of the initial rows.
    dtype : torch.dtype
        float32 or float64.
    run : str, optional
        The name of the run. `SampleHead` refuses a folder of another run.
    step : int, optional
        The step to return to, if `mark` saved the rows of several steps. Default: the last saved step.
    share : tuple of int
        (number, count) of this process, if several processes share the folder. This process then has one of `count`
        about equal ranges of rows. Otherwise, only one object at a time may use a folder.

    Examples
    --------
    >>> head = SampleHead(1_000_000, 128, schedule=[1e-3] * 10_000)
    >>> rows = head.take([3, 14, 159])  # [3, 128]
    >>> head.step([3, 14, 159], gradients)  # one step of AdamW for all rows
    """

    def __init__(
        self,
        rows: int,
        dim: int,
        *,
        schedule: Sequence[float] | Tensor,
        path: str | Path | None = None,
        update: Update = "exact",
        steps_per_epoch: int | None = None,
        optimizer: Optimizer = "adamw",
        weight_decay: float = 0.05,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        momentum: float = 0.9,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        run: str | None = None,
        step: int | None = None,
        share: tuple[int, int] = (0, 1),
    ):
        _refuse(rows, dim, dtype, update, optimizer)
        _refuse_coefficients(weight_decay, betas, eps, momentum)
        given = rates(schedule)
        if update == "exact":
            steps_per_epoch = None  # only "multistep" uses it
        elif steps_per_epoch is None:
            raise TwofoldError("update=multistep needs steps_per_epoch, the number of batches in an epoch")
        self.rows, self.dim, self.dtype, self.seed = rows, dim, dtype, seed
        rest = (betas, eps) if optimizer == "adamw" else (momentum,)
        self._kind: Any = RowAdamW if optimizer == "adamw" else RowSGD
        self._settings = (weight_decay, *rest, steps_per_epoch)
        self._width = self._kind.kept * dim * dtype.itemsize
        self._record_bytes = (HEAD_BYTES + self._width + 7) // 8 * 8
        self.edges = edges(rows, self._record_bytes, share[1])
        self.own = range(*self.edges[share[0] : share[0] + 2])
        self._store: MemoryRows | DiskRows
        if path is None:
            self._store, self.steps = MemoryRows(rows, self._record_bytes), 0
            self._follow(given, given)
        else:
            header = {
                "format": FORMAT, "run": run, "rows": rows, "dim": dim, "dtype": str(dtype), "seed": seed,
                "optimizer": optimizer, "update": update, "settings": json.loads(json.dumps(self._settings)),
            }  # fmt: skip
            self._store = DiskRows(Path(path), rows, self._record_bytes, header, step, share)
            try:
                self.steps = self._store.base
                before = self._store.schedule()
                self._follow(before, given)
                if not np.array_equal(self.schedule, before):
                    self._store.set_schedule(self.schedule)
            except BaseException:
                self._store.close()
                raise

    @property
    def bytes(self) -> int:
        """The size of the rows in bytes, once all of them are used."""
        return self.rows * self._record_bytes

    def take(self, indices: Tensor | Sequence[int]) -> Tensor:
        """Return the current values [R, D] of these rows. The indices must be distinct, in any order."""
        return self.load(self._checked(indices), self.steps).weights.clone()

    def step(self, indices: Tensor | Sequence[int], gradients: Tensor) -> None:
        """Make one optimizer step for all rows, in which only the rows `indices` [R] have gradients [R, D]."""
        self.apply(self.load(self._checked(indices), self.steps), gradients)

    def load(self, index_R: np.ndarray, step: int) -> Loaded:
        """Return these rows as they will be after `step` steps, if no step until then uses them."""
        loaded = self.read(index_R, step)
        self.optimizer.catch_up(loaded.state_RSD, loaded.lag)
        return loaded

    def read(self, index_R: np.ndarray, step: int) -> Loaded:
        """Return the rows as after their last use. The caller must compute the steps since then, on any device."""
        records = self._store.read(index_R)
        since_R, state_RSD = self._decoded(records, index_R)
        return Loaded(index_R, records, state_RSD, self.optimizer.lag(since_R, step).to(self.dtype), step)

    def apply(self, loaded: Loaded, gradients: Tensor) -> None:
        """Make one optimizer step with rows that `load` returned, and write them back."""
        self._refuse_out_of_turn(loaded)
        if gradients.shape != loaded.weights.shape:
            expected = tuple(loaded.weights.shape)
            raise TwofoldError(f"gradients have shape {tuple(gradients.shape)}, but the rows have {expected}")
        self.optimizer.advance(loaded.state_RSD, gradients.detach().to("cpu", self.dtype), loaded.step + 1)
        self.write(loaded)

    def write(self, loaded: Loaded) -> None:
        """Write back rows that the optimizer has changed. This ends the step."""
        self._refuse_out_of_turn(loaded)
        self._store.write(loaded.index_R, self._encoded(loaded.state_RSD, self.steps + 1), loaded.records)
        self.steps += 1

    def _refuse_out_of_turn(self, loaded: Loaded) -> None:
        if loaded.step != self.steps:
            raise TwofoldError(f"rows loaded for step {loaded.step} cannot move in step {self.steps}: load them again")
        if self.steps >= len(self.schedule):
            raise TwofoldError(f"all {len(self.schedule)} steps of the schedule are done: give a longer schedule")

    def flush(self) -> None:
        """Save the current rows. After a kill or a power failure, the classifier continues from this state."""
        self.mark()
        self.forget_older()

    def mark(self) -> None:
        """Save the current rows, and keep older saved states until `forget_older`. The parameter `step` selects one."""
        self._store.mark(self.steps)

    def forget_older(self) -> None:
        """Delete all saved states except the last."""
        self._store.forget_older()

    def dense(self) -> Tensor:
        """Return the current values of all rows [rows, D], or of the rows of this process, without changing them."""
        blocks = [self.load(index_R, self.steps).weights for index_R in _blocks(self.own)]
        return torch.cat([torch.empty(0, self.dim, dtype=self.dtype), *blocks])

    def close(self) -> None:
        """Close the folder, if there is one. Changes since the last `flush` or `mark` are lost."""
        self._store.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint: all rows if they are in memory, or only the number of steps if on disk."""
        if isinstance(self._store, DiskRows):
            return {"steps": self.steps}
        schedule, rows = torch.from_numpy(self.schedule), torch.from_numpy(self._store.table)
        return {"steps": self.steps, "schedule": schedule, "rows": rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load rows that were in memory from a checkpoint. If this classifier is on disk, its folder must be new."""
        if tuple(state["rows"].shape) != (self.rows, self._record_bytes):
            raise TwofoldError(
                f"the checkpoint has classifier rows of shape {list(state['rows'].shape)}, "
                f"this run needs {[self.rows, self._record_bytes]}: it is of another run"
            )
        if isinstance(self._store, MemoryRows):
            self._store.table[:] = state["rows"].numpy()
        else:
            for index_R in _blocks(self.own):
                records = state["rows"][index_R[0] : index_R[-1] + 1].numpy()
                used_R = records[:, :HEAD_BYTES].any(axis=1)
                self._store.write(index_R[used_R], records[used_R], before=np.zeros_like(records[used_R]))
        self.steps = state["steps"]
        self._follow(state["schedule"].numpy(), self.schedule)
        if isinstance(self._store, DiskRows):
            self._store.set_schedule(self.schedule)
            self._store.mark(self.steps)

    def _follow(self, before: np.ndarray, given: np.ndarray) -> None:
        """Use a new schedule from the next step on.

        The learning rates of past steps stay, because rows are still to be caught up over these steps.
        """
        if len(before) < self.steps:
            raise TwofoldError(
                f"{self.steps} steps are done, but only {len(before)} learning rates are stored: "
                "the stored schedule is damaged"
            )
        self.schedule = np.concatenate([before[: self.steps], given[self.steps :]])
        self.optimizer: RowOptimizer = self._kind(self.schedule.tolist(), *self._settings)

    def _checked(self, indices: Tensor | Sequence[int]) -> np.ndarray:
        given = torch.as_tensor(indices, device="cpu")
        if len(given) and (given.is_floating_point() or given.dtype == torch.bool):
            raise TwofoldError(f"indices are {given.dtype}: give integers")
        index_R = given.to(torch.int64).contiguous().numpy()
        if index_R.ndim != 1 or len(np.unique(index_R)) != len(index_R):
            raise TwofoldError("indices must be a list of distinct numbers: use torch.unique(..., return_inverse=True)")
        if len(index_R) and not (self.own.start <= index_R.min() and index_R.max() < self.own.stop):
            here = (
                ""
                if len(self.own) == self.rows
                else f"; this process has those from {self.own.start} to {self.own.stop - 1}"
            )
            raise TwofoldError(
                f"indices go from {index_R.min()} to {index_R.max()}: the classifier has {self.rows} rows{here}"
            )
        return index_R

    def _decoded(self, records: np.ndarray, index_R: np.ndarray) -> tuple[Tensor, Tensor]:
        since_R = torch.from_numpy(last_use(records))
        content = records[:, HEAD_BYTES : HEAD_BYTES + self._width].copy()
        values = torch.from_numpy(content.view(np.float32 if self.dtype == torch.float32 else np.float64))
        state_RSD = values.view(len(index_R), self._kind.kept, self.dim)
        fresh = (since_R == 0).nonzero()[:, 0]
        if len(fresh):
            state_RSD[fresh] = 0
            state_RSD[fresh, 0] = initial_rows(self.seed, torch.from_numpy(index_R)[fresh], self.dim).to(self.dtype)
        return since_R, state_RSD

    def _encoded(self, state_RSD: Tensor, step: int) -> np.ndarray:
        records = np.empty((len(state_RSD), self._record_bytes), dtype=np.uint8)
        records[:, :HEAD_BYTES].view(np.uint32)[:] = (step, 0)  # rows on disk get a checksum when they are written
        records[:, HEAD_BYTES : HEAD_BYTES + self._width] = state_RSD.flatten(1).numpy().view(np.uint8)
        records[:, HEAD_BYTES + self._width :] = 0
        return records


class BatchRows(nn.Module):
    """Buffers on the device for the classifier rows of one batch and their gradient.

    The buffers keep their addresses, so that a step recorded as a CUDA graph can read the rows of each batch from them.
    They are neither parameters nor part of a checkpoint, because the `SampleHead` stores the rows.
    """

    rows: Tensor
    labels: Tensor
    gradient: Tensor

    def __init__(self, count: int, dim: int, settings: Head):
        """`count` is the number of rows in the classifier, `settings` are for the code that moves them."""
        super().__init__()
        self.count, self.dim, self.settings = count, dim, settings
        self.make_room(1)

    def make_room(self, batch_size: int) -> None:
        """Allocate buffers for batches of this size."""
        first = torch.arange(batch_size)
        former = next(self.buffers(), torch.empty(0))
        rows, device = initial_rows(0, first, self.dim).to(former.dtype), former.device
        for name, value in {"rows": rows, "labels": first, "gradient": torch.zeros_like(rows)}.items():
            self.register_buffer(name, value.to(device), persistent=False)

    def forward(self, batch_size: int) -> tuple[Tensor, Tensor]:
        """Return the rows [N, D], which require a gradient, and the labels [N], which are positions in the rows."""
        self._leaf = self.rows[:batch_size].detach().requires_grad_()
        return self._leaf, self.labels[:batch_size]

    def keep_gradient(self) -> None:
        """Copy the gradient of the rows to its buffer. Call this after the backward pass."""
        if self._leaf.grad is not None:
            self.gradient[: len(self._leaf)].copy_(self._leaf.grad)


def _blocks(rows: range) -> Iterator[np.ndarray]:
    for at in range(rows.start, rows.stop, DENSE_ROWS):
        yield np.arange(at, min(at + DENSE_ROWS, rows.stop))


def initial_rows(seed: int, index_R: Tensor, dim: int) -> Tensor:
    """Initial rows, N(0, 1/D), float32 [R, D]; they depend on the seed and the indices only."""
    keys = counter.key(seed, index_R[:, None], torch.arange(dim, device=index_R.device), "sample head")
    return counter.normal(keys) / math.sqrt(dim)


def _refuse(rows: int, dim: int, dtype: torch.dtype, update: str, optimizer: str) -> None:
    """Refuse a classifier that cannot be made."""
    if rows < 1 or dim < 1:
        raise TwofoldError(f"a per-image classifier of {rows} rows and {dim} dimensions: both must be at least 1")
    if dtype not in (torch.float32, torch.float64):
        raise TwofoldError(f"dtype={dtype}: use float32 or float64; smaller types would round moments to a halt")
    if update not in ("exact", "multistep") or optimizer not in ("adamw", "sgd"):
        raise TwofoldError(f"update={update}, optimizer={optimizer}: use exact or multistep, and adamw or sgd")


def _refuse_coefficients(weight_decay: float, betas: tuple[float, float], eps: float, momentum: float) -> None:
    """Refuse coefficients with which the optimizer cannot work."""
    if not (weight_decay >= 0 and eps >= 0 and all(0 <= part < 1 for part in (*betas, momentum))):
        raise TwofoldError(
            f"weight_decay={weight_decay}, eps={eps}, betas={betas}, momentum={momentum}: the first two must be at "
            "least 0, the others from 0 to below 1"
        )
