"""Section 5: two-layer ReLU networks on one-hot mixtures (Assumption 1), where weights that reach 0 stay at 0.

T is the number of networks in parallel, K that of hidden nodes, M that of modes: W_1[T, K, M], W_2[T, n, K].
"""

from itertools import combinations

import torch
from torch import Tensor

from twofold import objectives
from twofold_papers.alpha_cl.claims.nets import (
    Field,
    Weights,
    ascend,
    flat,
    gradients,
    linear_energy,
    linear_slopes,
    mixture,
    normal,
    pair_weights,
    tracked,
    uniform,
    unit_filters,
    unit_layers,
)
from twofold_papers.verify.claim import Sides, claim

SIZES = [(8, 3), (12, 5), (20, 8)]  # samples, modes


def mixture_covariance(samples: int, modes: int, apart: float = 0.3) -> Tensor:
    """X_α of one-hot data, scaled to a largest |eigenvalue| of 1."""
    x, alpha = mixture(samples, modes, apart), pair_weights(samples)
    found = objectives.contrastive_covariance(x[0], x[1], alpha)
    return found / torch.linalg.matrix_norm(found, 2)


def relu_network(weights: Weights, x: Tensor) -> Tensor:
    return (x @ weights[0].mT).relu() @ weights[1].mT


def linear_network(weights: Weights, x: Tensor) -> Tensor:
    return x @ weights[0].mT @ weights[1].mT


def start(modes: int, hidden: int = 4, outputs: int = 3, networks: int = 0) -> Weights:
    """Random W_1 ≥ 0 and W_2 of any sign."""
    batch = (networks,) if networks else ()
    return [uniform(*batch, hidden, modes), normal(*batch, outputs, hidden)]


def sticky_slopes(weights: Weights, x_alpha: Tensor) -> Weights:
    """Theorem 4: the gradient of the linear network, but 0 for the weights of W_1 that are 0."""
    first, second = linear_slopes(weights, x_alpha)
    return [first * (weights[0] > 0), second]


@claim(
    "alpha-cl",
    "Lemma 3",
    "On one-hot data, max(W_1, 0) gives the ReLU network the same output as W_1. Checked: both outputs, for "
    "three random mixtures",
    tolerance=1e-13,
)
def negative_weights_do_nothing() -> Sides:
    left, right = [], []
    for samples, modes in SIZES:
        x, w1, w2 = mixture(samples, modes), normal(4, modes), normal(3, 4)
        left.append(relu_network([w1, w2], x))
        right.append(relu_network([w1.clamp_min(0), w2], x))
    return Sides(flat(left), flat(right))


@claim(
    "alpha-cl",
    "Lemma 3, energy",
    "If W_1 ≥ 0, the energy of the ReLU network is tr(W_2 W_1 X_α W_1ᵀ W_2ᵀ), as for a linear network. "
    "Checked: energy of the ReLU embeddings and this trace, for three random mixtures",
    tolerance=1e-12,
)
def relu_energy() -> Sides:
    left, right = [], []
    for samples, modes in SIZES:
        x, alpha, weights = mixture(samples, modes), pair_weights(samples), start(modes)
        z = relu_network(weights, x)
        left.append(objectives.energy(z[0], z[1], alpha))
        right.append(linear_energy(weights, objectives.contrastive_covariance(x[0], x[1], alpha)))
    return Sides(torch.stack(left), torch.stack(right))


@claim(
    "alpha-cl",
    "Lemma 12",
    "If W_1 ≥ 0 and x ≥ 0, the ReLU network has the same activations as the linear one. Checked: hidden and "
    "output activations, for three random mixtures",
    tolerance=1e-13,
)
def same_activations() -> Sides:
    left, right = [], []
    for samples, modes in SIZES:
        x, weights = mixture(samples, modes), start(modes)
        left += [(x @ weights[0].mT).relu(), relu_network(weights, x)]
        right += [x @ weights[0].mT, linear_network(weights, x)]
    return Sides(flat(left), flat(right))


