"""Contrastive objectives: pull the views of one image together and push different images apart.

Shapes: V views, N samples, D dimensions; embeddings z[V, N, D]. The anchors are the R = A·N rows of the first A views,
view by view. The negatives of an anchor are the R − A rows of other images. Its positives are its P = V − 1 other
views; their losses are averaged. The score of a pair is z_i·z_j. For embeddings that are not normalised, ½‖z_j‖² is
subtracted. In both cases d_i² − d_ij² = score_ij − score_ii', where i' is a positive of i.
"""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from math import inf, log
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from twofold.errors import TwofoldError, nearest
from twofold.linalg import full_precision, gram_norm_squared, normalized
from twofold.objectives.pairs import check_positive, check_targets, mean_over_pairs
from twofold.types import LossTerms

Negatives = Literal["all", "anchors"]
Curve = Callable[[Tensor], tuple[Tensor, Tensor]]  # a function's value and its derivative


@full_precision
def contrastive(
    z: Tensor,
    family: "Family",
    *,
    negatives: Negatives = "all",
    normalize: bool = True,
    reduction: Literal["mean", "sum"] = "mean",
) -> LossTerms:
    """The general contrastive loss Σ_i φ(Σ_j ψ(d_i² − d_ij²)) (α-CL eq 1), where d² is half the squared distance.

    Parameters
    ----------
    z : Tensor [V, N, D]
        Embeddings of V ≥ 2 views of N ≥ 2 samples.
    family : Family
        The functions φ and ψ, from `family(name, ...)`.
    negatives : {"all", "anchors"}
        "anchors" is the setting of the α-CL paper: anchors z[0], positives z[1], negatives among z[0]. With "all", as
        in NT-Xent, every row is an anchor and every row of another image is its negative.
    normalize : bool
        Scale the embeddings to unit length, so that d² = 1 − cos.
    reduction : {"mean", "sum"}
        Mean or sum over the anchors.

    Returns
    -------
    LossTerms
        With one term, named after the family.

    Examples
    --------
    >>> loss = contrastive(z, family("infonce", temperature=0.5))
    >>> loss.total.backward()
    """
    if reduction not in ("mean", "sum"):
        raise TwofoldError(f"reduction={reduction!r} is unknown{nearest(reduction, ['mean', 'sum'])}")
    rows, columns, positive_PR = _pairs(z, family, negatives, normalize)
    total = _Contrast.apply(rows, columns, positive_PR, z.shape[1], family)
    if reduction == "mean":
        total = total / rows.shape[0]
    return LossTerms(total, {family.name: total.detach()})


@torch.no_grad()
@full_precision
def importance_of(z: Tensor, family: "Family", *, negatives: Negatives = "anchors", normalize: bool = True) -> Tensor:
    """The pairwise importance α_ij = φ'(ξ_i) ψ'(d_i² − d_ij²) of a contrastive loss (α-CL eq 4).

    It belongs to `contrastive(..., reduction="sum")`. The parameters are those of `contrastive`.

    Returns
    -------
    Tensor [R, R]
        α, with 0 for two rows of the same image.
    """
    rows, columns, positive_PR = _pairs(z, family, negatives, normalize)
    weighed = family.weigh(_scores(rows, columns, z.shape[1], family), positive_PR)
    return weighed.weights_RR * (family.rate * weighed.factor_R)[:, None]


def info_nce(z: Tensor, temperature: float, epsilon: float = 1.0) -> LossTerms:
    """NT-Xent (SimCLR): log(ε + Σ_j exp((cos_ij − cos_ii')/τ)), averaged over the V·N anchors and their positives.

    Parameters
    ----------
    z : Tensor [V, N, D]
        Embeddings of V ≥ 2 views of N ≥ 2 samples.
    temperature : float
        τ.
    epsilon : float
        ε = 1 gives SimCLR, ε = 0 gives decoupled contrastive learning.

    Returns
    -------
    LossTerms
        With the term `info_nce`.

    Examples
    --------
    >>> info_nce(z, temperature=0.5).total.backward()
    """
    loss = contrastive(z, family("infonce", temperature=temperature, epsilon=epsilon))
    total = loss.total / temperature
    return LossTerms(total, {"info_nce": total.detach()})


