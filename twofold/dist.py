"""Several processes that train as one: the only module that knows torch.distributed.

Each process takes its share of every batch through the networks. Then one of two things is done with what it has:
- `gather`: all have the embeddings of the whole batch, and every process computes the whole loss. A gradient that comes
  back is already that of the whole loss, so a process keeps the rows of its share; nothing is sent.
- `sum_`: numbers that each has a part of (gradients of weights, sums of a BatchNorm) are added up. Never a mean: shares
  are not equal where the processes do not divide the batch.

With one process all of it does nothing.
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

TIMEOUT = timedelta(minutes=10)  # for what a process waits for in a step; a slow disk is waited for by `wait`, longer
POLL_SECONDS = 0.05
LEAVING_SECONDS = 60.0  # for the others to leave a run that failed, before the next one
LISTEN_SECONDS = 0.5  # between two questions whether a process was asked to stop


@dataclass
class Processes:
    rank: int
    count: int
    store: torch_dist.Store
    meetings: int = 0
    listened: float = 0.0
    traffic: Counter[str] = field(default_factory=Counter)  # bytes that this process has sent, by what they were for


_joined: Processes | None = None
_times = 0  # that processes were joined here: a program may train more than once
_failed: Processes | None = None  # the last run here, if it failed: its group may still be waited in by another
_found: tuple[torch_dist.Store, int, int] | None = None  # what they meet at, rank and number; for the whole program


def count() -> int:
    return 1 if _joined is None else _joined.count


def rank() -> int:
    return 0 if _joined is None else _joined.rank


def is_first() -> bool:
    """Whether this is the process that writes and speaks."""
    return rank() == 0


def local_rank() -> int:
    """The number of this process on its machine."""
    return 0 if _joined is None else int(os.environ.get("LOCAL_RANK", _joined.rank))


def restarts() -> int:
    """How often torchrun has started the processes again, after one of them failed."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def traffic() -> Counter[str]:
    """Bytes that this process has sent so far, as rings of processes pass them on, by what they were for."""
    return Counter() if _joined is None else _joined.traffic.copy()


@contextmanager
def joined() -> Iterator[None]:
    """Work with the other processes that torchrun has started, where there are any, until the end of the block.

    An error in one of them ends all: the first to fail raises its own, the others `Followed`.
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
    """The group of a run that failed, once all processes have left that run: a program may go on after a refusal."""
    global _failed
    if not torch_dist.is_initialized():
        return
    if _failed is None:
        raise TwofoldError(
            "this program has a process group of its own, which Twofold cannot share: call "
            "torch.distributed.destroy_process_group() first"
        )
    end = time.monotonic() + LEAVING_SECONDS
    with _store(_failed) as store:
        while store.add("failed", 0) < _failed.count:
            if time.monotonic() > end:
                raise LostProcess("an earlier run failed here, and not all processes have left it: start them again")
            time.sleep(POLL_SECONDS)
    torch_dist.destroy_process_group()
    _failed = None


def _join(name: str) -> Processes:
    """`name`: the store may be torchrun's own, in which an earlier attempt has left its addresses and its fault."""
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
            f"the processes did not find each other: {_first_line(error)}; start them by torchrun"
        ) from None
    return Processes(own, world, torch_dist.PrefixStore("twofold", store))


def _backend() -> str:
    """Named, since torch would make only the GPUs' where there are any, and features are gathered on the host."""
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def _part(processes: Processes) -> None:
    wait()
    torch_dist.destroy_process_group()
    if not is_first():
        processes.store.add("gone", 1)
    else:  # it may keep the store, which the others still ask
        _until(lambda store: store.add("gone", 0) >= processes.count - 1)


def _report(processes: Processes, error: BaseException) -> tuple[str, int] | None:
    """Leave word why this process stops; what another said before it, if one did."""
    code = getattr(error, "exit_code", 1)
    if isinstance(error, Interrupted):
        code = 128 + error.signal_number
    message = str(error).splitlines()[0] if str(error) else type(error).__name__
    own = json.dumps([f"process {processes.rank}: {message}", code])
    try:
        said = processes.store.compare_set("fault", "", own).decode()
        processes.store.add("failed", 1)
    except RuntimeError:  # whoever kept the store is gone too
        return None
    return None if said == own else tuple(json.loads(said))


def wait() -> None:
    """Until all processes are here, however long that takes, or one of them has failed."""
    if _joined is not None:
        _joined.meetings += 1
        place = f"meeting {_joined.meetings}"
        with _store(_joined) as store:
            store.add(place, 1)
        _until(lambda store: store.add(place, 0) >= count())


def from_first(value: Callable[[], T]) -> T:
    """What the first process finds, for all; text, numbers, None or lists of them."""
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
    """To ask or tell something; what is in the block does nothing else."""
    try:
        yield processes.store
    except RuntimeError:
        raise LostProcess("what started the processes, or the first of them, is gone") from None


def _until(reached: Callable[[torch_dist.Store], bool]) -> None:
    assert _joined is not None
    with _store(_joined) as store:
        while not reached(store):
            if store.check(["fault"]):
                raise LostProcess("another process has failed")
            time.sleep(POLL_SECONDS)


@contextmanager
def one_before_the_others() -> Iterator[None]:
    """The block on one process of each machine first: what it leaves in a cache, the others find there."""
    if local_rank() != 0:
        wait()
    yield
    if local_rank() == 0:
        wait()


