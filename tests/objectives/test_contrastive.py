"""The α-CL family, NT-Xent and the spectral loss compared with loops over eq 1, and Theorem 1 of α-CL."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from trials import DEGENERATE, degenerate
from twofold.errors import TwofoldError
from twofold.objectives.contrastive import (
    FAMILIES,
    contrastive,
    family,
    importance_of,
    info_nce,
    spectral_contrastive,
)
from twofold.objectives.importance import alpha_cl, energy

Scalar = Callable[[Tensor], Tensor]

# The table of the paper: parameters, φ, ψ.
TABLE: dict[str, tuple[dict[str, float], Scalar, Scalar]] = {
    "infonce": ({"temperature": 0.3, "epsilon": 0.7}, lambda x: 0.3 * torch.log(0.7 + x), lambda x: torch.exp(x / 0.3)),
    "mine": ({}, torch.log, torch.exp),
    "triplet": ({"epsilon": 0.4}, lambda x: x, lambda x: torch.relu(x + 0.4)),
    "soft_triplet": (
        {"temperature": 0.3, "epsilon": 0.4},
        lambda x: 0.3 * torch.log(1 + x),
        lambda x: torch.exp(x / 0.3 + 0.4),
    ),
    "tuplet": ({}, lambda x: torch.log(1 + x), torch.exp),
    "lifted": ({"epsilon": -1.5}, lambda x: torch.relu(torch.log(x)) ** 2, lambda x: torch.exp(x - 1.5)),
    "modified_triplet": ({"scale": 3.0}, lambda x: x, lambda x: 1 / (1 + torch.exp(-3 * x))),
    "linear": ({}, lambda x: x, lambda x: x),
}
every_family = pytest.mark.parametrize("name", TABLE)
every_scope = pytest.mark.parametrize("negatives", ["all", "anchors"])


def embeddings(views: int = 2, samples: int = 5, dim: int = 4) -> Tensor:
    """Random embeddings, shifted away from 0, such that hinges are active for some pairs only."""
    return (torch.randn(views, samples, dim, dtype=torch.float64) + 0.3).requires_grad_()


def unit(z: Tensor) -> Tensor:
    return z / z.norm(dim=-1, keepdim=True)


def half_square(a: Tensor, b: Tensor) -> Tensor:
    return ((a - b) ** 2).sum() / 2


def by_loops(z: Tensor, phi: Scalar, psi: Scalar, negatives: str) -> Tensor:
    """Eq 1, anchor by anchor; several positives are averaged."""
    views, samples, _ = z.shape
    anchors = range(views) if negatives == "all" else range(1)
    total = z.new_zeros(())
    for v in anchors:
        for i in range(samples):
            for w in set(range(views)) - {v}:
                near = half_square(z[v, i], z[w, i])
                far = [half_square(z[v, i], z[u, j]) for u in anchors for j in range(samples) if j != i]
                total = total + phi(sum(psi(near - d) for d in far)) / (views - 1)
    return total


def gradient(value: Tensor, z: Tensor) -> Tensor:
    return torch.autograd.grad(value, z)[0]


def test_table_contains_every_family() -> None:
    assert set(TABLE) == set(FAMILIES)


@every_family
@every_scope
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("views", [2, 3])
def test_value_and_gradient_equal_equation_1(name: str, negatives: str, normalize: bool, views: int) -> None:
    parameters, phi, psi = TABLE[name]
    z = embeddings(views)
    expected = by_loops(unit(z) if normalize else z, phi, psi, negatives)
    loss = contrastive(z, family(name, **parameters), negatives=negatives, normalize=normalize, reduction="sum")
    torch.testing.assert_close(loss.total, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gradient(loss.total, z), gradient(expected, z), rtol=1e-8, atol=1e-9)


@every_family
@every_scope
def test_gradient_equals_finite_differences(name: str, negatives: str) -> None:
    z = embeddings(3, 3, 2)
    loss = family(name, **TABLE[name][0])
    assert torch.autograd.gradcheck(lambda z: contrastive(z, loss, negatives=negatives).total, z)


@every_family
@pytest.mark.parametrize("normalize", [True, False])
def test_theorem_1(name: str, normalize: bool) -> None:
    """∂L/∂z = −½ ∂E_α/∂z, with α fixed at φ'ψ'."""
    z = embeddings(2, 7)
    loss = family(name, **TABLE[name][0])
    alpha = importance_of(z, loss, negatives="anchors", normalize=normalize)
    rows = unit(z) if normalize else z
    expected = -0.5 * gradient(energy(rows[0], rows[1], alpha), z)
    found = gradient(contrastive(z, loss, negatives="anchors", normalize=normalize, reduction="sum").total, z)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)
    assert expected.abs().max() > 1e-3


@every_family
def test_theorem_1_with_all_rows_as_anchors(name: str) -> None:
    z = embeddings(2, 5)
    loss = family(name, **TABLE[name][0])
    alpha = importance_of(z, loss, negatives="all", normalize=False)
    rows, others = z.flatten(0, 1), z.flip(0).flatten(0, 1)
    expected = -0.5 * gradient(energy(rows, others, alpha), z)
    found = gradient(contrastive(z, loss, normalize=False, reduction="sum").total, z)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


@every_family
def test_importance_is_the_product_of_the_derivatives(name: str) -> None:
    """Eq 4, with φ' and ψ' of the paper's table."""
    parameters, phi, psi = TABLE[name]
    z = embeddings(2, 6).detach()
    found = importance_of(z, family(name, **parameters), normalize=False)
    expected = torch.zeros(6, 6, dtype=torch.float64)
    for i in range(6):
        others = [j for j in range(6) if j != i]
        near = half_square(z[0, i], z[1, i])
        x = torch.stack([near - half_square(z[0, i], z[0, j]) for j in others]).requires_grad_()
        xi = psi(x).sum().detach().requires_grad_()
        expected[i, others] = gradient(phi(xi), xi) * gradient(psi(x).sum(), x)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    assert (found >= 0).all()


