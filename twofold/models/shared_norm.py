"""BatchNorm over the samples of all processes. Processes may have different numbers of samples; CPUs are supported.

Shapes: V views, B samples in this process, C channels; x[V·B, C, ...].
"""

from typing import Any

import torch
from torch import Tensor, nn

from twofold import dist
from twofold.errors import TwofoldError


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
