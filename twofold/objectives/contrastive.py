"""Contrastive objectives: pull the views of one image together, push different images apart.

V views, N samples, D dimensions; z[V, N, D]. R anchors are the rows of A views (R = A·N, view by view), each with the
R − A rows of other images as negatives and with its P = V − 1 other views as positives, whose losses are averaged.
A pair's score is z_i·z_j, less ½‖z_j‖² where rows are not of unit length; so d_i² − d_ij² = score_ij − score_ii'.
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
    """α-CL eq 1: Σ_i φ(Σ_j ψ(d_i² − d_ij²)), d² = ½‖·‖², or its mean over anchors.

    "anchors" is the paper's: anchors z[0], positives z[1], negatives among z[0]. "all" is NT-Xent's: every row is an
    anchor, and every row of another image its negative. `normalize` gives rows unit length, so that d² = 1 − cos.
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
    """α_ij = φ'(ξ_i) ψ'(d_i² − d_ij²) (eq 4) of `contrastive(..., reduction="sum")`; [R, R], 0 within an image."""
    rows, columns, positive_PR = _pairs(z, family, negatives, normalize)
    weighed = family.weigh(_scores(rows, columns, z.shape[1], family), positive_PR)
    return weighed.weights_RR * (family.rate * weighed.factor_R)[:, None]


def info_nce(z: Tensor, temperature: float, epsilon: float = 1.0) -> LossTerms:
    """NT-Xent (SimCLR): the mean of log(ε + Σ_j exp((cos_ij − cos_ii')/τ)) over the V·N anchors and their positives.

    ε = 1 is SimCLR's softmax, ε = 0 decoupled contrastive learning.
    """
    loss = contrastive(z, family("infonce", temperature=temperature, epsilon=epsilon))
    total = loss.total / temperature
    return LossTerms(total, {"info_nce": total.detach()})


@full_precision
def moco(
    z: Tensor, target: Tensor, queue: Tensor, temperature: float = 0.2, *, negatives: Tensor | None = None
) -> LossTerms:
    """MoCo: −log softmax of cos(z_v, t_w)/τ against cos(z_v, q)/τ, q over the queue[Q, D], t[T, N, D] the teacher's.

    The mean over samples and ordered pairs of different views v, w < T. `negatives`[N, Q] says which entries of the
    queue count for which sample (default: all); without any the loss is 0.
    """
    check_targets("moco", z, target)
    check_positive("moco", temperature=temperature)
    query, key = normalized(z), normalized(target.detach())
    positive_TVN = torch.einsum("vnd,wnd->wvn", query, key) / temperature
    scores_VNQ = query @ normalized(queue.detach()).T / temperature
    if negatives is not None:
        # Finite, so that a sample without negatives never meets −∞ − (−∞).
        scores_VNQ = scores_VNQ.masked_fill(~negatives, torch.finfo(z.dtype).min / 2)
    # The queue's sum is taken once for all positives: log(e^p + e^q) − p = softplus(q − p).
    loss_TVN = softplus(scores_VNQ.logsumexp(dim=-1) - positive_TVN)
    total = mean_over_pairs(loss_TVN)
    return LossTerms(total, {"moco": total.detach()})


@full_precision
def spectral_contrastive(z: Tensor, *, radius: float = inf) -> LossTerms:
    """−2 E[z·z'] + E[(z·z⁻)²] (HaoChen et al. 2021), z not normalised, but rows longer than `radius` cut to it.

    z' runs over the other views of an image, z⁻ over all views of all other images.
    """
    check_positive("spectral_contrastive", radius=radius)
    V, N, _ = as_views(z).shape
    z = z / (z.norm(dim=-1, keepdim=True) / radius).clamp_min(1)
    attraction = -2 * positive_scores(z, z, V).mean()
    # All products, less those within an image: neither needs a matrix of all rows by all rows where D is small.
    others = gram_norm_squared(z.flatten(0, 1)) - gram_norm_squared(z.transpose(0, 1)).sum()
    repulsion = others / (V * N * (V * N - V))
    return LossTerms(attraction + repulsion, {"attraction": attraction.detach(), "repulsion": repulsion.detach()})


@dataclass(frozen=True)
class Weighed:
    """Losses of anchors with each positive, and their derivatives with respect to the scores."""

    loss_PR: Tensor
    slope_PR: Tensor  # Σ_j α_ij, which is −∂loss/∂score_ii'
    weights_RR: Tensor  # α_ij = factor_i · weights_ij, mean over positives; 0 within an image
    factor_R: Tensor


