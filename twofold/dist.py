"""Training with several processes. This is the only module that uses torch.distributed.

Each process passes its share of each batch through the networks. Then the processes exchange the results in two ways:

- `Shares.gather`: each process receives the embeddings of the complete batch and computes the complete loss. The
  gradient of an embedding is then already complete, so each process keeps the rows of its share and sends nothing.
- `sum_`: partial sums (gradients of weights, sums of a BatchNorm) are added. They are never averaged, because the
  shares can differ in size.

With one process, all functions here do nothing.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as torch_dist
from torch import Tensor

from twofold.errors import Followed, Interrupted, LostProcess, TwofoldError
from twofold.launch import is_alone

T = TypeVar("T")

TIMEOUT = timedelta(minutes=10)  # for an exchange within a step; `wait` has no timeout, because a disk may be slow
POLL_SECONDS = 0.05
LEAVING_SECONDS = 60.0  # how long a new run waits for the other processes to leave a failed run
LISTEN_SECONDS = 0.5  # the time between two checks for a request to stop


@dataclass
class Processes:
    rank: int
    count: int
    store: torch_dist.Store
    meetings: int = 0
    listened: float = 0.0
    traffic: Counter[str] = field(default_factory=Counter)  # bytes that this process has sent, by purpose


_joined: Processes | None = None
_times = 0  # how often this program has joined processes; it may train more than once
_failed: Processes | None = None  # the last run, if it failed; another process may still wait in its group
_found: tuple[torch_dist.Store, int, int] | None = None  # store, rank and number of processes, for the entire program


def count() -> int:
    return 1 if _joined is None else _joined.count


def rank() -> int:
    return 0 if _joined is None else _joined.rank


def is_first() -> bool:
    """Whether this is process 0, which writes files and prints messages."""
    return rank() == 0


def local_rank() -> int:
    """Return the number of this process on its machine."""
    return 0 if _joined is None else int(os.environ.get("LOCAL_RANK", _joined.rank))


def restarts() -> int:
    """Return how often torchrun has restarted the processes after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def traffic() -> Counter[str]:
    """Return how many bytes this process has sent so far in ring exchanges, by purpose."""
    return Counter() if _joined is None else _joined.traffic.copy()


@contextmanager
def joined() -> Iterator[None]:
    """Join the other processes that torchrun has started, if any, until the end of the block.

    An error in one process stops all. The first process that fails raises its own error, and the others `Followed`.
    """
    global _joined, _times, _failed
    if _joined is not None or is_alone():
        yield
        return
    _times += 1
    _leave_failed()
    _joined = _join(f"attempt {restarts()}, {_times}")
    try:
        yield
        _part(_joined)
    except BaseException as error:
        _failed = _joined
        earlier = _report(_joined, error)
        if earlier is not None:
            raise Followed(*earlier) from None
        raise
    finally:
        _joined = None


def _leave_failed() -> None:
    """Destroy the group of a failed run after all processes have left it, so that the program can train again."""
    global _failed
    if not torch_dist.is_initialized():
        return
    if _failed is None:
        raise TwofoldError(
            "this program already has a process group, which Twofold cannot share; call "
            "torch.distributed.destroy_process_group() first"
        )
    end = time.monotonic() + LEAVING_SECONDS
    with _store(_failed) as store:
        while store.add("failed", 0) < _failed.count:
            if time.monotonic() > end:
                raise LostProcess("an earlier run failed, and not all processes have left it; restart the processes")
            time.sleep(POLL_SECONDS)
    torch_dist.destroy_process_group()
    _failed = None


def _join(name: str) -> Processes:
    """Join the processes. `name` must be new: an earlier attempt may have left its entries in torchrun's store."""
    global _found
    try:
        if _found is None:
            _found = next(torch_dist.rendezvous("env://", timeout=TIMEOUT))
        store, own, world = _found
        store = torch_dist.PrefixStore(name, store)
        group = torch_dist.PrefixStore("group", store)
        torch_dist.init_process_group(_backend(), store=group, rank=own, world_size=world, timeout=TIMEOUT)
    except (RuntimeError, ValueError, OSError) as error:
        raise TwofoldError(
            f"the processes cannot connect to each other: {_first_line(error)}; start them with torchrun"
        ) from None
    return Processes(own, world, torch_dist.PrefixStore("twofold", store))


def _backend() -> str:
    """Return the backends. On a machine with GPUs, the default would be NCCL alone, which cannot gather on the host."""
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def _part(processes: Processes) -> None:
    wait()
    torch_dist.destroy_process_group()
    if not is_first():
        processes.store.add("gone", 1)
    else:  # the first process may host the store, so it waits until the others no longer need it
        _until(lambda store: store.add("gone", 0) >= processes.count - 1)


