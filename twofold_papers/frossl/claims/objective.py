"""The loss, its norms, entropies and gradient: equations 1 to 9 of FroSSL. z[V, N, D]; R are correlations [D, D]."""

import math

import torch
from torch import Tensor

from twofold import linalg, objectives
from twofold_papers.verify.claim import Sides, claim

SHAPES = [(9, 4), (4, 9), (7, 7), (30, 12)]  # N, D: more samples than dimensions, fewer, as many


def views(samples: int, dims: int, count: int = 2) -> Tensor:
    """Views that share what they show, with correlated columns of unequal scale that are not centred."""
    shared = torch.randn(samples, dims, dtype=torch.float64)
    z = shared + 0.5 * torch.randn(count, samples, dims, dtype=torch.float64)
    return z @ torch.randn(dims, dims, dtype=torch.float64) + 2.0


def correlation(z: Tensor) -> Tensor:
    """Between all columns of all views, [V, D, V, D], in numpy's way and not by the library's."""
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


@claim("frossl", "eq 1", "‖A‖²_F = Σ_k σ_k²(A), here of A = ZᵀZ", tolerance=1e-12)
def squared_norm() -> Sides:
    matrices = [views(*shape)[0] for shape in SHAPES]
    left = stacked([linalg.gram_norm_squared(a) for a in matrices])
    return Sides(left, stacked([torch.linalg.svdvals(a.T @ a).square().sum() for a in matrices]))


@claim("frossl", "eq 2", "‖AᵀA‖_F = ‖AAᵀ‖_F: the smaller matrix will do", tolerance=1e-12)
def duality() -> Sides:
    """The library takes the smaller matrix; the other side is the larger one."""
    matrices = [views(*shape)[0] for shape in SHAPES]
    left = stacked([linalg.gram_norm_squared(a).sqrt() for a in matrices])
    larger = [a @ a.T if a.shape[0] > a.shape[1] else a.T @ a for a in matrices]
    return Sides(left, stacked([product.square().sum().sqrt() for product in larger]))


@claim("frossl", "section 3.2", "ZᵀZ and ZZᵀ have the same nonzero eigenvalues", tolerance=1e-12)
def shared_eigenvalues() -> Sides:
    matrices = [views(*shape)[0] for shape in SHAPES]
    left = [torch.linalg.eigvalsh(a.T @ a).flip(0)[: min(a.shape)] for a in matrices]
    return Sides(flat(left), flat([torch.linalg.eigvalsh(a @ a.T).flip(0)[: min(a.shape)] for a in matrices]))


@claim("frossl", "eq 3", "Barlow Twins is Σ(1 − M_ii)² + λ Σ_{i≠j} M_ij², M the cross-correlations", tolerance=1e-12)
def barlow() -> Sides:
    left, right = [], []
    for samples, dims in SHAPES:
        z = views(samples, dims)
        left.append(objectives.barlow_twins(z, weight=0.3).total)
        m = correlation(z)[0, :, 1, :]
        on = m.diagonal()
        right.append((1 - on).square().sum() + 0.3 * (m.square().sum() - on.square().sum()))
    return Sides(stacked(left), stacked(right))


@claim("frossl", "section 3 (rotation)", "‖ZᵀZ‖_F does not change when the embeddings are rotated", tolerance=1e-12)
def rotated_norm() -> Sides:
    matrices = [views(*shape)[0] for shape in SHAPES]
    left = stacked([linalg.gram_norm_squared(a @ rotation(a.shape[1])) for a in matrices])
    return Sides(left, stacked([(a.T @ a).square().sum() for a in matrices]))


def change_of_barlow_when_rotated(weight: float) -> Tensor:
    """|L(ZQ) − L(Z)| of eq 3 without feature normalisation."""
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
    "eq 3 without normalisation is invariant to rotation for λ = 1 alone: it is then ‖M − I‖²_F",
    tolerance=1e-12,
)
def rotated_barlow() -> Sides:
    return Sides(change_of_barlow_when_rotated(1.0), 0.0)


@claim(
    "frossl",
    "section 3 (Barlow, λ < 1)",
    "eq 3 with λ = 0.005 is not invariant to rotation: |L(ZQ) − L(Z)| > 0.001 L(Z)",
    tolerance=0,
)
def rotated_barlow_with_weight() -> Sides:
    return Sides(change_of_barlow_when_rotated(5e-3), 1e-3, ">")


