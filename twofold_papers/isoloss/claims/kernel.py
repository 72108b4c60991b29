"""Eq 2, 7, 18 to 21, Lemmas 2 and 3: how samples influence each other through the shared weights."""

import torch
from torch import Tensor
from torch.autograd.functional import jacobian, jvp

from twofold_papers.isoloss.claims.cases import sides
from twofold_papers.isoloss.claims.losses import cosine_dynamics
from twofold_papers.isoloss.claims.siamese import (
    COSINE,
    COSINE_ISO,
    EUCLIDEAN,
    EUCLIDEAN_ISO,
    Loss,
    linear,
    orthogonal,
    velocity,
    weights,
    white_views,
)
from twofold_papers.verify.claim import Sides, claim
from twofold_papers.verify.numerics import randn

INPUTS, HIDDEN, OUTPUTS, SAMPLES = 4, 6, 3, 5
LOSSES = (EUCLIDEAN, COSINE, EUCLIDEAN_ISO, COSINE_ISO)


def tanh_network(theta: Tensor, x: Tensor) -> Tensor:
    """A network with two layers. All weights are in one vector, so that their Jacobian is one matrix."""
    first, second = theta.split([HIDDEN * INPUTS, OUTPUTS * HIDDEN])
    return (x @ first.view(HIDDEN, INPUTS).T).tanh() @ second.view(OUTPUTS, HIDDEN).T


def moved(theta: Tensor, x: Tensor, loss: Loss, basis: Tensor) -> Tensor:
    """dẑ/dt under gradient flow of the weights: the derivative of the network in the direction −∂L/∂θ."""
    theta = theta.clone().requires_grad_()
    direction = -torch.autograd.grad(loss(tanh_network(theta, x)), theta)[0]
    return jvp(lambda t: tanh_network(t, x) @ basis, theta.detach(), direction)[1].flatten()


def kernel(theta: Tensor, x: Tensor, basis: Tensor) -> Tensor:
    """Θ̂ = ∇_θẐ ∇_θẐᵀ over all samples of both views."""
    slopes = jacobian(lambda t: (tanh_network(t, x) @ basis).flatten(), theta)
    return slopes @ slopes.T


def output_gradient(theta: Tensor, x: Tensor, loss: Loss, basis: Tensor) -> Tensor:
    """∂L/∂Ẑ, with the embeddings as free variables."""
    z = (tanh_network(theta, x) @ basis).requires_grad_()
    return torch.autograd.grad(loss(z @ basis.T), z)[0].flatten()