def _report(processes: Processes, error: BaseException) -> tuple[str, int] | None:
    """Report why this process stops, and return the report of the process that failed first, if it was another."""
    code = getattr(error, "exit_code", 1)
    if isinstance(error, Interrupted):
        code = 128 + error.signal_number
    message = str(error).splitlines()[0] if str(error) else type(error).__name__
    own = json.dumps([f"process {processes.rank}: {message}", code])
    try:
        first = processes.store.compare_set("fault", "", own).decode()
        processes.store.add("failed", 1)
    except RuntimeError:  # the process that hosts the store has ended too
        return None
    return None if first == own else tuple(json.loads(first))


def wait() -> None:
    """Wait for all processes, without a timeout. Raise an error if one of them has failed."""
    if _joined is not None:
        _joined.meetings += 1
        place = f"meeting {_joined.meetings}"
        with _store(_joined) as store:
            store.add(place, 1)
        _until(lambda store: store.add(place, 0) >= count())


def from_first(value: Callable[[], T]) -> T:
    """Return the first process's value in all processes: text, a number, None, or a list of these."""
    if _joined is None:
        return value()
    _joined.meetings += 1
    place = f"word {_joined.meetings}"
    if is_first():
        found = value()
        with _store(_joined) as store:
            store.set(place, json.dumps(found))
        return found
    _until(lambda store: store.check([place]))
    with _store(_joined) as store:
        return json.loads(store.get(place))


@contextmanager
def _store(processes: Processes) -> Iterator[torch_dist.Store]:
    """Access the store, and turn its errors into LostProcess. The block must contain nothing else."""
    try:
        yield processes.store
    except RuntimeError:
        raise LostProcess("torchrun or the first process has ended; start the run again") from None


def _until(reached: Callable[[torch_dist.Store], bool]) -> None:
    assert _joined is not None
    with _store(_joined) as store:
        while not reached(store):
            if store.check(["fault"]):
                raise LostProcess("another process has failed; see its message")
            time.sleep(POLL_SECONDS)


@contextmanager
def one_before_the_others() -> Iterator[None]:
    """Run the block on one process of each machine first, so that the others find its results in the cache."""
    if local_rank() != 0:
        wait()
    yield
    if local_rank() == 0:
        wait()


def same_everywhere(what: str, value: str) -> None:
    """Raise an error if the value differs between processes."""
    expected = from_first(lambda: value)
    if value != expected:
        raise TwofoldError(f"process {rank()} has different {what} than process 0; give all processes the same")


def stop_for(signals: list[int]) -> int | None:
    """Return the signal to stop for, or None.

    Only the first process stops, because it saves the checkpoint. The others notify it, and continue until it ends.
    """
    if _joined is None or (is_first() and signals):
        return signals[0] if signals else None
    if time.monotonic() - _joined.listened < LISTEN_SECONDS:
        return None
    _joined.listened = time.monotonic()
    with _store(_joined) as store:
        if is_first():
            return int(store.get("stop")) if store.check(["stop"]) else None
        if signals:
            store.set("stop", str(signals[0]))
    return None


@contextmanager
def _exchange(what: str, sent: float) -> Iterator[Processes]:
    assert _joined is not None
    _joined.traffic[what] += round(sent)
    try:
        yield _joined
    except RuntimeError as error:
        timed_out = "timed out" in str(error).lower()
        minutes = int(TIMEOUT.total_seconds() / 60)
        what = f"has not answered for {minutes} minutes" if timed_out else "has ended: it or its machine was stopped"
        raise LostProcess(f"process {_joined.rank} of {_joined.count} reports that another {what}") from error


def sum_(tensor: Tensor, what: str) -> Tensor:
    """Replace the tensor by its sum over all processes. `what` is the purpose, for `traffic`."""
    if _joined is not None:
        with _exchange(what, 2 * tensor.nbytes * (count() - 1) / count()):
            torch_dist.all_reduce(tensor)
    return tensor


def meet() -> None:
    """Wait for all processes in the middle of training. Unlike `wait`, it notices a killed process immediately."""
    sum_(torch.zeros(1), "meetings")