@full_precision
def moco(
    z: Tensor, target: Tensor, queue: Tensor, temperature: float = 0.2, *, negatives: Tensor | None = None
) -> LossTerms:
    """MoCo: distinguish the teacher's embedding of another view from the entries of a queue.

    The loss is −log softmax of the positive cos(z_v, t_w)/τ against the negatives cos(z_v, q)/τ, averaged over samples
    and ordered pairs of different views v ≠ w with w < T.

    Parameters
    ----------
    z : Tensor [V, N, D]
        The student's embeddings.
    target : Tensor [T, N, D]
        The teacher's embeddings t of the first T views; no gradient flows through them.
    queue : Tensor [Q, D]
        Earlier embeddings q; no gradient flows through them.
    temperature : float
        τ.
    negatives : bool Tensor [N, Q], optional
        Which queue entries are negatives of which sample. Default: all. A sample without negatives has loss 0.

    Returns
    -------
    LossTerms
        With the term `moco`.
    """
    check_targets("moco", z, target)
    check_positive("moco", temperature=temperature)
    query, key = normalized(z), normalized(target.detach())
    positive_TVN = torch.einsum("vnd,wnd->wvn", query, key) / temperature
    scores_VNQ = query @ normalized(queue.detach()).T / temperature
    if negatives is not None:
        # A finite value, because −∞ − (−∞) would be NaN for a sample without negatives.
        scores_VNQ = scores_VNQ.masked_fill(~negatives, torch.finfo(z.dtype).min / 2)
    # The log-sum-exp over the queue is computed once for all positives: log(e^p + e^q) − p = softplus(q − p).
    loss_TVN = softplus(scores_VNQ.logsumexp(dim=-1) - positive_TVN)
    total = mean_over_pairs(loss_TVN)
    return LossTerms(total, {"moco": total.detach()})


@full_precision
def spectral_contrastive(z: Tensor, *, radius: float = inf) -> LossTerms:
    """The spectral contrastive loss −2 E[z·z'] + E[(z·z⁻)²] (HaoChen et al. 2021).

    z' is another view of the same image, z⁻ any view of another image.

    Parameters
    ----------
    z : Tensor [V, N, D]
        Embeddings of V ≥ 2 views of N ≥ 2 samples. They are not normalised.
    radius : float
        Longer embeddings are scaled down to this length. Default: no limit.

    Returns
    -------
    LossTerms
        With the terms `attraction` and `repulsion`.
    """
    check_positive("spectral_contrastive", radius=radius)
    V, N, _ = as_views(z).shape
    z = z / (z.norm(dim=-1, keepdim=True) / radius).clamp_min(1)
    attraction = -2 * positive_scores(z, z, V).mean()
    # The sum over all pairs minus the pairs within an image. If D is small, neither needs a matrix of rows by rows.
    others = gram_norm_squared(z.flatten(0, 1)) - gram_norm_squared(z.transpose(0, 1)).sum()
    repulsion = others / (V * N * (V * N - V))
    return LossTerms(attraction + repulsion, {"attraction": attraction.detach(), "repulsion": repulsion.detach()})


@dataclass(frozen=True)
class Weighed:
    """The loss of each anchor with each positive, and its derivatives with respect to the scores."""

    loss_PR: Tensor
    slope_PR: Tensor  # Σ_j α_ij = −∂loss/∂score_ii'
    weights_RR: Tensor  # α_ij = factor_i · weights_ij, averaged over positives; 0 for two rows of the same image
    factor_R: Tensor


@dataclass(frozen=True)
class Exponential:
    """A family with ψ(x) = exp(rate·x + shift).

    log ξ is a log-sum-exp, and φ is computed from log ξ, so that nothing overflows.
    """

    name: str
    rate: float
    phi_of_log: Curve
    shift: float = 0.0

    def weigh(self, scores_RR: Tensor, positive_PR: Tensor) -> Weighed:
        """Overwrite the scores with the weights: for 8192 rows, one more matrix would take 268 MB."""
        peak_R = scores_RR.detach().amax(dim=1)
        weights_RR = scores_RR.sub_(peak_R[:, None]).exp_()
        sum_R = weights_RR.sum(dim=1)
        loss_PR, slope_PR = self.phi_of_log(peak_R + sum_R.log() + self.shift - positive_PR)
        return Weighed(loss_PR, slope_PR, weights_RR, slope_PR.mean(dim=0) / sum_R)


