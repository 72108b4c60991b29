"""A classifier with one row for each image, of which a step needs only the batch's (S-DIET, section 5.2).

R rows at hand, S tensors kept of each (weights, then the optimizer's moments), D dimension.
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
from twofold.models.sample_head.row_optimizers import RowAdamW, RowOptimizer, RowSGD
from twofold.models.sample_head.row_store import FORMAT, DiskRows, MemoryRows, edges

STEP_BYTES = 8  # at the head of a record
DENSE_ROWS = 2**14  # at a time

Update: TypeAlias = Literal["exact", "multistep"]
Optimizer: TypeAlias = Literal["adamw", "sgd"]


def rates(schedule: Sequence[float] | Tensor) -> np.ndarray:
    """The learning rates of all steps, float64."""
    try:
        given = np.asarray(schedule.detach().cpu() if isinstance(schedule, Tensor) else schedule, dtype=np.float64)
    except (TypeError, ValueError):
        given = np.array(np.nan)
    if given.ndim != 1 or not (np.isfinite(given) & (given >= 0)).all():
        raise TwofoldError("schedule is the learning rate of each step: numbers from 0 on, such as [0.1] * 1000")
    return given


@dataclass(frozen=True)
class Loaded:
    """Rows of one step: as they lie in the store, and as they are brought from there to the end of the step."""

    index_R: np.ndarray
    records: np.ndarray
    state_RSD: Tensor
    lag: Tensor  # of `state`, behind the steps done before this one: for RowOptimizer.catch_up
    step: int  # steps done before

    @property
    def weights(self) -> Tensor:
        return self.state_RSD[:, 0]


class SampleHead:
    """Rows N(0, 1/D), each trained in the steps that use it, and moved as if it had been there in all the others.

    update="exact" is AdamW (or SGD with momentum) on the whole head, up to rounding and eps: a row is caught up over
    the steps since its last use. "multistep" is the paper's: an epoch of `steps_per_epoch` ahead whenever it is used.
    A step costs the same whatever the number of rows. A row that was never used is a hash of (seed, index), and is not
    stored, so a head of any size begins at once.

    With a `path` the rows are in that folder, which is continued where it exists; see `row_store` for what may happen
    to the process and the machine. After a kill they are as `flush` last left them, or as they were after `step`,
    where two marks are there. Another `schedule` than before holds from the next step on. `run` is a name that the
    folder must carry. One object at a time may use a folder; or one in each of several processes, whose `share` is
    (number, count): each then has the rows from edges[number] to edges[number + 1] alone.
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
        """schedule[k], k = 0, 1, …, is the learning rate of the (k+1)-th step. `momentum` is SGD's."""
        if rows < 1 or dim < 1:
            raise TwofoldError(f"a head of {rows} rows and {dim} dimensions: both must be at least 1")
        if dtype not in (torch.float32, torch.float64):
            raise TwofoldError(f"dtype={dtype}: rows are float32 or float64, as narrower moments would stop moving")
        if update not in ("exact", "multistep") or optimizer not in ("adamw", "sgd"):
            raise TwofoldError(f"update={update}, optimizer={optimizer}: exact or multistep, adamw or sgd")
        given = rates(schedule)
        if not (weight_decay >= 0 and eps >= 0 and all(0 <= part < 1 for part in (*betas, momentum))):
            raise TwofoldError(
                f"weight_decay={weight_decay}, eps={eps}, betas={betas}, momentum={momentum}: the first two are at "
                "least 0, the others from 0 to below 1"
            )
        if update == "exact":
            steps_per_epoch = None  # only the other one moves rows by an epoch
        elif steps_per_epoch is None:
            raise TwofoldError("update=multistep moves rows by an epoch: give steps_per_epoch, the batches in one")
        self.rows, self.dim, self.dtype, self.seed = rows, dim, dtype, seed
        rest = (betas, eps) if optimizer == "adamw" else (momentum,)
        self._kind: Any = RowAdamW if optimizer == "adamw" else RowSGD
        self._settings = (weight_decay, *rest, steps_per_epoch)
        self._width = self._kind.kept * dim * dtype.itemsize
        self._record_bytes = (STEP_BYTES + self._width + 7) // 8 * 8
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
        """That the rows take where all are used."""
        return self.rows * self._record_bytes

    def take(self, indices: Tensor | Sequence[int]) -> Tensor:
        """The rows [R, D] as they stand now; distinct indices, in any order."""
        return self.load(self._checked(indices), self.steps).weights.clone()

    def step(self, indices: Tensor | Sequence[int], gradients: Tensor) -> None:
        """One step of the optimizer on the whole head, where only these rows [R] have gradients [R, D]."""
        self.apply(self.load(self._checked(indices), self.steps), gradients)

    def load(self, index_R: np.ndarray, step: int) -> Loaded:
        """Rows as they will stand after `step` steps, if none of those to come uses them."""
        loaded = self.read(index_R, step)
        self.optimizer.catch_up(loaded.state_RSD, loaded.lag)
        return loaded

    def read(self, index_R: np.ndarray, step: int) -> Loaded:
        """As `load`, for who lets the optimizer catch them up, on whatever device."""
        records = self._store.read(index_R)
        since_R, state_RSD = self._decoded(records, index_R)
        return Loaded(index_R, records, state_RSD, self.optimizer.lag(since_R, step).to(self.dtype), step)

    def apply(self, loaded: Loaded, gradients: Tensor) -> None:
        """Move what was loaded, and write it back."""
        self._refuse_out_of_turn(loaded)
        if gradients.shape != loaded.weights.shape:
            expected = tuple(loaded.weights.shape)
            raise TwofoldError(f"gradients have shape {tuple(gradients.shape)}, and the rows {expected}")
        self.optimizer.advance(loaded.state_RSD, gradients.detach().to("cpu", self.dtype), loaded.step + 1)
        self.write(loaded)

    def write(self, loaded: Loaded) -> None:
        """Write back what the optimizer has moved."""
        self._refuse_out_of_turn(loaded)
        self._store.write(loaded.index_R, self._encoded(loaded.state_RSD, self.steps + 1), loaded.records)
        self.steps += 1

    def _refuse_out_of_turn(self, loaded: Loaded) -> None:
        if loaded.step != self.steps:
            raise TwofoldError(f"rows of step {loaded.step} cannot move in step {self.steps}: steps go one by one")
        if self.steps >= len(self.schedule):
            raise TwofoldError(f"the schedule has {len(self.schedule)} steps, and all are done: give a longer one")

    def flush(self) -> None:
        """Make the rows safe as they are now: after a kill or a loss of power, this is where they will be."""
        self.mark()
        self.forget_older()

    def mark(self) -> None:
        """As `flush`, but they can also return to the mark before, by `step`, until `forget_older`."""
        self._store.mark(self.steps)

    def forget_older(self) -> None:
        self._store.forget_older()

    def dense(self) -> Tensor:
        """The whole head [rows, D] as it stands now, or this process's rows of it; nothing changes."""
        blocks = [self.load(index_R, self.steps).weights for index_R in _blocks(self.own)]
        return torch.cat([torch.empty(0, self.dim, dtype=self.dtype), *blocks])

    def close(self) -> None:
        self._store.close()

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: of rows in memory all, of those on disk only which mark is theirs."""
        if isinstance(self._store, DiskRows):
            return {"steps": self.steps}
        schedule, rows = torch.from_numpy(self.schedule), torch.from_numpy(self._store.table)
        return {"steps": self.steps, "schedule": schedule, "rows": rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Rows that were in memory, as a checkpoint has them. A head on disk must be new, and is marked with them."""
        if tuple(state["rows"].shape) != (self.rows, self._record_bytes):
            raise TwofoldError("the checkpoint holds rows of another shape")
        if isinstance(self._store, MemoryRows):
            self._store.table[:] = state["rows"].numpy()
        else:
            for index_R in _blocks(self.own):
                records = state["rows"][index_R[0] : index_R[-1] + 1].numpy()
                used_R = records[:, :STEP_BYTES].any(axis=1)
                self._store.write(index_R[used_R], records[used_R], before=np.zeros_like(records[used_R]))
        self.steps = state["steps"]
        self._follow(state["schedule"].numpy(), self.schedule)
        if isinstance(self._store, DiskRows):
            self._store.set_schedule(self.schedule)
            self._store.mark(self.steps)

    def _follow(self, before: np.ndarray, given: np.ndarray) -> None:
        """Rates that steps were done with stay as they were: rows are caught up over those steps later on."""
        if len(before) < self.steps:
            raise TwofoldError(f"{self.steps} steps are done, and only the rates of {len(before)} are known")
        self.schedule = np.concatenate([before[: self.steps], given[self.steps :]])
        self.optimizer: RowOptimizer = self._kind(self.schedule.tolist(), *self._settings)

    def _checked(self, indices: Tensor | Sequence[int]) -> np.ndarray:
        given = torch.as_tensor(indices, device="cpu")
        if len(given) and (given.is_floating_point() or given.dtype == torch.bool):
            raise TwofoldError(f"indices are {given.dtype}: give whole numbers, the rows of a step")
        index_R = given.to(torch.int64).contiguous().numpy()
        if index_R.ndim != 1 or len(np.unique(index_R)) != len(index_R):
            raise TwofoldError("indices must be a list of distinct ones: torch.unique gives them, and labels into them")
        if len(index_R) and not (index_R.min() in self.own and index_R.max() in self.own):
            here = "" if len(self.own) == self.rows else f", and {self.own.start} to {self.own.stop} are here"
            raise TwofoldError(f"indices from {index_R.min()} to {index_R.max()}: the head has {self.rows} rows{here}")
        return index_R

    def _decoded(self, records: np.ndarray, index_R: np.ndarray) -> tuple[Tensor, Tensor]:
        since_R = torch.from_numpy(records[:, :STEP_BYTES].copy().view(np.int64)[:, 0])
        content = records[:, STEP_BYTES : STEP_BYTES + self._width].copy()
        values = torch.from_numpy(content.view(np.float32 if self.dtype == torch.float32 else np.float64))
        state_RSD = values.view(len(index_R), self._kind.kept, self.dim)
        fresh = (since_R == 0).nonzero()[:, 0]
        if len(fresh):
            state_RSD[fresh] = 0
            state_RSD[fresh, 0] = initial_rows(self.seed, torch.from_numpy(index_R)[fresh], self.dim).to(self.dtype)
        return since_R, state_RSD

    def _encoded(self, state_RSD: Tensor, step: int) -> np.ndarray:
        records = np.empty((len(state_RSD), self._record_bytes), dtype=np.uint8)
        records[:, :STEP_BYTES].view(np.int64)[:] = step
        records[:, STEP_BYTES : STEP_BYTES + self._width] = state_RSD.flatten(1).numpy().view(np.uint8)
        records[:, STEP_BYTES + self._width :] = 0
        return records