def all_gather(tensor: Tensor, what: str) -> Tensor:
    """Return the tensors of all processes, which must have the same shape, as [processes, ...]. Without gradients."""
    if _joined is None:
        return tensor[None]
    flat = tensor.detach().contiguous().flatten().view(torch.uint8)  # bytes, because backends do not support all types
    with _exchange(what, flat.nbytes * (count() - 1)) as processes:
        all_bytes = [torch.empty_like(flat) for _ in range(processes.count)]
        torch_dist.all_gather(all_bytes, flat)
    return torch.stack(all_bytes).view(tensor.dtype).view(len(all_bytes), *tensor.shape)


def one_after_another(own: Tensor, sizes: Sequence[int], what: str) -> Tensor:
    """Concatenate the rows of all processes in order. `sizes` are their numbers of rows. Without gradients."""
    if _joined is None:
        return own
    padded = own.new_zeros(max(sizes), *own.shape[1:])
    padded[: len(own)] = own
    return torch.cat([part[:size] for part, size in zip(all_gather(padded, what), sizes, strict=True)])


def copy_from_first(tensors: Iterable[Tensor]) -> None:
    """Copy the values of the first process to all processes."""
    if _joined is not None:
        for tensor in tensors:
            with _exchange("first weights", tensor.nbytes), torch.no_grad():
                dense = tensor.contiguous()
                torch_dist.broadcast(dense, src=0)
                tensor.copy_(dense)


class Shares:
    """How the processes share a batch of `size` samples.

    The batch consists of `pieces` micro-batches. Each process has a contiguous part of each micro-batch, of nearly
    equal length. So a micro-batch contains the same samples as in training with one process.
    """

    def __init__(self, size: int, device: torch.device, pieces: int = 1):
        if size // pieces < count():
            raise TwofoldError(
                f"{count()} processes cannot share {size} images{f' in {pieces} micro-batches' if pieces > 1 else ''}, "
                "because each needs at least one; increase batch_size, or set drop_last=true if only the last batch is "
                "too small"
            )
        parts = [piece.tensor_split(count()) for piece in torch.arange(size).tensor_split(pieces)]
        positions = [torch.cat([part[number] for part in parts]) for number in range(count())]
        self.sizes = [len(part) for part in positions]
        self.own = positions[rank()].to(device)
        self.order = torch.argsort(torch.cat(positions)).to(device)

    def gather(self, own: Tensor, dim: int = 0) -> Tensor:
        """Gather the samples of all processes in their original order. `dim` is the dimension of the samples."""
        return own if _joined is None else _Gather.apply(own, self, dim)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, shares: Shares, dim: int) -> Tensor:
        ctx.shares, ctx.dim = shares, dim
        found = one_after_another(own.movedim(dim, 0), shares.sizes, "embeddings")
        return found.index_select(0, shares.order.to(found.device)).movedim(0, dim).contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient.index_select(ctx.dim, ctx.shares.own), None, None


class _AddUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:  # noqa: ARG004 — the signature is torch's
        return sum_(own.clone(), "moments")

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return gradient


def add_up(parts: list[Tensor]) -> list[Tensor]:
    """Return the sums of the parts over all processes.

    Each process computes the complete loss from the sums, so the gradient of a part needs no exchange.
    """
    flat = _AddUp.apply(torch.cat([part.flatten() for part in parts]))
    return [total.view_as(part) for total, part in zip(flat.split([p.numel() for p in parts]), parts, strict=True)]


def sum_gradients(parts: list[Tensor], complete: list[Tensor]) -> None:
    """Give each process the gradients that one process alone would have.

    `parts` are gradients of this process's share and are summed. `complete` are gradients that each process computed
    for the entire batch; they are averaged, so that rounding errors do not let the weights drift apart.
    """
    if _joined is None:
        return
    for gradient in complete:
        gradient.div_(_joined.count)
    gradients = [*parts, *complete]
    for dtype in {gradient.dtype for gradient in gradients}:
        same_dtype = [gradient for gradient in gradients if gradient.dtype == dtype]
        flat = sum_(torch.cat([gradient.flatten() for gradient in same_dtype]), "gradients")
        for gradient, values in zip(same_dtype, flat.split([gradient.numel() for gradient in same_dtype]), strict=True):
            gradient.copy_(values.view_as(gradient))


def spread(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    """Distribute tasks over the processes, and return the results of all tasks in each process."""
    if _joined is None:
        return [task() for task in tasks]
    own = {number: tasks[number]() for number in range(_joined.rank, len(tasks), _joined.count)}
    wait()  # tasks may take longer than the timeout of an exchange
    found: list[dict[int, Any]] = [{} for _ in range(_joined.count)]
    with _exchange("results", 0):
        torch_dist.all_gather_object(found, own)
    done = {number: result for part in found for number, result in part.items()}
    return [done[number] for number in range(len(tasks))]


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