@dataclass(frozen=True)
class Additive:
    """A family with φ(x) = x, where ψ is a function of rate·x. ψ(−∞) = 0 excludes a pair."""

    name: str
    rate: float
    psi: Curve

    def weigh(self, scores_RR: Tensor, positive_PR: Tensor) -> Weighed:
        curves = (self.psi(scores_RR - positive_R[:, None]) for positive_R in positive_PR)
        psi_RR, weights_RR = next(curves)
        losses, slopes = [psi_RR.sum(dim=1)], [weights_RR.sum(dim=1)]
        for psi_RR, slope_RR in curves:
            losses.append(psi_RR.sum(dim=1))
            slopes.append(slope_RR.sum(dim=1))
            weights_RR = weights_RR + slope_RR
        factor_R = torch.full_like(positive_PR[0], 1 / len(positive_PR))
        return Weighed(torch.stack(losses), torch.stack(slopes), weights_RR, factor_R)


Family = Exponential | Additive


def family(name: str, **parameters: float) -> Family:
    """The functions φ and ψ of a contrastive loss, by name (α-CL, table in Figure 1).

    Parameters
    ----------
    name : str
        A key of `FAMILIES`: "infonce", "mine", "triplet", "soft_triplet", "tuplet", "lifted", "modified_triplet" or
        "linear".
    **parameters : float
        Parameters of this family, such as `temperature`, `epsilon` or `scale`.

    Returns
    -------
    Family
        For `contrastive` and `importance_of`.

    Examples
    --------
    >>> family("infonce", temperature=0.5, epsilon=1.0)
    """
    if name not in FAMILIES:
        raise TwofoldError(f"contrastive family {name!r} is unknown{nearest(name, list(FAMILIES))}")
    make = FAMILIES[name]
    check_parameters(f"contrastive family {name!r}", parameters, list(signature(make).parameters))
    return make(**parameters)


def _infonce(temperature: float = 0.5, epsilon: float = 1.0) -> Family:
    """φ = τ log(ε + x), ψ = e^{x/τ}"""
    return Exponential("infonce", 1 / temperature, _log_plus(epsilon, temperature))


def _mine() -> Family:
    """φ = log x, ψ = e^x"""
    return Exponential("mine", 1.0, _log_plus(0.0))


def _triplet(epsilon: float = 0.2) -> Family:
    """φ = x, ψ = [x + ε]_+"""

    def hinge(x: Tensor) -> tuple[Tensor, Tensor]:
        return (x + epsilon).clamp_min(0), (x > -epsilon).to(x.dtype)

    return Additive("triplet", 1.0, hinge)


def _soft_triplet(temperature: float = 0.5, epsilon: float = 0.0) -> Family:
    """φ = τ log(1 + x), ψ = e^{x/τ + ε}"""
    return Exponential("soft_triplet", 1 / temperature, _log_plus(1.0, temperature), epsilon)


def _tuplet() -> Family:
    """φ = log(1 + x), ψ = e^x"""
    return Exponential("tuplet", 1.0, _log_plus(1.0))


def _lifted(epsilon: float = 1.0) -> Family:
    """φ = [log x]_+², ψ = e^{x + ε}"""

    def squared_hinge(log_xi: Tensor) -> tuple[Tensor, Tensor]:
        hinge = log_xi.clamp_min(0)
        return hinge.square(), 2 * hinge

    return Exponential("lifted", 1.0, squared_hinge, epsilon)


def _modified_triplet(scale: float = 1.0) -> Family:
    """φ = x, ψ = sigmoid(c x)"""

    def sigmoid(x: Tensor) -> tuple[Tensor, Tensor]:
        value = x.sigmoid()
        return value, value * (-x).sigmoid()

    return Additive("modified_triplet", scale, sigmoid)


def _linear() -> Family:
    """φ = x, ψ = x: the quadratic loss of the paper, a difference of squared distances"""

    def identity(x: Tensor) -> tuple[Tensor, Tensor]:
        left_out = x == -inf
        return x.masked_fill(left_out, 0), (~left_out).to(x.dtype)

    return Additive("linear", 1.0, identity)


FAMILIES: dict[str, Callable[..., Family]] = {
    "infonce": _infonce,
    "mine": _mine,
    "triplet": _triplet,
    "soft_triplet": _soft_triplet,
    "tuplet": _tuplet,
    "lifted": _lifted,
    "modified_triplet": _modified_triplet,
    "linear": _linear,
}


