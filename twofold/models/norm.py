"""BatchNorm with separate statistics for each view, and with an optional addition and ReLU after it.

The views follow each other in one batch [V·N, C, ...]. Convolutions and linear layers process the whole batch; only
BatchNorm must know where a view ends. Parameters and buffers are those of PyTorch's BatchNorm.

With several processes, `share_statistics` makes every BatchNorm compute its statistics over the samples of all
processes. Processes may have different numbers of samples; CPUs are supported.

Shapes: V views, B samples in this process, C channels; x[V·B, C, ...].
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twofold import dist
from twofold.errors import TwofoldError

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
        elif self.training and self.views > 1:
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


def one_by_one(network: nn.Module, x_VN: Tensor) -> Tensor:
    """The outputs [V, N, ...] of all views x[V, N, ...], each view in a forward pass of its own."""
    return torch.stack([network(x_N) for x_N in x_VN])


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


class _Norm(torch.autograd.Function):
    """y = (x − mean)/√(var + ε) · weight + bias; also mean and biased variance [V, C] and the number of values.

    The forward pass exchanges statistics once for all views, and so does the backward pass. The gradients of weight and
    bias are the contribution of this process.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, views: int, epsilon: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        wide = torch.promote_types(x.dtype, torch.float32)
        x_VBC = x.unflatten(0, (views, -1))
        over = [1, *range(3, x_VBC.ndim)]
        variance, own_mean = torch.var_mean(x_VBC.to(wide), over, correction=0)
        values = x_VBC.numel() / own_mean.numel()
        found = dist.all_gather(
            torch.cat([own_mean.flatten(), variance.flatten(), own_mean.new_full((1,), values)]), "statistics"
        )
        counts = found[:, -1]
        total = counts.sum()
        means, variances = found[:, :-1].view(len(found), 2, *own_mean.shape).unbind(1)
        parts = (counts / total)[:, None, None]
        mean = (parts * means).sum(dim=0)
        # From the differences between the processes' means, so that no large numbers are subtracted.
        variance = (parts * (variances + (means - mean).square())).sum(dim=0)
        scale = (variance + epsilon).rsqrt()
        shape = _broadcast_shape(x_VBC)
        slope = scale if weight is None else scale * weight
        shift = -mean * slope if bias is None else bias - mean * slope
        y = torch.empty_like(x)  # not a view, so that a ReLU can be applied in place
        torch.addcmul(shift.view(shape), x_VBC, slope.view(shape), out=y.unflatten(0, (views, -1)))
        ctx.save_for_backward(x, weight, mean, scale, total)
        ctx.mark_non_differentiable(mean, variance, total)
        return y, mean, variance, total

    @staticmethod
    def backward(ctx: Any, by_y: Tensor, *_: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None, None, None]:
        x, weight, mean, scale, total = ctx.saved_tensors
        x_VBC, dy = x.unflatten(0, (len(mean), -1)), by_y.unflatten(0, (len(mean), -1)).to(mean.dtype)
        over, shape = [1, *range(3, x_VBC.ndim)], _broadcast_shape(x_VBC)
        normed = (x_VBC.to(mean.dtype) - mean.view(shape)) * scale.view(shape)
        sums = torch.stack([dy.sum(over), (dy * normed).sum(over)])  # [2, V, C]
        by_bias, by_weight = sums.sum(dim=1) if weight is not None else (None, None)
        everywhere = dist.sum_(sums.clone(), "statistics") / total
        slope = scale if weight is None else scale * weight
        dx = (dy - everywhere[0].view(shape) - normed * everywhere[1].view(shape)) * slope.view(shape)
        return dx.to(x.dtype).flatten(0, 1), by_weight, by_bias, None, None


def _broadcast_shape(x_VBC: Tensor) -> list[int]:
    """The shape that broadcasts a tensor [V, C] over x."""
    return [x_VBC.shape[0], 1, x_VBC.shape[2], *[1] * (x_VBC.ndim - 3)]


def shared_norm(norm: nn.modules.batchnorm._BatchNorm, x: Tensor, views: int = 1) -> Tensor:
    """Normalise x[V·B, C, ...] in training and update the running statistics with one view after the other."""
    y, mean, variance, total = _Norm.apply(x, norm.weight, norm.bias, views, norm.eps)
    if norm.running_mean is not None and norm.running_var is not None:
        with torch.no_grad():
            unbiased = variance * (total / (total - 1))
            for view in range(views):
                share = norm.momentum
                if share is None:  # momentum=None: a cumulative average
                    assert norm.num_batches_tracked is not None
                    share = 1 / norm.num_batches_tracked.item()
                norm.running_mean.lerp_(mean[view].to(norm.running_mean.dtype), share)
                norm.running_var.lerp_(unbiased[view].to(norm.running_var.dtype), share)
    return y


class SharedNorm(nn.modules.batchnorm._BatchNorm):
    """Replaces PyTorch's BatchNorm1d, BatchNorm2d and BatchNorm3d if there are several processes."""

    @classmethod
    def like(cls, norm: nn.modules.batchnorm._BatchNorm) -> "SharedNorm":
        """A replacement that shares the parameters and buffers of `norm`, so that an optimizer keeps working."""
        made = cls(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        made._parameters, made._buffers = norm._parameters, norm._buffers
        return made.train(norm.training)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise TwofoldError(f"BatchNorm got a tensor of shape {list(input.shape)}: give [samples, channels, ...]")

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training or self.running_mean is None):
            return super().forward(x)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked += 1
        return shared_norm(self, x)
