"""Section 6: other choices of α, defined by a regulariser or directly."""

from collections.abc import Callable

import torch
from torch import Tensor

from twofold import objectives
from twofold_papers.alpha_cl.claims.nets import flat, gradients, smallest_on_simplex, tracked, two_views, uniform
from twofold_papers.alpha_cl.claims.players import Row, Scalar, entropy, gaps, half_squared, library_loss
from twofold_papers.verify.claim import Sides, claim

GAMMA, TAU = 2.0, 0.5
# For each rule of the library: the published regulariser as text, the temperature τ, and the function r(α_ij).
REGULARISERS: dict[str, tuple[str, float, Scalar]] = {
    "entropy": ("r_H = −2τ α log α", TAU, entropy(TAU)),
    "inverse": ("r_γ = 2τ/(1−γ) α^{1−γ}, γ = 2", TAU, lambda a: 2 * TAU / (1 - GAMMA) * a ** (1 - GAMMA)),
    "square": ("r_s = −τ/2 α², τ = 5", 5.0, lambda a: -5.0 / 2 * a.square()),
}


def regularised(rule: str) -> Callable[[], Sides]:
    def compute() -> Sides:
        _, tau, regulariser = REGULARISERS[rule]
        left, right = [], []
        for rows, negatives in ((4, 3), (6, 9), (5, 30)):
            distances = 2 * uniform(rows, negatives)
            left.append(objectives.importance(distances, rule, temperature=tau))
            right.append(smallest_on_simplex(2 * distances, regulariser, distances.new_ones(rows)))
        return Sides(flat(left), flat(right))

    return compute


for name, parts in REGULARISERS.items():
    statement = (
        f"The library's rule '{name}' gives the α that minimises E_α − Σ r(α_ij) under Σ_j α_ij = 1, "
        f"where r is {parts[0]}. "
        "Checked: α of the library, and of an interior-point solver, for random distances"
    )
    claim("alpha-cl", f"section 6, {name}", statement, tolerance=1e-11)(regularised(name))


def powers(normalized: bool) -> Sides:
    left, right = [], []
    for exponent in (2.0, 4.0, 6.0):
        distances = 2 * uniform(6, 12)
        d = distances.sqrt()
        weights = (-(d**exponent) / TAU).exp()
        left.append(
            objectives.importance(distances, "direct", temperature=TAU, exponent=exponent, normalized=normalized)
        )
        right.append(weights / weights.sum(dim=1, keepdim=True) if normalized else weights)
    return Sides(flat(left), flat(right))


@claim(
    "alpha-cl",
    "eqs 12, 45",
    "The direct choice of α is α_ij = e^{−d_ij^p/τ} / Σ_j e^{−d_ij^p/τ}. Checked: the library's rule 'direct' "
    "and this formula, for p = 2, 4 and 6",
    tolerance=1e-13,
)
def direct() -> Sides:
    return powers(normalized=True)


@claim(
    "alpha-cl",
    "eq 44",
    "Without normalisation, the direct choice of α is α_ij = e^{−d_ij^p/τ}. Checked: the library's rule "
    "'direct' with normalized=False and this formula, for p = 2, 4 and 6",
    tolerance=1e-13,
)
def direct_unnormalised() -> Sides:
    return powers(normalized=False)


@claim(
    "alpha-cl",
    "section 6, slope at 0",
    "If r'(α) → ∞ as α → 0, as for r_H and r_γ, every pair has a positive weight. Checked: all α_ij are above "
    "0 for the rules 'entropy' and 'inverse', for random distances",
    tolerance=0.0,
)
def no_pair_is_left_out() -> Sides:
    found = [objectives.importance(2 * uniform(6, 20), rule, temperature=TAU) for rule in ("entropy", "inverse")]
    return Sides(flat(found), 0.0, ">")


@claim(
    "alpha-cl",
    "section 6, finite slope",
    "With r_s, whose slope at 0 is finite, distant pairs have the weight 0. Checked: the smallest weight of "
    "each of 8 samples is 0, for τ = 0.5 and random distances",
    tolerance=0.0,
)
def square_leaves_pairs_out() -> Sides:
    weights = objectives.importance(2 * uniform(8, 30), "square", temperature=0.5)
    return Sides(weights.amin(dim=1), 0.0)