@claim("frossl", "eq 4", "the variance term is log‖Z₁ᵀZ₁‖² + log‖Z₂ᵀZ₂‖², Z of unit columns", tolerance=1e-12)
def variance() -> Sides:
    left, right = [], []
    for shape in SHAPES:
        z = views(*shape)
        left.append(objectives.frossl(z).terms["variance"])
        r = correlation(z)
        right.append(sum((r[v, :, v].square().sum().log() for v in range(2)), torch.zeros(())))
    return Sides(stacked(left), stacked(right))


@claim("frossl", "eq 5", "the invariance term is (1/N) Σ_i ‖z₁ᵢ − z₂ᵢ‖² = (2/N)(D − tr R₁₂)", tolerance=1e-12)
def invariance() -> Sides:
    left, right = [], []
    for samples, dims in SHAPES:
        z = views(samples, dims)
        left.append(objectives.frossl(z).terms["invariance"])
        right.append(2 / samples * (dims - correlation(z)[0, :, 1].trace()))
    return Sides(stacked(left), stacked(right))


def written_out(z: Tensor, logarithm: bool = True) -> Tensor:
    """Eq 6 in correlations, for V views the sum over pairs v < w."""
    V, N, D = z.shape
    r = correlation(z)
    total = torch.zeros((), dtype=z.dtype)
    for v in range(V):
        norm = r[v, :, v].square().sum()
        total = total + (norm.log() if logarithm else norm)
        for w in range(v + 1, V):
            total = total + 2 / N * (D - r[v, :, w].trace())
    return total


@claim("frossl", "eq 6", "L = log‖R₁₁‖² + log‖R₂₂‖² + (2/N)(D − tr R₁₂)", tolerance=1e-12)
def loss() -> Sides:
    given = [views(*shape) for shape in SHAPES]
    return Sides(stacked([objectives.frossl(z).total for z in given]), stacked([written_out(z) for z in given]))


@claim("frossl", "eq 6 (V views)", "over V views: Σ_{v<w} ‖Z_v − Z_w‖² = V Σ_v ‖Z_v − Z̄‖², in O(V)", tolerance=1e-12)
def loss_of_many_views() -> Sides:
    given = [views(samples, dims, count) for samples, dims in SHAPES for count in (3, 5)]
    return Sides(stacked([objectives.frossl(z).total for z in given]), stacked([written_out(z) for z in given]))


@claim("frossl", "eq 6 (shards)", "moments of a batch's shards, merged, give the loss of the batch", tolerance=1e-12)
def loss_of_shards() -> Sides:
    given = [views(samples, dims) for samples, dims in SHAPES]
    shards = [[objectives.moments(part) for part in z.split([2, 1, z.shape[1] - 3], dim=1)] for z in given]
    merged = [one.merge(two).merge(three) for one, two, three in shards]
    return Sides(
        stacked([objectives.frossl_of_moments(of).total for of in merged]), stacked([written_out(z) for z in given])
    )


@claim("frossl", "Table 2 (no logs)", "the ablation is ‖R₁₁‖² + ‖R₂₂‖² + (2/N)(D − tr R₁₂)", tolerance=1e-12)
def loss_without_logs() -> Sides:
    given = [views(*shape) for shape in SHAPES]
    left = stacked([objectives.frossl(z, logarithm=False).total for z in given])
    return Sides(left, stacked([written_out(z, logarithm=False) for z in given]))


