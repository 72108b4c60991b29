"""Importance rules compared with a general solver; α-CL, its covariance and its energy with sums over pairs."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor

from trials import DEGENERATE, degenerate
from twofold.errors import TwofoldError
from twofold.objectives.contrastive import contrastive, family, info_nce
from twofold.objectives.importance import RULES, alpha_cl, contrastive_covariance, energy, importance

# Regularisers of the paper: parameters, r(α), r'(α). The rule maximises Σ r(α) − 2 Σ α D on the simplex.
REGULARISERS: dict[str, tuple[dict[str, float], Callable, Callable]] = {
    "entropy": ({"temperature": 0.4}, lambda a: -2 * 0.4 * a * np.log(a), lambda a: -2 * 0.4 * (np.log(a) + 1)),
    "square": ({"temperature": 1.5}, lambda a: -1.5 / 2 * a**2, lambda a: -1.5 * a),
    "inverse": (
        {"temperature": 0.001, "gamma": 2.5},
        lambda a: 2 * 0.001 / (1 - 2.5) * a ** (1 - 2.5),
        lambda a: 2 * 0.001 * a**-2.5,
    ),
}
every_rule = pytest.mark.parametrize("rule", RULES)


def distances(rows: int = 4, negatives: int = 7) -> Tensor:
    return 2 * torch.rand(rows, negatives, dtype=torch.float64)


def embeddings(views: int = 2, samples: int = 5, dim: int = 4) -> Tensor:
    return torch.randn(views, samples, dim, dtype=torch.float64, requires_grad=True)


def unit(z: Tensor) -> Tensor:
    return z / z.norm(dim=-1, keepdim=True)


def gradient(value: Tensor, z: Tensor) -> Tensor:
    return torch.autograd.grad(value, z)[0]


@pytest.mark.parametrize("rule", REGULARISERS)
def test_rules_equal_the_solution_of_a_general_solver(rule: str) -> None:
    parameters, regulariser, slope = REGULARISERS[rule]
    d = distances()
    found = importance(d, rule, **parameters).numpy()
    for row, alpha in zip(d.numpy(), found, strict=True):
        solution = minimize(
            lambda a, row=row: (2 * a * row - regulariser(a)).sum(),
            np.full(row.size, 1 / row.size),
            jac=lambda a, row=row: 2 * row - slope(a),
            bounds=[(1e-9, 1)] * row.size,
            constraints={"type": "eq", "fun": lambda a: a.sum() - 1, "jac": np.ones_like},
            options={"ftol": 1e-14, "maxiter": 1000},
        )
        assert solution.success
        np.testing.assert_allclose(alpha, solution.x, atol=2e-6)
        assert alpha.std() > 0.02  # far from uniform, or the comparison would say little


@pytest.mark.parametrize("rule", REGULARISERS)
def test_rules_satisfy_the_conditions_of_a_maximum(rule: str) -> None:
    """r'(α_j) − 2 D_j is constant over α_j > 0, and smaller where α_j = 0."""
    parameters, _, slope = REGULARISERS[rule]
    d = distances(6, 20)
    alpha = importance(d, rule, **parameters)
    np.testing.assert_allclose(alpha.sum(dim=1), 1, rtol=1e-12)
    assert (alpha >= 0).all()
    for row, weights in zip(d.numpy(), alpha.numpy(), strict=True):
        gains = slope(weights) - 2 * row
        inside = weights > 0
        np.testing.assert_allclose(gains[inside], gains[inside].max(), rtol=1e-9, atol=1e-9)
        assert (gains[~inside] <= gains[inside].max() + 1e-9).all()
    assert (rule == "square") == bool((alpha == 0).any())


