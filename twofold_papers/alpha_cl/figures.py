"""Figures 2 and 3 of α-CL, drawn from the networks of the claims."""

import torch
from matplotlib.figure import Figure
from torch import Tensor

from twofold_papers.alpha_cl.claims.linear import input_covariance
from twofold_papers.alpha_cl.claims.nets import (
    Weights,
    deep_linear,
    linear_energy,
    linear_slopes,
    unit_filters,
    unit_layers,
)
from twofold_papers.alpha_cl.claims.relu import second_singular_value, trained
from twofold_papers.verify.figure import figure

LAYERS, WIDTH, INPUTS = 5, 6, 10


def constrained_flow(weights: Weights, x_alpha: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Times, E, and the two largest singular values of every layer, under the dynamics of Lemma 1 with ‖W_l‖_F = 1.

    Euler steps, each so short that no layer moves by more than 0.03.
    """
    now, times, energies, singular_values = 0.0, [], [], []
    for _ in range(steps):
        times.append(now)
        energies.append(linear_energy(weights, x_alpha))
        singular_values.append(torch.stack([torch.linalg.svdvals(weight)[:2] for weight in weights]))
        slopes = linear_slopes(weights, x_alpha)
        step = 0.03 / max(slope.norm().item() for slope in slopes)
        now += step
        weights = unit_layers([w + step * slope for w, slope in zip(weights, slopes, strict=True)])
    return torch.tensor(times), torch.stack(energies), torch.stack(singular_values)


@figure(
    "alpha-cl",
    "Figure 2",
    "A linear network with 5 layers and fixed α, under the dynamics of Lemma 1 with ‖W_l‖_F = 1. Left: from "
    "every start, the energy is flat for a while and then rises to the largest eigenvalue of X_α, here 1 "
    "(dashed). Right: in every layer, the largest singular value (solid) goes to 1 and the second (dashed) to "
    "0, so all W_l end with rank 1. The paper's figure shows the same. The paper does not give its sizes and "
    "data; we use 10 inputs, 6 nodes per layer and random views.",
)
def deep_linear_converges() -> Figure:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        x_alpha = input_covariance(40, INPUTS)
        widths = [INPUTS, *[WIDTH] * LAYERS]
        runs = [constrained_flow(deep_linear(widths), x_alpha, 1000) for _ in range(5)]
    drawing = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = drawing.subplots(1, 2)
    for run, (time, energy, _) in enumerate(runs):
        left.plot(time, energy, color=f"C{run}", label=f"start {run + 1}")
    top = torch.linalg.eigvalsh(x_alpha)[-1].item()
    left.axhline(top, color="black", linestyle="--", label="λ_max(X_α)")
    left.set(xscale="log", xlabel="time (logarithmic)", ylabel="energy tr(W X_α Wᵀ)", title="energy from five starts")
    left.minorticks_off()
    left.set_xticks(ticks := [20, 50, 100, 200, 500], labels=map(str, ticks))
    left.legend()
    time, _, values = runs[0]
    for layer in range(LAYERS):
        right.plot(time, values[:, layer, 0], color=f"C{layer}", label=f"$W_{layer + 1}$")
        right.plot(time, values[:, layer, 1], color=f"C{layer}", linestyle="--")
    right.set(xlabel="time", ylabel="singular value", title="start 1: largest (solid), second (dashed)")
    right.legend()
    return drawing


TRIALS = 110
STRENGTHS = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2]


def share_above_rank_one(apart: float, per_filter: bool) -> float:
    """The share of networks with a rank of W_1 above 1, among those that end at E > 0."""
    x_alpha, weights = trained(apart, TRIALS, unit_filters if per_filter else unit_layers, steps=800)
    positive = linear_energy(weights, x_alpha) > 1e-6
    return (second_singular_value(weights[0])[positive] > 0.05).double().mean().item()


def example(apart: float, per_filter: bool, above_rank_one: bool) -> Weights:
    """The first of many networks that ends with E > 0, and with rank 1 or above as requested."""
    x_alpha, weights = trained(apart, TRIALS, unit_filters if per_filter else unit_layers)
    wanted = (second_singular_value(weights[0]) > 0.05) == above_rank_one
    chosen = int((wanted & (linear_energy(weights, x_alpha) > 1e-6)).nonzero()[0])
    return [weight[chosen] for weight in weights]


@figure(
    "alpha-cl",
    "Figure 3",
    "ReLU networks with 4 hidden nodes, trained to convergence on one-hot mixtures of 5 modes. The paper "
    "shows one W_1 and W_2ᵀW_2 with a rank above 1 and does not give its settings. Our results (right, 110 "
    "networks per point, those with E > 0): under ‖W_1‖_F = 1, which Theorem 6 assumes, all networks end at "
    "rank 1 (W_1 = v e_mᵀ) if augmentation is mild. If augmentation scales inputs strongly, some networks end "
    "at rank 2: two groups of nodes, with opposite signs in W_2, read different modes. A spare node leaves v "
    "e_mᵀ only if X_mm is below the norm of the other entries in its row. Strong augmentation can cause this, "
    "because it lowers only the diagonal. If the norm of each filter is fixed instead (as with BatchNorm), "
    "most networks have a rank above 1, as in the paper's figure.",
)
def relu_weights() -> Figure:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        shown = {
            "‖W₁‖=1, mild (0.3)": example(0.3, False, False),
            "‖W₁‖=1, strong (1.0)": example(1.0, False, True),
            "each filter, mild (0.3)": example(0.3, True, True),
        }
        shares = [[share_above_rank_one(apart, each) for apart in STRENGTHS] for each in (False, True)]
    drawing = Figure(figsize=(12, 4.6), layout="constrained")
    panels = drawing.subplot_mosaic(
        [["W₁ 0", "W₁ 1", "W₁ 2", "shares"], ["W₂ᵀW₂ 0", "W₂ᵀW₂ 1", "W₂ᵀW₂ 2", "shares"]], width_ratios=[1, 1, 1, 2]
    )
    for column, (title, (first, second)) in enumerate(shown.items()):
        rank = int((torch.linalg.svdvals(first) > 0.05).sum())
        for name, matrix in (("W₁", first), ("W₂ᵀW₂", second.mT @ second)):
            axes = panels[f"{name} {column}"]
            picture = axes.imshow(matrix.numpy(), cmap="RdBu_r", vmin=-1, vmax=1)
            axes.set(xticks=range(matrix.shape[1]), yticks=range(matrix.shape[0]), ylabel="hidden node")
            axes.set_xlabel("mode" if name == "W₁" else "hidden node")
            axes.set_title(f"{title}\nW₁, rank {rank}" if name == "W₁" else name, fontsize=10)
    drawing.colorbar(picture, ax=[panels["W₁ 2"], panels["W₂ᵀW₂ 2"]], shrink=0.7, label="weight")
    axes = panels["shares"]
    for share, label, style in zip(shares, ("‖W₁‖_F = 1", "‖w₁ₖ‖ = 1/√K, each filter"), ("o-", "s--"), strict=True):
        axes.plot(STRENGTHS, [100 * part for part in share], style, label=label)
    axes.set(
        xlabel="augmentation: standard deviation of log γ", ylabel="networks with rank W₁ above 1 (%)", ylim=(-4, 104)
    )
    axes.legend(loc="center left")
    return drawing
