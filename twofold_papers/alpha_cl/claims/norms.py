"""Section 4.2: below a normalisation layer, gradient descent conserves the norms of the weights."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, leaky_relu, relu

from twofold import objectives
from twofold.linalg import normalized
from twofold.models import BatchNorm
from twofold_papers.alpha_cl.claims.nets import Weights, flat, gradients, integrate, normal, tracked, two_views
from twofold_papers.verify.claim import Sides, claim

Layer = Callable[[Tensor], Tensor]


def square(x: Tensor) -> Tensor:
    return x * x


# h, and the constant c in h(x) = c h'(x) x
ACTIVATIONS: dict[str, tuple[Layer, float]] = {
    "linear": (lambda x: x, 1.0),
    "ReLU": (relu, 1.0),
    "leaky ReLU": (lambda x: leaky_relu(x, 0.1), 1.0),
    "square": (square, 0.5),
}


def exact_layer_norm(x: Tensor) -> Tensor:
    return layer_norm(x, x.shape[-1:], eps=0.0)


NORMS: dict[str, Layer] = {"ℓ2": normalized, "LayerNorm": exact_layer_norm}

# Some losses of the library, as functions of z[2, N, D].
LOSSES: list[Layer] = [
    lambda z: objectives.contrastive(z, objectives.family("linear"), normalize=False).total,
    lambda z: objectives.contrastive(z, objectives.family("tuplet"), normalize=False).total,
    lambda z: objectives.alpha_cl(z, "direct").total,
    lambda z: objectives.vicreg(z).total,
    lambda z: objectives.spectral_contrastive(z).total,
]
WIDTHS = [4, 12, 12, 5]


def mlp_weights(widths: Sequence[int] = WIDTHS) -> Weights:
    return [normal(n, m) / m**0.5 for n, m in zip(widths[1:], widths, strict=False)]


def through_mlp(weights: Weights, x: Tensor, activation: Layer) -> Tensor:
    """Eq 28: a network without biases and without an activation after the last layer."""
    for weight in weights[:-1]:
        x = activation(x @ weight.mT)
    return x @ weights[-1].mT


@claim(
    "alpha-cl",
    "Definition 2",
    "h(x) = h'(x) x for the identity, ReLU and leaky ReLU, and h(x) = ½ h'(x) x for x². Checked: both sides "
    "for 40 random values, with h' by autograd",
    tolerance=1e-14,
)
def reversible() -> Sides:
    left, right = [], []
    for activation, constant in ACTIVATIONS.values():
        (x,) = tracked([normal(40)])
        y = activation(x)
        left.append(y.detach())
        right.append(constant * gradients(y.sum(), [x])[0] * x.detach())
    return Sides(flat(left), flat(right))


def along_weights(output: Callable[[Weights], Tensor], weights: Weights) -> list[Tensor]:
    """Σ (∂y/∂W_l) W_l of every output y, for each layer."""

    def of_layer(weight: Tensor, layer: int) -> Tensor:
        return output([*weights[:layer], weight, *weights[layer + 1 :]])

    derivative = torch.autograd.functional.jvp
    return [
        derivative(partial(of_layer, layer=layer), weight.detach(), weight.detach())[1]
        for layer, weight in enumerate(weights)
    ]


@claim(
    "alpha-cl",
    "Lemma 2",
    "Below ℓ2 normalisation or LayerNorm, ⟨W_l, ∂L/∂W_l⟩ = 0 in every layer, for any differentiable loss of the "
    "outputs, because no output changes along W_l: Σ (∂y/∂W_l) W_l = 0. Checked: this derivative of all outputs by "
    "autograd, for linear, ReLU, leaky ReLU and x² networks, and the inner products for five losses of the library",
    tolerance=1e-11,
)
def norms_are_conserved() -> Sides:
    found = []
    for activation, _ in ACTIVATIONS.values():
        for norm in NORMS.values():
            weights, x = tracked(mlp_weights()), two_views(9, WIDTHS[0])
            normed = partial(normed_outputs, x=x, activation=activation, norm=norm)
            found += along_weights(normed, weights)
            for loss in LOSSES:
                slopes = gradients(loss(normed(weights)), weights)
                found += [(weight * slope).sum() for weight, slope in zip(weights, slopes, strict=True)]
    return Sides(flat(found).detach(), 0.0)


def normed_outputs(weights: Weights, x: Tensor, activation: Layer, norm: Layer) -> Tensor:
    return norm(through_mlp(weights, x, activation))


def integrated_norms(activation: Layer, norm: Layer) -> tuple[Tensor, Tensor]:
    """‖W_l‖² after and before the gradient flow of a contrastive loss that does not normalise by itself."""
    x, start = two_views(8, 4), mlp_weights([4, 6, 4])

    def descent(weights: Weights) -> Weights:
        at = tracked(weights)
        return [-slope for slope in gradients(LOSSES[1](norm(through_mlp(at, x, activation))), at)]

    end = integrate(descent, start, 0.1, 100)
    return flat([w.square().sum()[None] for w in end]), flat([w.square().sum()[None] for w in start])


@claim(
    "alpha-cl",
    "Lemma 7",
    "Below ℓ2 normalisation or LayerNorm, ‖W_l‖_F is constant along the gradient flow. Checked: its value "
    "before and after the flow, for linear and x² networks",
    tolerance=1e-10,
)
def norms_along_the_flow() -> Sides:  # only smooth activations: Runge–Kutta needs them for its order
    runs = [integrated_norms(ACTIVATIONS[name][0], norm) for name in ("linear", "square") for norm in NORMS.values()]
    return Sides(flat([end for end, _ in runs]), flat([start for _, start in runs]))


def projector(*along: Tensor) -> Tensor:
    """P⊥, the projection onto the orthogonal complement of these vectors."""
    basis = torch.linalg.qr(torch.stack(along, dim=1)).Q
    return torch.eye(len(basis), dtype=basis.dtype) - basis @ basis.mT


def layer_norm_jacobian(x: Tensor) -> Tensor:
    """J(x) = P⊥_{x,1} / ‖P⊥_1 x‖"""
    return projector(x, torch.ones_like(x)) / (x - x.mean()).norm()


def l2_jacobian(x: Tensor) -> Tensor:
    return projector(x) / x.norm()


def jacobian(function: Layer, x: Tensor) -> Tensor:
    return torch.autograd.functional.jacobian(function, x)


@claim(
    "alpha-cl",
    "Lemma 6, backward",
    "Normalisation, y = (x − mean)/‖x − mean‖ or y = x/‖x‖, has the Jacobian J(x) of Lemma 6. Checked: the "
    "Jacobian by autograd and the formula",
    tolerance=1e-12,
)
def normalisation_backward() -> Sides:
    left, right = [], []
    for dim in (3, 6):
        x = normal(dim) + 1
        left += [jacobian(lambda x: exact_layer_norm(x) / x.numel() ** 0.5, x), jacobian(normalized, x)]
        right += [layer_norm_jacobian(x), l2_jacobian(x)]
    return Sides(flat(left), flat(right))


@normalisation_backward.published("y = (x − mean)/‖x‖₂ has the Jacobian J(x)")
def _() -> Sides:
    x = normal(6) + 1
    return Sides(jacobian(lambda x: (x - x.mean()) / x.norm(), x), layer_norm_jacobian(x))


normalisation_backward.holds_if(
    "‖x‖₂ is the norm after the mean is subtracted, as in J(x)", fails_if="‖x‖₂ is the norm of x itself"
)(normalisation_backward.compute)


@claim(
    "alpha-cl",
    "Lemma 6, forward",
    "J(x) x = 0 for LayerNorm and for ℓ2 normalisation, which is what Lemma 7 needs. Checked: the Jacobian by "
    "autograd times x",
    tolerance=1e-12,
)
def normalisation_forward() -> Sides:
    found = []
    for dim in (3, 6):
        x = normal(dim) + 1
        found += [jacobian(exact_layer_norm, x) @ x, jacobian(normalized, x) @ x]
    return Sides(flat(found), 0.0)


@normalisation_forward.published("y = J(x) x, so normalisation is reversible (Definition 3)")
def _() -> Sides:
    x = normal(6) + 1
    return Sides(exact_layer_norm(x) / 6**0.5, layer_norm_jacobian(x) @ x)


def batch_norm(channels: int) -> BatchNorm:
    norm = BatchNorm(channels, affine=False).double()
    norm.eps = 1e-300  # torch refuses 0
    return norm


@claim(
    "alpha-cl",
    "Lemma 10",
    "Under BatchNorm, ⟨w_k, ∂L/∂w_k⟩ = 0 for every filter. Checked: the inner products for four activations, "
    "with BatchNorm before and after the activation",
    tolerance=1e-11,
)
def filters_under_batch_norm() -> Sides:
    found = []
    for activation, _ in ACTIVATIONS.values():
        for before in (True, False):
            (w1, w2), x = tracked(mlp_weights([4, 5, 3])), two_views(12, 4)
            rows = x.flatten(0, 1) @ w1.mT
            norm = batch_norm(5)
            hidden = norm(activation(rows)) if before else activation(norm(rows))
            (slope,) = gradients(LOSSES[1]((hidden @ w2.mT).view(2, 12, 3)), [w1])
            found.append((w1 * slope).sum(dim=1))
    return Sides(flat(found).detach(), 0.0)


def batch_norm_jacobian() -> tuple[Tensor, Tensor, Tensor]:
    """A node's activations f in a batch, BatchNorm's output over √N, and J f."""
    f = normal(10) + 1
    return f, batch_norm(1)(f[:, None])[:, 0] / 10**0.5, layer_norm_jacobian(f) @ f


@claim(
    "alpha-cl",
    "eq 82",
    "The Jacobian of BatchNorm is J_k = P⊥_{f,1}/‖P⊥_1 f‖, and J_k f_k = 0, which eq 84 needs. Checked: the "
    "Jacobian by autograd and the formula, and the formula times f_k",
    tolerance=1e-12,
)
def batch_norm_forward() -> Sides:
    f, _, by_jacobian = batch_norm_jacobian()
    found = jacobian(lambda f: batch_norm(1)(f[:, None])[:, 0] / 10**0.5, f)
    return Sides(flat([found, by_jacobian]), flat([layer_norm_jacobian(f), torch.zeros_like(f)]))


@batch_norm_forward.published("the forward pass is fⁿ_k = J_k f_k")
def _() -> Sides:
    _, output, by_jacobian = batch_norm_jacobian()
    return Sides(output, by_jacobian)
