"""Covariance objectives: decorrelate the dimensions of the embedding instead of comparing images.

Shapes: V views, N samples, D dimensions, P = V(V−1)/2 pairs of views; embeddings z[V, N, D].

Most losses have two forms with the same value and gradient. The first takes the embeddings of the whole batch and uses
the smaller of the D×D and N×N matrices. The second (`..._of_moments`) takes `Moments`. Several processes use it if
moments are fewer numbers than embeddings: each computes the moments of its shard, and the sum gives the loss.
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

SMALLEST_LOG = 1e-12  # keeps the logarithm finite for a batch without variance, whose norm is 0


def _columns(z: Tensor, epsilon: float = 0.0, centre: bool = True) -> Tensor:
    """z with columns of unit norm over the samples, centred first if `centre`; `epsilon` is added to the variances."""
    columns, _ = _Standardize.apply(z, epsilon, centre)
    return columns


class _Standardize(torch.autograd.Function):
    """Divide centred columns by their norms; also return the norms. Without `centre`, the columns keep their means.

    As in BatchNorm, the backward pass needs the results only. With z_c = z − mean, n = ‖z_c‖ and y = z_c/n: ∂n/∂z_c =
    y, and ∂y/∂z_c removes the part of the gradient along y. A column shorter than the smallest norm is divided by a
    constant.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, epsilon: float, centre: bool) -> tuple[Tensor, Tensor]:
        columns = centred(z) if centre else z.clone()
        squares = columns.square().sum(dim=-2, keepdim=True) + z.shape[-2] * epsilon
        norms = squares.clamp_min(SMALLEST_NORM**2).sqrt()
        columns /= norms
        ctx.save_for_backward(columns, norms, squares >= SMALLEST_NORM**2)
        ctx.set_materialize_grads(False)
        ctx.centre = centre
        return columns, norms

    @staticmethod
    def backward(ctx: Any, by_columns: Tensor | None, by_norms: Tensor | None) -> tuple[Tensor, None, None]:
        columns, norms, alive = ctx.saved_tensors
        by_z = by_unit_length(by_columns, by_norms, columns, norms, alive, dim=-2)
        return centred(by_z) if ctx.centre else by_z, None, None


@full_precision
def frossl(
    z: Tensor, *, weight: float = 1.0, logarithm: bool = True, unit_trace: bool = False, centre: bool = True
) -> LossTerms:
    """FroSSL eq 6: Σ_v log‖Z_vᵀZ_v‖²_F + (weight/N) Σ_{v<w} ‖Z_v − Z_w‖²_F.

    Z_v are the embeddings of view v with centred columns of unit norm.

    Parameters
    ----------
    z : Tensor [V, N, D]
        Embeddings of V ≥ 2 views of N ≥ 2 samples.
    weight : float
        Weight of the second term; 1 in the paper, whose section 3.1 found no better weight.
    logarithm : bool
        False omits the logarithm, an ablation of the paper.
    unit_trace : bool
        Divide ZᵀZ by its trace D, as the authors' code does. This adds a constant to the loss if `logarithm`;
        otherwise it divides the first term by D².
    centre : bool
        Subtract the mean of each column, so that ZᵀZ is a covariance as in the paper. False: scale the columns only,
        as in the authors' current code and in lightly. The gradients then differ if the columns have large means.

    Returns
    -------
    LossTerms
        With the terms `variance` and `invariance`.

    Examples
    --------
    >>> z = torch.randn(2, 128, 32, requires_grad=True)
    >>> frossl(z).total.backward()
    """
    _, N, D = shape_of(z)
    columns = _columns(z, centre=centre)
    return _frossl(N, D, gram_norm_squared(columns), spread_of(columns), weight, logarithm, unit_trace)


