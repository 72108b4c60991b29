"""State that lasts longer than a step: teacher, queue, centre, running covariance. Only `update` changes it."""

import copy
import math
from collections.abc import Callable, Iterable
from typing import Self

import torch
from torch import Tensor, nn

from twofold.linalg import running_moments


class Teacher(nn.Module):
    """An exponential moving average of a network (BYOL, MoCo, DINO): θ̄ ← τ θ̄ + (1−τ) θ.

    It gets no gradients. Its BatchNorm statistics come from its own forward passes.
    """

    treats_samples_apart = True  # if its network does

    def __init__(self, student: nn.Module):
        super().__init__()
        self.network = copy.deepcopy(student).requires_grad_(False)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of the copied network, without gradients."""
        return self.network(x)

    @torch.no_grad()
    def update(self, student: Iterable[Tensor], momentum: Tensor) -> None:
        """Move the weights towards `student`, the parameters of the network that was copied, in their order."""
        mine: list[Tensor] = list(self.network.parameters())
        steps = list(torch._foreach_sub(list(student), mine))
        torch._foreach_mul_(steps, 1 - momentum)
        torch._foreach_add_(mine, steps)


def rising_momentum(start: float, progress: Tensor) -> Tensor:
    """A teacher's momentum τ, which rises from `start` to 1 along a cosine (BYOL).

    `progress` is the completed share of the run, from 0 to 1.
    """
    return 1 - (1 - start) * (torch.cos(math.pi * progress) + 1) / 2


class Queue(nn.Module):
    """The last `size` embeddings (MoCo, SwAV) and the indices of their images. New ones replace the oldest."""

    rows: Tensor  # the embeddings [size, D]
    index: Tensor  # the stable indices of their images [size]; −1: empty
    position: Tensor  # the position [] of the oldest entry, which the next embedding replaces

    def __init__(self, size: int, dim: int):
        super().__init__()
        self.register_buffer("rows", torch.zeros(size, dim))
        self.register_buffer("index", torch.full((size,), -1))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))

    @property
    def filled(self) -> Tensor:
        """Which entries hold an embedding, as a bool tensor [size]."""
        return self.index >= 0

    def others(self, index_N: Tensor) -> Tensor:
        """Return which entries belong to another image than each sample, as a bool tensor [N, size]."""
        return self.filled & (self.index != index_N[:, None])

    @torch.no_grad()
    def update(self, z_VND: Tensor, index_N: Tensor) -> None:
        """Add the embeddings of one training step, of all views."""
        size = len(self.rows)
        rows, index = z_VND.flatten(0, 1), index_N.repeat(len(z_VND))
        offset = torch.arange(len(rows), device=rows.device)[-size:]  # if there are more than `size`, keep the last
        place = (self.position + offset) % size
        self.rows.index_copy_(0, place, rows[-size:].to(self.rows.dtype))
        self.index.index_copy_(0, place, index[-size:])
        self.position.add_(len(rows)).remainder_(size)


class Centre(nn.Module):
    """The running mean of the teacher's scores (DINO): c ← m c + (1−m) mean. It starts at 0."""

    mean: Tensor  # the running mean [D]

    def __init__(self, dim: int, momentum: float):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(dim))

    @torch.no_grad()
    def update(self, scores: Tensor) -> None:
        """Add the scores[..., D] of one training step, of all views and samples."""
        self.mean.lerp_(scores.reshape(-1, len(self.mean)).to(self.mean.dtype).mean(dim=0), 1 - self.momentum)


class RunningCovariance(nn.Module):
    """Running covariance and mean of each view's embeddings (CorInfoMax), in float64.

    The covariance starts at the identity, the mean at 0.
    """

    covariances: Tensor  # the running covariances [V, D, D]
    means: Tensor  # the running means [V, D]

    def __init__(self, views: int, dim: int, momentum: float):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("covariances", torch.eye(dim, dtype=torch.float64).repeat(views, 1, 1))
        self.register_buffer("means", torch.zeros(views, dim, dtype=torch.float64))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Let `to`, `half` and similar methods change the device but not the dtype, except on MPS (no float64)."""
        wide = dict(self.named_buffers())
        self._buffers.update({name: buffer.float() for name, buffer in wide.items()})
        super()._apply(fn, recurse)
        for name, buffer in self.named_buffers():
            self._buffers[name] = buffer if buffer.device.type == "mps" else wide[name].to(buffer.device)
        return self

    @torch.no_grad()
    def update(self, z_VND: Tensor) -> None:
        """Add the embeddings of one training step, of all views."""
        covariances, means = running_moments(z_VND, self.covariances, self.means, self.momentum)
        self.covariances.copy_(covariances)
        self.means.copy_(means)


class Progress(nn.Module):
    """The completed share of a run, from 0 to 1, for objectives that change during training."""

    done: Tensor

    def __init__(self, epochs: int) -> None:
        super().__init__()
        self.total = epochs
        self.register_buffer("done", torch.zeros(()))

    @property
    def epochs(self) -> Tensor:
        return self.done * self.total

    @torch.no_grad()
    def update(self, progress: Tensor) -> None:
        self.done.copy_(progress)
