"""α-CL (Tian 2022): choose the importance of each pair of images, then contrast with these weights held fixed.

Shapes: V views, N samples, D dimensions; embeddings z[V, N, D]. α_ij ≥ 0 is the importance of the pair of rows i and j.
"""

from collections.abc import Callable
from inspect import signature
from math import ceil, inf, log

import torch
from torch import Tensor

from twofold.errors import TwofoldError, nearest
from twofold.linalg import centred, full_precision, newton_root, normalized, simplex_projection
from twofold.objectives.contrastive import as_views, check_parameters, positive_scores, same_image
from twofold.types import LossTerms

# Maps the distances of each row to the other views of its image, [R, V−1], and to the rows of other images, [R, R−V],
# to the importance of the latter.
OwnRule = Callable[[Tensor, Tensor], Tensor]


@full_precision
def alpha_cl(
    z: Tensor,
    rule: str | OwnRule = "direct",
    *,
    temperature: float | None = None,
    through_importance: bool = False,
    **parameters: float,
) -> LossTerms:
    """The α-CL loss mean_i Σ_j sg(α_ij)(cos_ij − cos_ii'), where α = importance(1 − cos, rule, ...) (Definition 1).

    i runs over all V·N rows, j over the V·N − V rows of other images; cos_ii' is the mean over the other views of the
    image. With the entropy rule the gradient is that of InfoNCE with ε = 0, `contrastive(z, family("infonce",
    temperature=τ, epsilon=0))`, which is τ times the gradient of `info_nce(z, τ, epsilon=0)`.

    Parameters
    ----------
    z : Tensor [V, N, D]
        Embeddings of V ≥ 2 views of N ≥ 2 samples.
    rule : str or callable
        A rule of `importance`, or any function α(within, between) of your own. It gets the distances 1 − cos of each of
        the R = V·N rows to the V − 1 other views of its image, `within` [R, V−1], and to the R − V rows of other
        images, `between` [R, R−V]. It returns the importance [R, R−V] of these, at least 0.
    temperature : float, optional
        τ of the rule. Default: that of the rule.
    through_importance : bool
        Back-propagate through α, the negative control of the paper: the value is the same, the gradient is not. Only
        first derivatives are correct then.
    **parameters : float
        Further parameters of the rule.

    Returns
    -------
    LossTerms
        With the terms `attraction` and `repulsion`.

    Examples
    --------
    A rule that weighs a pair only if it is closer than the views of the image are on average:

    >>> def closer_than_views(within, between):
    ...     weight = (within.mean(dim=1, keepdim=True) - between).clamp_min(0)
    ...     return weight / weight.sum(dim=1, keepdim=True).clamp_min(1e-6)
    >>> alpha_cl(torch.randn(2, 8, 4), closer_than_views).total.shape
    torch.Size([])
    """
    if temperature is not None:
        parameters["temperature"] = temperature
    V, N, _ = as_views(z).shape
    z = normalized(z)
    rows = z.flatten(0, 1)
    with torch.set_grad_enabled(through_importance and torch.is_grad_enabled()):
        distances = torch.addmm(rows.new_ones(()), rows, rows.T, alpha=-1).clamp_min(0)  # 1 − rows·rowsᵀ in one pass
        if callable(rule):
            alpha = _own_importance(distances, V, N, rule, **parameters)
        else:
            same_image(distances, N).fill_(inf)
            alpha = importance(distances, rule, **parameters)
    # Σ_ij α_ij z_i·z_j from αz, so that the backward pass needs no other matrix of rows by rows.
    repulsion = (rows * (alpha @ rows)).sum() / len(rows)
    attraction = -(alpha.sum(dim=1) * positive_scores(z, z, V).mean(dim=0)).mean()
    return LossTerms(attraction + repulsion, {"attraction": attraction.detach(), "repulsion": repulsion.detach()})


