"""Linear algebra. In a matrix x[N, D], the rows are samples.

Most functions avoid copies to the host, so that CUDA graphs can capture them.
"""

import functools
import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Literal, ParamSpec, TypeVar

import torch
from torch import Tensor

from twofold.errors import TwofoldError

P = ParamSpec("P")
R = TypeVar("R")


def full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Run `function` in float32 or float64: convert inputs of 16 bits to float32, and disable autocast."""

    def widen(value: object) -> object:
        narrow = isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16)
        return value.float() if narrow else value  # type: ignore[attr-defined]

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        given = [*args, *kwargs.values()]
        tensor = next((value for value in given if isinstance(value, Tensor)), None)
        if tensor is None or (args and isinstance(args[0], list | tuple)):
            kinds = ", ".join(type(value).__name__ for value in given) or "nothing"
            raise TwofoldError(f"{function.__name__} takes tensors, not {kinds}; stack views with torch.stack(views)")
        device = tensor.device.type
        with torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext():
            return function(*map(widen, args), **{name: widen(value) for name, value in kwargs.items()})  # type: ignore

    return wrapper


def centred(x: Tensor) -> Tensor:
    """Subtract from x[..., N, D] its mean over the samples."""
    return x - x.mean(dim=-2, keepdim=True)


def covariance(x: Tensor) -> Tensor:
    """Return the unbiased covariance [..., D, D] of the rows of x[..., N, D]."""
    x = centred(x)
    return x.mT @ x / max(x.shape[-2] - 1, 1)


def gram_norm_squared(x: Tensor) -> Tensor:
    """Return ‖xᵀx‖²_F = ‖xxᵀ‖²_F of x[..., N, D], computed from the smaller matrix."""
    return _GramNorm.apply(x, "as it is")


def off_diagonal_norm_squared(x: Tensor) -> Tensor:
    """Return Σ_{i≠j} (xᵀx)_ij² of x[..., N, D], computed from the smaller of xᵀx and xxᵀ."""
    n, d = x.shape[-2:]
    if n < d:
        return gram_norm_squared(x) - x.square().sum(dim=-2).square().sum(dim=-1)
    return _GramNorm.apply(x, "zero")


def distance_from_orthonormal(x: Tensor) -> Tensor:
    """Return ‖xᵀx − I‖²_F of x[..., N, D], computed from the smaller of xᵀx and xxᵀ."""
    n, d = x.shape[-2:]
    # Both have the same nonzero eigenvalues. Each additional zero of xᵀx contributes 1 to the norm.
    return _GramNorm.apply(x, "less one") + max(d - n, 0)


Diagonal = Literal["as it is", "zero", "less one"]


class _GramNorm(torch.autograd.Function):
    """The squared norm of G = xᵀx, or of G = xxᵀ if that is smaller, with a changed diagonal.

    The gradient is 4xG or 4Gx. It needs one matrix product, because G is saved; autograd would compute two.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, diagonal: Diagonal) -> Tensor:
        gram = smaller_gram(x, diagonal)
        ctx.diagonal = diagonal
        ctx.save_for_backward(x, gram)
        return gram.square().sum(dim=(-2, -1))

    @staticmethod
    @full_precision
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        x, gram = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative, G must be computed again as a function of x
            gram = smaller_gram(x, ctx.diagonal)
        product = gram @ x if x.shape[-2] < x.shape[-1] else x @ gram
        return product * (4 * gradient)[..., None, None], None


def smaller_gram(x: Tensor, diagonal: Diagonal = "as it is") -> Tensor:
    """Return xxᵀ of x[..., N, D] if there are fewer samples than dimensions, otherwise xᵀx."""
    gram = x @ x.mT if x.shape[-2] < x.shape[-1] else x.mT @ x
    if diagonal == "zero":
        gram.diagonal(dim1=-2, dim2=-1).zero_()
    elif diagonal == "less one":
        gram.diagonal(dim1=-2, dim2=-1).sub_(1)
    return gram