@claim(
    "alpha-cl",
    "Theorem 4, eqs 40-41",
    "The gradient of the ReLU network equals that of the linear network for w_1km > 0, and it is 0 for w_1km "
    "= 0. Checked: the gradient of ½E by autograd and this formula, with about 40 % of W_1 set to 0",
    tolerance=1e-12,
)
def sticky_gradient() -> Sides:
    left, right = [], []
    for samples, modes in SIZES:
        x, alpha, weights = mixture(samples, modes), pair_weights(samples), start(modes)
        weights[0][uniform(4, modes) < 0.4] = 0
        at = tracked(weights)
        z = relu_network(at, x)
        left += gradients(objectives.energy(z[0], z[1], alpha) / 2, at)
        right += sticky_slopes(weights, objectives.contrastive_covariance(x[0], x[1], alpha))
    return Sides(flat(left), flat(right))


STEPS = 150


def moved(weights: Weights, slopes: Weights) -> Weights:
    """A step of constant length; the flow itself diverges in finite time."""
    return [weight + 0.05 * slope / flat(slopes).norm() for weight, slope in zip(weights, slopes, strict=True)]


def climb(weights: Weights, x_alpha: Tensor, sticky: bool) -> Weights:
    """Gradient ascent of the linear network on ½E, with or without sticky zeros."""
    for _ in range(STEPS):
        weights = moved(weights, sticky_slopes(weights, x_alpha) if sticky else linear_slopes(weights, x_alpha))
        if sticky:
            weights[0] = weights[0].clamp_min(0)
    return weights


@claim(
    "alpha-cl",
    "Theorem 4",
    "During training, the ReLU network stays equal to the linear network with sticky zeros. Checked: the "
    "weights of both after 150 steps from the same start, for three random mixtures",
    tolerance=1e-10,
)
def sticky_training() -> Sides:
    left, right = [], []
    for samples, modes in SIZES:
        x, alpha, free = mixture(samples, modes), pair_weights(samples), start(modes)
        right += climb(free, objectives.contrastive_covariance(x[0], x[1], alpha), sticky=True)
        for _ in range(STEPS):
            at = tracked(free)
            z = relu_network(at, x)
            free = moved(free, gradients(objectives.energy(z[0], z[1], alpha) / 2, at))
        left += [
            free[0].clamp_min(0),
            free[1],
        ]  # a step may end below 0, which has the same effect as 0 in the ReLU network
    return Sides(flat(left), flat(right))


@claim(
    "alpha-cl",
    "Theorem 4, sticky zeros",
    "Without sticky zeros, W_1 of the linear network becomes negative. Checked: its smallest weight is below "
    "−0.01 after 150 steps, for three random mixtures",
    tolerance=0.0,
)
def linear_weights_go_below_zero() -> Sides:
    lowest = []
    for samples, modes in SIZES:
        x, alpha = mixture(samples, modes), pair_weights(samples)
        x_alpha = objectives.contrastive_covariance(x[0], x[1], alpha)
        lowest.append(climb(start(modes), x_alpha, sticky=False)[0].min())
    return Sides(torch.stack(lowest), -0.01, "<")


@claim(
    "alpha-cl",
    "Lemma 14",
    "On one-hot data in which every mode occurs, all off-diagonal entries of X_α are negative. Checked: the "
    "entries, for three random mixtures",
    tolerance=0.0,
)
def negative_off_diagonals() -> Sides:
    found = []
    for samples, modes in SIZES:
        x_alpha = mixture_covariance(samples, modes)
        found.append(x_alpha[~torch.eye(modes, dtype=torch.bool)])
    return Sides(flat(found), 0.0, "<")