@claim(
    "frossl",
    "appendix A",
    "the listing, with a norm for each column, squared norms under the log and a sum over dimensions, is eq 6",
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


@listing.printed("√D · Z/‖Z‖_F, log‖ZᵀZ‖_F without the square, and MSELoss, the mean over N·D")
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
    """4ZZᵀZ [/‖ZᵀZ‖²] + (2/N) Σ_w (Z − Z_w) for unit columns Z, then through centring and scaling."""
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


@claim("frossl", "eq 6 (gradient)", "∂L/∂Z = 4ZZᵀZ/‖ZᵀZ‖² + (2/N)(Z − Z'), less its part along Z", tolerance=1e-12)
def loss_gradient() -> Sides:
    given = [views(*shape, count) for shape in SHAPES for count in (2, 3)]
    return Sides(flat([gradient(z) for z in given]), flat([gradient_by_hand(z, True) for z in given]))


@claim(
    "frossl",
    "section 3.1 (self-regulation)",
    "under the log the variance term's gradient is divided by ‖ZᵀZ‖², where views agree",
    tolerance=1e-12,
)
def self_regulation() -> Sides:
    """Where both views are one, the invariance term has no gradient, and what is left is that of the variance."""
    given = [views(*shape)[:1].repeat(2, 1, 1) for shape in SHAPES]
    norms = [correlation(z)[0, :, 0].square().sum() for z in given]
    right = [gradient_by_hand(z, False) / norm for z, norm in zip(given, norms, strict=True)]
    return Sides(flat([gradient(z) for z in given]), flat(right))


@claim(
    "frossl", "section 3 (collapse)", "without normalisation Z·∇log‖ZᵀZ‖² = 4 > 0: descent shrinks Z", tolerance=1e-12
)
def collapse_without_normalisation() -> Sides:
    left = []
    for shape in SHAPES:
        z = views(*shape)[0].requires_grad_()
        left.append((z * torch.autograd.grad(linalg.gram_norm_squared(z).log(), z)[0]).sum())
    return Sides(stacked(left), 4.0)


@claim(
    "frossl", "section 3 (no collapse)", "with unit columns (Z − mean)·∇L = 0: descent cannot shrink Z", tolerance=1e-12
)
def no_collapse_with_normalisation() -> Sides:
    given = [views(*shape) for shape in SHAPES]
    return Sides(flat([((z - z.mean(dim=1, keepdim=True)) * gradient(z)).sum(dim=1) for z in given]), 0.0)


def renyi_entropy(gram: Tensor, order: float) -> Tensor:
    """Matrix-based (Sanchez Giraldo et al. 2015): log tr(A^α)/(1−α) of the Gram matrix with unit trace."""
    eigenvalues = torch.linalg.eigvalsh(gram / gram.trace()).clamp_min(0)
    return eigenvalues.pow(order).sum().log() / (1 - order)


@claim(
    "frossl",
    "section 3.1 (entropy)",
    "−log‖Z₁ᵀZ₁‖² − log‖Z₂ᵀZ₂‖² + 4 log D is the Rényi-2 (collision) entropy of both Gram matrices",
    tolerance=1e-12,
)
def collision_entropy() -> Sides:
    left, right = [], []
    for samples, dims in SHAPES:
        z = views(samples, dims)
        left.append(4 * math.log(dims) - objectives.frossl(z).terms["variance"])
        right.append(sum((renyi_entropy(y @ y.T, 2) for y in unit_columns(z)), torch.zeros(())))
    return Sides(stacked(left), stacked(right))


@claim("frossl", "section 4.3", "von Neumann entropy −Σ λ log λ is Rényi's of order α → 1", tolerance=1e-7)
def von_neumann_entropy() -> Sides:
    """The mean of orders 1 ± h is off by O(h²) = 1e-8."""
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
    "CorInfoMax is log det(Z₁ᵀZ₁ + εI) + log det(Z₂ᵀZ₂ + εI) − β L_MSE, covariances over N",
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


@claim("frossl", "eq 9", "L_Fro = log Σ_i λ_i²(Z₁ᵀZ₁) + log Σ_i λ_i²(Z₂ᵀZ₂)", tolerance=1e-12)
def in_eigenvalues() -> Sides:
    given = [views(*shape) for shape in SHAPES]
    left = stacked([objectives.frossl(z).terms["variance"] for z in given])
    spectra = [torch.linalg.svdvals(unit_columns(z)).square() for z in given]
    return Sides(left, stacked([values.square().sum(dim=1).log().sum() for values in spectra]))


@claim("frossl", "section 5.2 (entropy)", "Shannon entropy of normalised eigenvalues is at most log d", tolerance=1e-14)
def most_entropy() -> Sides:
    entropies, bounds = [], []
    for samples, dims in SHAPES:
        for z in (views(samples, dims)[0], rotation(max(samples, dims))[:, :dims]):  # the second reaches it
            shares = torch.linalg.eigvalsh(z.T @ z).clamp_min(0)
            entropies.append(torch.special.entr(shares / shares.sum()).sum())
            bounds.append(torch.tensor(float(dims)).double().log())
    return Sides(stacked(entropies), stacked(bounds), "≤")