@dataclass(frozen=True)
class Exponential:
    """ψ(x) = exp(rate·x + shift): log ξ is a log-sum-exp, and φ a function of it, so nothing overflows."""

    name: str
    rate: float
    phi_of_log: Curve
    shift: float = 0.0

    def weigh(self, scores_RR: Tensor, positive_PR: Tensor) -> Weighed:
        """In the memory of the scores: at 8192 rows every further matrix is 268 MB, and a pass over it the cost."""
        peak_R = scores_RR.detach().amax(dim=1)
        weights_RR = scores_RR.sub_(peak_R[:, None]).exp_()
        sum_R = weights_RR.sum(dim=1)
        loss_PR, slope_PR = self.phi_of_log(peak_R + sum_R.log() + self.shift - positive_PR)
        return Weighed(loss_PR, slope_PR, weights_RR, slope_PR.mean(dim=0) / sum_R)


@dataclass(frozen=True)
class Additive:
    """φ(x) = x, and ψ a function of rate·x, 0 at −∞ (a pair left out)."""

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
    """A row of the paper's table of losses, e.g. family("infonce", temperature=0.5, epsilon=1.0)."""
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
    """φ = x, ψ = x: the paper's quadratic loss, the difference of squared distances"""

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
        raise TwofoldError(f"epsilon={epsilon} under the logarithm is negative: it has to be 0 or more")
    if epsilon == 0:
        return lambda log_xi: (factor * log_xi, torch.full_like(log_xi, factor))
    floor = log(epsilon)
    return lambda log_xi: (factor * (floor - logsigmoid(floor - log_xi)), factor * (log_xi - floor).sigmoid())


class _Contrast(torch.autograd.Function):
    """Σ_i of the mean over positives of the family's loss. The gradient is Theorem 1: that of scores weighed by α."""

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
        if torch.is_grad_enabled():  # a second derivative is asked for, and α is a function of z too
            weighed = ctx.family.weigh(_scores(rows, columns, ctx.samples, ctx.family), positive_PR)
            slope_PR, weights_RR, factor_R = weighed.slope_PR, weighed.weights_RR, weighed.factor_R
        factor_R1 = (ctx.family.rate * gradient * factor_R)[:, None]
        by_positive = -gradient / len(slope_PR) * slope_PR
        return factor_R1 * (weights_RR @ columns), weights_RR.T @ (factor_R1 * rows), by_positive, None, None


def _scores(rows: Tensor, columns: Tensor, samples: int, family: Family) -> Tensor:
    """[R, R], times rate; −∞ within an image."""
    scores_RR = torch.addmm(rows.new_zeros(()), rows, columns.T, beta=0, alpha=family.rate)
    same_image(scores_RR, samples).fill_(-inf)
    return scores_RR


def _pairs(z: Tensor, family: Family, negatives: Negatives, normalize: bool) -> tuple[Tensor, Tensor, Tensor]:
    """rows and columns whose products are the anchors' scores [R, R], and the positives' scores [P, R] times rate."""
    if negatives not in ("all", "anchors"):
        raise TwofoldError(f"negatives={negatives!r} is unknown{nearest(negatives, ['all', 'anchors'])}")
    if isinstance(family, str):
        raise TwofoldError(f"{family!r} is a name: give family({family!r}), whose parameters can be set")
    anchors = as_views(z).shape[0] if negatives == "all" else 1
    if normalize:
        query = key = normalized(z)
    else:
        z = z - z.detach().mean(dim=(0, 1))  # distances do not change, and their rounding errors shrink
        half_square = z.square().sum(dim=-1, keepdim=True) / 2
        query, key = torch.cat([z, torch.ones_like(half_square)], dim=-1), torch.cat([z, -half_square], dim=-1)
    positive_PR = positive_scores(query, key, anchors) * family.rate
    return query[:anchors].flatten(0, 1), key[:anchors].flatten(0, 1), positive_PR


def positive_scores(query: Tensor, key: Tensor, anchors: int) -> Tensor:
    """Scores [V − 1, anchors·N] of the first `anchors` views' rows with the other views of their images."""
    others = [key.roll(-step, dims=0)[:anchors] for step in range(1, len(key))]
    return torch.stack([(query[:anchors] * other).sum(dim=-1).flatten() for other in others])


def same_image(pairs_RR: Tensor, samples: int) -> Tensor:
    """A view, to write to, of the entries of pairs of rows that belong to one image."""
    views = len(pairs_RR) // samples
    return pairs_RR.view(views, samples, views, samples).diagonal(dim1=1, dim2=3)


def as_views(z: Tensor) -> Tensor:
    """z itself, where it holds views to pull together and images to push apart."""
    if z.ndim != 3 or z.shape[0] < 2 or z.shape[1] < 2:
        raise TwofoldError(
            f"z is {list(z.shape)}: to contrast, give [views, samples, dim] with 2 or more of the first two"
        )
    return z


def check_parameters(what: str, given: dict[str, Any], known: list[str]) -> None:
    for name, value in given.items():
        if name not in known:
            raise TwofoldError(f"{what} has no parameter {name!r}{nearest(name, known) if known else ''}")
        if name in ("temperature", "scale", "gamma", "exponent"):
            check_positive(what, **{name: value})
