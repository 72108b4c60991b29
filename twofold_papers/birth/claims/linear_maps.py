"""The best linear map of frozen features for eq 2 and for the objectives of Corollary 1, as `twofold adapt` fits it.

F are features of V views of N images, T, B and W = T − B their total, between-image and within-image covariances, and
B u_k = ρ_k T u_k with UᵀTU = I. Each claim compares the closed form with the minimum that L-BFGS finds from several
random starts.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from twofold import objectives
from twofold.evaluate import closed_form
from twofold.evaluate.group_moments import GroupMoments
from twofold_papers.birth.claims.setting import stacked
from twofold_papers.verify.claim import Sides, claim
from twofold_papers.verify.numerics import Loss, descended, randn

V, N, K, STARTS = 3, 14, 4, 2
RANKS = (1, 2, 3)


class Problem:
    """Random views of random images, mixed by a matrix, with their covariances."""

    def __init__(self) -> None:
        views = (randn(1, N, K) + 0.8 * randn(V, N, K)) @ randn(K, K) + 1
        moments = GroupMoments()
        moments.add(views)
        self.features, self.total, self.within = views.flatten(0, 1), moments.total, moments.within
        self.found = closed_form.directions(moments.total, moments.between)

    def eq_2(self, a: Tensor, ridge: float) -> Tensor:
        """Eq 2 for the features FAᵀ and the graph of views."""
        return objectives.ridge_graph(self.features @ a.T, objectives.view_graph(N, V), ridge).total

    def covariance(self, a: Tensor) -> Tensor:
        """C = ATAᵀ."""
        return a @ self.total @ a.T

    def alignment(self, a: Tensor) -> Tensor:
        """tr(AWAᵀ), which is half of the mean squared distance of two views, apart from a factor."""
        return (a @ self.within @ a.T).trace()


def problems() -> Iterator[tuple[Problem, int]]:
    for rank in RANKS:
        yield Problem(), rank


def smallest(loss: Loss, rows: int) -> Tensor:
    """The smallest value over A [rows, K] that a descent finds."""
    return torch.stack([loss(descended(loss, randn(rows, K), steps=500, flat=1e-10)) for _ in range(STARTS)]).min()


def compared(loss_of: Callable[[Problem], Loss], best: Callable[[Problem, int], Tensor]) -> Sides:
    """The loss of the map in closed form, and the smallest loss that a descent finds."""
    left, right = [], []
    for problem, rank in problems():
        loss = loss_of(problem)
        left.append(loss(best(problem, rank)))
        right.append(smallest(loss, rank))
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "eq 2 of a linear map, λ → 0",
    "For frozen features and λ → 0, eq 2 depends only on the row space of the map A. With r rows, the best space is "
    "that of u_1 … u_r, and eq 2 is (VN − V − V(ρ_1 + … + ρ_r))/VN. Checked: this value, eq 2 for u_1 … u_r after a "
    "random mixing of the rows, and the smallest value of eq 2 that a descent finds, for r = 1, 2, 3",
    tolerance=1e-8,
)
def without_ridge() -> Sides:
    left, right = [], []
    for problem, rank in problems():
        ratios = problem.found.ratios
        mixed = randn(rank, rank) @ problem.found.map(closed_form.whitening_weights(ratios, rank))
        value = (V * N - V - V * ratios[:rank].sum()) / (V * N)
        left += [value, value]
        right += [problem.eq_2(mixed, 0.0), smallest(lambda a, p=problem: p.eq_2(a, 0.0), rank)]
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "eq 2 of a linear map, λ > 0",
    "For frozen features and tr(ATAᵀ) = c, the map that minimises eq 2 is A = diag(√p) Uᵀ with p_k = [√(λρ_k/ν) − λ]₊, "
    "and ν such that Σp = c. Checked: eq 2 for this map, and the smallest value that a descent finds over maps with "
    "this trace, for λ and c for which one to four p_k are above 0",
    tolerance=1e-8,
)
def with_ridge() -> Sides:
    left, right = [], []
    for ridge, size in ((0.01, 2.0), (0.3, 1.0), (2.0, 0.1), (1.0, 6.0)):
        problem = Problem()

        def loss(a: Tensor, p: Problem = problem, ridge: float = ridge, size: float = size) -> Tensor:
            return p.eq_2(a * (size / p.covariance(a).trace()).sqrt(), ridge)

        left.append(loss(problem.found.map(closed_form.ridge_weights(problem.found.ratios, ridge, size))))
        right.append(smallest(loss, K))
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "Corollary 1 of a linear map, W-MSE",
    "For frozen features and ATAᵀ = I with r rows, the distance between views, tr(AWAᵀ), is smallest for u_1 … u_r. "
    "Checked: tr(AWAᵀ) for these rows, and the smallest tr((BTBᵀ)⁻¹BWBᵀ) that a descent finds over B, for r = 1, 2, 3",
    tolerance=1e-8,
)
def whitening() -> Sides:
    def loss_of(problem: Problem) -> Loss:
        return lambda a: torch.linalg.solve(problem.covariance(a), a @ problem.within @ a.T).trace()

    return compared(loss_of, lambda p, rank: p.found.map(closed_form.whitening_weights(p.found.ratios, rank)))


@claim(
    "birth",
    "Corollary 1 of a linear map, penalty",
    "For frozen features, the map with r rows that minimises γ tr(AWAᵀ) + α‖ATAᵀ − I‖² is A = diag(√p) Uᵀ with the "
    "first r of p_k = [1 − γ(1 − ρ_k)/2α]₊. Checked: the loss of this map, and the smallest that a descent finds, for "
    "r = 1, 2, 3 and γ/α with p_r above 0 and equal to 0",
    tolerance=1e-8,
)
def penalty() -> Sides:
    left, right = [], []
    for problem, rank in problems():
        ratios = problem.found.ratios
        for alignment in (1.0, 2.4 / (1 - ratios[rank - 1].item())):

            def loss(a: Tensor, p: Problem = problem, alignment: float = alignment) -> Tensor:
                identity = torch.eye(len(a), dtype=a.dtype)
                return alignment * p.alignment(a) + (p.covariance(a) - identity).square().sum()

            weights = closed_form.threshold_weights(ratios, alignment)[:rank]
            left.append(loss(weights.sqrt()[:, None] * problem.found.vectors.T[:rank]))
            right.append(smallest(loss, rank))
    return Sides(stacked(left), stacked(right))


@claim(
    "birth",
    "Corollary 1 of a linear map, log-determinant",
    "For frozen features, tr(AWAᵀ) − log det ATAᵀ is smallest where AWAᵀ = I: the map whitens the features within "
    "images. With r rows these are u_1 … u_r, divided by √(1 − ρ_k). If W is singular, there is no minimum. Checked: "
    "the loss of this map, and the smallest that a descent finds, for r = 1, 2, 3",
    tolerance=1e-8,
)
def log_determinant() -> Sides:
    def loss_of(problem: Problem) -> Loss:
        return lambda a: problem.alignment(a) - problem.covariance(a).logdet()

    def best(problem: Problem, rank: int) -> Tensor:
        return problem.found.map(closed_form.within_weights(problem.found.ratios))[:rank]

    return compared(loss_of, best)
