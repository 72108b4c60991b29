"""Appendices A.2 and B.2: the spectral contrastive loss and DIET's squared loss, gradients and critical points."""

from itertools import combinations

import torch
from torch import Tensor

from twofold.objectives import spectral_contrastive
from twofold_papers.s_diet.claims.linear import Data, built, datasets, sides, stack
from twofold_papers.s_diet.claims.solver import gradient
from twofold_papers.verify.claim import Sides, claim


@claim(
    "s-diet",
    "eq 2",
    "L_scl is the spectral contrastive loss over all pairs of views. Checked: L_scl pair by pair, and the library's "
    "loss (over pairs of different views and of different images) plus the remaining pairs within an image",
    tolerance=1e-11,
)
def spectral_loss() -> Sides:
    def pair(data: Data) -> tuple[Tensor, Tensor]:
        w = data.encoder()
        z = data.z_VNd @ w.T
        views, n, _ = z.shape
        scale = (views * (n - 1) / (views - 1)) ** 0.5
        between = spectral_contrastive(scale * z).total * n * (views - 1) ** 2 / (2 * (n - 1))
        norms = z.square().sum()
        same = torch.einsum("vnd,wnd->vwn", z, z).square().sum()
        return data.scl(w), (between - norms + same / 2) / (n * views) ** 2

    return sides(pair)


@claim(
    "s-diet",
    "A.2",
    "L*_scl(√α f) = 2α² L_scl(f), where 1/α is the share of positive pairs. Checked: both losses pair by pair, for "
    "random encoders",
    tolerance=1e-11,
)
def rescaled() -> Sides:
    return sides(lambda data: _rescaled(data, power=0.5, factor=2.0))


@rescaled.published(
    "L*_scl(αf) = α² L_scl(f). The conclusion, that both losses have the same landscape up to a rescaling, is right"
)
def _() -> Sides:
    return sides(lambda data: _rescaled(data, power=1.0, factor=1.0))


def _rescaled(data: Data, power: float, factor: float) -> tuple[Tensor, Tensor]:
    w, same = data.encoder(), (data.y @ data.y.T).bool()
    alpha = 1 / same.double().mean()
    f = alpha**power * data.x @ w.T
    scores = f @ f.T
    return -2 * scores[same].mean() + scores.square().mean(), factor * alpha**2 * data.scl(w)


@claim(
    "s-diet",
    "eq 2, by matrices",
    "L_scl = Tr(−WᵀWM_pos + ½ WᵀWM WᵀWM) for a linear encoder W. Checked: L_scl pair by pair, and this trace",
    tolerance=1e-12,
)
def spectral_loss_by_matrices() -> Sides:
    def pair(data: Data) -> tuple[Tensor, Tensor]:
        w = data.encoder()
        gram = w.T @ w
        attraction = (gram @ data.positive_moment).trace()
        product = gram @ data.second_moment
        return data.scl(w), -attraction + (product @ product).trace() / 2

    return sides(pair)


@spectral_loss_by_matrices.published("L_scl = Tr(−2WᵀWM_pos + WᵀWM WᵀWM), in the proof of Theorem B.1")
def _() -> Sides:
    def pair(data: Data) -> tuple[Tensor, Tensor]:
        w = data.encoder()
        gram = w.T @ w
        product = gram @ data.second_moment
        return data.scl(w), (-2 * gram @ data.positive_moment + product @ product).trace()

    return sides(pair)


@spectral_loss_by_matrices.holds_if(
    "L_scl is twice that of eq 2: footnote 1 of the paper ignores constant factors", fails_if="L_scl is that of eq 2"
)
def _() -> Sides:
    return sides(lambda data: _twice_the_loss(data, data.encoder()))


def has_invertible_moment(data: Data) -> bool:
    return int(torch.linalg.matrix_rank(data.second_moment)) == len(data.second_moment)


def _twice_the_loss(data: Data, w: Tensor) -> tuple[Tensor, Tensor]:
    product = w.T @ w @ data.second_moment
    return 2 * data.scl(w), (-2 * w.T @ w @ data.positive_moment + product @ product).trace()


@claim(
    "s-diet",
    "eq 9",
    "∂L_scl/∂W = 2(−WM_pos + WMWᵀWM). Checked: the gradient by autograd, and this formula",
    tolerance=1e-11,
)
def spectral_gradient() -> Sides:
    return sides(lambda data: _spectral_gradient(data, 2.0))


@spectral_gradient.published("∂L_scl/∂W = −WM_pos + WMWᵀWM, without the factor 2")
def _() -> Sides:
    return sides(lambda data: _spectral_gradient(data, 1.0))