@claim(
    "alpha-cl",
    "eqs 88-90",
    "The off-diagonal entries are (X_α)_ml = −Σ_{i∈A_m, j∈A_l} (α_ij + α_ji) x_m[i] x_l[j], so augmentation "
    "changes only the diagonal. Checked: contrastive_covariance and this formula, for three random mixtures",
    tolerance=1e-12,
)
def off_diagonals() -> Sides:
    left, right = [], []
    for samples, modes in SIZES:
        x, alpha = mixture(samples, modes), pair_weights(samples)
        off = 1 - torch.eye(modes, dtype=x.dtype)
        left.append(objectives.contrastive_covariance(x[0], x[1], alpha) * off)
        right.append(-(x[0].mT @ (alpha + alpha.mT) @ x[0]) * off)
    return Sides(flat(left), flat(right))


@claim(
    "alpha-cl",
    "Lemma 13",
    "The largest eigenvector of X_α has entries of both signs. Checked: the product of its smallest and "
    "largest entry is below 0, for four random mixtures",
    tolerance=0.0,
)
def mixed_signs() -> Sides:
    found = []
    for samples, modes in [(6, 2), *SIZES]:
        largest = torch.linalg.eigh(mixture_covariance(samples, modes)).eigenvectors[:, -1]
        found.append(largest.min() * largest.max())
    return Sides(torch.stack(found), 0.0, "<")


@claim(
    "alpha-cl",
    "Lemma 13, proof",
    "The smallest eigenvector of X_α is positive in every entry, up to its sign; this implies Lemma 13. "
    "Checked: its entries, for four random mixtures",
    tolerance=0.0,
)
def perron_vector() -> Sides:
    found = []
    for samples, modes in [(6, 2), *SIZES]:
        smallest = torch.linalg.eigh(mixture_covariance(samples, modes)).eigenvectors[:, 0]
        found.append((smallest * smallest.sum().sign()).min())
    return Sides(torch.stack(found), 0.0, ">")


@claim(
    "alpha-cl",
    "Lemma 15",
    "If v > 0 and uᵀv = 0, then min u ≤ −(min v / (d−k)) ‖u‖_∞/‖v‖_∞, where k is the number of entries of u "
    "that are ≥ 0. Checked: the inequality for 400 random pairs in each of 2, 3 and 7 dimensions",
    tolerance=1e-14,
)
def most_negative_entry() -> Sides:
    left, right = [], []
    for dim in (2, 3, 7):
        v, u = uniform(400, dim) + 0.05, normal(400, dim)
        u = u - (u * v).sum(dim=1, keepdim=True) / v.square().sum(dim=1, keepdim=True) * v
        negative = (u < 0).sum(dim=1)
        left.append(u.amin(dim=1))
        right.append(-v.amin(dim=1) / negative * u.abs().amax(dim=1) / v.amax(dim=1))
    return Sides(flat(left), flat(right), "≤")


@claim(
    "alpha-cl",
    "eq 42",
    "With one hidden node, the flow of the ReLU network is ẇ_1 = diag(w_1 > 0) X_α w_1. Checked: the gradient "
    "of ½E by autograd and this formula, for three random mixtures",
    tolerance=1e-12,
)
def one_node_flow() -> Sides:
    left, right = [], []
    for samples, modes in SIZES:
        x, alpha = mixture(samples, modes), pair_weights(samples)
        (w1,) = tracked([uniform(1, modes) * (uniform(1, modes) > 0.3)])
        (w2,) = unit_layers([normal(3, 1)])
        z = relu_network([w1, w2], x)
        left += gradients(objectives.energy(z[0], z[1], alpha) / 2, [w1])
        w = w1.detach()
        right.append((w > 0) * (w @ objectives.contrastive_covariance(x[0], x[1], alpha)))
    return Sides(flat(left), flat(right))


@claim(
    "alpha-cl",
    "Theorem 5",
    "One hidden node with ‖w_1‖ = 1 ends at w_1 = e_m for some m, from every start. Checked: the largest "
    "entry and the sum of entries are 1, from 40 random starts for each of three mixtures",
    tolerance=1e-12,
)
def one_mode() -> Sides:
    ends = []
    for samples, modes in SIZES:
        x_alpha = mixture_covariance(samples, modes)
        w = torch.nn.functional.normalize(uniform(40, modes), dim=1)
        for _ in range(4000):
            w = (w + 0.05 * (w > 0) * (w @ x_alpha)).clamp_min(0)
            w = w / w.norm(dim=1, keepdim=True)
        ends.append(torch.stack([w.amax(dim=1), w.sum(dim=1)]))
    return Sides(torch.cat(ends, dim=1), 1.0)  # a unit vector ≥ 0 whose entries sum to 1 has one nonzero entry