@settings(max_examples=30)
@given(
    size=st.integers(1, 300),
    exponent=st.floats(-12, 12),
    spread=st.floats(0, 10),
    gamma=st.sampled_from([1.01, 2.0, 7.0, 40.0]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 1000),
)
def test_inverse_rule_solves_its_equation_at_any_scale(
    size: int, exponent: float, spread: float, gamma: float, dtype: torch.dtype, seed: int
) -> None:
    """Σ α = 1 and (D + ν)/τ = α^{−γ} with one ν per row, over 24 orders of magnitude of distances."""
    generator = torch.Generator().manual_seed(seed)
    d = 10 ** (exponent + spread * (torch.rand(3, size, generator=generator, dtype=torch.float64) - 0.5))
    alpha = importance(d.to(dtype), "inverse", temperature=0.5, gamma=gamma)
    rounding = 8 * size * torch.finfo(dtype).eps
    assert ((alpha.sum(dim=1) - 1).abs() < rounding).all()
    if dtype == torch.float64:
        smallest, at = d.min(dim=1, keepdim=True)
        largest = alpha.gather(1, at)
        expected = (1 + largest**gamma * (d - smallest) / 0.5) ** (-1 / gamma)
        torch.testing.assert_close(alpha / largest, expected, rtol=1e-9, atol=0)


def test_inverse_rule_is_uniform_for_many_negatives() -> None:
    """With γ = 2, τ = 0.5 and a few hundred negatives, α is 1/k up to a relative error of 1e-5. The heuristic is
    not."""
    d = distances(8, 510)
    alpha = 510 * importance(d, "inverse")
    assert 1e-8 < (alpha - 1).abs().max() < 1e-5
    assert (510 * importance(d, "heuristic_inverse") - 1).abs().max() > 0.5
    huge = importance(distances(2, 5000).float(), "inverse", gamma=40.0)  # ν would be 0.5 · 5000^40
    torch.testing.assert_close(huge, torch.full_like(huge, 1 / 5000))
    left_out = torch.cat([distances(2, 5000), torch.full((2, 1), math.inf)], dim=1).float()
    torch.testing.assert_close(importance(left_out, "inverse", gamma=40.0)[:, :5000], huge)


def test_direct_and_heuristic_rules_equal_their_formulas() -> None:
    d = distances()
    direct = torch.exp(-((d**0.5) ** 3) / 0.7)
    torch.testing.assert_close(importance(d, "direct", temperature=0.7, exponent=3.0, normalized=False), direct)
    normalised = direct / direct.sum(dim=1, keepdim=True)
    torch.testing.assert_close(importance(d, "direct", temperature=0.7, exponent=3.0), normalised)
    powers = (d + 0.7) ** -1.5
    expected = powers / powers.sum(dim=1, keepdim=True)
    torch.testing.assert_close(importance(d, "heuristic_inverse", temperature=0.7, exponent=1.5), expected)


def test_defaults_are_those_of_the_paper() -> None:
    d = distances()
    for rule, parameters in {
        "entropy": {"temperature": 0.5},
        "square": {"temperature": 5.0},
        "inverse": {"temperature": 0.5, "gamma": 2.0},
        "direct": {"temperature": 0.5, "exponent": 4.0, "normalized": True},
        "heuristic_inverse": {"temperature": 0.5, "exponent": 2.0},
    }.items():
        assert torch.equal(importance(d, rule), importance(d, rule, **parameters))
        z = embeddings()
        explicit = alpha_cl(z, rule, temperature=parameters["temperature"]).total
        assert torch.equal(alpha_cl(z, rule).total, explicit)
    assert torch.equal(alpha_cl(z).total, alpha_cl(z, "direct", exponent=4.0).total)


@every_rule
def test_nearer_negatives_have_larger_weights(rule: str) -> None:
    d = distances().sort(dim=1).values
    assert (importance(d, rule).diff(dim=1) <= 0).all()


@every_rule
def test_infinite_distances_exclude_pairs(rule: str) -> None:
    d = distances()
    weights = torch.randn(4, 7, dtype=torch.float64)
    found, plain = torch.cat([d, torch.full((4, 2), math.inf)], dim=1).requires_grad_(), d.clone().requires_grad_()
    alpha, expected = importance(found, rule), importance(plain, rule)
    torch.testing.assert_close(alpha[:, :7], expected, rtol=1e-10, atol=1e-14)
    assert (alpha[:, 7:] == 0).all()
    slope = gradient((alpha[:, :7] * weights).sum(), found)[:, :7]
    torch.testing.assert_close(slope, gradient((expected * weights).sum(), plain), rtol=1e-9, atol=1e-12)