class BatchRows(nn.Module):
    """The batch's rows where the device sees them: what a step reads them from, and leaves their gradient in.

    The tensors stay where they are, so that a recorded step finds the next batch's rows in them. None of it is a
    parameter, nor part of a checkpoint: the rows belong to the sample head.
    """

    rows: Tensor
    labels: Tensor
    gradient: Tensor

    def __init__(self, count: int, dim: int, settings: Head):
        """`count` is the number of rows in the head, `settings` are for who moves them."""
        super().__init__()
        self.count, self.dim, self.settings = count, dim, settings
        self.make_room(1)

    def make_room(self, batch_size: int) -> None:
        first = torch.arange(batch_size)
        former = next(self.buffers(), torch.empty(0))
        rows, device = initial_rows(0, first, self.dim).to(former.dtype), former.device
        for name, value in {"rows": rows, "labels": first, "gradient": torch.zeros_like(rows)}.items():
            self.register_buffer(name, value.to(device), persistent=False)

    def forward(self, batch_size: int) -> tuple[Tensor, Tensor]:
        """Rows [N, D], to which a gradient can come back, and labels [N] that point into them."""
        self._leaf = self.rows[:batch_size].detach().requires_grad_()
        return self._leaf, self.labels[:batch_size]

    def keep_gradient(self) -> None:
        """After a backward pass."""
        if self._leaf.grad is not None:
            self.gradient[: len(self._leaf)].copy_(self._leaf.grad)


def _blocks(rows: range) -> Iterator[np.ndarray]:
    for at in range(rows.start, rows.stop, DENSE_ROWS):
        yield np.arange(at, min(at + DENSE_ROWS, rows.stop))


def initial_rows(seed: int, index_R: Tensor, dim: int) -> Tensor:
    """N(0, 1/D), float32 [R, D]: a function of seed and index alone."""
    keys = counter.key(seed, index_R[:, None], torch.arange(dim, device=index_R.device), "sample head")
    return counter.normal(keys) / math.sqrt(dim)
