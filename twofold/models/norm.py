"""BatchNorm that keeps views apart, with the addition and the ReLU that follow it.

Views lie one after another in a batch [V·N, C, ...]: convolutions and linear layers see all of them at once, and only
the normalisation needs to know where one ends. Parameters and buffers are those of torch's BatchNorm.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twofold.errors import TwofoldError
from twofold.models.shared_norm import SharedNorm, shared_norm

_views_in_batch = ContextVar("views in a training batch", default=1)


@contextmanager
def views_in_batch(views: int) -> Iterator[None]:
    """In the block, every BatchNorm takes its training batch for so many views, one after another."""
    token = _views_in_batch.set(views)
    try:
        yield
    finally:
        _views_in_batch.reset(token)  # the network may be used by others, who have no views


class BatchNorm(nn.modules.batchnorm._BatchNorm):
    """relu(norm(x) + residual) for x[B, C] or [B, C, H, W]; the residual and the ReLU are optional.

    In training the statistics are those of each view, as if it had come alone.
    """

    fused = False  # in one kernel all that one reading of memory can give; for CUDA, set by `fuse`
    shared = False  # statistics of all processes; set by `share_statistics`

    def __init__(self, channels: int, *, relu: bool = False, affine: bool = True):
        super().__init__(channels, affine=affine)
        self.relu = relu

    @property
    def views(self) -> int:
        return _views_in_batch.get()

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        return self.forked(x, residual)[0]

    def forked(self, x: Tensor, residual: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The same output twice, for two uses: their gradients then need no kernel to be added up."""
        if self.training and self.fused and x.dtype != torch.float64:
            from twofold.cuda.norm_kernels import FusedNorm  # Triton is there only where CUDA is

            return FusedNorm.apply(x, self.weight, self.bias, residual, self)
        if self.training:
            assert self.num_batches_tracked is not None
            self.num_batches_tracked += self.views
        if self.training and self.shared:
            y = shared_norm(self, x, self.views)
        elif self.training:
            y = torch.cat([self._norm(view) for view in x.chunk(self.views)])
        else:
            y = self._norm(x)
        if residual is not None:
            y = y + residual
        if self.relu:
            y = F.relu(y, inplace=True)
        return y, y

    def _norm(self, x: Tensor) -> Tensor:
        assert self.momentum is not None
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.training, self.momentum, self.eps
        )


# What treats every sample by itself; classes of our own say so by `treats_samples_apart`.
APART = (nn.Conv2d, nn.Linear, nn.MaxPool2d, nn.ReLU, nn.GELU, nn.Identity, nn.Sequential, BatchNorm)


def may_go_together(network: nn.Module) -> bool:
    """Whether views can pass in one batch: as far as we know nothing mixes samples but our BatchNorm."""
    return all(type(part) in APART or getattr(part, "treats_samples_apart", False) for part in network.modules())


def together(network: nn.Module, x_VN: Tensor) -> Tensor:
    """The outputs [V, N, ...] of all views in one pass; for networks that `may_go_together`."""
    with views_in_batch(len(x_VN)):
        return network(x_VN.flatten(0, 1)).unflatten(0, x_VN.shape[:2])


def fuse(network: nn.Module) -> None:
    """Use the fused kernels from here on."""
    for part in network.modules():
        if hasattr(type(part), "fused"):
            part.fused = True  # type: ignore[assignment]


def share_statistics(network: nn.Module) -> None:
    """In training let statistics be those of all processes' samples from here on, also of torch's own BatchNorm."""
    places = [(parent, name) for parent in network.modules() for name in parent._modules]
    made: dict[nn.Module, SharedNorm] = {}  # a layer that is used in two places stays one layer
    for parent, name in places:
        part = getattr(parent, name)
        if type(part) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
            setattr(parent, name, made.setdefault(part, SharedNorm.like(part)))
    for name, part in network.named_modules():
        if isinstance(part, BatchNorm):
            part.shared = True
        elif isinstance(part, nn.modules.batchnorm._BatchNorm) and not isinstance(part, SharedNorm):
            raise TwofoldError(
                f"{name} is a {type(part).__name__}, whose statistics would be those of each process by itself: use "
                "torch.nn.BatchNorm2d, or one process"
            )
