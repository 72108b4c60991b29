"""Section 4 and appendix B.2: for a linear encoder, DIET with a squared loss is spectral contrastive learning."""

from itertools import combinations

import torch
from torch import Tensor

from twofold_papers.s_diet.claims.linear import Data, built, datasets, isometric, sides, stack
from twofold_papers.s_diet.claims.solver import minimise
from twofold_papers.verify.claim import Sides, claim
from twofold_papers.verify.numerics import randn


@claim(
    "s-diet",
    "Lemma 4.2",
    "For every model there is one with the same outputs W_HW whose W_H is an isometry. Checked: the outputs of both "
    "models, and W_HᵀW_H = I, for random models with a singular W_H",
    tolerance=1e-12,
)
def isometric_model() -> Sides:
    def pair(data: Data) -> tuple[Tensor, Tensor]:
        w, head = data.unpack(data.model())
        head[:, -1] = head[:, 0]  # makes W_H singular
        new_w, new_head = isometric(w, head)
        identity = torch.eye(data.m, dtype=torch.float64)
        return stack([data.x @ new_w.T @ new_head.T, new_head.T @ new_head]), stack([data.x @ w.T @ head.T, identity])

    return sides(pair)


@claim(
    "s-diet",
    "eq 15",
    "Tr(WXYᵀW_H)/N ≤ Σ λ_i over the eigenvectors in W, for every isometry W_H. Checked: this inequality for 20 random "
    "isometries and each pair of the first three eigenvectors",
    tolerance=1e-12,
)
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
    "At the minimum of L_diet with an isometric W_H, MWᵀWM = M[M†M_pos]_m and Tr(WXYᵀW_H)/N = Tr[M†M_pos]_m. Checked: "
    "both equations at the minimum that L-BFGS finds",
    tolerance=1e-6,  # L-BFGS stops when the float64 loss no longer changes; W is then accurate to about 1e-7
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


@least_diet_is_that.published(
    "the trace is Tr(WXYᵀW_Hᵀ). This is defined only for m = n, and has another value than the correct trace"
)
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
    "If both equations hold, L_diet = ½ − ½ Tr[M†M_pos]_m is the minimum. Checked: L_diet for the W of this theorem "
    "with its best isometric W_H, this formula, and the minimum that L-BFGS finds over all W and W_H",
    tolerance=1e-12,
)
def least_diet() -> Sides:
    def pair(data: Data) -> tuple[Tensor, Tensor]:
        w = built(data, tuple(range(min(data.m, len(data.spectrum[0])))))
        found = stack([data.best_isometric_loss(w), 0.5 - data.top().trace() / 2])
        return found, data.diet(*data.best_diet).expand(2)

    return sides(pair)


@claim(
    "s-diet",
    "Theorem 4.3 (1)",
    "The W that minimises L_diet with an isometric W_H also minimises L_scl. Checked: L_scl of this W, and the minimum "
    "of L_scl, both found by L-BFGS",
    tolerance=1e-12,
)
def diet_then_scl() -> Sides:
    def pair(data: Data) -> tuple[Tensor, Tensor]:
        w = minimise(data.best_isometric_loss, *(data.encoder() for _ in range(3)))
        return data.scl(w), data.scl(data.best_scl)

    return sides(pair)


@claim(
    "s-diet",
    "Theorem 4.3 (2)",
    "The W that minimises L_scl, with the best isometric W_H, also minimises L_diet. Checked: L_diet of this model, "
    "and the minimum of L_diet over all models, both found by L-BFGS",
    tolerance=1e-12,
)
def scl_then_diet() -> Sides:
    return sides(lambda data: (data.best_isometric_loss(data.best_scl), data.diet(*data.best_diet)))