@claim(
    "alpha-cl",
    "section 5.2",
    "Every e_m is a local maximum among w_1 ≥ 0, so the start decides which one is reached. Checked: 50 "
    "random points near each e_m have a lower energy",
    tolerance=0.0,
)
def every_mode_is_a_maximum() -> Sides:
    near, at = [], []
    for samples, modes in SIZES:
        x_alpha = mixture_covariance(samples, modes)
        w = torch.eye(modes, dtype=x_alpha.dtype) + 1e-3 * uniform(50, modes, modes)
        w = w / w.norm(dim=-1, keepdim=True)
        near.append((w @ x_alpha * w).sum(dim=-1))
        at.append(x_alpha.diagonal().expand(50, modes))
    return Sides(flat(near), flat(at), "<")


def rank_one_energy(head: int) -> Sides:
    """tr(W_2 W_1 X W_1ᵀ W_2ᵀ) for W_1 = vuᵀ, and (uᵀXu) ‖W_2 h‖², where h is v (head 0) or u (head 1)."""
    left, right = [], []
    for samples, modes in SIZES:
        x_alpha, w2 = mixture_covariance(samples, modes), normal(3, modes)
        u, v = (torch.nn.functional.normalize(uniform(modes), dim=0) for _ in range(2))
        left.append(linear_energy([torch.outer(v, u), w2], x_alpha))
        right.append((u @ x_alpha @ u) * (w2 @ (v, u)[head]).square().sum())
    return Sides(torch.stack(left), torch.stack(right))


@claim(
    "alpha-cl",
    "eq 43",
    "For W_1 = vuᵀ, E = (uᵀ X_α u) ‖W_2 v‖². Checked: the energy and this formula, for three random mixtures",
    tolerance=1e-12,
)
def rank_one_solution() -> Sides:
    return rank_one_energy(0)


@rank_one_solution.published("(uᵀ X_α u) ‖W_2 u‖². But u has M entries, and W_2 has K columns")
def _() -> Sides:
    return rank_one_energy(1)


def trained(apart: float, networks: int, project: Field = unit_layers, steps: int = 1500) -> tuple[Tensor, Weights]:
    """X_α[T, 5, 5] of T random data sets, and the ReLU networks (4 hidden nodes) at the end of sticky ascent."""
    x_alpha = torch.stack([mixture_covariance(40, 5, apart) for _ in range(networks)])
    weights = project(start(5, networks=networks))
    return x_alpha, ascend(weights, lambda at: sticky_slopes(at, x_alpha), project, steps, rate=0.1, floor=0.0)


def second_singular_value(matrix: Tensor) -> Tensor:
    return torch.linalg.svdvals(matrix)[..., 1]


@claim(
    "alpha-cl",
    "Theorem 6",
    "W_1 = vuᵀ ≥ 0 is not a local optimum if u has two or more positive entries. For the rows and columns X_S of these "
    "entries, E is proportional to uᵀX_S u, which has no local maximum on the sphere below the largest eigenvalue of "
    "X_S. Checked: uᵀX_S u is below it for every set of modes in three mixtures, for random u > 0 and for the smallest "
    "eigenvector; the others have both signs",
    tolerance=0.0,
)
def rank_one_is_no_optimum() -> Sides:
    below, above = [], []
    for samples, modes in SIZES:
        x_alpha = mixture_covariance(samples, modes)
        for size in range(2, modes + 1):
            for chosen in map(list, combinations(range(modes), size)):
                x_S = x_alpha[chosen][:, chosen]
                values, vectors = torch.linalg.eigh(x_S)
                u = torch.nn.functional.normalize(uniform(5, size), dim=1)
                below += [(u @ x_S * u).sum(dim=1), values[:1], vectors[:, 1:].amin(0) * vectors[:, 1:].amax(0)]
                above += [values[-1].expand(6), torch.zeros(size - 1, dtype=values.dtype)]
    return Sides(flat(below), flat(above), "<")


