"""Eq 1 to 7 and 9: the loss of FroSSL, its norms, entropies and gradient.

Shapes: embeddings z[V, N, D] of V views, N samples and D dimensions. R_vw[D, D] is the correlation matrix of views v
and w.
"""

import math

import torch
from torch import Tensor

from twofold import linalg, objectives
from twofold_papers.verify.claim import Sides, claim

SHAPES = [(9, 4), (4, 9), (7, 7), (30, 12)]  # N, D: N above, below and equal to D, and a larger batch


def views(samples: int, dims: int, count: int = 2) -> Tensor:
    """Views that share a part. Their columns are correlated, have different scales, and are not centred."""
    shared = torch.randn(samples, dims, dtype=torch.float64)
    z = shared + 0.5 * torch.randn(count, samples, dims, dtype=torch.float64)
    return z @ torch.randn(dims, dims, dtype=torch.float64) + 2.0


def correlation(z: Tensor) -> Tensor:
    """The correlations between all columns of all views, [V, D, V, D], computed without the library."""
    V, _, D = z.shape
    return torch.corrcoef(z.mT.reshape(V * D, -1)).reshape(V, D, V, D)


def unit_columns(z: Tensor) -> Tensor:
    return torch.nn.functional.normalize(z - z.mean(dim=-2, keepdim=True), dim=-2)


def rotation(dims: int) -> Tensor:
    return torch.linalg.qr(torch.randn(dims, dims, dtype=torch.float64)).Q


def stacked(values: list[Tensor]) -> Tensor:
    return torch.stack([value.double() for value in values])


def flat(values: list[Tensor]) -> Tensor:
    return torch.cat([value.flatten() for value in values])


@claim(
    "frossl",
    "eq 1",
    "The squared Frobenius norm is the sum of the squared singular values: ‖A‖²_F = Σ_k σ_k²(A). Checked: the "
    "library's gram_norm_squared, which is ‖ZᵀZ‖²_F, and this sum for A = ZᵀZ, for four random Z",
    tolerance=1e-12,
)
def squared_norm() -> Sides:
    matrices = [views(*shape)[0] for shape in SHAPES]
    left = stacked([linalg.gram_norm_squared(a) for a in matrices])
    return Sides(left, stacked([torch.linalg.svdvals(a.T @ a).square().sum() for a in matrices]))


@claim(
    "frossl",
    "eq 2",
    "‖AᵀA‖_F = ‖AAᵀ‖_F, so either matrix can be used. Checked: the norm of the smaller matrix, computed by the "
    "library's gram_norm_squared, and the norm of the larger one, for four random A",
    tolerance=1e-12,
)
def duality() -> Sides:
    """The library uses the smaller matrix, so the right-hand side uses the larger one."""
    matrices = [views(*shape)[0] for shape in SHAPES]
    left = stacked([linalg.gram_norm_squared(a).sqrt() for a in matrices])
    larger = [a @ a.T if a.shape[0] > a.shape[1] else a.T @ a for a in matrices]
    return Sides(left, stacked([product.square().sum().sqrt() for product in larger]))


@claim(
    "frossl",
    "section 3.2",
    "ZᵀZ and ZZᵀ have the same nonzero eigenvalues. Checked: the min(N, D) largest eigenvalues of both matrices, for "
    "four random Z",
    tolerance=1e-12,
)
def shared_eigenvalues() -> Sides:
    matrices = [views(*shape)[0] for shape in SHAPES]
    left = [torch.linalg.eigvalsh(a.T @ a).flip(0)[: min(a.shape)] for a in matrices]
    return Sides(flat(left), flat([torch.linalg.eigvalsh(a @ a.T).flip(0)[: min(a.shape)] for a in matrices]))


@claim(
    "frossl",
    "eq 3",
    "The loss of Barlow Twins is Σ_i (1 − M_ii)² + λ Σ_{i≠j} M_ij², where M is the cross-correlation matrix of the "
    "two views. Checked: the library's barlow_twins, and this formula with M from torch.corrcoef, for λ = 0.3",
    tolerance=1e-12,
)
def barlow() -> Sides:
    left, right = [], []
    for samples, dims in SHAPES:
        z = views(samples, dims)
        left.append(objectives.barlow_twins(z, weight=0.3).total)
        m = correlation(z)[0, :, 1, :]
        on = m.diagonal()
        right.append((1 - on).square().sum() + 0.3 * (m.square().sum() - on.square().sum()))
    return Sides(stacked(left), stacked(right))