def same_everywhere(what: str, value: str) -> None:
    """Refuse to go on where processes differ in what they must share."""
    expected = from_first(lambda: value)
    if value != expected:
        raise TwofoldError(f"process {rank()} has {what} that differ from those of process 0: all must see the same")


def stop_for(signals: list[int]) -> int | None:
    """The signal to stop for, if any. Only the first process stops, since it saves; the others tell it and go on until
    it is gone."""
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
        silent = "timed out" in str(error).lower()
        minutes = int(TIMEOUT.total_seconds() / 60)
        what = f"has not answered for {minutes} minutes" if silent else "is gone: it was killed, or its machine was"
        raise LostProcess(f"process {_joined.rank} of {_joined.count} finds that another {what}") from error


def sum_(tensor: Tensor, what: str) -> Tensor:
    """Put the sum over all processes into the tensor; `what` is it for?"""
    if _joined is not None:
        with _exchange(what, 2 * tensor.nbytes * (count() - 1) / count()):
            torch_dist.all_reduce(tensor)
    return tensor


def meet() -> None:
    """Go on when all are here, in the middle of training: one that was killed is missed at once, unlike by `wait`."""
    sum_(torch.zeros(1), "meetings")


def all_gather(tensor: Tensor, what: str) -> Tensor:
    """[processes, ...]: the tensors of all processes, which have one shape; without gradients."""
    if _joined is None:
        return tensor[None]
    flat = tensor.detach().contiguous().flatten().view(torch.uint8)  # bytes, since not every backend knows every type
    with _exchange(what, flat.nbytes * (count() - 1)) as processes:
        all_bytes = [torch.empty_like(flat) for _ in range(processes.count)]
        torch_dist.all_gather(all_bytes, flat)
    return torch.stack(all_bytes).view(tensor.dtype).view(len(all_bytes), *tensor.shape)


def one_after_another(own: Tensor, sizes: Sequence[int], what: str) -> Tensor:
    """The rows of the first process, then those of the second, …; `sizes` are how many each has. Without gradients."""
    if _joined is None:
        return own
    padded = own.new_zeros(max(sizes), *own.shape[1:])
    padded[: len(own)] = own
    return torch.cat([part[:size] for part, size in zip(all_gather(padded, what), sizes, strict=True)])


def copy_from_first(tensors: Iterable[Tensor]) -> None:
    """All processes get the first one's values."""
    if _joined is not None:
        for tensor in tensors:
            with _exchange("first weights", tensor.nbytes), torch.no_grad():
                dense = tensor.contiguous()
                torch_dist.broadcast(dense, src=0)
                tensor.copy_(dense)


class Shares:
    """How a batch of `size` samples is shared out: of each of its pieces, every process has a run of about one length.

    Pieces are those in which a batch passes the network one after the other; each holds the samples it has in one
    process.
    """

    def __init__(self, size: int, device: torch.device, pieces: int = 1):
        if size // pieces < count():
            raise TwofoldError(
                f"{count()} processes cannot share {size} images{f' in {pieces} pieces' if pieces > 1 else ''}, since "
                "each needs one: raise batch_size, or set drop_last=true where it is the last batch that is too small"
            )
        parts = [piece.tensor_split(count()) for piece in torch.arange(size).tensor_split(pieces)]
        positions = [torch.cat([part[number] for part in parts]) for number in range(count())]
        self.sizes = [len(part) for part in positions]
        self.own = positions[rank()].to(device)
        self.order = torch.argsort(torch.cat(positions)).to(device)

    def gather(self, own: Tensor, dim: int = 0) -> Tensor:
        """All samples in their order, from those that each process has; `dim` is that of the samples."""
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
    """Sums over all processes, each of which computes the whole loss from them: gradients stay with their parts."""
    flat = _AddUp.apply(torch.cat([part.flatten() for part in parts]))
    return [total.view_as(part) for total, part in zip(flat.split([p.numel() for p in parts]), parts, strict=True)]


def sum_gradients(parts: list[Tensor], wholes: list[Tensor]) -> None:
    """Make every process have the gradients of one: `parts` are those of its share, of `wholes` each has all.

    The latter are averaged, so that rounding never lets weights drift apart.
    """
    if _joined is None:
        return
    for whole in wholes:
        whole.div_(_joined.count)
    together = [*parts, *wholes]
    for kind in {gradient.dtype for gradient in together}:
        alike = [gradient for gradient in together if gradient.dtype == kind]
        flat = sum_(torch.cat([gradient.flatten() for gradient in alike]), "gradients")
        for gradient, values in zip(alike, flat.split([gradient.numel() for gradient in alike]), strict=True):
            gradient.copy_(values.view_as(gradient))


def spread(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    """The results of all tasks, each done by one process."""
    if _joined is None:
        return [task() for task in tasks]
    own = {number: tasks[number]() for number in range(_joined.rank, len(tasks), _joined.count)}
    wait()  # tasks may take longer than an exchange may
    found: list[dict[int, Any]] = [{} for _ in range(_joined.count)]
    torch_dist.all_gather_object(found, own)
    done = {number: result for part in found for number, result in part.items()}
    return [done[number] for number in range(len(tasks))]


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