@every_rule
def test_gradient_through_importance_equals_finite_differences(rule: str) -> None:
    assert torch.autograd.gradcheck(lambda d: importance(d, rule), distances(2, 5).requires_grad_())
    assert torch.autograd.gradcheck(lambda z: alpha_cl(z, rule, through_importance=True).total, embeddings(2, 3, 2))


@pytest.mark.parametrize(("rule", "parameters"), [*((rule, {}) for rule in RULES), ("direct", {"normalized": False})])
@pytest.mark.parametrize("views", [2, 3])
def test_alpha_cl_equals_loops_over_pairs(rule: str, parameters: dict[str, bool], views: int) -> None:
    z = embeddings(views, 4)
    rows = [(v, n) for v in range(views) for n in range(4)]
    u = unit(z)
    losses = []
    for v, n in rows:
        cosines = torch.stack([u[v, n] @ u[w, m] for w, m in rows if m != n])
        positive = torch.stack([u[v, n] @ u[w, n] for w in range(views) if w != v]).mean()
        alpha = importance((1 - cosines.detach())[None], rule, temperature=0.3, **parameters)[0]
        losses.append((alpha * (cosines - positive)).sum())
    expected = torch.stack(losses).mean()
    loss = alpha_cl(z, rule, temperature=0.3, **parameters)
    torch.testing.assert_close(loss.total, expected, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(gradient(loss.total, z), gradient(expected, z), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(sum(loss.terms.values()), expected.detach(), rtol=1e-9, atol=1e-11)


def ratio_to_views(within: Tensor, between: Tensor) -> Tensor:
    """A rule that depends on all its arguments and on the order of rows and columns."""
    return torch.exp(-between / within.mean(dim=1, keepdim=True)) * torch.linspace(1, 2, len(within))[:, None]


@pytest.mark.parametrize("views", [2, 3])
def test_own_rule_gets_the_distances_within_and_between_images(views: int) -> None:
    """Definition 1 of α-CL with a rule of the user's own, compared with loops over pairs."""
    z = embeddings(views)
    rows, N = unit(z).flatten(0, 1), z.shape[1]
    places = range(len(rows))
    weights = torch.linspace(1, 2, len(rows))
    total, scores = 0.0, rows.detach() @ rows.detach().T
    for i in places:
        own = [j for j in places if j % N == i % N and j != i]
        near = sum(1 - scores[i, j] for j in own) / len(own)
        attraction = sum(rows[i] @ rows[j] for j in own) / len(own)
        for j in places:
            if j % N != i % N:
                alpha = torch.exp(-(1 - scores[i, j]) / near) * weights[i]
                total = total + alpha * (rows[i] @ rows[j] - attraction) / len(rows)
    found = alpha_cl(z, ratio_to_views).total
    assert found.item() == pytest.approx(total.item(), rel=1e-12)
    torch.testing.assert_close(gradient(found, z), gradient(total, z), rtol=1e-9, atol=1e-12)


def test_own_rule_that_is_a_rule_of_the_paper_gives_its_loss() -> None:
    z = embeddings(3, 7, 5)
    for through in (False, True):
        own = alpha_cl(z, lambda _, between: importance(between, "direct"), through_importance=through).total
        known = alpha_cl(z, "direct", through_importance=through).total
        assert own.item() == pytest.approx(known.item(), rel=1e-12)
        torch.testing.assert_close(gradient(own, z), gradient(known, z), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("views", [2, 3])
def test_entropy_has_the_gradient_of_decoupled_info_nce(views: int) -> None:
    """The family's InfoNCE has a factor τ, so the gradient is τ times that of plain NT-Xent."""
    z = embeddings(views, 6)
    found = gradient(alpha_cl(z, "entropy", temperature=0.3).total, z)
    with_factor = gradient(contrastive(z, family("infonce", temperature=0.3, epsilon=0.0)).total, z)
    plain = gradient(info_nce(z, 0.3, epsilon=0.0).total, z)
    torch.testing.assert_close(found, with_factor, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found, 0.3 * plain, rtol=1e-9, atol=1e-12)


@every_rule
def test_through_importance_changes_the_gradient_and_not_the_value(rule: str) -> None:
    z = embeddings()
    fixed, through = alpha_cl(z, rule), alpha_cl(z, rule, through_importance=True)
    assert torch.equal(fixed.total, through.total)
    fixed_gradient = gradient(fixed.total, z)
    assert (gradient(through.total, z) - fixed_gradient).norm() > 1e-4 * fixed_gradient.norm()


@every_rule
def test_loss_is_invariant_to_permutations_rotations_and_scale(rule: str) -> None:
    z = embeddings(3, 6).detach()
    rotation = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q
    for changed in (z.flip(0), z[:, torch.randperm(6)], z @ rotation, 7 * z):
        torch.testing.assert_close(alpha_cl(changed, rule).total, alpha_cl(z, rule).total, rtol=1e-10, atol=1e-12)


def test_covariance_and_energy_equal_loops_over_pairs() -> None:
    x, positive = torch.randn(2, 6, 3, dtype=torch.float64)
    alpha = torch.rand(6, 6, dtype=torch.float64).fill_diagonal_(0)
    expected = torch.zeros(3, 3, dtype=torch.float64)
    for i in range(6):
        for j in range(6):
            expected += alpha[i, j] * torch.outer(x[i] - x[j], x[i] - x[j])
            expected -= alpha[i, j] * torch.outer(x[i] - positive[i], x[i] - positive[i])
    torch.testing.assert_close(contrastive_covariance(x, positive, alpha), expected, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(energy(x, positive, alpha), expected.trace(), rtol=1e-11, atol=1e-11)
    moved = contrastive_covariance(x + 1e5, positive + 1e5, alpha)
    torch.testing.assert_close(moved, expected, rtol=1e-8, atol=1e-8)
    assert torch.autograd.gradcheck(energy, (x.requires_grad_(), positive.requires_grad_(), alpha.requires_grad_()))


def test_energy_of_a_linear_network_follows_from_the_covariance_of_its_input() -> None:
    """E_α[Wx] = tr(W C_α[x] Wᵀ), which Theorem 3 uses."""
    x, positive = torch.randn(2, 8, 5, dtype=torch.float64)
    weight = torch.randn(3, 5, dtype=torch.float64)
    alpha = torch.rand(8, 8, dtype=torch.float64).fill_diagonal_(0)
    expected = (weight @ contrastive_covariance(x, positive, alpha) @ weight.T).trace()
    torch.testing.assert_close(energy(x @ weight.T, positive @ weight.T, alpha), expected, rtol=1e-11, atol=1e-11)


@settings(max_examples=15)
@given(
    scale=st.sampled_from([1e-4, 1.0, 1e4]),
    shape=st.sampled_from([(2, 2, 1), (2, 2, 3), (3, 5, 4)]),
    degeneracy=st.sampled_from(DEGENERATE),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    through=st.booleans(),
    seed=st.integers(0, 100),
)
def test_degenerate_inputs_give_finite_losses_and_gradients(
    scale: float, shape: tuple[int, int, int], degeneracy: str, dtype: torch.dtype, through: bool, seed: int
) -> None:
    z = degenerate(degeneracy, scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed)))
    z = z.to(dtype).requires_grad_()
    cases = [(rule, {}) for rule in RULES] + [("direct", {"normalized": False}), ("direct", {"exponent": 1.0})]
    for rule, parameters in cases:
        loss = alpha_cl(z, rule, through_importance=through, **parameters).total
        assert loss.isfinite(), rule
        assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32), rule
        assert gradient(loss, z).isfinite().all(), (rule, parameters)
    wide = z.detach()
    alpha = torch.ones(shape[1], shape[1], dtype=dtype).fill_diagonal_(0)
    assert energy(wide[0], wide[1], alpha).isfinite()
    assert contrastive_covariance(wide[0], wide[1], alpha).isfinite().all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: importance(distances(), "entropi"), "did you mean 'entropy'"),
        (lambda: importance(distances(), "entropy", gamma=2.0), "no parameter 'gamma'"),
        (lambda: importance(distances(), "inverse", temperature=0.0), "temperature=0.0 must be positive"),
        (lambda: alpha_cl(embeddings(), "direct", exponent=-1.0), "exponent=-1.0 must be positive"),
        (lambda: alpha_cl(embeddings()[:1]), "at least 2 views"),
        (lambda: alpha_cl(embeddings()[:, :1]), "and 2 samples"),
    ],
)
def test_invalid_arguments_raise_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TwofoldError, match=message):
        call()