@claim(
    "frossl",
    "section 3 (rotation)",
    "‖ZᵀZ‖_F does not change if the embeddings are rotated. Checked: ‖ZᵀZ‖²_F with and without a random rotation, for "
    "four random Z",
    tolerance=1e-12,
)
def rotated_norm() -> Sides:
    matrices = [views(*shape)[0] for shape in SHAPES]
    left = stacked([linalg.gram_norm_squared(a @ rotation(a.shape[1])) for a in matrices])
    return Sides(left, stacked([(a.T @ a).square().sum() for a in matrices]))


def change_of_barlow_when_rotated(weight: float) -> Tensor:
    """|L(ZQ) − L(Z)|/L(Z) of eq 3 without feature normalisation, for random rotations Q."""
    changes = []
    for samples, dims in SHAPES:
        one, other = views(samples, dims) / math.sqrt(samples)
        q = rotation(dims)
        values = []
        for m in (one.T @ other, q.T @ one.T @ other @ q):
            on = m.diagonal()
            values.append((1 - on).square().sum() + weight * (m.square().sum() - on.square().sum()))
        changes.append((values[1] - values[0]).abs() / values[0])
    return torch.stack(changes)


@claim(
    "frossl",
    "section 3 (Barlow, λ = 1)",
    "Without feature normalisation, eq 3 is not invariant to rotation, except for λ = 1, where it equals ‖M − I‖²_F. "
    "Checked: for λ = 1, a random rotation does not change the value of eq 3",
    tolerance=1e-12,
)
def rotated_barlow() -> Sides:
    return Sides(change_of_barlow_when_rotated(1.0), 0.0)


@claim(
    "frossl",
    "section 3 (Barlow, λ < 1)",
    "Without feature normalisation, eq 3 is not invariant to rotation. Checked: for λ = 0.005, a random rotation "
    "changes the value of eq 3 by more than 0.1 %",
    tolerance=0,
)
def rotated_barlow_with_weight() -> Sides:
    return Sides(change_of_barlow_when_rotated(5e-3), 1e-3, ">")


@claim(
    "frossl",
    "eq 4",
    "The variance term is L_Fro = log‖Z₁ᵀZ₁‖²_F + log‖Z₂ᵀZ₂‖²_F, where Z₁ and Z₂ have centred columns of norm 1. "
    "Checked: the variance term of the library's frossl, and this formula with ZᵀZ from torch.corrcoef",
    tolerance=1e-12,
)
def variance() -> Sides:
    left, right = [], []
    for shape in SHAPES:
        z = views(*shape)
        left.append(objectives.frossl(z).terms["variance"])
        r = correlation(z)
        right.append(sum((r[v, :, v].square().sum().log() for v in range(2)), torch.zeros(())))
    return Sides(stacked(left), stacked(right))


@claim(
    "frossl",
    "eq 5",
    "The invariance term is L_MSE = (1/N) Σ_i ‖z₁ᵢ − z₂ᵢ‖². For centred columns of norm 1, it equals (2/N)(D − tr "
    "R₁₂), where R₁₂ is the cross-correlation matrix of the views. Checked: the invariance term of the library's "
    "frossl, and the second formula with R₁₂ from torch.corrcoef",
    tolerance=1e-12,
)
def invariance() -> Sides:
    left, right = [], []
    for samples, dims in SHAPES:
        z = views(samples, dims)
        left.append(objectives.frossl(z).terms["invariance"])
        right.append(2 / samples * (dims - correlation(z)[0, :, 1].trace()))
    return Sides(stacked(left), stacked(right))


def written_out(z: Tensor, logarithm: bool = True) -> Tensor:
    """Eq 6 in correlation matrices; for V views, the invariance term is a sum over pairs v < w."""
    V, N, D = z.shape
    r = correlation(z)
    total = torch.zeros((), dtype=z.dtype)
    for v in range(V):
        norm = r[v, :, v].square().sum()
        total = total + (norm.log() if logarithm else norm)
        for w in range(v + 1, V):
            total = total + 2 / N * (D - r[v, :, w].trace())
    return total