def _log_plus(epsilon: float, factor: float = 1.0) -> Curve:
    """φ = factor · log(ε + ξ) as a function of log ξ."""
    if epsilon < 0:
        raise TwofoldError(f"epsilon={epsilon} is negative: use 0 or more")
    if epsilon == 0:
        return lambda log_xi: (factor * log_xi, torch.full_like(log_xi, factor))
    floor = log(epsilon)
    return lambda log_xi: (factor * (floor - logsigmoid(floor - log_xi)), factor * (log_xi - floor).sigmoid())


class _Contrast(torch.autograd.Function):
    """The family's loss, averaged over positives and summed over anchors.

    By Theorem 1 of α-CL the gradient is that of the scores weighted by the fixed importance α.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, columns: Tensor, positive_PR: Tensor, samples: int, family: Family) -> Tensor:
        weighed = family.weigh(_scores(rows, columns, samples, family), positive_PR)
        ctx.samples, ctx.family = samples, family
        ctx.save_for_backward(rows, columns, positive_PR, weighed.slope_PR, weighed.weights_RR, weighed.factor_R)
        return weighed.loss_PR.mean(dim=0).sum()

    @staticmethod
    @full_precision
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, columns, positive_PR, slope_PR, weights_RR, factor_R = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative, α must be a function of z too
            weighed = ctx.family.weigh(_scores(rows, columns, ctx.samples, ctx.family), positive_PR)
            slope_PR, weights_RR, factor_R = weighed.slope_PR, weighed.weights_RR, weighed.factor_R
        factor_R1 = (ctx.family.rate * gradient * factor_R)[:, None]
        by_positive = -gradient / len(slope_PR) * slope_PR
        return factor_R1 * (weights_RR @ columns), weights_RR.T @ (factor_R1 * rows), by_positive, None, None


def _scores(rows: Tensor, columns: Tensor, samples: int, family: Family) -> Tensor:
    """Scores [R, R] times the family's rate, with −∞ for two rows of the same image."""
    scores_RR = torch.addmm(rows.new_zeros(()), rows, columns.T, beta=0, alpha=family.rate)
    same_image(scores_RR, samples).fill_(-inf)
    return scores_RR


def _pairs(z: Tensor, family: Family, negatives: Negatives, normalize: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The rows and columns whose products are the anchors' scores [R, R], and the positives' scores [P, R] · rate."""
    if negatives not in ("all", "anchors"):
        raise TwofoldError(f"negatives={negatives!r} is unknown{nearest(negatives, ['all', 'anchors'])}")
    if isinstance(family, str):
        raise TwofoldError(f"family={family!r} is a string: pass family({family!r})")
    anchors = as_views(z).shape[0] if negatives == "all" else 1
    if normalize:
        query = key = normalized(z)
    else:
        z = z - z.detach().mean(dim=(0, 1))  # this keeps all distances and makes their rounding errors smaller
        half_square = z.square().sum(dim=-1, keepdim=True) / 2
        query, key = torch.cat([z, torch.ones_like(half_square)], dim=-1), torch.cat([z, -half_square], dim=-1)
    positive_PR = positive_scores(query, key, anchors) * family.rate
    return query[:anchors].flatten(0, 1), key[:anchors].flatten(0, 1), positive_PR


def positive_scores(query: Tensor, key: Tensor, anchors: int) -> Tensor:
    """Scores [V − 1, anchors·N] between the rows of the first `anchors` views and the other views of their images."""
    others = [key.roll(-step, dims=0)[:anchors] for step in range(1, len(key))]
    return torch.stack([(query[:anchors] * other).sum(dim=-1).flatten() for other in others])


def same_image(pairs_RR: Tensor, samples: int) -> Tensor:
    """A writable view of the entries whose two rows belong to the same image."""
    views = len(pairs_RR) // samples
    return pairs_RR.view(views, samples, views, samples).diagonal(dim1=1, dim2=3)


def as_views(z: Tensor) -> Tensor:
    """z, if it has the shape that a contrastive loss needs."""
    if z.ndim != 3 or z.shape[0] < 2 or z.shape[1] < 2:
        raise TwofoldError(
            f"z has shape {list(z.shape)}: give [views, samples, dim] with at least 2 views and 2 samples"
        )
    return z


def check_parameters(what: str, given: dict[str, Any], known: list[str]) -> None:
    for name, value in given.items():
        if name not in known:
            raise TwofoldError(f"{what} has no parameter {name!r}{nearest(name, known) if known else ''}")
        if name in ("temperature", "scale", "gamma", "exponent"):
            check_positive(what, **{name: value})
