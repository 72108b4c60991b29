"""Matrices only. Rows are samples: x[N, D]."""

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
    """Run `function` in float32 or better: half inputs are widened, and autocast does not narrow them again."""

    def widen(value: object) -> object:
        narrow = isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16)
        return value.float() if narrow else value  # type: ignore[attr-defined]

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        given = [*args, *kwargs.values()]
        tensor = next((value for value in given if isinstance(value, Tensor)), None)
        if tensor is None or (args and isinstance(args[0], list | tuple)):
            kinds = ", ".join(type(value).__name__ for value in given) or "nothing"
            raise TwofoldError(f"{function.__name__} takes tensors, not {kinds}; views are stacked: torch.stack(views)")
        device = tensor.device.type
        with torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext():
            return function(*map(widen, args), **{name: widen(value) for name, value in kwargs.items()})  # type: ignore

    return wrapper


def centred(x: Tensor) -> Tensor:
    """x − its mean over samples, the last axis but one."""
    return x - x.mean(dim=-2, keepdim=True)


def covariance(x: Tensor) -> Tensor:
    """Unbiased covariance [..., D, D] of the rows of x[..., N, D], computed from centred data."""
    x = centred(x)
    return x.mT @ x / max(x.shape[-2] - 1, 1)


def gram_norm_squared(x: Tensor) -> Tensor:
    """‖xᵀx‖²_F = ‖xxᵀ‖²_F, from whichever matrix is smaller; batched over leading axes."""
    return _GramNorm.apply(x, "as it is")


def off_diagonal_norm_squared(x: Tensor) -> Tensor:
    """Σ_{i≠j} (xᵀx)_ij², from the smaller of xᵀx and xxᵀ; batched over leading axes."""
    n, d = x.shape[-2:]
    if n < d:
        return gram_norm_squared(x) - x.square().sum(dim=-2).square().sum(dim=-1)
    return _GramNorm.apply(x, "zero")


def distance_from_orthonormal(x: Tensor) -> Tensor:
    """‖xᵀx − I‖²_F, from the smaller of xᵀx and xxᵀ; batched over leading axes."""
    n, d = x.shape[-2:]
    # Both share their eigenvalues, less the zeros, each of which is 1 away from the identity.
    return _GramNorm.apply(x, "less one") + max(d - n, 0)


Diagonal = Literal["as it is", "zero", "less one"]