@claim(
    "frossl",
    "eq 6",
    "FroSSL minimises L = L_Fro + L_MSE. With the correlation matrices R_vw of views v and w, L = log‖R₁₁‖²_F + "
    "log‖R₂₂‖²_F + (2/N)(D − tr R₁₂). Checked: the library's frossl, and this formula with R_vw from torch.corrcoef",
    tolerance=1e-12,
)
def loss() -> Sides:
    given = [views(*shape) for shape in SHAPES]
    return Sides(stacked([objectives.frossl(z).total for z in given]), stacked([written_out(z) for z in given]))


@claim(
    "frossl",
    "eq 6 (V views)",
    "With V views instead of the paper's two, L_MSE is a sum over pairs of views. Its cost is linear in V, because "
    "Σ_{v<w} ‖Z_v − Z_w‖²_F = V Σ_v ‖Z_v − Z̄‖²_F. Checked: the library's frossl, which uses the right-hand side, and "
    "a sum over all pairs, for 3 and 5 views",
    tolerance=1e-12,
)
def loss_of_many_views() -> Sides:
    given = [views(samples, dims, count) for samples, dims in SHAPES for count in (3, 5)]
    return Sides(stacked([objectives.frossl(z).total for z in given]), stacked([written_out(z) for z in given]))


@claim(
    "frossl",
    "eq 6 (shards)",
    "If a batch is split into shards, the merged moments of the shards give the loss of the whole batch. Checked: the "
    "library's frossl_of_moments for three shards, and eq 6 for the whole batch, with correlation matrices from "
    "torch.corrcoef",
    tolerance=1e-12,
)
def loss_of_shards() -> Sides:
    given = [views(samples, dims) for samples, dims in SHAPES]
    shards = [[objectives.moments(part) for part in z.split([2, 1, z.shape[1] - 3], dim=1)] for z in given]
    merged = [one.merge(two).merge(three) for one, two, three in shards]
    return Sides(
        stacked([objectives.frossl_of_moments(of).total for of in merged]), stacked([written_out(z) for z in given])
    )


@claim(
    "frossl",
    "Table 2 (no logs)",
    "Without logarithms, the loss is ‖R₁₁‖²_F + ‖R₂₂‖²_F + (2/N)(D − tr R₁₂), where R_vw is the correlation matrix of "
    "views v and w. Checked: the library's frossl with logarithm=False, and this formula with R_vw from torch.corrcoef",
    tolerance=1e-12,
)
def loss_without_logs() -> Sides:
    given = [views(*shape) for shape in SHAPES]
    left = stacked([objectives.frossl(z, logarithm=False).total for z in given])
    return Sides(left, stacked([written_out(z, logarithm=False) for z in given]))


@claim(
    "frossl",
    "appendix A",
    "The listing computes eq 6 if it divides each column by its own norm, squares the norm under the logarithm, and "
    "sums the squared error over dimensions. Checked: the library's frossl, and the listing with these three changes",
    tolerance=1e-12,
)
def listing() -> Sides:
    left, right = [], []
    for samples, dims in SHAPES:
        z = views(samples, dims)
        one, other = unit_columns(z)
        apart = dims * torch.nn.functional.mse_loss(one, other)
        norms = (torch.linalg.matrix_norm(a.T @ a).square().log() for a in (one, other))
        left.append(objectives.frossl(z).total)
        right.append(sum(norms, apart))
    return Sides(stacked(left), stacked(right))


@listing.published(
    "the listing scales Z to √D · Z/‖Z‖_F, takes log‖ZᵀZ‖_F without the square, and uses MSELoss, which is the mean "
    "over samples and dimensions"
)
def _() -> Sides:
    left, right = [], []
    for samples, dims in SHAPES:
        z = views(samples, dims)
        one, other = (dims**0.5 * (a - a.mean(0)) / (a - a.mean(0)).norm() for a in z)
        apart = torch.nn.functional.mse_loss(one, other)
        left.append(objectives.frossl(z).total)
        right.append(sum((torch.linalg.matrix_norm(a.T @ a).log() for a in (one, other)), apart))
    return Sides(stacked(left), stacked(right))


def gradient(z: Tensor, logarithm: bool = True) -> Tensor:
    z = z.clone().requires_grad_()
    return torch.autograd.grad(objectives.frossl(z, logarithm=logarithm).total, z)[0]


