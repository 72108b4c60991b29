"""MoCo, SwAV, DINO and CorInfoMax: values compared with per-sample NumPy references, gradients, invariances."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from twofold.errors import TwofoldError
from twofold.models import DirectPredictor
from twofold.objectives import contrastive, corinfomax, dino, moco, spectral_contrastive, swav
from twofold.types import LossTerms


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum()


def pairs(targets: int, views: int) -> list[tuple[int, int]]:
    return [(t, v) for t in range(targets) for v in range(views) if t != v]


# References: numpy, one sample at a time.


def naive_moco(z: np.ndarray, target: np.ndarray, queue: np.ndarray, counts: np.ndarray) -> float:
    z, target, queue = unit(z), unit(target), unit(queue)
    losses = []
    for t, v in pairs(len(target), len(z)):
        for n in range(z.shape[1]):
            logits = [z[v, n] @ target[t, n] / 0.2]
            logits += [z[v, n] @ queue[q] / 0.2 for q in range(len(queue)) if counts[n, q]]
            losses.append(-np.log(softmax(np.array(logits))[0]))
    return float(np.mean(losses))


def naive_codes(scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    shares = np.exp(scores / 0.05) * weights[:, None]
    for _ in range(3):
        shares = shares / shares.sum(axis=0)
        shares = shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-300) * weights[:, None]
    return shares


def naive_swav(scores: np.ndarray, queue: np.ndarray, weights: np.ndarray, targets: int) -> float:
    V, N, _ = scores.shape
    losses = []
    for t, v in pairs(targets, V):
        codes = naive_codes(np.concatenate([scores[t], queue]), np.concatenate([np.ones(N), weights]))
        losses += [-codes[n] @ np.log(softmax(scores[v, n] / 0.1)) for n in range(N)]
    return float(np.mean(losses))


def naive_dino(scores: np.ndarray, target: np.ndarray, centre: np.ndarray) -> float:
    losses = [
        -softmax((target[t, n] - centre) / 0.07) @ np.log(softmax(scores[v, n] / 0.1))
        for t, v in pairs(len(target), len(scores))
        for n in range(scores.shape[1])
    ]
    return float(np.mean(losses))


def naive_corinfomax(z: np.ndarray, covariances: np.ndarray, means: np.ndarray) -> float:
    V, N, D = z.shape
    information = 0.0
    for v in range(V):
        mean = 0.1 * means[v] + 0.9 * z[v].mean(axis=0)
        batch = sum(np.outer(row - mean, row - mean) for row in z[v]) / N
        eigenvalues = np.linalg.eigvalsh(0.1 * covariances[v] + 0.9 * batch)
        information += np.log(eigenvalues + 1e-3).sum() / D
    distances = [np.mean((z[v] - z[w]) ** 2) for v in range(V) for w in range(v)]
    return float(25 * np.mean(distances) - 2 / V * information)


COUNTS = torch.tensor([[1, 1, 1, 0, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]]).bool()


@pytest.mark.parametrize("V, T", [(2, 2), (3, 3), (4, 2), (3, 1)])
def test_values_equal_the_numpy_references(V: int, T: int) -> None:
    z, target, queue = randn(V, 4, 3), randn(T, 4, 3), randn(5, 3)
    found = moco(z, target, queue, 0.2, negatives=COUNTS).total.item()
    assert found == pytest.approx(naive_moco(z.numpy(), target.numpy(), queue.numpy(), COUNTS.numpy()), rel=1e-11)
    everything = naive_moco(z.numpy(), target.numpy(), queue.numpy(), np.ones((4, 5)))
    assert moco(z, target, queue, 0.2).total.item() == pytest.approx(everything, rel=1e-11)

    scores, former, weights = 0.3 * randn(V, 6, 5), 0.3 * randn(4, 5), torch.tensor([1.0, 0.0, 0.5, 1.0]).double()
    for given, reference in [
        ((former, weights), (former.numpy(), weights.numpy())),
        ((former,), (former.numpy(), np.ones(4))),
        ((), (np.zeros((0, 5)), np.zeros(0))),
    ]:
        found = swav(scores, *given, targets=T).total.item()
        assert found == pytest.approx(naive_swav(scores.numpy(), *reference, T), rel=1e-10)

    targets, centre = 0.2 * randn(T, 6, 5), 0.1 * randn(5)
    found = dino(scores, targets, centre).total.item()
    assert found == pytest.approx(naive_dino(scores.numpy(), targets.numpy(), centre.numpy()), rel=1e-11)


@pytest.mark.parametrize("shape", [(2, 9, 3), (3, 9, 3), (2, 3, 5)])
def test_corinfomax_equals_the_numpy_reference(shape: tuple[int, int, int]) -> None:
    V, _, D = shape
    z, root, means = randn(*shape), randn(V, D, D), randn(V, D)
    covariances = root @ root.mT
    found = corinfomax(z, covariances, means, momentum=0.1, weight=25.0, epsilon=1e-3)
    expected = naive_corinfomax(z.numpy(), covariances.numpy(), means.numpy())
    assert found.total.item() == pytest.approx(expected, rel=1e-10)
    from_zero = corinfomax(z, covariances, momentum=0.1, weight=25.0, epsilon=1e-3).total.item()
    assert from_zero == pytest.approx(naive_corinfomax(z.numpy(), covariances.numpy(), np.zeros((V, D))), rel=1e-10)
    assert sum(term.item() for term in found.terms.values()) == pytest.approx(found.total.item(), rel=1e-12)


def test_values_equal_those_computed_by_hand() -> None:
    z = torch.eye(2, dtype=torch.float64).expand(2, 2, 2)
    # Cosine 1 with the other view and cosine 0 with one queue entry: log(1 + e^{−1/τ}).
    queue = torch.tensor([[0.0, 3.0], [5.0, 0.0]], dtype=torch.float64)
    counts = torch.tensor([[True, False], [False, True]])
    found = moco(z, z, queue, 0.5, negatives=counts).total.item()
    assert found == pytest.approx(np.log(1 + np.exp(-2)), rel=1e-12)
    # Each of the two samples matches its own prototype: codes are one-hot, and the loss is that of a softmax.
    assert swav(z, temperature=0.5).total.item() == pytest.approx(np.log(1 + np.exp(-2)), rel=1e-6)
    # With a centre equal to the targets, target probabilities are uniform: the mean of all log-probabilities.
    flat = dino(z, torch.ones(2, 2, 2, dtype=torch.float64), torch.ones(2, dtype=torch.float64), temperature=1.0)
    assert flat.total.item() == pytest.approx(np.log(1 + np.e) - 0.5, rel=1e-12)
    # Rows ±1 in one dimension have mean 0 and covariance 1. With momentum 0, log det = log(1 + ε).
    rows = torch.tensor([[[1.0], [-1.0]]] * 2, dtype=torch.float64)
    nothing = torch.zeros(2, 1, 1, dtype=torch.float64)
    found = corinfomax(rows, nothing, nothing[:, 0], momentum=0.0, epsilon=1.0).total.item()
    assert found == pytest.approx(-2 * np.log(2), rel=1e-12)


TARGET, QUEUE, CENTRE = (
    torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    for shape in [(3, 16, 4), (5, 4), (4,)]
)
PER_VIEW = torch.eye(4, dtype=torch.float64).repeat(3, 1, 1)


def promoted(state: Tensor, z: Tensor) -> Tensor:
    """Targets and queues in the dtype of z, but at least float32."""
    return state.to(torch.promote_types(z.dtype, torch.float32))


# Functions of the differentiable input, z or scores [V, N, 4], and of the targets of its samples.
LOSSES: dict[str, Callable[[Tensor, Tensor], LossTerms]] = {
    "moco": lambda z, target: moco(z, promoted(target, z), promoted(QUEUE, z), 0.3),
    "swav": lambda z, _: swav(z),
    "dino": lambda z, target: dino(z, promoted(target, z), promoted(CENTRE, z)),
    "corinfomax": lambda z, _: corinfomax(
        z, PER_VIEW[: len(z)], PER_VIEW[: len(z), 0], momentum=0.4, weight=3.0, epsilon=1e-4
    ),
}


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "swav"])
@pytest.mark.parametrize("V", [2, 3])
def test_gradient_equals_finite_differences(name: str, V: int) -> None:
    z = randn(V, 6, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: LOSSES[name](z, TARGET[:V, :6]).total, (z,))


def test_swav_has_no_gradient_through_the_codes() -> None:
    scores = 0.3 * randn(3, 6, 4)
    codes = [torch.from_numpy(naive_codes(view.numpy(), np.ones(6))) for view in scores]

    def loss_with_fixed_codes(scores: Tensor) -> Tensor:
        terms = [-(codes[t] * (scores[v] / 0.1).log_softmax(-1)).sum(-1).mean() for t, v in pairs(3, 3)]
        return torch.stack(terms).mean()

    found, expected = (scores.clone().requires_grad_() for _ in range(2))
    swav(found).total.backward()
    loss_with_fixed_codes(expected).backward()
    torch.testing.assert_close(found.grad, expected.grad, rtol=1e-9, atol=1e-12)


def test_targets_queue_and_centre_get_no_gradient() -> None:
    z, target, queue = randn(2, 4, 3), randn(2, 4, 3).requires_grad_(), randn(5, 3).requires_grad_()
    assert not moco(z, target, queue).total.requires_grad
    assert not dino(z, target, randn(3)).total.requires_grad


@pytest.mark.parametrize("name", LOSSES)
def test_loss_is_invariant_to_the_order_of_samples(name: str) -> None:
    z, order = randn(3, 16, 4), torch.randperm(16)
    expected = LOSSES[name](z, TARGET).total.item()
    assert LOSSES[name](z[:, order], TARGET[:, order]).total.item() == pytest.approx(expected, rel=1e-11)


def test_loss_is_invariant_to_rotations() -> None:
    z, target, queue = randn(2, 6, 4), randn(2, 6, 4), randn(5, 4)
    turn = torch.linalg.qr(randn(4, 4)).Q
    assert moco(z @ turn, target @ turn, queue @ turn).total.item() == pytest.approx(
        moco(z, target, queue).total.item(), rel=1e-11
    )
    root, means = randn(2, 4, 4), randn(2, 4)
    turned = corinfomax(z @ turn, turn.T @ root @ root.mT @ turn, means @ turn, epsilon=0.1)
    assert turned.total.item() == pytest.approx(
        corinfomax(z, root @ root.mT, means, epsilon=0.1).total.item(), rel=1e-9
    )


def test_loss_is_invariant_to_order_of_prototypes_and_to_centred_shifts() -> None:
    scores, target, centre, order = randn(2, 6, 5), randn(2, 6, 5), randn(5), torch.randperm(5)
    assert swav(scores[..., order]).total.item() == pytest.approx(swav(scores).total.item(), rel=1e-11)
    expected = dino(scores, target, centre).total.item()
    assert dino(scores[..., order], target[..., order], centre[order]).total.item() == pytest.approx(
        expected, rel=1e-11
    )
    shift = randn(5)
    assert dino(scores, target + shift, centre + shift).total.item() == pytest.approx(expected, rel=1e-11)


def test_moco_loss_and_gradient_are_zero_without_negatives() -> None:
    z = randn(2, 4, 3).float().requires_grad_()
    loss = moco(z, randn(2, 4, 3).float(), torch.zeros(5, 3), negatives=torch.zeros(4, 5, dtype=torch.bool))
    loss.total.backward()
    assert loss.total.item() == 0
    assert (z.grad == 0).all()


@pytest.mark.parametrize("name", LOSSES)
def test_autocast_and_half_inputs_are_computed_in_float32(name: str) -> None:
    z = randn(3, 16, 4).bfloat16()
    expected = LOSSES[name](z.float(), TARGET).total
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = LOSSES[name](z, TARGET).total
    assert result.dtype == torch.float32
    assert result.item() == expected.item()


def test_losses_do_not_synchronize_with_the_host() -> None:
    """Fake tensors raise an error if code reads a value or needs a shape that depends on values."""
    with FakeTensorMode():
        z, queue, index = torch.randn(2, 6, 4, requires_grad=True), torch.randn(5, 4), torch.zeros(6, 5) > 0
        moco(z, torch.randn(2, 6, 4), queue, negatives=index).total.backward()
        swav(z, queue, torch.ones(5)).total.backward()
        dino(z, torch.randn(2, 6, 4), torch.randn(4)).total.backward()
        corinfomax(z, torch.randn(2, 4, 4), torch.randn(2, 4)).total.backward()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("kind", ["identical samples", "all zero", "identical views"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_degenerate_inputs_give_finite_losses_and_gradients(name: str, kind: str, dtype: torch.dtype) -> None:
    z = randn(2, 6, 4)
    z = z[:, :1].repeat(1, 6, 1) if kind == "identical samples" else z[:1].repeat(2, 1, 1)
    z = ((0 if kind == "all zero" else 1) * z).to(dtype).requires_grad_()
    total = LOSSES[name](z, TARGET[:2, :6]).total
    total.backward()
    assert torch.isfinite(total)
    assert torch.isfinite(z.grad).all()


def test_invalid_arguments_raise_errors() -> None:
    z = randn(2, 4, 3)
    with pytest.raises(TwofoldError, match="two views or more"):
        swav(z[:1])
    with pytest.raises(TwofoldError, match="two views or more"):
        dino(z[:1], z[:1], z[0, 0])
    for views in ([z[0], z[1]], z.numpy()):
        with pytest.raises(TwofoldError, match=r"takes tensors, .* torch.stack\(views\)"):
            swav(views)
    with pytest.raises(TwofoldError, match="takes tensors, not list, Tensor, Tensor"):
        moco([z[0], z[1]], z, z[0])
    with pytest.raises(TwofoldError, match=r"temperature=0.0 must be positive"):
        moco(z, z, z[0], 0.0)
    with pytest.raises(TwofoldError, match=r"epsilon=0.0 must be positive"):
        swav(z, epsilon=0.0)
    with pytest.raises(TwofoldError, match=r"target_temperature=0.0 must be positive"):
        dino(z, z, z[0, 0], target_temperature=0.0)
    with pytest.raises(TwofoldError, match=r"radius=-1.0 must be positive"):
        spectral_contrastive(z, radius=-1.0)
    with pytest.raises(TwofoldError, match=r"pass family\('infonce'\)"):
        contrastive(z, "infonce")
    with pytest.raises(TwofoldError, match="exponent=nan"):
        DirectPredictor(3, exponent=float("nan"))
    with pytest.raises(TwofoldError, match="same samples"):
        moco(z, z[:, :3], z[0])
    with pytest.raises(TwofoldError, match="same samples"):
        moco(z, torch.cat([z, z]), z[0])
    with pytest.raises(TwofoldError, match=r"give \[2, 3, 3\] and \[2, 3\]"):
        corinfomax(z, randn(3, 3, 3), randn(2, 3))