class _GramNorm(torch.autograd.Function):
    """The squared norm of G = xᵀx, or of xxᵀ if that is smaller, with its diagonal changed.

    The gradient is 4xG, or 4Gx: one product, with the matrix at hand, where autograd would take two.
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
        if torch.is_grad_enabled():  # a second derivative is asked for, and the matrix is a function of x too
            gram = smaller_gram(x, ctx.diagonal)
        product = gram @ x if x.shape[-2] < x.shape[-1] else x @ gram
        return product * (4 * gradient)[..., None, None], None


def smaller_gram(x: Tensor, diagonal: Diagonal = "as it is") -> Tensor:
    """xxᵀ where there are fewer samples than dimensions, else xᵀx; batched over leading axes."""
    gram = x @ x.mT if x.shape[-2] < x.shape[-1] else x.mT @ x
    if diagonal == "zero":
        gram.diagonal(dim1=-2, dim2=-1).zero_()
    elif diagonal == "less one":
        gram.diagonal(dim1=-2, dim2=-1).sub_(1)
    return gram


def normalized(x: Tensor, minimum: float = 1e-8) -> Tensor:
    """x with rows of unit length; a row shorter than `minimum` is divided by it instead."""
    unit, _ = _Normalize.apply(x, minimum)
    return unit


class _Normalize(torch.autograd.Function):
    """y = x/‖x‖, and the norms: ∂y/∂x takes from a gradient its part along y. A short row is divided by a constant."""

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
    """The gradient of x along `dim`, from those of unit = x/norms and of the norms; either may be None for 0.

    Where not `alive`, the norm was a constant.
    """
    by_unit = torch.zeros_like(unit) if by_unit is None else by_unit
    along = (by_unit * unit).sum(dim=dim, keepdim=True)
    if by_norms is not None:  # of a second derivative, which reads them
        along = along - by_norms * norms
    return torch.addcmul(by_unit, unit, along * alive, value=-1) / norms


SQUARINGS = 26


def largest_eigenvalue(a: Tensor) -> Tensor:
    """λ_max of a symmetric positive semi-definite a[D, D], without asking the host; 0 for the zero matrix.

    Power iteration on the matrix itself: M = a^p with p = 2^26 by squaring, and λ ≈ tr(aM)/tr(M). There is no start
    vector to be unlucky with, and close eigenvalues do no harm: the result is low by at most ln(D)/p of λ_max, 1.2e-7
    for D = 2048, whatever the gaps (it is a mean with weights λ_i^p, whose entropy is at most ln D).
    """
    tiny = torch.finfo(a.dtype).tiny
    power = a
    # With a trace of 1 the largest eigenvalue is at least 1/D: it can be squared some times before it is scaled again.
    at_once = int(math.log2(-0.5 * math.log2(tiny) / max(math.log2(a.shape[-1]), 1)))
    for number in range(SQUARINGS):
        if number % at_once == 0:
            power = power / power.trace().clamp_min(tiny)
        power = power @ power
    return (a * power).sum() / power.trace().clamp_min(tiny)


SQUARE_ROOT_RIDGE = 1e-15  # of ‖a‖_F: above float64's rounding of a, whose negative eigenvalues would diverge


def newton_schulz_scales(smallest: float) -> list[float]:
    """Factors α that bring every number of [smallest, 1] to 1 by x ← αx(3 − (αx)²)/2 (Chen & Chow 2014).

    Each keeps [smallest, 1] within [what smallest becomes, 1]; a small x grows by 2.5 a step, without them by 1.5.
    Above 1.69, near √3, x = 1 would be sent down to where smallest is, and lose its last digits on the way.
    """
    scales = []
    while 1 - smallest > 1e-9:
        scale = min(1.69, math.sqrt(3 / (1 + smallest + smallest**2)))
        smallest = scale * smallest * (3 - (scale * smallest) ** 2) / 2
        scales.append(scale)
    return scales


SQUARE_ROOT_SCALES = newton_schulz_scales(math.sqrt(SQUARE_ROOT_RIDGE))


def square_root(a: Tensor) -> Tensor:
    """a^½ in float64 of a symmetric positive semi-definite a[D, D], without asking the host; a may be singular.

    Coupled Newton–Schulz: y → a^½ and z → a^−½ of a/‖a‖_F plus a ridge, which moves no eigenvalue of the root by more
    than 3.2e-8 √‖a‖_F. A singular `a` must come from float64: rounded to float32 it has negative eigenvalues, and the
    iteration diverges.
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
    """a^exponent in float64 of a symmetric positive semi-definite a[D, D]; exponent at least 0, and 0^0 = 1.

    Exponents ½ and 1 do not ask the host. Others take `eigh`, which on CUDA waits for the device; there eigenvalues
    within rounding of 0 are 0, because a small power would make them visible.
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
    """The root in [lower, upper] of a function, elementwise, that gives its value and slope; no host decision.

    Where it is concave and rises from start ≤ root (or is convex and falls), steps never pass the root, and
    |value · slope| falls by 4 or more with each: that bounds the iterations. The root is differentiable in whatever
    the function's value depends on.
    """
    root = start
    with torch.no_grad():
        for _ in range(iterations):
            value, slope = function(root)
            root = (root - value / slope).clamp(lower, upper)
    value, slope = function(root)
    return root - value / slope.detach()


def simplex_projection(x: Tensor) -> Tensor:
    """The nearest point to each row of x[..., K] with entries of at least 0 and sum 1: max(x − θ, 0); −∞ gives 0."""
    x = x - x.detach().amax(dim=-1, keepdim=True)  # the same projection, with sums that stay small
    with torch.no_grad():
        ordered = x.sort(dim=-1, descending=True).values
        thresholds = (ordered.cumsum(dim=-1) - 1) / torch.arange(1, x.shape[-1] + 1, device=x.device)
        positive = (ordered > thresholds).sum(dim=-1, keepdim=True)
        # None is positive where there is NaN, which flows on.
        kept = x > thresholds.gather(-1, (positive - 1).clamp_min(0))
    theta = (torch.where(kept, x, 0).sum(dim=-1, keepdim=True) - 1) / kept.sum(dim=-1, keepdim=True)
    return (x - theta).clamp_min(0)


def double(x: Tensor) -> Tensor:
    """x in float64, or in float32 on a device that has nothing wider (MPS)."""
    return x.to(torch.float32 if x.device.type == "mps" else torch.float64)


def cholesky(a: Tensor, smallest: float = 0.0) -> Tensor:
    """Lower L with LLᵀ = a[..., D, D] symmetric and positive semi-definite, without asking the host; a may be singular.

    Rounding's share of the trace, and `smallest`, are added to the diagonal, so that no pivot is negative.
    """
    trace = a.diagonal(dim1=-2, dim2=-1).sum(dim=-1).detach()
    added = torch.finfo(a.dtype).eps * trace + smallest
    identity = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    return torch.linalg.cholesky_ex(a + added[..., None, None] * identity).L


SMALLEST_VARIANCE = 1e-16


def whitened(x: Tensor, shrinkage: float = 0.0) -> Tensor:
    """L⁻¹(x − mean) for the rows of x[..., N, D], LLᵀ = (1 − shrinkage) covariance + shrinkage · I.

    Solved in float64. Without shrinkage the result has covariance I, in as many dimensions as x has variance in.
    """
    wide = centred(double(x))
    variances = wide.mT @ wide / max(x.shape[-2] - 1, 1)
    identity = torch.eye(x.shape[-1], dtype=wide.dtype, device=x.device)
    factor = cholesky((1 - shrinkage) * variances + shrinkage * identity, SMALLEST_VARIANCE)
    return torch.linalg.solve_triangular(factor, wide.mT, upper=False).mT.to(x.dtype)


POLAR_SCALES = [*newton_schulz_scales(1e-8), 1.0]


def polar_factor(a: Tensor) -> Tensor:
    """UVᵀ of a[M, N] = U diag(σ) Vᵀ, over the σ > 0, without asking the host and without an SVD.

    Newton–Schulz in float64: σ above 1e-8 ‖a‖_F go to 1, those of rounding (1e-16) stay near 0. It is the gradient of
    the nuclear norm Σσ = tr(aᵀ polar_factor(a)), its subgradient of least norm where some σ are 0; equal σ do no harm.
    """
    wide = double(a) if a.shape[0] <= a.shape[1] else double(a).mT
    x = wide / wide.norm().clamp_min(torch.finfo(wide.dtype).tiny)
    for scale in POLAR_SCALES:
        x = 0.5 * scale * (3 * x - scale**2 * (x @ x.mT @ x))
    return (x if a.shape[0] <= a.shape[1] else x.mT).to(a.dtype)


def sinkhorn(scores: Tensor, iterations: int, weights: Tensor | None = None) -> Tensor:
    """Shares of rows in columns from scores[..., B, P] by Sinkhorn–Knopp: rows of sum 1, columns of nearly equal sums.

    Each iteration, of which there is at least one, gives every column the same sum, then every row the sum 1. The first
    is in logarithms, so nothing overflows; after it no column of P has a sum below 1/P, and shares are divided as they
    are. `weights`[B], 0 or about 1, say how much a row counts in the columns' sums; one of weight 0 touches no other.
    """
    counted = scores if weights is None else scores + weights.to(scores.dtype).log()[:, None]
    shares = (scores - counted.logsumexp(dim=-2, keepdim=True)).softmax(dim=-1)
    for _ in range(iterations - 1):
        counted = shares if weights is None else shares * weights.to(scores.dtype)[:, None]
        shares = shares / counted.sum(dim=-2, keepdim=True)
        shares = shares / shares.sum(dim=-1, keepdim=True)
    return shares


def running_moments(x: Tensor, covariance: Tensor, mean: Tensor, momentum: float) -> tuple[Tensor, Tensor]:
    """Covariance [..., D, D] and mean [..., D], moved by the batch x[..., N, D]: m·old + (1−m)·batch.

    The batch's covariance is about the new mean, and over N, as CorInfoMax has it. In the dtype of the old ones.
    """
    x = x.to(covariance.dtype)
    mean = momentum * mean + (1 - momentum) * x.mean(dim=-2)
    apart = x - mean[..., None, :]
    return momentum * covariance + (1 - momentum) * (apart.mT @ apart) / x.shape[-2], mean