def normalized(x: Tensor, minimum: float = 1e-8) -> Tensor:
    """Normalise the rows of x to length 1. A row shorter than `minimum` is divided by `minimum`."""
    unit, _ = _Normalize.apply(x, minimum)
    return unit


class _Normalize(torch.autograd.Function):
    """y = x/‖x‖ and the norms. The backward pass removes the part of the gradient along y, except for short rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, minimum: float) -> tuple[Tensor, Tensor]:
        norms = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        alive = norms >= minimum
        norms = norms.clamp_min(minimum)
        unit = x / norms
        ctx.save_for_backward(unit, norms, alive)
        ctx.set_materialize_grads(False)
        return unit, norms

    @staticmethod
    def backward(ctx: Any, by_unit: Tensor | None, by_norms: Tensor | None) -> tuple[Tensor, None]:
        unit, norms, alive = ctx.saved_tensors
        return by_unit_length(by_unit, by_norms, unit, norms, alive, dim=-1), None


def by_unit_length(
    by_unit: Tensor | None, by_norms: Tensor | None, unit: Tensor, norms: Tensor, alive: Tensor, dim: int
) -> Tensor:
    """Return the gradient of x from the gradients of unit = x/norms and of the norms, along `dim`.

    Either gradient may be None, which means 0. Where `alive` is false, the norm was replaced by a constant.
    """
    by_unit = torch.zeros_like(unit) if by_unit is None else by_unit
    along = (by_unit * unit).sum(dim=dim, keepdim=True)
    if by_norms is not None:  # only second derivatives depend on the norms
        along = along - by_norms * norms
    return torch.addcmul(by_unit, unit, along * alive, value=-1) / norms


SQUARINGS = 26


def largest_eigenvalue(a: Tensor) -> Tensor:
    """Return λ_max of a symmetric positive semi-definite a[D, D] without a copy to the host. It is 0 for a = 0.

    This is power iteration on the matrix: M = a^p with p = 2^26 by repeated squaring, and λ ≈ tr(aM)/tr(M). It does
    not depend on a start vector or on the gaps between eigenvalues. The result is a mean of the λ_i with weights
    λ_i^p, whose entropy is at most ln D, so it is too low by at most λ_max · ln(D)/p, which is 1.2e-7 λ_max for
    D = 2048.
    """
    tiny = torch.finfo(a.dtype).tiny
    power = a
    # If the trace is 1, the largest eigenvalue is at least 1/D, so several squarings are possible between rescalings.
    at_once = int(math.log2(-0.5 * math.log2(tiny) / max(math.log2(a.shape[-1]), 1)))
    for number in range(SQUARINGS):
        if number % at_once == 0:
            power = power / power.trace().clamp_min(tiny)
        power = power @ power
    return (a * power).sum() / power.trace().clamp_min(tiny)


# Relative to ‖a‖_F. It exceeds the rounding error of float64, which could make eigenvalues negative, and the iteration
# would diverge.
SQUARE_ROOT_RIDGE = 1e-15


def newton_schulz_scales(smallest: float) -> list[float]:
    """Return factors α for which x ← αx(3 − (αx)²)/2 converges to 1 for all x in [smallest, 1] (Chen & Chow 2014).

    Each step maps [smallest, 1] into [image of smallest, 1]. A small x grows by a factor of 2.5 per step, and by 1.5
    without the factors. α is at most 1.69: near √3, x = 1 would be mapped down to the image of `smallest` and lose its
    last digits.
    """
    scales = []
    while 1 - smallest > 1e-9:
        scale = min(1.69, math.sqrt(3 / (1 + smallest + smallest**2)))
        smallest = scale * smallest * (3 - (scale * smallest) ** 2) / 2
        scales.append(scale)
    return scales


SQUARE_ROOT_SCALES = newton_schulz_scales(math.sqrt(SQUARE_ROOT_RIDGE))


def square_root(a: Tensor) -> Tensor:
    """Return a^½ in float64 for a symmetric positive semi-definite a[D, D], without a copy to the host.

    This is the coupled Newton–Schulz iteration: y → A^½ and z → A^−½ for A = a/‖a‖_F plus a ridge. The ridge changes
    each eigenvalue of the root by at most 3.2e-8 √‖a‖_F. `a` may be singular if it was computed in float64. Rounded to
    float32, a singular matrix can have negative eigenvalues, and the iteration diverges.
    """
    a = a.double()
    norm = a.norm().clamp_min(torch.finfo(a.dtype).tiny)
    identity = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    y, z = a / norm + SQUARE_ROOT_RIDGE * identity, identity
    for scale in SQUARE_ROOT_SCALES:
        step = torch.addmm(identity, z, y, beta=1.5 * scale, alpha=-0.5 * scale**3)
        y, z = y @ step, step @ z
    return y * norm.sqrt()


def symmetric_power(a: Tensor, exponent: float) -> Tensor:
    """Return a^exponent in float64 for a symmetric positive semi-definite a[D, D] and an exponent of at least 0.

    0^0 is 1. Exponents ½ and 1 need no copy to the host. Others use `eigh`, which synchronises with a CUDA device, and
    set eigenvalues within rounding errors of 0 to 0, because a small exponent would magnify them.
    """
    if exponent == 1:
        return a.double()
    if exponent == 0.5:
        return square_root(a)
    values, vectors = torch.linalg.eigh(a.double())
    rounding = values[-1] * a.shape[-1] * torch.finfo(values.dtype).eps
    return (vectors * torch.where(values > rounding, values, 0).pow(exponent)) @ vectors.T


def newton_root(
    function: Callable[[Tensor], tuple[Tensor, Tensor]], start: Tensor, lower: Tensor, upper: Tensor, iterations: int
) -> Tensor:
    """Find the root of a function elementwise by Newton's method, without a copy to the host.

    If the function is increasing and concave, or decreasing and convex, and start ≤ root, no step passes the root. Each
    step then reduces |value · slope| by a factor of at least 4, which bounds the number of iterations.

    Parameters
    ----------
    function
        Returns the value and the slope at a point.
    start
        The first point.
    lower, upper
        The bounds of the root.
    iterations
        The number of steps.

    Returns
    -------
    Tensor
        The root. It is differentiable with respect to all tensors on which the function's value depends.
    """
    root = start
    with torch.no_grad():
        for _ in range(iterations):
            value, slope = function(root)
            root = (root - value / slope).clamp(lower, upper)
    value, slope = function(root)
    return root - value / slope.detach()


def simplex_projection(x: Tensor) -> Tensor:
    """Project each row of x[..., K] onto the simplex (entries of at least 0 and sum 1): max(x − θ, 0). −∞ becomes 0."""
    x = x - x.detach().amax(dim=-1, keepdim=True)  # does not change the projection, and keeps the sums small
    with torch.no_grad():
        ordered = x.sort(dim=-1, descending=True).values
        thresholds = (ordered.cumsum(dim=-1) - 1) / torch.arange(1, x.shape[-1] + 1, device=x.device)
        positive = (ordered > thresholds).sum(dim=-1, keepdim=True)
        # For a row with NaN, `positive` is 0. The clamp keeps the index valid, and the result is NaN.
        kept = x > thresholds.gather(-1, (positive - 1).clamp_min(0))
    theta = (torch.where(kept, x, 0).sum(dim=-1, keepdim=True) - 1) / kept.sum(dim=-1, keepdim=True)
    return (x - theta).clamp_min(0)


def double(x: Tensor) -> Tensor:
    """Convert x to float64, or to float32 on MPS, which does not support float64."""
    return x.to(torch.float32 if x.device.type == "mps" else torch.float64)


def cholesky(a: Tensor, smallest: float = 0.0) -> Tensor:
    """Return the lower L with LLᵀ = a for a symmetric positive semi-definite a[..., D, D], without a copy to the host.

    `a` may be singular: `smallest` and a rounding error of the trace are added to the diagonal, so that no pivot is
    negative.
    """
    trace = a.diagonal(dim1=-2, dim2=-1).sum(dim=-1).detach()
    added = torch.finfo(a.dtype).eps * trace + smallest
    identity = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    return torch.linalg.cholesky_ex(a + added[..., None, None] * identity).L


SMALLEST_VARIANCE = 1e-16


def whitened(x: Tensor, shrinkage: float = 0.0) -> Tensor:
    """Whiten the rows of x[..., N, D]: L⁻¹(x − mean) with LLᵀ = (1 − shrinkage) covariance + shrinkage · I.

    The computation is in float64. Without shrinkage, the covariance of the result is I on the dimensions in which x has
    variance.
    """
    wide = centred(double(x))
    variances = wide.mT @ wide / max(x.shape[-2] - 1, 1)
    identity = torch.eye(x.shape[-1], dtype=wide.dtype, device=x.device)
    factor = cholesky((1 - shrinkage) * variances + shrinkage * identity, SMALLEST_VARIANCE)
    return torch.linalg.solve_triangular(factor, wide.mT, upper=False).mT.to(x.dtype)


POLAR_SCALES = [*newton_schulz_scales(1e-8), 1.0]


def polar_factor(a: Tensor) -> Tensor:
    """Return UVᵀ of a[M, N] = U diag(σ) Vᵀ over the σ > 0, without an SVD and without a copy to the host.

    This is the Newton–Schulz iteration in float64. Values σ above 1e-8 ‖a‖_F converge to 1, and those at the level of
    rounding errors (1e-16) stay near 0. The result is the gradient of the nuclear norm Σσ = tr(aᵀ polar_factor(a)), or
    its subgradient of least norm if some σ are 0. Repeated σ are no problem.
    """
    wide = double(a) if a.shape[0] <= a.shape[1] else double(a).mT
    x = wide / wide.norm().clamp_min(torch.finfo(wide.dtype).tiny)
    for scale in POLAR_SCALES:
        x = 0.5 * scale * (3 * x - scale**2 * (x @ x.mT @ x))
    return (x if a.shape[0] <= a.shape[1] else x.mT).to(a.dtype)


def sinkhorn(scores: Tensor, iterations: int, weights: Tensor | None = None) -> Tensor:
    """Assign rows to columns by the Sinkhorn–Knopp algorithm: rows sum to 1, and column sums are nearly equal.

    Each iteration scales all columns to the same sum and then all rows to sum 1. The first iteration uses logarithms,
    so that it cannot overflow. After it, no column has a sum below 1/P, and later iterations divide directly.

    Parameters
    ----------
    scores
        The logarithms of the unscaled assignments, [..., B, P].
    iterations
        The number of iterations, at least 1.
    weights
        The weight of each row in the column sums, [B], 0 or about 1. A row of weight 0 does not affect other rows.

    Returns
    -------
    Tensor
        The assignments, [..., B, P].
    """
    counted = scores if weights is None else scores + weights.to(scores.dtype).log()[:, None]
    shares = (scores - counted.logsumexp(dim=-2, keepdim=True)).softmax(dim=-1)
    for _ in range(iterations - 1):
        counted = shares if weights is None else shares * weights.to(scores.dtype)[:, None]
        shares = shares / counted.sum(dim=-2, keepdim=True)
        shares = shares / shares.sum(dim=-1, keepdim=True)
    return shares


def running_moments(x: Tensor, covariance: Tensor, mean: Tensor, momentum: float) -> tuple[Tensor, Tensor]:
    """Update a running covariance [..., D, D] and mean [..., D] by the batch x[..., N, D]: m·old + (1−m)·batch.

    As in CorInfoMax, the covariance of the batch is centred at the new mean and divided by N. The dtype is that of the
    old covariance.
    """
    x = x.to(covariance.dtype)
    mean = momentum * mean + (1 - momentum) * x.mean(dim=-2)
    deviations = x - mean[..., None, :]
    return momentum * covariance + (1 - momentum) * (deviations.mT @ deviations) / x.shape[-2], mean