def test_info_nce_equals_the_softmax_of_simclr() -> None:
    """Cross entropy of the positive among all rows except the anchor."""
    z = embeddings(2, 6)
    rows = unit(z).flatten(0, 1)
    logits = (rows @ rows.T / 0.2).masked_fill(torch.eye(12, dtype=torch.bool), -torch.inf)
    expected = torch.nn.functional.cross_entropy(logits, torch.arange(12).roll(6))
    torch.testing.assert_close(info_nce(z, 0.2).total, expected, rtol=1e-12, atol=1e-12)
    times_temperature = contrastive(z, family("infonce", temperature=0.2, epsilon=1.0)).total
    torch.testing.assert_close(times_temperature, 0.2 * expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0])
def test_info_nce_equals_the_value_computed_by_hand(epsilon: float) -> None:
    """Two orthogonal images with equal views: every anchor has cosine 1 with its positive, 0 with its two negatives."""
    z = torch.eye(2, dtype=torch.float64).expand(2, 2, 2)
    expected = math.log(epsilon + 2 * math.exp(-1 / 0.5))
    loss = info_nce(z, 0.5, epsilon)
    assert loss.total.item() == pytest.approx(expected, rel=1e-12)
    assert loss.terms["info_nce"].item() == loss.total.item()


def test_spectral_loss_equals_values_by_hand_and_by_loops() -> None:
    orthogonal = torch.eye(3, dtype=torch.float64).expand(2, 3, 3)
    assert spectral_contrastive(orthogonal).total.item() == pytest.approx(-2)
    for views, samples, dim in [(2, 4, 3), (3, 3, 20)]:
        z = embeddings(views, samples, dim)
        rows = [(v, n) for v in range(views) for n in range(samples)]
        near = [z[v, n] @ z[w, m] for v, n in rows for w, m in rows if n == m and v != w]
        far = [(z[v, n] @ z[w, m]) ** 2 for v, n in rows for w, m in rows if n != m]
        expected = -2 * torch.stack(near).mean() + torch.stack(far).mean()
        loss = spectral_contrastive(z)
        torch.testing.assert_close(loss.total, expected, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(gradient(loss.total, z), gradient(expected, z), rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(sum(loss.terms.values()), expected.detach(), rtol=1e-10, atol=1e-10)
    assert torch.autograd.gradcheck(lambda z: spectral_contrastive(z).total, embeddings(2, 3, 2))
    cut = torch.tensor([[[3.0, 4.0], [0.3, 0.0]]] * 2, dtype=torch.float64)  # of lengths 5 and 0.3
    short = torch.tensor([[[1.2, 1.6], [0.3, 0.0]]] * 2, dtype=torch.float64)
    expected = spectral_contrastive(short).total.item()
    assert spectral_contrastive(cut, radius=2.0).total.item() == pytest.approx(expected, rel=1e-12)


OBJECTIVES: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: lambda z, name=name: contrastive(z, family(name, **TABLE[name][0])).total for name in TABLE},
    **{f"{name} raw": lambda z, name=name: contrastive(z, family(name), normalize=False).total for name in TABLE},
    "info_nce": lambda z: info_nce(z, 0.1).total,
    "spectral_contrastive": lambda z: spectral_contrastive(z).total,
}
every_objective = pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)


