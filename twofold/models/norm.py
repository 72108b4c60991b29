"""BatchNorm with separate statistics for each view, and with an optional addition and ReLU after it.

The views follow each other in one batch [V·N, C, ...]. Convolutions and linear layers process the whole batch; only
BatchNorm must know where a view ends. Parameters and buffers are those of PyTorch's BatchNorm.
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
    """Inside this context, every `BatchNorm` treats its training batch as this number of views."""
    token = _views_in_batch.set(views)
    try:
        yield
    finally:
        _views_in_batch.reset(token)  # later calls of the network may have no views


class BatchNorm(nn.modules.batchnorm._BatchNorm):
    """relu(norm(x) + residual) for x[B, C] or x[B, C, H, W]; the residual and the ReLU are optional.

    In training, each view is normalised with its own statistics, as in a forward pass of its own.

    Parameters
    ----------
    channels : int
        C.
    relu : bool
        Apply a ReLU at the end.
    affine : bool
        Train a scale and a shift.
    """

    fused = False  # use the fused CUDA kernels; set by `fuse`
    shared = False  # compute statistics over all processes; set by `share_statistics`

    def __init__(self, channels: int, *, relu: bool = False, affine: bool = True):
        super().__init__(channels, affine=affine)
        self.relu = relu

    @property
    def views(self) -> int:
        return _views_in_batch.get()

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        return self.forked(x, residual)[0]

    def forked(self, x: Tensor, residual: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The same output twice, for two uses. The fused backward kernel then adds the two gradients itself."""
        if self.training and self.fused and x.dtype != torch.float64:
            from twofold.cuda.norm_kernels import FusedNorm  # here, because Triton is only installed with CUDA

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


# Layers that treat every sample separately. Twofold's own classes set `treats_samples_apart` instead.
APART = (nn.Conv2d, nn.Linear, nn.MaxPool2d, nn.ReLU, nn.GELU, nn.Identity, nn.Sequential, BatchNorm)


def may_go_together(network: nn.Module) -> bool:
    """Whether all views can share one forward pass: no layer except Twofold's BatchNorm is known to mix samples."""
    return all(type(part) in APART or getattr(part, "treats_samples_apart", False) for part in network.modules())


def together(network: nn.Module, x_VN: Tensor) -> Tensor:
    """The outputs [V, N, ...] of all views x[V, N, ...] in one forward pass, if `may_go_together(network)`."""
    with views_in_batch(len(x_VN)):
        return network(x_VN.flatten(0, 1)).unflatten(0, x_VN.shape[:2])


def fuse(network: nn.Module) -> None:
    """Switch the network to the fused CUDA kernels."""
    for part in network.modules():
        if hasattr(type(part), "fused"):
            part.fused = True  # type: ignore[assignment]


def share_statistics(network: nn.Module) -> None:
    """Make every BatchNorm, including PyTorch's, compute its training statistics over all processes."""
    places = [(parent, name) for parent in network.modules() for name in parent._modules]
    made: dict[nn.Module, SharedNorm] = {}  # a layer used in two places stays one layer
    for parent, name in places:
        part = getattr(parent, name)
        if type(part) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
            setattr(parent, name, made.setdefault(part, SharedNorm.like(part)))
    for name, part in network.named_modules():
        if isinstance(part, BatchNorm):
            part.shared = True
        elif isinstance(part, nn.modules.batchnorm._BatchNorm) and not isinstance(part, SharedNorm):
            raise TwofoldError(
                f"{name} is a {type(part).__name__}, which computes statistics in each process separately: use "
                "torch.nn.BatchNorm2d, or train with one process"
            )