@claim(
    "alpha-cl",
    "Theorem 6, training",
    "ReLU networks end at W_1 = v e_mᵀ or at a rank above 1. This does not test whether the end points are local "
    "optima. Checked: 80 networks, of which those with E > 0 count; if the second singular value of W_1 is at most "
    "1e-3, the second largest column norm is 0",
    tolerance=1e-6,
)
def diversity() -> Sides:  # near the boundary between both cases, the last weights decay slowly
    measures = []
    for apart, project in ((0.3, unit_layers), (0.9, unit_layers), (0.3, unit_filters), (0.9, unit_filters)):
        x_alpha, weights = trained(apart, 20, project, steps=3000)
        columns = weights[0].norm(dim=1).sort(dim=1, descending=True).values
        spread = torch.where(second_singular_value(weights[0]) > 1e-3, 0, columns[:, 1])
        measures.append(spread[linear_energy(weights, x_alpha) > 1e-6])
    return Sides(flat(measures), 0.0)


@claim(
    "alpha-cl",
    "Theorem 6, rank 1",
    "With mild augmentation and ‖W_1‖_F = 1, all networks end at rank 1. Checked: the second singular value "
    "of W_1 is 0 in 110 networks",
    tolerance=1e-9,
)
def rank_one_reached() -> Sides:
    _, weights = trained(0.3, 110)
    return Sides(second_singular_value(weights[0]), 0.0)


def two_node_energy(x_alpha: Tensor, mode: int, step: float) -> Tensor:
    """E if node 1 reads mode m, and node 2, with the opposite sign in W_2, reads a little of the best other modes."""
    other = (-x_alpha[mode]).clamp_min(0)
    other[mode] = 0
    first = torch.zeros(2, len(x_alpha), dtype=x_alpha.dtype)
    first[0, mode], first[1] = 1, step * other / other.norm()
    second = torch.tensor([[1.0, -step]], dtype=x_alpha.dtype)
    return linear_energy(unit_layers([first, second]), x_alpha)


@claim(
    "alpha-cl",
    "Theorem 6, when",
    "Our addition: next to v e_mᵀ with a spare node (v_k = 0), there are weights of rank 2 with a larger "
    "energy exactly if X_mm < ‖(X_ml)_{l≠m}‖. Checked: the energy gained by a small step to rank 2, divided "
    "by twice its squared length, is ‖(X_ml)_{l≠m}‖ − X_mm",
    tolerance=1e-5,
)
def when_rank_two() -> Sides:  # (E(step) − E(0)) / 2 step² is this difference, up to terms of order step²
    left, right = [], []
    for apart in (0.0, 0.5, 1.0, 1.5):
        x_alpha = mixture_covariance(20, 4, apart)
        for mode in range(4):
            off = x_alpha[mode].clone()
            off[mode] = 0
            left.append((two_node_energy(x_alpha, mode, 1e-3) - x_alpha[mode, mode]) / (2 * 1e-3**2))
            right.append(off.norm() - x_alpha[mode, mode])
    return Sides(torch.stack(left), torch.stack(right))


@claim(
    "alpha-cl",
    "Theorem 6, rank 2",
    "Our addition: with strong augmentation and ‖W_1‖_F = 1, some networks end at rank 2. Checked: among 60 "
    "networks, the share whose second singular value of W_1 is above 0.1 is positive",
    tolerance=0.0,
)
def rank_two_reached() -> Sides:
    x_alpha, weights = trained(1.0, 60)
    positive = linear_energy(weights, x_alpha) > 1e-6
    return Sides((second_singular_value(weights[0])[positive] > 0.1).double().mean(), 0.0, ">")