def draw(basis: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Rate, kernel and gradient for each loss, with new random weights and inputs."""
    drawn = []
    for loss in LOSSES:
        theta, x = randn(HIDDEN * (INPUTS + OUTPUTS)), randn(2, SAMPLES, INPUTS)
        drawn.append((moved(theta, x, loss, basis), kernel(theta, x, basis), output_gradient(theta, x, loss, basis)))
    return drawn


@claim(
    "isoloss",
    "eq 2",
    "Gradient flow moves the outputs of a network by dz/dt = −Θ ∇_Z L, where Θ is the neural tangent kernel. "
    "Checked: both sides for a tanh network and four losses",
    tolerance=1e-10,
)
def tangent_kernel() -> Sides:
    identity = torch.eye(OUTPUTS, dtype=torch.float64)
    return sides((rate, -theta @ slope) for rate, theta, slope in draw(identity))


@claim(
    "isoloss",
    "Lemma 2, eq 7",
    "In a rotated basis, dẑ/dt = −Θ̂ ∇_ẑ L, with the kernel of the rotated outputs. Checked: both sides for a "
    "tanh network in a random basis and four losses",
    tolerance=1e-10,
)
def rotated_kernel() -> Sides:
    return sides((rate, -theta @ slope) for rate, theta, slope in draw(orthogonal(OUTPUTS)))


@claim(
    "isoloss",
    "eq 7, cone",
    "Training never leaves the half-space of the negative gradient: ⟨−∇_ẑ L, dẐ/dt⟩ ≥ 0. Checked: the inner "
    "product for 20 random tanh networks and losses",
    tolerance=0.0,
)
def half_space() -> Sides:
    drawn = [case for _ in range(5) for case in draw(orthogonal(OUTPUTS))]
    return sides(((-slope @ rate, torch.zeros(1)) for rate, _, slope in drawn), "≥")


def linear_jacobian(x: Tensor, outputs: int, basis: Tensor) -> Tensor:
    """∂(UᵀWx)/∂vec W[n, M, N·M] by autograd; vec stacks the columns of W."""
    slopes = jacobian(lambda w: linear(x, w) @ basis, randn(outputs, x.shape[-1]))
    return slopes.transpose(-1, -2).flatten(2)


@claim(
    "isoloss",
    "Lemma 3, eq 18",
    "The Jacobian of UᵀWx with respect to W is xᵀ ⊗ Uᵀ. Checked: the Jacobian by autograd and this product",
    tolerance=1e-12,
)
def linear_network_jacobian() -> Sides:
    def case(n: int, inputs: int, outputs: int) -> tuple[Tensor, Tensor]:
        x, basis = randn(n, inputs), orthogonal(outputs)
        return linear_jacobian(x, outputs, basis), torch.stack([torch.kron(row[None], basis.T) for row in x])

    return sides(case(*shape) for shape in ((3, 4, 2), (5, 3, 6)))


@claim(
    "isoloss",
    "Lemma 3, eq 19",
    "The kernel of a linear network is (x_i·x_j) I, for any U. Checked: the kernel from Jacobians by "
    "autograd, in a random basis, and this formula",
    tolerance=1e-12,
)
def linear_network_kernel() -> Sides:
    def case(n: int, inputs: int, outputs: int) -> tuple[Tensor, Tensor]:
        x = randn(n, inputs)
        slopes = linear_jacobian(x, outputs, orthogonal(outputs)).flatten(0, 1)
        return slopes @ slopes.T, torch.kron(x @ x.T, torch.eye(outputs, dtype=x.dtype))

    return sides(case(*shape) for shape in ((3, 4, 2), (5, 3, 6)))


def summed_motion(x: Tensor, w: Tensor, loss: Loss) -> tuple[Tensor, Tensor]:
    """dz¹_i/dt from the motion of the weights, and −∂L/∂z¹_i of each sample; the loss is a sum over samples."""
    n = x.shape[1]
    z = linear(x, w).requires_grad_()
    own = -n * torch.autograd.grad(loss(z), z)[0][0]
    return linear(x[0], n * velocity(loss, x, w)), own


def orthonormal_inputs(clusters: int, copies: int, inputs: int) -> Tensor:
    """First views with x_i·x_j = 1 within a cluster, else 0. Second views are near them, and equal within a cluster."""
    first = orthogonal(inputs)[:clusters]
    return torch.stack([first, first + 0.3 * randn(clusters, inputs)]).repeat_interleave(copies, dim=1)


@claim(
    "isoloss",
    "eq 21",
    "If x_i·x_j = δ_ij, then dẑ_i/dt = −∂L/∂ẑ_i for each sample. At most N inputs can satisfy this. Checked: "
    "both sides for six orthonormal inputs and four losses",
    tolerance=1e-10,
)
def samples_apart() -> Sides:
    return sides(summed_motion(orthonormal_inputs(6, 1, 9), randn(4, 9), loss) for loss in LOSSES)


@samples_apart.published(
    "dẑ_i/dt = −∂L/∂ẑ_i for high-dimensional i.i.d. standard Gaussian inputs, for which x_i·x_j ≈ δ_ij by the central "
    "limit theorem"
)
def _() -> Sides:
    # With 400 inputs and 20 samples, x_i·x_i is about 400, and x_i·x_j is about ±20 for i ≠ j.
    return sides(summed_motion(randn(2, 20, 400), randn(4, 400) / 20, loss) for loss in LOSSES)


@samples_apart.holds_if(
    "the inputs have variance 1/N, and N is much larger than the number of samples: the relative error is below 20/√N",
    fails_if="the inputs have variance 1: x_i·x_i is then about N",
)
def _() -> Sides:
    def error(inputs: int, loss: Loss) -> Tensor:
        motion, own = summed_motion(randn(2, 5, inputs) / inputs**0.5, randn(4, inputs), loss)
        return (motion - own).norm() / own.norm() * inputs**0.5

    return Sides(torch.stack([error(inputs, loss) for loss in LOSSES for inputs in (400, 10_000, 250_000)]), 20.0, "<")


@claim(
    "isoloss",
    "eq 21, clusters",
    "P copies of each of several orthonormal inputs move P times as fast. Checked: the velocity of each "
    "sample and P times its own gradient, for P = 2 and 3 and four losses",
    tolerance=1e-10,
)
def clusters_apart() -> Sides:
    def case(loss: Loss, copies: int) -> tuple[Tensor, Tensor]:
        motion, own = summed_motion(orthonormal_inputs(4, copies, 9), randn(4, 9), loss)
        return motion, copies * own

    return sides(case(loss, copies) for loss in LOSSES for copies in (2, 3))


def mode_velocity(x: Tensor, w: Tensor, loss: Loss, exponent: float) -> tuple[Tensor, Tensor, Tensor]:
    """ds/dt of WWᵀ by a central difference along dW/dt, and both views in the eigenbasis."""
    step = 1e-5 * velocity(
        loss, x, w, exponent
    )  # the error of order step² is below the rounding error of the difference
    above, below = (torch.linalg.eigvalsh(v @ v.T) for v in (w + step, w - step))
    first, second = linear(x, w) @ torch.linalg.eigh(w @ w.T).eigenvectors
    return (above - below) / 2e-5, first, second


WHITE_CASES = ((80, 6, 4, 1.0), (200, 15, 10, 0.5))  # samples, inputs, outputs, α


def white_case(samples: int, inputs: int, outputs: int) -> tuple[Tensor, Tensor]:
    s = torch.linspace(0.3, 1.6, outputs, dtype=torch.float64)
    return white_views(samples, inputs), weights(s, inputs)


@claim(
    "isoloss",
    "Theorem 1, eigenvalues",
    "If E[xxᵀ] = I, the eigenvalues move as if the samples were independent: ds_m/dt = 2E[ẑ_m · eq 8]. "
    "Checked: ds/dt by a central difference along dW/dt, and this average, for α = 1 and 0.5",
    tolerance=1e-8,
)
def euclidean_eigenvalue_rate() -> Sides:
    def case(samples: int, inputs: int, outputs: int, exponent: float) -> tuple[Tensor, Tensor]:
        x, w = white_case(samples, inputs, outputs)
        rate, first, second = mode_velocity(x, w, EUCLIDEAN, exponent)
        z = torch.cat([first, second])
        eigenvalues = z.square().mean(0) ** exponent
        return rate, 2 * (first * eigenvalues * (second - eigenvalues * first)).mean(0)

    return sides(case(*sizes) for sizes in WHITE_CASES)


@claim(
    "isoloss",
    "Theorem 2, eigenvalues",
    "If E[xxᵀ] = I, the eigenvalues of WWᵀ obey ds_m/dt = 2E[ẑ_m · eq 10] exactly. Checked: ds/dt by a "
    "central difference along dW/dt, and this average, for α = 1 and 0.5",
    tolerance=1e-8,
)
def cosine_eigenvalue_rate() -> Sides:
    def case(samples: int, inputs: int, outputs: int, exponent: float) -> tuple[Tensor, Tensor]:
        x, w = white_case(samples, inputs, outputs)
        rate, first, second = mode_velocity(x, w, COSINE, exponent)
        eigenvalues = torch.cat([first, second]).square().mean(0) ** exponent
        return rate, 2 * (first * cosine_dynamics(first, second, eigenvalues)).mean(0)

    return sides(case(*sizes) for sizes in WHITE_CASES)


@cosine_eigenvalue_rate.published("for i.i.d. Gaussian inputs, each sample follows eq 10")
def _() -> Sides:
    """Inputs with E[xxᵀ] = I. A sample follows the part of the gradients that is linear in the inputs."""

    def case(samples: int, inputs: int, outputs: int, exponent: float) -> tuple[Tensor, Tensor]:
        x, w = white_case(samples, inputs, outputs)
        basis = torch.linalg.eigh(w @ w.T).eigenvectors
        first, second = linear(x, w) @ basis
        eigenvalues = torch.cat([first, second]).square().mean(0) ** exponent
        motion = linear(x[0], velocity(COSINE, x, w, exponent)) @ basis
        return motion, cosine_dynamics(first, second, eigenvalues)

    return sides(case(*sizes) for sizes in WHITE_CASES)


@cosine_eigenvalue_rate.holds_if(
    "the inputs of the samples are orthonormal, as the proof assumes", fails_if="only E[xxᵀ] = I: the samples interact"
)
def _() -> Sides:
    def case() -> tuple[Tensor, Tensor]:
        x, w = orthonormal_inputs(6, 1, 9), randn(4, 9)
        z = linear(x, w)
        eigenvalues, basis = torch.linalg.eigh(z.flatten(0, 1).T @ z.flatten(0, 1) / z.shape[:2].numel())
        motion, _ = summed_motion(x, w, COSINE)
        return motion @ basis, cosine_dynamics(z[0] @ basis, z[1] @ basis, eigenvalues)

    return sides(case() for _ in range(3))
