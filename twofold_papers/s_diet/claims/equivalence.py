"""Section 4 and appendix B.2: with a linear encoder, DIET with a squared loss is spectral contrastive learning."""

from itertools import combinations

import torch
from torch import Tensor

from twofold_papers.s_diet.claims.linear import Data, built, datasets, isometric, sides, stack
from twofold_papers.s_diet.claims.solver import minimise
from twofold_papers.verify.claim import Sides, claim
from twofold_papers.verify.numerics import randn


@claim(
    "s-diet", "Lemma 4.2", "every model has one with the same outputs, W_HW, whose head is an isometry", tolerance=1e-12
)
def isometric_model() -> Sides:
    def pair(data: Data) -> tuple[Tensor, Tensor]:
        w, head = data.unpack(data.model())
        head[:, -1] = head[:, 0]  # also where the head is singular
        new_w, new_head = isometric(w, head)
        identity = torch.eye(data.m, dtype=torch.float64)
        return stack([data.x @ new_w.T @ new_head.T, new_head.T @ new_head]), stack([data.x @ w.T @ head.T, identity])

    return sides(pair)


@claim("s-diet", "eq 15", "Tr(WXYᵀW_H)/N ≤ Σ λ_i over W's eigenvectors, for every isometry W_H", tolerance=1e-12)
def alignment_is_bounded() -> Sides:
    left, right = [], []
    for data in datasets():
        eigenvalues, _ = data.spectrum
        for chosen in combinations(range(min(3, len(eigenvalues))), 2):
            w = built(data, chosen)
            heads = [torch.linalg.qr(randn(data.y.shape[1], data.m))[0] for _ in range(20)]
            left += [_alignment(data, w, head) for head in heads]
            right += [eigenvalues[list(chosen)].sum()] * len(heads)
    return Sides(torch.stack(left), torch.stack(right), "≤")


@claim(
    "s-diet",
    "Theorem B.3 (only if)",
    "at the least L_diet, W_H an isometry: MWᵀWM = M[M†M_pos]_m and Tr(WXYᵀW_H)/N = Tr[M†M_pos]_m",
    tolerance=1e-6,  # where L-BFGS's value no longer changes in float64, W is known to about 1e-7
)
def least_diet_is_that() -> Sides:
    def pair(data: Data) -> tuple[Tensor, Tensor]:
        w, head = isometric(*data.best_diet)
        moment = data.second_moment
        return (
            stack([moment @ w.T @ w @ moment, _alignment(data, w, head)]),
            stack([moment @ data.top(), data.top().trace()]),
        )

    return sides(pair)


@least_diet_is_that.printed("Tr(WXYᵀW_Hᵀ), which has a meaning only where m = n, and is then another number")
def _() -> Sides:
    square = [data for data in datasets() if data.m == data.y.shape[1]]
    models = [isometric(*data.best_diet) for data in square]
    found = [_alignment(data, w, head.T) for data, (w, head) in zip(square, models, strict=True)]
    return Sides(torch.stack(found), torch.stack([data.top().trace() for data in square]))


def _alignment(data: Data, w: Tensor, head: Tensor) -> Tensor:
    return (w @ data.x.T @ data.y @ head).trace() / len(data.x)


@claim(
    "s-diet",
    "Theorem B.3 (if)",
    "where both hold, L_diet is ½ − ½ Tr[M†M_pos]_m, the least that a solver finds for any head",
    tolerance=1e-12,
)
def least_diet() -> Sides:
    def pair(data: Data) -> tuple[Tensor, Tensor]:
        w = built(data, tuple(range(min(data.m, len(data.spectrum[0])))))
        found = stack([data.best_isometric_loss(w), 0.5 - data.top().trace() / 2])
        return found, data.diet(*data.best_diet).expand(2)

    return sides(pair)


@claim("s-diet", "Theorem 4.3 (1)", "W of the least L_diet with an isometric head has the least L_scl", tolerance=1e-12)
def diet_then_scl() -> Sides:
    def pair(data: Data) -> tuple[Tensor, Tensor]:
        w = minimise(data.best_isometric_loss, *(data.encoder() for _ in range(3)))
        return data.scl(w), data.scl(data.best_scl)

    return sides(pair)


@claim(
    "s-diet",
    "Theorem 4.3 (2)",
    "W of the least L_scl has, with an isometric head, the least L_diet of all models",
    tolerance=1e-12,
)
def scl_then_diet() -> Sides:
    return sides(lambda data: (data.best_isometric_loss(data.best_scl), data.diet(*data.best_diet)))