def _own_importance(distances: Tensor, V: int, N: int, rule: OwnRule, **parameters: float) -> Tensor:
    """α[R, R] of a rule of the user's own, 0 for rows of the same image."""
    if parameters:
        raise TwofoldError(f"a rule of your own takes no parameters here, not {', '.join(parameters)}: set them in it")
    row, step = torch.arange(V * N, device=distances.device)[:, None], torch.arange(V * N, device=distances.device)
    columns = (row + step) % N + N * (step // N)  # in each block of N columns, the row's own image comes first
    others, own = columns.view(V * N, V, N)[:, :, 1:].flatten(1), columns.view(V * N, V, N)[:, :, 0]
    views = own.gather(1, (row // N + torch.arange(1, V, device=row.device)) % V)  # without the row itself
    weights = rule(distances.gather(1, views), between := distances.gather(1, others))
    if not isinstance(weights, Tensor) or weights.shape != between.shape:
        given = list(weights.shape) if isinstance(weights, Tensor) else f"a {type(weights).__name__}"
        raise TwofoldError(f"the rule returned {given}: return the importance of each pair, {list(between.shape)}")
    return torch.zeros_like(distances).scatter(1, others, weights.to(distances.dtype))


@full_precision
def importance(distances: Tensor, rule: str, **parameters: float) -> Tensor:
    """The importance α of pairs from their distances (α-CL section 6).

    Parameters
    ----------
    distances : Tensor [M, K]
        D = d² of each pair. An infinite distance excludes the pair.
    rule : str
        One of entropy(temperature), square(temperature), inverse(temperature, gamma),
        direct(temperature, exponent, normalized), heuristic_inverse(temperature, exponent).
    **parameters : float
        The parameters of the rule, named in parentheses above.

    Returns
    -------
    Tensor [M, K]
        α. Each row sums to 1, except with the rule direct and normalized=False.
    """
    if rule not in RULES:
        raise TwofoldError(f"importance rule {rule!r} is unknown{nearest(rule, list(RULES))}")
    known = list(signature(RULES[rule]).parameters)[1:]
    check_parameters(f"importance rule {rule!r}", parameters, known)
    return RULES[rule](distances, **parameters)


def _entropy(distances: Tensor, temperature: float = 0.5) -> Tensor:
    """The minimiser of Σ_j α_j D_j + τ Σ_j α_j log α_j on the simplex: α of InfoNCE with ε = 0 (eq 6)."""
    return (distances / -temperature).softmax(dim=-1)


def _square(distances: Tensor, temperature: float = 5.0) -> Tensor:
    """The minimiser of 2 Σ_j α_j D_j + τ/2 Σ_j α_j² on the simplex."""
    return simplex_projection(distances * (-2 / temperature))


def _inverse(distances: Tensor, temperature: float = 0.5, gamma: float = 2.0) -> Tensor:
    """The minimiser of Σ_j α_j D_j + τ/(γ−1) Σ_j α_j^{1−γ} on the simplex: α = ((D + ν)/τ)^{−1/γ}.

    Instead of ν we solve for a, the largest α: α_j = a (1 + a^γ δ_j)^{−1/γ} with δ = (D − D_min)/τ. a is in [1/k, 1],
    where nothing overflows. Σ_j α_j is concave in a with a slope from 1 to k, so Newton's method started at 1/k
    increases a in every step.
    """
    k = distances.shape[-1]
    excess = (distances - distances.detach().amin(dim=-1, keepdim=True)) / temperature

    def parts(a: Tensor) -> tuple[Tensor, Tensor]:
        """α/a and ∂α/∂a"""
        base = 1 + a.pow(gamma).clamp_min(torch.finfo(a.dtype).tiny) * excess  # avoids 0 · ∞ for an excluded pair
        ratio = base.pow(-1 / gamma)
        return ratio, ratio / base

    def surplus(a: Tensor) -> tuple[Tensor, Tensor]:
        ratio, slope = parts(a)
        return a * ratio.sum(dim=-1, keepdim=True) - 1, slope.sum(dim=-1, keepdim=True)

    start = torch.full_like(excess[..., :1], 1 / k)
    a = newton_root(surplus, start, start, torch.ones_like(start), ceil(log(k / torch.finfo(start.dtype).eps, 4)))
    fixed = a.detach()
    ratio, slope = parts(fixed)
    return fixed * ratio + slope.detach() * (a - fixed)  # = α; avoids 0 · ∞ in autograd's ∂α/∂a of an excluded pair


def _direct(distances: Tensor, temperature: float = 0.5, exponent: float = 4.0, normalized: bool = True) -> Tensor:
    """exp(−d^p/τ), normalised (eq 12) or not (eq 44)."""
    if exponent < 2:  # then there is no derivative at distance 0
        distances = distances.clamp_min(torch.finfo(distances.dtype).tiny)
    powers = distances.pow(exponent / 2) / -temperature
    return powers.softmax(dim=-1) if normalized else powers.exp()


def _heuristic_inverse(distances: Tensor, temperature: float = 0.5, exponent: float = 2.0) -> Tensor:
    """Normalised (D + τ)^{−e}. With hundreds of negatives the exact inverse rule is nearly uniform; this one is not."""
    return (-exponent * (distances + temperature).log()).softmax(dim=-1)


RULES: dict[str, Callable[..., Tensor]] = {
    "entropy": _entropy,
    "square": _square,
    "inverse": _inverse,
    "direct": _direct,
    "heuristic_inverse": _heuristic_inverse,
}


@full_precision
def contrastive_covariance(x: Tensor, x_positive: Tensor, alpha: Tensor) -> Tensor:
    """The contrastive covariance of α-CL (eq 5).

    C_α[x] = Σ_ij α_ij (x_i−x_j)(x_i−x_j)ᵀ − Σ_i (Σ_j α_ij)(x_i−x_i')(x_i−x_i')ᵀ.

    Parameters
    ----------
    x : Tensor [N, D]
        One view of the samples.
    x_positive : Tensor [N, D]
        Another view of the same samples.
    alpha : Tensor [N, N]
        Importance of the pairs.

    Returns
    -------
    Tensor [D, D]
        C_α[x].
    """
    left, right = _factors(x, x_positive, alpha)
    return left.T @ right


@full_precision
def energy(z: Tensor, z_positive: Tensor, alpha: Tensor) -> Tensor:
    """The energy E_α = tr C_α[z] of α-CL.

    With α = `importance_of(z, family)` held fixed, −½ times its gradient is the gradient of the loss (Theorem 1, eq 3).

    Parameters
    ----------
    z : Tensor [N, D]
        Embeddings of one view of the samples.
    z_positive : Tensor [N, D]
        Embeddings of another view of the same samples.
    alpha : Tensor [N, N]
        Importance of the pairs.

    Returns
    -------
    Tensor []
        E_α.
    """
    left, right = _factors(z, z_positive, alpha)
    return (left * right).sum()


def _factors(x: Tensor, x_positive: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """Two matrices [2N, D] whose product is C_α. N rows come from the graph's Laplacian, N from the positives."""
    from_rows, from_columns = alpha.sum(dim=1)[:, None], alpha.sum(dim=0)[:, None]
    apart = x - x_positive
    x = centred(x)  # this keeps all differences and makes their rounding errors smaller
    laplacian = (from_rows + from_columns) * x - alpha @ x - alpha.T @ x
    return torch.cat([x, apart]), torch.cat([laplacian, -from_rows * apart])