def gradient_by_hand(z: Tensor, logarithm: bool) -> Tensor:
    """∂L/∂z: the gradient for the normalised Z, passed through centring and scaling.

    The gradient for Z is 4ZZᵀZ/‖ZᵀZ‖²_F + (2/N) Σ_w (Z − Z_w). Without the logarithm, the first term is 4ZZᵀZ.
    """
    V, N, _ = z.shape
    x = z - z.mean(dim=1, keepdim=True)
    lengths = x.square().sum(dim=1, keepdim=True).sqrt()
    y = x / lengths
    by_y = 4 * y @ (y.mT @ y)
    if logarithm:
        by_y = by_y / (y.mT @ y).square().sum(dim=(1, 2), keepdim=True)
    by_y = by_y + 2 / N * (V * y - y.sum(dim=0))
    tangent = (by_y - y * (y * by_y).sum(dim=1, keepdim=True)) / lengths
    return tangent - tangent.mean(dim=1, keepdim=True)


@claim(
    "frossl",
    "eq 6 (gradient)",
    "For the normalised embeddings Z and Z' of two views, ∂L/∂Z = 4ZZᵀZ/‖ZᵀZ‖²_F + (2/N)(Z − Z'). Normalisation "
    "removes the part of this gradient along each column. Checked: the gradient of the library's frossl with respect "
    "to the embeddings before normalisation, by autograd and from this formula by the chain rule, for 2 and 3 views",
    tolerance=1e-12,
)
def loss_gradient() -> Sides:
    given = [views(*shape, count) for shape in SHAPES for count in (2, 3)]
    return Sides(flat([gradient(z) for z in given]), flat([gradient_by_hand(z, True) for z in given]))


@claim(
    "frossl",
    "section 3.1 (self-regulation)",
    "With the logarithm, the gradient of the variance term is divided by ‖ZᵀZ‖²_F. Checked: the gradient of the "
    "library's frossl by autograd, for two equal views, and the gradient of ‖ZᵀZ‖²_F by its formula, divided by "
    "‖ZᵀZ‖²_F",
    tolerance=1e-12,
)
def self_regulation() -> Sides:
    """If both views are equal, the gradient of the invariance term is 0. Only that of the variance term is left."""
    given = [views(*shape)[:1].repeat(2, 1, 1) for shape in SHAPES]
    norms = [correlation(z)[0, :, 0].square().sum() for z in given]
    right = [gradient_by_hand(z, False) / norm for z, norm in zip(given, norms, strict=True)]
    return Sides(flat([gradient(z) for z in given]), flat(right))


@claim(
    "frossl",
    "section 3 (collapse)",
    "Without normalisation, minimising log‖ZᵀZ‖²_F leads to collapse: gradient descent shrinks Z, because the inner "
    "product of Z and the gradient is 4. Checked: this inner product, by autograd, for four random Z",
    tolerance=1e-12,
)
def collapse_without_normalisation() -> Sides:
    left = []
    for shape in SHAPES:
        z = views(*shape)[0].requires_grad_()
        left.append((z * torch.autograd.grad(linalg.gram_norm_squared(z).log(), z)[0]).sum())
    return Sides(stacked(left), 4.0)


@claim(
    "frossl",
    "section 3 (no collapse)",
    "With normalised columns, gradient descent cannot shrink Z, because the inner product of each centred column and "
    "its gradient is 0. Checked: these inner products, by autograd through the library's frossl",
    tolerance=1e-12,
)
def no_collapse_with_normalisation() -> Sides:
    given = [views(*shape) for shape in SHAPES]
    return Sides(flat([((z - z.mean(dim=1, keepdim=True)) * gradient(z)).sum(dim=1) for z in given]), 0.0)


def renyi_entropy(gram: Tensor, order: float) -> Tensor:
    """Matrix-based entropy (Sanchez Giraldo et al. 2015): log tr(A^α)/(1−α) of the Gram matrix A, scaled to trace 1."""
    eigenvalues = torch.linalg.eigvalsh(gram / gram.trace()).clamp_min(0)
    return eigenvalues.pow(order).sum().log() / (1 - order)


