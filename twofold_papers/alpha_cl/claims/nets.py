"""Small networks, data and solvers for the claims, in float64.

N is the number of samples, T that of networks trained in parallel, L that of layers. Weights W_l[..., n_l, n_{l−1}]
act on column vectors.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Weights = list[Tensor]
Field = Callable[[Weights], Weights]


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def uniform(*shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64)


def two_views(samples: int, dim: int, apart: float = 0.5) -> Tensor:
    """x[2, N, D]: random rows, and the same rows with noise."""
    x = normal(samples, dim)
    return torch.stack([x, x + apart * normal(samples, dim)])


def pair_weights(samples: int) -> Tensor:
    """Random positive α whose rows sum to 1; the diagonal is zero."""
    alpha = uniform(samples, samples) + 0.1
    alpha.fill_diagonal_(0)
    return alpha / alpha.sum(dim=1, keepdim=True)


def flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


def gradients(value: Tensor, of: Sequence[Tensor]) -> Weights:
    return list(torch.autograd.grad(value, of))


def tracked(tensors: Sequence[Tensor]) -> Weights:
    """Copies that require gradients."""
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]


def tanh_network(widths: Sequence[int]) -> Weights:
    """Weights and biases, alternating, of a network with a smooth nonlinearity."""
    shapes = zip(widths[1:], widths, strict=False)
    return [part for n, m in shapes for part in (normal(n, m) / m**0.5, normal(n) / 2)]


def through_tanh(parameters: Weights, x: Tensor) -> Tensor:
    for weight, bias in zip(parameters[:-2:2], parameters[1:-2:2], strict=True):
        x = (x @ weight.mT + bias).tanh()
    return x @ parameters[-2].mT + parameters[-1]


def product(weights: Weights, width: int) -> Tensor:
    """The product W_L … W_1; for an empty list, the identity of size `width`."""
    out = torch.eye(width, dtype=torch.float64)
    for weight in weights:
        out = weight @ out
    return out


def deep_linear(widths: Sequence[int], networks: int = 0) -> Weights:
    """Random W_l with ‖W_l‖_F = 1, for one network or for several in parallel."""
    batch = (networks,) if networks else ()
    return unit_layers([normal(*batch, n, m) for n, m in zip(widths[1:], widths, strict=False)])


def unit_layers(weights: Weights) -> Weights:
    """The weights scaled to ‖W_l‖_F = 1 (eq 11)."""
    return [weight / weight.norm(dim=(-2, -1), keepdim=True) for weight in weights]


def unit_filters(weights: Weights) -> Weights:
    """The weights scaled to ‖w_lk‖ = 1/√n_l for each row, in the last layer to ‖W_L‖_F = 1 (Lemma 11)."""
    rows = [weight / weight.norm(dim=-1, keepdim=True) / weight.shape[-2] ** 0.5 for weight in weights[:-1]]
    return [*rows, *unit_layers(weights[-1:])]


def ascend(
    weights: Weights, slope: Field, project: Field, steps: int, rate: float = 0.3, floor: float | None = None
) -> Weights:
    """Projected gradient ascent with steps of constant length: W ← project(W + rate · G/‖G‖), with W_1 ≥ floor.

    Steps need not shrink: at a maximum under ‖W‖ = 1 the gradient is parallel to W, and the projection removes it.
    """
    for _ in range(steps):
        moved = [
            weight + rate * g / g.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-300)
            for weight, g in zip(weights, slope(weights), strict=True)
        ]
        if floor is not None:
            moved[0] = moved[0].clamp_min(floor)
        weights = project(moved)
    return weights


def integrate(field: Field, start: Weights, time: float, steps: int) -> Weights:
    """The flow dW/dt = field(W), by fourth-order Runge–Kutta steps."""
    step, state = time / steps, start

    def moved(by: float, along: Weights) -> Weights:
        return [weight + by * slope for weight, slope in zip(state, along, strict=True)]

    for _ in range(steps):
        k1 = field(state)
        k2 = field(moved(step / 2, k1))
        k3 = field(moved(step / 2, k2))
        k4 = field(moved(step, k3))
        state = moved(step / 6, [a + 2 * b + 2 * c + d for a, b, c, d in zip(k1, k2, k3, k4, strict=True)])
    return state


def linear_slopes(weights: Weights, x_alpha: Tensor) -> Weights:
    """Lemma 1: W_{>l}ᵀ W_{>l} W_l C_α[f_{l−1}] for every layer, with C_α[f] = W_{<l} X_α W_{<l}ᵀ."""
    below = [product(weights[:layer], x_alpha.shape[-1]) for layer in range(len(weights))]
    above = [product(weights[layer + 1 :], weight.shape[-2]) for layer, weight in enumerate(weights)]
    return [
        over.mT @ over @ weight @ under @ x_alpha @ under.mT
        for over, weight, under in zip(above, weights, below, strict=True)
    ]


def linear_energy(weights: Weights, x_alpha: Tensor) -> Tensor:
    """tr(W X_α Wᵀ) of each network."""
    end_to_end = product(weights, x_alpha.shape[-1])
    return (end_to_end @ x_alpha * end_to_end).sum(dim=(-2, -1))


BARRIERS = [10.0**-k for k in range(1, 15)]
NEWTON_STEPS = 12


def smallest_on_simplex(cost: Tensor, regulariser: Callable[[Tensor], Tensor], total: Tensor) -> Tensor:
    """The minimum of Σ_j cost_ij a_ij − regulariser(a_ij) over a ≥ 0, Σ_j a_ij = total_i, for a concave regulariser.

    An interior-point method that takes derivatives of the regulariser from autograd. Each logarithmic barrier is a
    tenth of the previous one. Newton's steps keep Σ_j a_ij = total_i; they are shortened to keep all entries positive.
    """
    nothing = total[:, None] == 0  # the only feasible point is 0
    a = (torch.where(nothing, 1, total[:, None]) / cost.shape[1]).expand_as(cost)
    for barrier in BARRIERS:
        for _ in range(NEWTON_STEPS):
            at = a.detach().requires_grad_()
            (slope,) = torch.autograd.grad(regulariser(at).sum(), at, create_graph=True)
            (bend,) = torch.autograd.grad(slope.sum(), at)
            gradient = cost - slope.detach() - barrier / a
            curvature = barrier / a.square() - bend
            multiplier = (gradient / curvature).sum(1, keepdim=True) / (1 / curvature).sum(1, keepdim=True)
            step = (multiplier - gradient) / curvature
            room = torch.where(step < 0, -a / step, torch.inf).amin(dim=1, keepdim=True)
            a = a + (0.9 * room).clamp_max(1) * step
    return torch.where(nothing, 0, a)


def covers_all(modes: int, samples: int) -> Tensor:
    """The mode of each sample, every mode at least once."""
    return torch.cat([torch.arange(modes), torch.randint(modes, (samples - modes,))])


def mixture(samples: int, modes: int, apart: float = 0.3) -> Tensor:
    """x[2, N, M] of Assumption 1: nonnegative, one-hot, all modes present; x[i'] = γ_i x[i], log γ ~ N(0, apart²)."""
    size = 0.5 + uniform(samples, 1)
    x = torch.nn.functional.one_hot(covers_all(modes, samples), modes) * size
    return torch.stack([x, x * (apart * normal(samples, 1)).exp()])
