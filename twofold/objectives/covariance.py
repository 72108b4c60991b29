"""Covariance objectives: decorrelate the dimensions of the embedding instead of comparing images.

V views, N samples, D dimensions, P = V(V−1)/2 pairs of views; z[V, N, D]. A loss of a whole batch comes from the
embeddings themselves, by the smaller of the D×D and N×N matrices. Several processes instead add up the `Moments` of
their shards and take the loss of these, the same value and gradient, where these are fewer numbers than the embeddings.
"""

import functools
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from twofold.errors import TwofoldError
from twofold.linalg import (
    by_unit_length,
    centred,
    cholesky,
    double,
    full_precision,
    gram_norm_squared,
    normalized,
    running_moments,
    smaller_gram,
    whitened,
)
from twofold.objectives.moments import SMALLEST_NORM, Moments, shape_of, spread_of, view_pairs
from twofold.types import LossTerms

SMALLEST_LOG = 1e-12  # a batch without any variance has norm 0; its logarithm stays finite


def _columns(z: Tensor, epsilon: float = 0.0) -> Tensor:
    """z with its columns centred and of unit norm over the samples; `epsilon` adds to the variances."""
    columns, _ = _Standardize.apply(z, epsilon)
    return columns


class _Standardize(torch.autograd.Function):
    """Centred columns over their norms, and the norms; as BatchNorm, it keeps nothing but its result for the gradient.

    With z_c = z − mean, n = ‖z_c‖ and y = z_c/n: ∂n/∂z_c = y, and ∂y/∂z_c takes from a gradient its part along y.
    A column that is shorter than the smallest norm is divided by a constant.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        columns = centred(z)
        squares = columns.square().sum(dim=-2, keepdim=True) + z.shape[-2] * epsilon
        norms = squares.clamp_min(SMALLEST_NORM**2).sqrt()
        columns /= norms
        ctx.save_for_backward(columns, norms, squares >= SMALLEST_NORM**2)
        ctx.set_materialize_grads(False)
        return columns, norms

    @staticmethod
    def backward(ctx: Any, by_columns: Tensor | None, by_norms: Tensor | None) -> tuple[Tensor, None]:
        columns, norms, alive = ctx.saved_tensors
        return centred(by_unit_length(by_columns, by_norms, columns, norms, alive, dim=-2)), None


@full_precision
def frossl(z: Tensor, *, logarithm: bool = True, unit_trace: bool = False) -> LossTerms:
    """FroSSL eq 6: Σ_v log‖Z_vᵀZ_v‖²_F + (1/N) Σ_{v<w} ‖Z_v − Z_w‖²_F, columns centred and of unit norm.

    `logarithm=False` is the paper's ablation, ‖·‖²_F alone. `unit_trace` divides ZᵀZ by its trace D, as the authors'
    code does: under the logarithm a constant, without it the weight of that term against the distance.
    """
    _, N, D = shape_of(z)
    columns = _columns(z)
    return _frossl(N, D, gram_norm_squared(columns), spread_of(columns), logarithm, unit_trace)


def frossl_of_moments(moments: Moments, *, logarithm: bool = True, unit_trace: bool = False) -> LossTerms:
    """The same loss from D×D moments: log‖R_11‖² + log‖R_22‖² + (2/N)(D − tr R_12) for two views."""
    norm_VD = moments.norms()
    correlation = _within(moments) / (norm_VD[:, :, None] * norm_VD[:, None, :])
    traces_VV = (moments.cross_VVD / (norm_VD[:, None] * norm_VD[None])).sum(dim=2)
    spread = len(traces_VV) * traces_VV.diagonal().sum() - traces_VV.sum()  # = Σ_{v<w} ‖Z_v − Z_w‖²
    D = norm_VD.shape[1]
    return _frossl(moments.count, D, correlation.square().sum(dim=(1, 2)), spread, logarithm, unit_trace)


def _frossl(count: int, D: int, frobenius_V: Tensor, spread: Tensor, logarithm: bool, unit_trace: bool) -> LossTerms:
    _at_least_two(count, "frossl")
    if unit_trace:
        frobenius_V = frobenius_V / D**2
    variance = (frobenius_V.clamp_min(SMALLEST_LOG).log() if logarithm else frobenius_V).sum()
    return _total(variance=variance, invariance=spread / count)


@full_precision
def vicreg(
    z: Tensor,
    *,
    invariance: float = 25.0,
    variance: float = 25.0,
    covariance: float = 1.0,
    epsilon: float = 1e-4,
) -> LossTerms:
    """VICReg (Bardes et al.): invariance · s(Z, Z') + variance · [v(Z) + v(Z')] + covariance · [c(Z) + c(Z')].

    s: mean over samples and dimensions of (z − z')². v: mean over dimensions of max(0, 1 − √(Var + epsilon)), unbiased.
    c: Σ of the squared off-diagonal covariances / D. For V views s is the mean over pairs, and v and c are 2/V times
    their sums, so that V = 2 is the paper's value. (The authors' code halves v, as if variance were 12.5.)
    """
    weights = {"invariance": invariance, "variance": variance, "covariance": covariance}
    V, N, D = shape_of(z)
    _at_least_two(N, "vicreg")
    missing, off_diagonal = _Variances.apply(z, epsilon)
    return _vicreg(V, N, D, missing, spread_of(z), off_diagonal, **weights)


class _Variances(torch.autograd.Function):
    """Σ of max(0, 1 − √(Var + epsilon)) and Σ_{i≠j} (xᵀx)_ij² of x = z − mean: their gradients are one product."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        x, squares_VD, gram, own_VD = _variances(z)
        ctx.save_for_backward(z, x, squares_VD, gram, own_VD)
        ctx.epsilon = epsilon
        return _missing(squares_VD, z.shape[1], epsilon), gram.square().sum() - own_VD.square().sum()

    @staticmethod
    @full_precision
    def backward(ctx: Any, by_missing: Tensor, by_off_diagonal: Tensor) -> tuple[Tensor, None]:
        z, x, squares_VD, gram, own_VD = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is asked for, and these are functions of z too
            x, squares_VD, gram, own_VD = _variances(z)
        rate, count = 4 * by_off_diagonal, z.shape[1] - 1
        steepness_VD = (squares_VD / count + ctx.epsilon).rsqrt()  # above 1 where variance is missing
        slope_VD = torch.where(steepness_VD > 1, steepness_VD, 0) * (by_missing / count)
        apart = x * torch.addcmul(slope_VD, own_VD, rate).neg()[:, None]
        factors = (rate * gram, x) if x.shape[-2] < x.shape[-1] else (x, rate * gram)
        return centred(torch.baddbmm(apart, *factors)), None


def _missing(squares_VD: Tensor, count: int, epsilon: float) -> Tensor:
    return torch.relu(1 - (squares_VD / (count - 1) + epsilon).sqrt()).sum()


def _variances(z: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, Σ_n x_nd², the smaller of xxᵀ and xᵀx, and what of the sums is still in it: of xᵀx the diagonal is 0."""
    x = centred(z)
    squares_VD = x.square().sum(dim=-2)
    if x.shape[-2] < x.shape[-1]:
        return x, squares_VD, smaller_gram(x), squares_VD
    return x, squares_VD, smaller_gram(x, "zero"), torch.zeros_like(squares_VD)


def vicreg_of_moments(
    moments: Moments, *, invariance: float, variance: float, covariance: float, epsilon: float
) -> LossTerms:
    """The same loss from D×D moments."""
    _at_least_two(moments.count, "vicreg")
    weights = {"invariance": invariance, "variance": variance, "covariance": covariance}
    squares_VD = moments.cross_VVD.diagonal().mT
    missing, (V, D) = _missing(squares_VD, moments.count, epsilon), squares_VD.shape
    off_diagonal = _off_diagonal(_within(moments)).square().sum()
    return _vicreg(V, moments.count, D, missing, moments.spread, off_diagonal, **weights)


def _vicreg(
    V: int,
    N: int,
    D: int,
    missing: Tensor,
    spread: Tensor,
    off_diagonal: Tensor,
    invariance: float,
    variance: float,
    covariance: float,
) -> LossTerms:
    return _total(
        invariance=invariance / (V * (V - 1) / 2 * N * D) * spread,
        variance=variance * (2 / V) / D * missing,
        covariance=covariance * (2 / V) / ((N - 1) ** 2 * D) * off_diagonal,
    )


@full_precision
def barlow_twins(z: Tensor, *, weight: float = 5e-3, scale: float = 1.0, epsilon: float = 0.0) -> LossTerms:
    """Barlow Twins: scale · [Σ_i (1 − c_ii)² + weight · Σ_{i≠j} c_ij²], c the correlations between two views [D, D].

    For V views the mean over pairs. `epsilon` is added to the variances: 0 is the paper's eq 2; its authors' code
    normalises with BatchNorm, whose epsilon is 1e-5.
    """
    _, N, _ = shape_of(z)
    pairs = [_between(*pair) for pair in combinations(_columns(z, epsilon).unbind(), 2)]
    deviation, off_diagonal = (functools.reduce(torch.add, values) for values in zip(*pairs, strict=True))
    return _barlow_twins(N, len(pairs), deviation, off_diagonal, weight, scale)


def _between(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Σ_i (1 − c_ii)² and Σ_{i≠j} c_ij² of c = oneᵀother [D, D]."""
    N, D = one.shape
    return _Between.apply(one, other) if D <= 2 * N else _BetweenRows.apply(one, other)


class _Between(torch.autograd.Function):
    """Keeps c without its diagonal, and 1 − c_ii: the gradient with respect to c is made of them, in one matrix."""

    @staticmethod
    def forward(ctx: Any, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        missing, elsewhere = _apart(one.T @ other)
        ctx.save_for_backward(one, other, missing, elsewhere)
        return missing.square().sum(), elsewhere.square().sum()

    @staticmethod
    @full_precision
    def backward(ctx: Any, by_deviation: Tensor, by_off_diagonal: Tensor) -> tuple[Tensor, Tensor]:
        one, other, missing, elsewhere = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is asked for, and these are functions of both too
            missing, elsewhere = _apart(one.T @ other)
        by_product = elsewhere * (2 * by_off_diagonal)
        by_product.diagonal().copy_(missing * (-2 * by_deviation))
        return other @ by_product.T, one @ by_product


class _BetweenRows(torch.autograd.Function):
    """The same from the smaller matrices A = one·oneᵀ and B = other·otherᵀ [N, N]: ‖oneᵀother‖² = Σ A∘B."""

    @staticmethod
    def forward(ctx: Any, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        diagonal, gram, other_gram = _rows(one, other)
        ctx.save_for_backward(one, other, diagonal, gram, other_gram)
        everything = torch.dot(gram.flatten(), other_gram.flatten())
        return (1 - diagonal).square().sum(), everything - torch.dot(diagonal, diagonal)

    @staticmethod
    @full_precision
    def backward(ctx: Any, by_deviation: Tensor, by_off_diagonal: Tensor) -> tuple[Tensor, Tensor]:
        one, other, diagonal, gram, other_gram = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is asked for, and these are functions of both too
            diagonal, gram, other_gram = _rows(one, other)
        by_diagonal = 2 * ((by_deviation - by_off_diagonal) * diagonal - by_deviation)
        rate = 2 * by_off_diagonal
        by_one = torch.addcmul(rate * (other_gram @ one), other, by_diagonal)
        return by_one, torch.addcmul(rate * (gram @ other), one, by_diagonal)


def _rows(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (one * other).sum(dim=0), one @ one.T, other @ other.T


def _apart(product: Tensor) -> tuple[Tensor, Tensor]:
    """1 − its diagonal, and the matrix itself, with zeros there."""
    missing = 1 - product.diagonal()
    product.diagonal().zero_()
    return missing, product


def barlow_twins_of_moments(moments: Moments, *, weight: float, scale: float, epsilon: float) -> LossTerms:
    """The same loss from D×D moments."""
    if moments.between_PDD is None:
        raise TwofoldError("these moments lack the matrices between views: take moments(z, between=True)")
    one, other = view_pairs(moments.norms(epsilon))
    correlation_PDD = moments.between_PDD / (one[:, :, None] * other[:, None, :])
    deviation = (1 - correlation_PDD.diagonal(dim1=1, dim2=2)).square().sum()
    off_diagonal = _off_diagonal(correlation_PDD).square().sum()
    return _barlow_twins(moments.count, len(one), deviation, off_diagonal, weight, scale)


def _barlow_twins(
    count: int, pairs: int, deviation: Tensor, off_diagonal: Tensor, weight: float, scale: float
) -> LossTerms:
    _at_least_two(count, "barlow_twins")
    return _total(invariance=scale / pairs * deviation, redundancy=scale / pairs * weight * off_diagonal)


@full_precision
def w_mse(
    z: Tensor,
    *,
    sub_batch: int | None = None,
    normalize: bool = True,
    shrinkage: float = 0.0,
    order: Tensor | None = None,
) -> LossTerms:
    """W-MSE (Ermolov et al.): the distance between views, each whitened by the Cholesky factor of its covariance.

    2 − 2cos, or the mean over dimensions of (z − z')² where not `normalize`d; the mean over samples and pairs of views.
    Sub-batches are whitened by themselves: consecutive ones of `sub_batch` samples (default: all), what is left over
    joins the last; `order`, a permutation of the samples, says which come together. Not a function of the moments:
    several processes keep each sub-batch within one of them.
    """
    _, N, D = shape_of(z)
    sub_batch = min(sub_batch or N, N)
    if sub_batch <= D and shrinkage == 0:
        raise TwofoldError(
            f"w_mse cannot whiten {sub_batch} samples in {D} dimensions: it needs more samples than dimensions; "
            "use larger batches (batch_size) and sub-batches, a narrower projector or shrinkage"
        )
    if order is not None:
        z = z.index_select(1, order)
    groups = N // sub_batch
    sizes = [sub_batch] * (groups - 1) + [N - sub_batch * (groups - 1)]
    white = torch.cat([whitened(rows, shrinkage) for rows in z.split(sizes, dim=1)], dim=1)
    one, other = view_pairs(normalized(white) if normalize else white)
    if normalize:
        return _total(cosine=2 - 2 * (one * other).sum(dim=-1).mean())
    return _total(euclidean=(one - other).square().mean())


@full_precision
def corinfomax(
    z: Tensor,
    covariances: Tensor,
    means: Tensor | None = None,
    *,
    momentum: float = 0.01,
    weight: float = 250.0,
    epsilon: float = 1e-8,
) -> LossTerms:
    """CorInfoMax (Ozsoy et al. 2022): weight · MSE(z, z') − [log det(R + εI) + log det(R' + εI)]/D.

    R[V, D, D] are `covariances`, of the steps before and about `means`[V, D] (default: 0), after the batch has moved
    them; the gradient flows through the batch's part. MSE is the mean over samples, dimensions and pairs of views; for
    V views the log determinants are 2/V times their sum. In float64: the last eigenvalues are as small as epsilon. The
    authors give z unit rows; without, the determinants grow with its scale.
    """
    V, N, D = shape_of(z)
    means = covariances.new_zeros(V, D) if means is None else means
    if covariances.shape != (V, D, D) or means.shape != (V, D):
        shapes = f"{list(covariances.shape)} and {list(means.shape)}"
        raise TwofoldError(f"corinfomax got covariances and means {shapes}: give [{V}, {D}, {D}] and [{V}, {D}]")
    moved, _ = running_moments(z, double(covariances), double(means), momentum)
    log_det_V = 2 * cholesky(moved, epsilon).diagonal(dim1=1, dim2=2).log().sum(dim=1)
    apart = z - z[:1]  # views are close to each other, not to 0
    spread = V * (apart - apart.mean(dim=0)).square().sum()  # = Σ_{v<w} ‖z_v − z_w‖²
    invariance = weight * spread / (V * (V - 1) / 2 * N * D)
    information = -(2 / V) * log_det_V.sum() / D
    return _total(invariance=invariance, information=information.to(z.dtype))


def _at_least_two(count: int, objective: str) -> None:
    if count < 2:
        raise TwofoldError(f"{objective} needs the variance of a batch: give it two samples or more, not {count}")


def _within(moments: Moments) -> Tensor:
    if moments.within_VDD is None:
        raise TwofoldError("these moments lack the matrices within views: take moments(z, within=True)")
    return moments.within_VDD


def _off_diagonal(matrix: Tensor) -> Tensor:
    """matrix[..., D, D] with zeros on its diagonal."""
    return matrix - torch.diag_embed(matrix.diagonal(dim1=-2, dim2=-1))


def _total(**terms: Tensor) -> LossTerms:
    total = functools.reduce(torch.add, terms.values())
    return LossTerms(total, {name: term.detach() for name, term in terms.items()})