@claim(
    "frossl",
    "section 3.1 (entropy)",
    "−L_Fro is the sum of the matrix-based collision entropies (Rényi entropies of order 2) of Z₁ and Z₂, up to the "
    "constant 4 log D. Checked: 4 log D minus the variance term of the library's frossl, and the sum of the entropies "
    "of Z₁Z₁ᵀ and Z₂Z₂ᵀ, both scaled to trace 1, from their eigenvalues",
    tolerance=1e-12,
)
def collision_entropy() -> Sides:
    left, right = [], []
    for samples, dims in SHAPES:
        z = views(samples, dims)
        left.append(4 * math.log(dims) - objectives.frossl(z).terms["variance"])
        right.append(sum((renyi_entropy(y @ y.T, 2) for y in unit_columns(z)), torch.zeros(())))
    return Sides(stacked(left), stacked(right))


@claim(
    "frossl",
    "section 4.3",
    "The von Neumann entropy −Σ λ log λ is the Rényi entropy of order α → 1. Checked: for ZZᵀ scaled to trace 1, the "
    "mean of the Rényi entropies of orders 1 − 1e-4 and 1 + 1e-4, and the von Neumann entropy",
    tolerance=1e-7,
)
def von_neumann_entropy() -> Sides:
    """The error of the mean over orders 1 ± h is O(h²) = 1e-8."""
    left, right, h = [], [], 1e-4
    for shape in SHAPES:
        z = unit_columns(views(*shape)[0])
        left.append((renyi_entropy(z @ z.T, 1 + h) + renyi_entropy(z @ z.T, 1 - h)) / 2)
        shares = torch.linalg.svdvals(z).square() / z.shape[1]
        right.append(torch.special.entr(shares).sum())
    return Sides(stacked(left), stacked(right))


@claim(
    "frossl",
    "eq 7",
    "CorInfoMax maximises log det(C₁ + εI) + log det(C₂ + εI) − β L_MSE, where C_v is the covariance matrix of view "
    "v; the paper writes Z_vᵀZ_v. Checked: −D times the library's corinfomax, without running averages, and this "
    "formula with eigenvalues from an SVD, for ε = 0.1 and β = 3",
    tolerance=1e-11,
)
def corinfomax() -> Sides:
    left, right = [], []
    for samples, dims in SHAPES:
        z, epsilon, beta = views(samples, dims), 0.1, 3.0
        nothing = torch.zeros(2, dims, dims, dtype=z.dtype)
        terms = objectives.corinfomax(z, nothing, momentum=0.0, weight=beta, epsilon=epsilon)
        left.append(-dims * terms.total)
        spectra = torch.linalg.svdvals((z - z.mean(dim=1, keepdim=True)).mT) ** 2 / samples
        zeros = max(dims - samples, 0) * math.log(epsilon)
        apart = (z[0] - z[1]).norm(dim=1).square().mean()
        right.append((spectra + epsilon).log().sum() + 2 * zeros - beta * apart)
    return Sides(stacked(left), stacked(right))


@claim(
    "frossl",
    "eq 9",
    "L_Fro = log Σ_i λ_i²(Z₁ᵀZ₁) + log Σ_i λ_i²(Z₂ᵀZ₂). Checked: the variance term of the library's frossl, and this "
    "formula with eigenvalues from an SVD of Z",
    tolerance=1e-12,
)
def in_eigenvalues() -> Sides:
    given = [views(*shape) for shape in SHAPES]
    left = stacked([objectives.frossl(z).terms["variance"] for z in given])
    spectra = [torch.linalg.svdvals(unit_columns(z)).square() for z in given]
    return Sides(left, stacked([values.square().sum(dim=1).log().sum() for values in spectra]))


@claim(
    "frossl",
    "section 5.2 (entropy)",
    "The Shannon entropy of the normalised eigenvalues of ZᵀZ is at most log D. It is log D if all eigenvalues are "
    "equal. Checked: the inequality for random Z, and for Z with orthonormal columns, whose eigenvalues are all 1",
    tolerance=1e-14,
)
def most_entropy() -> Sides:
    entropies, bounds = [], []
    for samples, dims in SHAPES:
        for z in (views(samples, dims)[0], rotation(max(samples, dims))[:, :dims]):  # the second reaches the bound
            shares = torch.linalg.eigvalsh(z.T @ z).clamp_min(0)
            entropies.append(torch.special.entr(shares / shares.sum()).sum())
            bounds.append(torch.tensor(float(dims)).double().log())
    return Sides(stacked(entropies), stacked(bounds), "≤")