@spectral_gradient.holds_if(
    "a constant factor is ignored, which changes neither the critical points nor the direction of the gradient",
    fails_if="L_scl is that of eq 2, or twice that, as in the proof of Theorem B.1",
)
def _() -> Sides:
    def pair(data: Data) -> tuple[Tensor, Tensor]:
        slope, formula = _spectral_gradient(data, 1.0)
        return slope / slope.norm(), formula / formula.norm()

    return sides(pair)


def _spectral_gradient(data: Data, factor: float) -> tuple[Tensor, Tensor]:
    w, moment = data.encoder(), data.second_moment
    return gradient(data.scl, w), factor * (w @ moment @ w.T @ w @ moment - w @ data.positive_moment)


@claim(
    "s-diet",
    "Theorem B.1 (if)",
    "∇L_scl = 0 if WᵀWM equals M†M_pos on some of its eigenvectors and 0 on the others. Checked: the gradient by "
    "autograd at such W, for every choice of eigenvectors",
    tolerance=1e-12,
)
def critical_points_of_scl() -> Sides:
    slopes = []
    for data in datasets():
        positive = int((data.spectrum[0] > 1e-10).sum())
        for size in range(1, min(data.m, positive) + 1):
            slopes += [gradient(data.scl, built(data, chosen)) for chosen in combinations(range(positive), size)]
    return Sides(stack(slopes), 0.0)


@claim(
    "s-diet",
    "Theorem B.1 (only if)",
    "If ∇L_scl = 0, then MWᵀWM v_i = s_i λ_i M v_i and MWᵀWM_pos v_i = s_i λ_i² M v_i, where each s_i is 0 or 1. "
    "Checked: both equations at critical points that a solver finds",
    tolerance=1e-10,
)
def critical_points_of_scl_are_those() -> Sides:
    return _structure(published=False)


@critical_points_of_scl_are_those.published(
    "WᵀWM v_i = s_i λ_i v_i and WᵀWM_pos v_i = s_i λ_i² v_i, without the M on the left"
)
def _() -> Sides:
    return _structure(published=True)


@critical_points_of_scl_are_those.holds_if(
    "M is invertible", fails_if="M is singular, because W is then arbitrary outside the image of M"
)
def _() -> Sides:
    return _structure(published=True, invertible=True)


def _structure(published: bool, invertible: bool = False) -> Sides:
    left, right = [], []
    for data in filter(has_invertible_moment, datasets()) if invertible else datasets():
        eigenvalues, v = data.spectrum
        moment = data.second_moment
        seen = torch.eye(len(moment)).to(moment) if published else moment
        for w in data.stationary_scl:
            image = w.T @ w @ moment @ v
            taken = ((v.T @ moment @ image).diagonal() > eigenvalues / 2) & (eigenvalues > 1e-9)
            left += [seen @ image, seen @ w.T @ w @ data.positive_moment @ v]
            right += [seen @ v * (taken * eigenvalues), seen @ v * (taken * eigenvalues.square())]
    return Sides(stack(left), stack(right))


@claim(
    "s-diet",
    "Theorem B.1 (least value)",
    "The minimum of L_scl is −½ Σ λ_i² over the m largest eigenvalues. Checked: the minimum that L-BFGS finds, and "
    "this sum",
    tolerance=1e-12,
)
def least_scl() -> Sides:
    return sides(lambda data: (data.scl(data.best_scl), -data.spectrum[0][: data.m].square().sum() / 2))


@least_scl.published("the minimum of L_scl is −Σ λ_i²")
def _() -> Sides:
    return sides(lambda data: (data.scl(data.best_scl), -data.spectrum[0][: data.m].square().sum()))


@least_scl.holds_if(
    "L_scl is twice that of eq 2, as in the proof of Theorem B.1: footnote 1 of the paper ignores constant factors",
    fails_if="L_scl is that of eq 2",
)
def _() -> Sides:
    return sides(lambda data: (2 * data.scl(data.best_scl), -data.spectrum[0][: data.m].square().sum()))


@claim(
    "s-diet",
    "Theorem B.1 (global)",
    "At a global minimum of L_scl, MWᵀWM = M[M†M_pos]_m. Checked: both sides at the minimum that L-BFGS finds",
    tolerance=1e-7,  # L-BFGS stops when the float64 loss no longer changes; W is then accurate to 1e-8
)
def global_minimum_of_scl() -> Sides:
    return sides(lambda data: (_squared(data, data.best_scl, data.second_moment), data.second_moment @ data.top()))


