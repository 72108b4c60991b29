"""DirectPred's matrix compared with NumPy's eigh of a correlation that is accumulated in a loop, in float64."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from twofold.errors import TwofoldError
from twofold.linalg import largest_eigenvalue, square_root, symmetric_power
from twofold.models.predictors import DirectPredictor

EXPONENTS = [0.25, 0.5, 0.7, 1.0, 2.0]


def reference_correlation(batches: list[Tensor], momentum: float) -> np.ndarray:
    correlation = np.zeros((batches[0].shape[1],) * 2)
    for batch in batches:
        second_moment = np.zeros_like(correlation)
        for row in batch.double().numpy():
            second_moment += np.outer(row, row) / len(batch)
        correlation = momentum * correlation + (1 - momentum) * second_moment
    return correlation


def reference_power(correlation: np.ndarray, exponent: float, normalize: bool, epsilon: float) -> np.ndarray:
    values, vectors = np.linalg.eigh(correlation)
    values[values < 1e-14 * values.max()] = 0  # exactly 0 for a rank-deficient matrix, except for rounding of eigh
    if normalize and values.max() > 0:
        values = values / values.max()
    return (vectors * (values + epsilon) ** exponent) @ vectors.T


def matrix_with(eigenvalues: Tensor) -> Tensor:
    """A symmetric matrix with these eigenvalues and random eigenvectors. Like XᵀX it is positive up to rounding."""
    d = len(eigenvalues)
    rows = eigenvalues.double().sqrt()[:, None] * torch.linalg.qr(torch.randn(d, d, dtype=torch.float64)).Q
    return rows.T @ rows


def assert_within(actual: Tensor, expected: np.ndarray, tolerance: float) -> None:
    assert np.abs(actual.double().numpy() - expected).max() <= tolerance * max(1.0, np.abs(expected).max())


SPECTRA: dict[str, Callable[[int], Tensor]] = {
    "equal": torch.ones,
    "rank one": lambda d: torch.eye(d)[0],
    "half": lambda d: (torch.arange(d) <= d // 2) * torch.linspace(1, 0.1, d),
    "top two close": lambda d: torch.cat([torch.tensor([1.0, 1 - 1e-6]), torch.linspace(0.9, 0, d)])[:d],
    "top closer than power iteration sees": lambda d: 1 - 1e-8 * torch.arange(d, dtype=torch.float64),
    "falling to 1e-13": lambda d: torch.logspace(0, -13, d),
    "falling to 1e-30": lambda d: torch.logspace(0, -30, d),
}


@settings(max_examples=80)
@given(
    d=st.sampled_from([1, 2, 3, 8, 33]),
    name=st.sampled_from(sorted(SPECTRA)),
    scale=st.sampled_from([1e-8, 1.0, 1e8]),
    seed=st.integers(0, 10**6),
)
def test_powers_of_semidefinite_matrices_equal_eigh(d: int, name: str, scale: float, seed: int) -> None:
    torch.manual_seed(seed)
    a = scale * matrix_with(SPECTRA[name](d))
    values, vectors = np.linalg.eigh(a.numpy())
    # The estimate of λ_max is at most a factor of 1 − ln(D)/2^26 too low, for any other eigenvalues.
    assert -np.log(d) / 2**26 - 1e-14 <= largest_eigenvalue(a).item() / values[-1] - 1 <= 1e-14
    root = (vectors * np.sqrt(values.clip(0))) @ vectors.T / np.sqrt(values[-1])
    assert_within(square_root(a) / values[-1] ** 0.5, root, 1.5e-7)
    for exponent in (0.7, 1.0, 2.0):
        expected = (vectors * (values / values[-1]).clip(0) ** exponent) @ vectors.T
        assert_within(symmetric_power(a / values[-1], exponent), expected, 1e-10)


def test_largest_eigenvalue_among_many_close_ones() -> None:
    d = 256  # one eigenvalue at 1, the others where the estimate is lowest
    a = torch.cat([torch.ones(1), torch.full((d - 1,), 1 - 5e-8, dtype=torch.float64)]).diag()
    assert 1 - np.log(d) / 2**26 <= largest_eigenvalue(a).item() < 1


def test_square_root_of_a_matrix_of_the_usual_size() -> None:
    rows = torch.randn(200, 256, dtype=torch.float64)
    root = square_root(rows.T @ rows / len(rows))
    torch.testing.assert_close(root @ root, rows.T @ rows / len(rows), rtol=0, atol=1e-6)
    torch.testing.assert_close(root, root.T, rtol=0, atol=1e-8)
    assert torch.linalg.eigvalsh(root).min() > -1e-8  # the positive root


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("epsilon", [0.0, 0.25])
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_matrix_equals_eigh(exponent: float, epsilon: float, normalize: bool) -> None:
    for rows, d in ((64, 8), (3, 8), (1, 5), (4, 1)):
        predictor = DirectPredictor(d, exponent, 0.9, normalize, epsilon)
        batches = [torch.randn(rows, d, dtype=torch.float64) for _ in range(2)]
        for batch in batches:
            predictor.update(batch)
        expected = reference_power(reference_correlation(batches, 0.9), exponent, normalize, epsilon)
        assert_within(predictor.matrix(), expected, 1e-6)
        torch.testing.assert_close(predictor.matrix(), predictor.matrix().T, rtol=0, atol=1e-9)


@settings(max_examples=60)
@given(
    d=st.sampled_from([1, 2, 5, 12]),
    rows=st.sampled_from([1, 2, 4, 40]),
    scale=st.sampled_from([1e-4, 1.0, 1e4]),
    kind=st.sampled_from(["random", "identical", "no variance in a dimension", "far from the origin"]),
    exponent=st.sampled_from(EXPONENTS),
    epsilon=st.sampled_from([0.0, 0.25]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    seed=st.integers(0, 10**6),
)
def test_matrix_equals_eigh_for_any_embeddings(
    d: int, rows: int, scale: float, kind: str, exponent: float, epsilon: float, dtype: torch.dtype, seed: int
) -> None:
    torch.manual_seed(seed)
    z = torch.randn(rows, d)
    if kind == "identical":
        z = z[:1].repeat(rows, 1)
    elif kind == "no variance in a dimension":
        z[:, 0] = 0.0 if d > 1 else 1.0
    elif kind == "far from the origin":
        z += 100
    z = (scale * z).to(dtype)
    predictor = DirectPredictor(d, exponent, epsilon=epsilon)
    predictor.update(z)
    expected = reference_power(reference_correlation([z], 0.998), exponent, True, epsilon)
    assert_within(predictor.matrix(), expected, 1e-6)
    assert predictor.matrix().dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("normalize", [True, False])
def test_matrix_of_zero_embeddings_depends_on_epsilon_only(exponent: float, normalize: bool) -> None:
    for epsilon in (0.0, 0.25):
        predictor = DirectPredictor(3, exponent, normalize=normalize, epsilon=epsilon)
        predictor.update(torch.zeros(4, 3))
        torch.testing.assert_close(predictor.matrix(), epsilon**exponent * torch.eye(3), rtol=0, atol=1e-6)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 0.7])
def test_matrix_before_any_update_is_the_identity(exponent: float) -> None:
    for epsilon in (0.0, 0.25):
        assert torch.equal(DirectPredictor(3, exponent, epsilon=epsilon).matrix(), torch.eye(3))
    assert torch.equal(DirectPredictor(3, exponent).double().matrix(), torch.eye(3, dtype=torch.float64))


def test_correlation_is_the_running_average_of_batches() -> None:
    batches = [torch.randn(6, 4, dtype=torch.float64) + step for step in range(5)]
    for momentum in (0.0, 0.5, 0.998):
        predictor, backwards = DirectPredictor(4, momentum=momentum), DirectPredictor(4, momentum=momentum)
        for batch in batches:
            predictor.update(batch)
        for batch in reversed(batches):
            backwards.update(batch)
        expected = torch.from_numpy(reference_correlation(batches, momentum))
        torch.testing.assert_close(predictor.correlation, expected, rtol=1e-13, atol=0)
        assert not torch.allclose(backwards.correlation, expected)
        unbiased = np.linalg.eigvalsh(expected.numpy())[::-1] / (1 - momentum ** len(batches))
        np.testing.assert_allclose(predictor.spectrum().numpy(), unbiased, rtol=1e-6)


def test_matrix_includes_the_latest_batch() -> None:
    predictor = DirectPredictor(2, exponent=1.0, momentum=0.998)
    predictor.update(torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
    torch.testing.assert_close(predictor.matrix(), torch.diag(torch.tensor([1.0, 0.25])))


def test_views_may_be_stacked() -> None:
    z = torch.randn(2, 5, 3)
    stacked, flat = DirectPredictor(3), DirectPredictor(3)
    stacked.update(z)
    flat.update(z.flatten(0, 1))
    assert torch.equal(stacked.correlation, flat.correlation)


def test_only_update_changes_the_state() -> None:
    predictor = DirectPredictor(3)
    z = torch.randn(5, 3, requires_grad=True)
    predictor.update(z)
    before = copy.deepcopy(predictor.state_dict())
    for mode in (True, False):
        predictor.train(mode)
        torch.testing.assert_close(predictor(z), z @ predictor.matrix())
        predictor.spectrum()
    assert before.keys() == predictor.state_dict().keys() == {"correlation", "weight"}
    assert all(torch.equal(before[name], value) for name, value in predictor.state_dict().items())
    assert list(predictor.parameters()) == []
    assert not predictor.matrix().requires_grad
    assert torch.autograd.grad(predictor(z).sum(), z)[0].isfinite().all()


def test_restored_predictor_continues_bit_identically() -> None:
    batches = torch.randn(4, 5, 3)
    whole, first, second = DirectPredictor(3), DirectPredictor(3), DirectPredictor(3)
    for number, batch in enumerate(batches):
        whole.update(batch)
        if number == 2:
            second.load_state_dict(copy.deepcopy(first.state_dict()))
        (first if number < 2 else second).update(batch)
    assert torch.equal(second.matrix(), whole.matrix())


def test_correlation_stays_in_float64() -> None:
    rows = torch.randn(3, 8)  # of rank 3: in float32 its square root would be off by 1e-4
    predictor, moved = DirectPredictor(8), DirectPredictor(8).half()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        predictor.update(rows)
        moved.update(rows)
        expected = predictor.matrix()
        assert torch.equal(moved.float().matrix(), expected)
    assert moved.correlation.dtype == torch.float64
    assert_within(expected, reference_power(reference_correlation([rows], 0.998), 0.5, True, 0.0), 1e-6)


@pytest.mark.parametrize("exponent", [0.5, 1.0])
def test_step_does_not_synchronize_with_the_host(exponent: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.linalg, "eigh")  # it waits for the GPU
    with FakeTensorMode():  # fake tensors raise an error if code reads a value
        predictor = DirectPredictor(4, exponent, epsilon=0.25)
        predictor.update(torch.randn(6, 4))
        assert predictor(torch.randn(6, 4)).shape == (6, 4)


def test_invalid_arguments_raise_errors() -> None:
    with pytest.raises(TwofoldError, match="momentum=1:"):
        DirectPredictor(3, momentum=1.0)
    with pytest.raises(TwofoldError, match=r"exponent=-0\.5"):
        DirectPredictor(3, exponent=-0.5)
    with pytest.raises(TwofoldError, match=r"shape \[6, 4\]: give rows of dim=3"):
        DirectPredictor(3).update(torch.randn(6, 4))
    with pytest.raises(TwofoldError, match=r"shape \[0, 3\]"):
        DirectPredictor(3).update(torch.randn(0, 3))


def test_corrected_matrix_uses_the_unbiased_correlation() -> None:
    """With equal batches, the bias-corrected C is the correlation of the batch after any number of updates."""
    predictor = DirectPredictor(4, exponent=0.5, normalize=False, corrected=True).double()
    z = torch.randn(50, 4, dtype=torch.float64)
    expected, vectors = torch.linalg.eigh(z.T @ z / 50)
    root = vectors @ torch.diag(expected.sqrt()) @ vectors.T
    for _ in range(3):
        predictor.update(z)
        torch.testing.assert_close(predictor.matrix(), root, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("exponent", [0.5, 1.0])
def test_general_solver_gives_the_same_matrix_unless_the_correlation_lacks_rank(exponent: float) -> None:
    """As in the code of IsoLoss's authors: real parts of U and S, and U S^α Uᵀ even if U is not orthogonal."""
    torch.manual_seed(0)
    for rows, agrees in ((64, True), (3, False)):
        z = torch.randn(rows, 12)
        general, symmetric = (DirectPredictor(12, exponent, 0.5, epsilon=0.25, general=each) for each in (True, False))
        for predictor in (general, symmetric):
            predictor.update(z)
        assert general.matrix().dtype == torch.float32
        assert torch.allclose(general.matrix(), symmetric.matrix(), atol=1e-4) == agrees