def frossl_of_moments(
    moments: Moments, *, weight: float = 1.0, logarithm: bool = True, unit_trace: bool = False
) -> LossTerms:
    """`frossl` from moments: log‖R_11‖² + log‖R_22‖² + (2/N)(D − tr R_12) for two views, R_vw their correlations.

    It always centres: moments of shards are combined with a mean that has no gradient.
    """
    norm_VD = moments.norms()
    correlation = _within(moments) / (norm_VD[:, :, None] * norm_VD[:, None, :])
    traces_VV = (moments.cross_VVD / (norm_VD[:, None] * norm_VD[None])).sum(dim=2)
    spread = len(traces_VV) * traces_VV.diagonal().sum() - traces_VV.sum()  # = Σ_{v<w} ‖Z_v − Z_w‖²
    D = norm_VD.shape[1]
    return _frossl(moments.count, D, correlation.square().sum(dim=(1, 2)), spread, weight, logarithm, unit_trace)


def _frossl(
    count: int, D: int, frobenius_V: Tensor, spread: Tensor, weight: float, logarithm: bool, unit_trace: bool
) -> LossTerms:
    _at_least_two(count, "frossl")
    if unit_trace:
        frobenius_V = frobenius_V / D**2
    variance = (frobenius_V.clamp_min(SMALLEST_LOG).log() if logarithm else frobenius_V).sum()
    return _total(variance=variance, invariance=weight * (spread / count))


@full_precision
def vicreg(
    z: Tensor,
    *,
    invariance: float = 25.0,
    variance: float = 25.0,
    covariance: float = 1.0,
    epsilon: float = 1e-4,
) -> LossTerms:
    """VICReg (Bardes et al. 2022): invariance · s(Z, Z') + variance · [v(Z) + v(Z')] + covariance · [c(Z) + c(Z')].

    s is the mean of (z − z')² over samples and dimensions. v is the mean of max(0, 1 − √(Var + epsilon)) over
    dimensions, with the unbiased variance. c is the sum of the squared off-diagonal covariances, divided by D. For V
    views, s is the mean over pairs, and the sums of v and c over views are multiplied by 2/V. V = 2 gives the loss of
    the paper. (The authors' code halves v, which is the same as variance = 12.5.)

    Parameters
    ----------
    z : Tensor [V, N, D]
        Embeddings of V ≥ 2 views of N ≥ 2 samples.
    invariance : float
        Weight of s.
    variance : float
        Weight of v.
    covariance : float
        Weight of c.
    epsilon : float
        Added to the variances.

    Returns
    -------
    LossTerms
        With the terms `invariance`, `variance` and `covariance`.
    """
    weights = {"invariance": invariance, "variance": variance, "covariance": covariance}
    V, N, D = shape_of(z)
    _at_least_two(N, "vicreg")
    missing, off_diagonal = _Variances.apply(z, epsilon)
    return _vicreg(V, N, D, missing, spread_of(z), off_diagonal, **weights)


class _Variances(torch.autograd.Function):
    """Σ max(0, 1 − √(Var + epsilon)) and Σ_{i≠j} (xᵀx)_ij² for x = z − mean.

    Both are computed here, because one matrix product gives both gradients.
    """

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
        if torch.is_grad_enabled():  # for a second derivative, these must be functions of z too
            x, squares_VD, gram, own_VD = _variances(z)
        rate, count = 4 * by_off_diagonal, z.shape[1] - 1
        steepness_VD = (squares_VD / count + ctx.epsilon).rsqrt()  # above 1 where the variance is below 1
        slope_VD = torch.where(steepness_VD > 1, steepness_VD, 0) * (by_missing / count)
        apart = x * torch.addcmul(slope_VD, own_VD, rate).neg()[:, None]
        factors = (rate * gram, x) if x.shape[-2] < x.shape[-1] else (x, rate * gram)
        return centred(torch.baddbmm(apart, *factors)), None


def _missing(squares_VD: Tensor, count: int, epsilon: float) -> Tensor:
    return torch.relu(1 - (squares_VD / (count - 1) + epsilon).sqrt()).sum()