@global_minimum_of_scl.published("WᵀWM = [M†M_pos]_m, without the M on the left")
def _() -> Sides:
    return sides(lambda data: (_squared(data, data.best_scl), data.top()))


@global_minimum_of_scl.holds_if(
    "M is invertible", fails_if="M is singular, because W is then arbitrary outside the image of M"
)
def _() -> Sides:
    pairs = [(_squared(data, data.best_scl), data.top()) for data in filter(has_invertible_moment, datasets())]
    return Sides(stack([left for left, _ in pairs]), stack([right for _, right in pairs]))


def _squared(data: Data, w: Tensor, left: Tensor | None = None) -> Tensor:
    product = w.T @ w @ data.second_moment
    return product if left is None else left @ product


@claim(
    "s-diet",
    "eq 10 and 11",
    "∂L_diet/∂W = W_Hᵀ(W_HWX − Y)Xᵀ/N and ∂L_diet/∂W_H = (W_HWX − Y)XᵀWᵀ/N. Checked: the gradients by autograd, and "
    "these formulas",
    tolerance=1e-11,
)
def diet_gradient() -> Sides:
    return sides(lambda data: _diet_gradient(data, len(data.x)))


@diet_gradient.published("∂L_diet/∂W = W_Hᵀ(W_HWX − Y)Xᵀ and ∂L_diet/∂W_H = (W_HWX − Y)XᵀWᵀ, without the factor 1/N")
def _() -> Sides:
    return sides(lambda data: _diet_gradient(data, 1))


@diet_gradient.holds_if("L_diet is the sum over the N samples", fails_if="L_diet is the mean, as in eq 3")
def _() -> Sides:
    def pair(data: Data) -> tuple[Tensor, Tensor]:
        slope, formula = _diet_gradient(data, 1)
        return len(data.x) * slope, formula

    return sides(pair)


def _diet_gradient(data: Data, count: int) -> tuple[Tensor, Tensor]:
    packed = data.model()
    w, head = data.unpack(packed)
    apart = (head @ w @ data.x.T - data.y.T) @ data.x / count
    return gradient(data.diet_of, packed), stack([head.T @ apart, apart @ w.T])


@claim(
    "s-diet",
    "eq 12, 13 and 14",
    "At a critical point of L_diet with an isometric W_H, WXXᵀ = W_HᵀYXᵀ, WXXᵀWᵀW_Hᵀ = WXYᵀ and WXXᵀWᵀ = WXYᵀW_H. "
    "Checked: the three equations at critical points that a solver finds",
    tolerance=1e-10,
)
def at_critical_points_of_diet() -> Sides:
    left, right = [], []
    for data in datasets():
        for w, head in data.stationary_diet:
            outer, cross = data.x.T @ data.x, data.x.T @ data.y
            left += [w @ outer, w @ outer @ w.T @ head.T, w @ outer @ w.T]
            right += [head.T @ cross.T, w @ cross, w @ cross @ head]
    return Sides(stack(left), stack(right))


@claim(
    "s-diet",
    "Lemma B.2 (1)",
    "A critical point of L_diet with an isometric W_H is a critical point of L_scl. Checked: ∇L_scl at critical points "
    "of L_diet that a solver finds",
    tolerance=1e-10,
)
def critical_for_diet_then_for_scl() -> Sides:
    slopes = [gradient(data.scl, w) for data in datasets() for w, _ in data.stationary_diet]
    return Sides(stack(slopes), 0.0)


def procrustes(data: Data, w: Tensor) -> Tensor:
    """The partial isometry VUᵀ of WXYᵀ = UΣVᵀ, over the singular values that are not 0."""
    u, s, vt = torch.linalg.svd(w @ data.x.T @ data.y, full_matrices=False)
    kept = s > 1e-6 * s.max()
    return vt[kept].T @ u[:, kept].T


@claim(
    "s-diet",
    "Lemma B.2 (2)",
    "A critical point of L_scl is a critical point of L_diet, for some W_H that is a partial isometry. Checked: "
    "∇L_diet at critical points of L_scl, with W_H from an SVD of WXYᵀ",
    tolerance=1e-10,
)
def critical_for_scl_then_for_diet() -> Sides:
    slopes = []
    for data in datasets():
        positive = int((data.spectrum[0] > 1e-10).sum())
        chosen = combinations(range(positive), min(2, data.m))
        for w in [*(built(data, some) for some in chosen), *data.stationary_scl]:
            slopes.append(gradient(data.diet_of, stack([w, procrustes(data, w)])))
    return Sides(stack(slopes), 0.0)