@every_objective
def test_loss_is_invariant_to_permutations_and_rotations(objective: Callable[[Tensor], Tensor]) -> None:
    z = embeddings(3, 6).detach()
    rotation = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q
    for changed in (z.flip(0), z[:, torch.randperm(6)], z @ rotation):
        torch.testing.assert_close(objective(changed), objective(z), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", TABLE)
def test_mean_is_the_sum_divided_by_the_number_of_anchors(name: str) -> None:
    z = embeddings(2, 5)
    for negatives, anchors in [("all", 10), ("anchors", 5)]:
        total, mean = (
            contrastive(z, family(name), negatives=negatives, reduction=reduction) for reduction in ("sum", "mean")
        )
        torch.testing.assert_close(total.total, anchors * mean.total)
        torch.testing.assert_close(mean.terms[name], mean.total.detach())


def test_a_tiny_temperature_gives_the_hardest_negative() -> None:
    """τ log(ε + Σ_j exp(x_j/τ)) → max(0, max_j x_j), although e^{x/τ} would be e^{1000}."""
    z = embeddings(2, 6)
    loss = contrastive(z, family("infonce", temperature=1e-3), negatives="anchors", reduction="sum").total
    cosines = unit(z)[0] @ unit(z)[0].T
    hardest = cosines.masked_fill(torch.eye(6, dtype=torch.bool), -1).amax(dim=1)
    expected = (hardest - (unit(z)[0] * unit(z)[1]).sum(dim=1)).clamp_min(0).sum()
    assert abs(loss - expected) < 6 * 1e-3 * math.log(6)
    assert gradient(loss, z).isfinite().all()


def test_large_mean_loses_no_precision_in_float32() -> None:
    """Distances do not depend on the origin: an offset of 1000 adds no error beyond the rounding of the input."""
    z = embeddings(2, 32, 8).detach()
    offset = (z + 1000).float()
    truth = contrastive(offset.double(), family("mine"), normalize=False).total
    found = contrastive(offset, family("mine"), normalize=False).total
    torch.testing.assert_close(found.double(), truth, rtol=1e-5, atol=1e-5)


@settings(max_examples=15)
@given(
    scale=st.sampled_from([1e-4, 1.0, 1e4]),
    shape=st.sampled_from([(2, 2, 1), (2, 2, 3), (3, 5, 4)]),
    degeneracy=st.sampled_from(DEGENERATE),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    seed=st.integers(0, 100),
)
def test_degenerate_inputs_give_finite_losses_and_gradients(
    scale: float, shape: tuple[int, int, int], degeneracy: str, dtype: torch.dtype, seed: int
) -> None:
    z = degenerate(degeneracy, scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed)))
    z = z.to(dtype).requires_grad_()
    for name, objective in OBJECTIVES.items():
        loss = objective(z)
        assert loss.isfinite(), name
        assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32), name
        assert gradient(loss, z).isfinite().all(), name


def test_bfloat16_is_computed_in_float32_under_autocast() -> None:
    z = embeddings(2, 8).detach().bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        leaf = z.clone().requires_grad_()
        loss = info_nce(leaf, 0.1).total
        loss.backward()  # inside autocast on purpose
    wide = z.double().requires_grad_()
    expected = info_nce(wide, 0.1).total
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(leaf.grad, gradient(expected, wide).bfloat16(), rtol=1e-2, atol=1e-4)


class LargestTensor(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        outputs = result if isinstance(result, tuple | list) else (result,)
        self.numel = max([self.numel, *(out.numel() for out in outputs if isinstance(out, Tensor))])
        return result


MEASURED = {
    **OBJECTIVES,
    **{
        f"alpha_cl {rule}": lambda z, rule=rule: alpha_cl(z, rule, through_importance=True).total
        for rule in ("entropy", "square", "inverse", "direct", "heuristic_inverse")
    },
}


@pytest.mark.parametrize("objective", MEASURED.values(), ids=MEASURED)
def test_no_tensor_is_larger_than_rows_by_rows(objective: Callable[[Tensor], Tensor]) -> None:
    z = torch.randn(3, 20, 7, requires_grad=True)
    with LargestTensor() as largest:
        objective(z).backward()
    assert z.grad is not None
    assert largest.numel <= 60**2


@every_family
def test_backward_pass_keeps_one_matrix_of_rows_by_rows(name: str) -> None:
    kept: list[int] = []
    z = torch.randn(2, 20, 7, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: (kept.append(x.numel()), x)[1], lambda x: x):
        contrastive(z, family(name))
    assert sum(numel >= 40**2 for numel in kept) == 1


@every_family
def test_second_derivatives_equal_finite_differences(name: str) -> None:
    z = embeddings(2, 3, 2)
    loss = family(name, **TABLE[name][0])
    assert torch.autograd.gradgradcheck(lambda z: contrastive(z, loss).total, z)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda z: contrastive(z, family("infonec")), "did you mean 'infonce'"),
        (lambda z: contrastive(z, family("triplet", margin=1.0)), "no parameter 'margin'"),
        (lambda z: contrastive(z, family("mine", epsilon=1.0)), "no parameter 'epsilon'"),
        (lambda z: info_nce(z, 0.0), "temperature=0.0 must be positive"),
        (lambda z: info_nce(z, 0.5, -1.0), "epsilon=-1.0"),
        (lambda z: contrastive(z, family("mine"), negatives="anchor"), "did you mean 'anchors'"),
        (lambda z: contrastive(z, family("mine"), reduction="none"), "reduction='none'"),
        (lambda z: info_nce(z[:1], 0.5), "at least 2 views and 2 samples"),
        (lambda z: info_nce(z[:, :1], 0.5), "at least 2 views and 2 samples"),
        (lambda z: info_nce(z[0], 0.5), "at least 2 views and 2 samples"),
        (lambda z: spectral_contrastive(z[:, :1]), "at least 2 views and 2 samples"),
    ],
)
def test_invalid_arguments_raise_errors(call: Callable[[Tensor], object], message: str) -> None:
    with pytest.raises(TwofoldError, match=message):
        call(torch.randn(2, 4, 3))