def weights_of(rule: str, rows: Tensor, other_image: Tensor) -> Tensor:
    """α[2N, 2N] by the interior-point solver or, for the direct rule, by eq 12."""
    negatives = (half_squared(rows[:, None], rows))[other_image].view(len(rows), -1)
    if rule == "direct":
        found = (-negatives.square() / TAU).softmax(dim=1)
    else:
        found = smallest_on_simplex(2 * negatives, REGULARISERS[rule][2], negatives.new_ones(len(rows)))
    alpha = rows.new_zeros(len(rows), len(rows))
    alpha[other_image] = found.flatten()
    return alpha


@claim(
    "alpha-cl",
    "Definition 1",
    "α-CL follows the gradient of E_α with α held fixed. Checked: the value and the gradient of alpha_cl, and "
    "those of −E_α divided by twice the number of rows, for r_H, r_γ, r_s and the direct choice",
    tolerance=1e-10,
)
def pair_weighed() -> Sides:
    left, right = [], []
    for rule in (*REGULARISERS, "direct"):
        (z,) = tracked([two_views(5, 3)])
        loss = objectives.alpha_cl(z, rule).total
        left += [loss, *gradients(loss, [z])]
        views = z / z.norm(dim=-1, keepdim=True)
        rows, positives = views.flatten(0, 1), views.flip(0).flatten(0, 1)
        other_image = ~torch.eye(5, dtype=torch.bool).repeat(2, 2)
        energy = objectives.energy(rows, positives, weights_of(rule, rows.detach(), other_image))
        energy_slope = gradients(energy, [z])[0]
        right += [-energy / (2 * len(rows)), -energy_slope / (2 * len(rows))]
    return Sides(flat(left).detach(), flat(right).detach())


@claim(
    "alpha-cl",
    "section 6, backprop α(θ)",
    "Back-propagating through α changes the weight of cos_ij in the gradient, with r_H from α_ij to "
    "α_ij (1 + (cos_ij − Σ_k α_ik cos_ik)/τ). Checked: the gradient of alpha_cl with through_importance, and that of "
    "Σ_ij weight_ij cos_ij − Σ_i cos_ii' with these weights held fixed",
    tolerance=1e-12,
)
def through_importance() -> Sides:
    left, right = [], []
    for samples, dim in ((4, 3), (6, 3), (9, 5)):
        (z,) = tracked([two_views(samples, dim)])
        loss = objectives.alpha_cl(z, "entropy", temperature=TAU, through_importance=True).total
        rows = (z / z.norm(dim=-1, keepdim=True)).flatten(0, 1)
        cosines = rows @ rows.mT
        other_image = ~torch.eye(samples, dtype=torch.bool).repeat(2, 2)
        alpha = torch.where(other_image, cosines.detach() / TAU, -torch.inf).softmax(dim=1)
        above_mean = cosines.detach() - (alpha * cosines.detach()).sum(dim=1, keepdim=True)
        weights = alpha * (1 + above_mean / TAU)
        surrogate = (weights * cosines).sum() - (cosines.diagonal(samples).sum() + cosines.diagonal(-samples).sum())
        left += gradients(loss, [z])
        right += gradients(surrogate / (2 * samples), [z])
    return Sides(flat(left), flat(right))


@claim(
    "alpha-cl",
    "section 3, max-min",
    "For InfoNCE with ε = 0, the value of the game is the loss: min_α (E_α − R_H) = −2L. Checked: the minimum "
    "that an interior-point solver finds, and −2 times the library's loss",
    tolerance=1e-11,
)
def game_value() -> Sides:
    left, right = [], []
    infonce = Row(
        "", lambda x: TAU * x.log(), lambda x: (x / TAU).exp(), "infonce", {"temperature": TAU, "epsilon": 0.0}
    )
    for size in ((5, 2), (9, 4)):
        z = two_views(*size)
        alpha = smallest_on_simplex(-2 * gaps(z), entropy(TAU), z.new_ones(size[0]))
        left.append((-2 * gaps(z) * alpha - entropy(TAU)(alpha)).sum())
        right.append(-2 * library_loss(z, infonce))
    return Sides(torch.stack(left), torch.stack(right))