def _variances(z: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x = z − mean, the column sums Σ_n x_nd², the smaller of xxᵀ and xᵀx, and the sums that the product contains.

    The diagonal of xᵀx is set to 0, so xᵀx contains none of the sums; xxᵀ contains all.
    """
    x = centred(z)
    squares_VD = x.square().sum(dim=-2)
    if x.shape[-2] < x.shape[-1]:
        return x, squares_VD, smaller_gram(x), squares_VD
    return x, squares_VD, smaller_gram(x, "zero"), torch.zeros_like(squares_VD)


def vicreg_of_moments(
    moments: Moments, *, invariance: float, variance: float, covariance: float, epsilon: float
) -> LossTerms:
    """`vicreg` from moments, with the same parameters."""
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
    """Barlow Twins (Zbontar et al. 2021): scale · [Σ_i (1 − c_ii)² + weight · Σ_{i≠j} c_ij²].

    c[D, D] are the correlations between two views. For more than two views the loss is the mean over pairs.

    Parameters
    ----------
    z : Tensor [V, N, D]
        Embeddings of V ≥ 2 views of N ≥ 2 samples.
    weight : float
        Weight of the off-diagonal correlations.
    scale : float
        Factor of the loss.
    epsilon : float
        Added to the variances. 0 gives the paper's eq 2. The authors' code normalises with BatchNorm: epsilon 1e-5.

    Returns
    -------
    LossTerms
        With the terms `invariance` and `redundancy`.
    """
    _, N, _ = shape_of(z)
    pairs = [_between(*pair) for pair in combinations(_columns(z, epsilon).unbind(), 2)]
    deviation, off_diagonal = (functools.reduce(torch.add, values) for values in zip(*pairs, strict=True))
    return _barlow_twins(N, len(pairs), deviation, off_diagonal, weight, scale)


def _between(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Σ_i (1 − c_ii)² and Σ_{i≠j} c_ij² for c = oneᵀother [D, D]."""
    N, D = one.shape
    return _Between.apply(one, other) if D <= 2 * N else _BetweenRows.apply(one, other)


class _Between(torch.autograd.Function):
    """The two sums from c itself.

    c with a zero diagonal and the vector 1 − c_ii are saved: one matrix, made of both, is the gradient with respect to
    c.
    """

    @staticmethod
    def forward(ctx: Any, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        missing, elsewhere = _apart(one.T @ other)
        ctx.save_for_backward(one, other, missing, elsewhere)
        return missing.square().sum(), elsewhere.square().sum()

    @staticmethod
    @full_precision
    def backward(ctx: Any, by_deviation: Tensor, by_off_diagonal: Tensor) -> tuple[Tensor, Tensor]:
        one, other, missing, elsewhere = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative, these must be functions of both views too
            missing, elsewhere = _apart(one.T @ other)
        by_product = elsewhere * (2 * by_off_diagonal)
        by_product.diagonal().copy_(missing * (-2 * by_deviation))
        return other @ by_product.T, one @ by_product


class _BetweenRows(torch.autograd.Function):
    """The two sums from A = one·oneᵀ and B = other·otherᵀ [N, N], as ‖oneᵀother‖² = Σ A∘B. Used if D > 2N."""

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
        if torch.is_grad_enabled():  # for a second derivative, these must be functions of both views too
            diagonal, gram, other_gram = _rows(one, other)
        by_diagonal = 2 * ((by_deviation - by_off_diagonal) * diagonal - by_deviation)
        rate = 2 * by_off_diagonal
        by_one = torch.addcmul(rate * (other_gram @ one), other, by_diagonal)
        return by_one, torch.addcmul(rate * (gram @ other), one, by_diagonal)


def _rows(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (one * other).sum(dim=0), one @ one.T, other @ other.T


def _apart(product: Tensor) -> tuple[Tensor, Tensor]:
    """1 − the diagonal, and the matrix with a zero diagonal (changed in place)."""
    missing = 1 - product.diagonal()
    product.diagonal().zero_()
    return missing, product


def barlow_twins_of_moments(moments: Moments, *, weight: float, scale: float, epsilon: float) -> LossTerms:
    """`barlow_twins` from moments, with the same parameters."""
    if moments.between_PDD is None:
        raise TwofoldError("the moments have no covariances between views: use moments(z, between=True)")
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
    """W-MSE (Ermolov et al. 2021): the distance between whitened views.

    Each view is whitened with the Cholesky factor of its covariance, separately in each sub-batch. The distance is
    averaged over samples and pairs of views. This loss is not a function of the moments; with several processes, each
    sub-batch stays within one process.

    Parameters
    ----------
    z : Tensor [V, N, D]
        Embeddings of V ≥ 2 views of N samples.
    sub_batch : int, optional
        Number of consecutive samples that are whitened together. The last sub-batch also takes the remainder. Default:
        all samples.
    normalize : bool
        True: the distance is 2 − 2cos. False: it is the mean of (z − z')² over dimensions.
    shrinkage : float
        Whiten with (1 − shrinkage) · covariance + shrinkage · I.
    order : int64 Tensor [N], optional
        Permutation of the samples, applied before they are divided into sub-batches.

    Returns
    -------
    LossTerms
        With the term `cosine` or `euclidean`.
    """
    _, N, D = shape_of(z)
    sub_batch = min(sub_batch or N, N)
    if sub_batch <= D and shrinkage == 0:
        raise TwofoldError(
            f"w_mse cannot whiten {sub_batch} samples in {D} dimensions: it needs more samples than dimensions; "
            "use larger batches (batch_size) and sub-batches, a narrower projector, or shrinkage"
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

    R and R' are the running covariances of two views, updated with this batch. The gradient flows through the batch's
    contribution. MSE is the mean over samples, dimensions and pairs of views. For V views, the sum of the log
    determinants is multiplied by 2/V. The determinants are computed in float64, because the smallest eigenvalues can be
    as small as ε.

    Parameters
    ----------
    z : Tensor [V, N, D]
        Embeddings of V ≥ 2 views. The authors use rows of unit length; otherwise the determinants grow with the scale.
    covariances : Tensor [V, D, D]
        Running covariances before this batch.
    means : Tensor [V, D], optional
        Running means before this batch. Default: 0.
    momentum : float
        Share of the old covariances and means in the new ones.
    weight : float
        Weight of the MSE.
    epsilon : float
        ε.

    Returns
    -------
    LossTerms
        With the terms `invariance` and `information`.
    """
    V, N, D = shape_of(z)
    means = covariances.new_zeros(V, D) if means is None else means
    if covariances.shape != (V, D, D) or means.shape != (V, D):
        shapes = f"{list(covariances.shape)} and {list(means.shape)}"
        raise TwofoldError(
            f"corinfomax got covariances and means of shapes {shapes}: give [{V}, {D}, {D}] and [{V}, {D}]"
        )
    moved, _ = running_moments(z, double(covariances), double(means), momentum)
    log_det_V = 2 * cholesky(moved, epsilon).diagonal(dim1=1, dim2=2).log().sum(dim=1)
    apart = z - z[:1]  # views are close to each other, but not to 0: this avoids rounding errors
    spread = V * (apart - apart.mean(dim=0)).square().sum()  # = Σ_{v<w} ‖z_v − z_w‖²
    invariance = weight * spread / (V * (V - 1) / 2 * N * D)
    information = -(2 / V) * log_det_V.sum() / D
    return _total(invariance=invariance, information=information.to(z.dtype))


def _at_least_two(count: int, objective: str) -> None:
    if count < 2:
        raise TwofoldError(f"{objective} needs the variance of a batch: give two samples or more, not {count}")


def _within(moments: Moments) -> Tensor:
    if moments.within_VDD is None:
        raise TwofoldError("the moments have no covariances within views: use moments(z, within=True)")
    return moments.within_VDD


def _off_diagonal(matrix: Tensor) -> Tensor:
    """matrix[..., D, D] with a zero diagonal."""
    return matrix - torch.diag_embed(matrix.diagonal(dim1=-2, dim2=-1))


def _total(**terms: Tensor) -> LossTerms:
    total = functools.reduce(torch.add, terms.values())
    return LossTerms(total, {name: term.detach() for name, term in terms.items()})
