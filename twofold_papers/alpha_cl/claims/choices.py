"""Section 6: other choices of α, by a regulariser or directly."""

from collections.abc import Callable

import torch
from torch import Tensor

from twofold import objectives
from twofold_papers.alpha_cl.claims.nets import flat, gradients, smallest_on_simplex, tracked, two_views, uniform
from twofold_papers.alpha_cl.claims.players import Row, Scalar, entropy, gaps, half_squared, library_loss
from twofold_papers.verify.claim import Sides, claim

GAMMA, TAU = 2.0, 0.5
# The regularisers r(α_ij) as printed, by the name of the library's rule, with the temperature the claims use.
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
    said = f"α of {parts[0]} minimises E_α − Σ r(α_ij) on Σ_j α_ij = 1, against an interior-point solver"
    claim("alpha-cl", f"section 6, {name}", said, tolerance=1e-11)(regularised(name))


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


@claim("alpha-cl", "eqs 12, 45", "the direct choice, α_ij = e^{−d_ij^p/τ} / Σ_j e^{−d_ij^p/τ}", tolerance=1e-13)
def direct() -> Sides:
    return powers(normalized=True)


@claim("alpha-cl", "eq 44", "the direct choice without normalising, α_ij = e^{−d_ij^p/τ}", tolerance=1e-13)
def direct_unnormalised() -> Sides:
    return powers(normalized=False)


@claim(
    "alpha-cl",
    "section 6, slope at 0",
    "where r'(α) → ∞ at α → 0 (r_H, r_γ) every pair keeps some weight",
    tolerance=0.0,
)
def no_pair_is_left_out() -> Sides:
    found = [objectives.importance(2 * uniform(6, 20), rule, temperature=TAU) for rule in ("entropy", "inverse")]
    return Sides(flat(found), 0.0, ">")


@claim(
    "alpha-cl",
    "section 6, finite slope",
    "with r_s, whose slope at 0 is finite, the far pairs get weight 0",
    tolerance=0.0,
)
def square_leaves_pairs_out() -> Sides:
    weights = objectives.importance(2 * uniform(8, 30), "square", temperature=0.5)
    return Sides(weights.amin(dim=1), 0.0)


def weights_of(rule: str, rows: Tensor, other_image: Tensor) -> Tensor:
    """α[2N, 2N] by the solver or by eq 12."""
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
    "α-CL ascends E_α with α held fixed, for r_H, r_γ, r_s and direct: value and gradient",
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
    "back-propagating through α keeps the value and turns the gradient: cosine < 1",
    tolerance=0.0,
)
def through_importance() -> Sides:
    cosines = []
    for _ in range(4):
        (z,) = tracked([two_views(6, 3)])
        found = [
            gradients(objectives.alpha_cl(z, "entropy", through_importance=on).total, [z])[0] for on in (False, True)
        ]
        cosines.append(torch.cosine_similarity(found[0].flatten(), found[1].flatten(), dim=0))
    return Sides(torch.stack(cosines), 1 - 1e-3, "<")


@claim(
    "alpha-cl",
    "section 3, max-min",
    "for InfoNCE with ε = 0 the game is exact: min_α E_α − R_H = −2L, so no player's answer is lost by sg",
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
