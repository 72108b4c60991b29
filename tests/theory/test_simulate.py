"""`simulate` compared with an explicit gradient descent and with theory, and used with every objective."""

import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from twofold import objectives
from twofold.errors import TwofoldError
from twofold.models import DirectPredictor, mlp
from twofold.theory import simulate

N, M, D = 24, 6, 4


def data() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    shared = torch.randn(N, M, dtype=torch.float64, generator=generator)
    return shared + 0.2 * torch.randn(2, N, M, dtype=torch.float64, generator=generator)


def linear(dim: int = D) -> nn.Module:
    return nn.Linear(M, dim, bias=False, dtype=torch.float64)


def orthonormal(z: Tensor) -> Tensor:
    return sum(((a.T @ a / N - torch.eye(D, dtype=a.dtype)).square().sum() for a in z), torch.zeros(()))


def test_simulate_equals_explicit_gradient_descent() -> None:
    x, network, lr = data(), linear(), 0.03
    w = network.weight.detach().clone()
    seen = simulate(orthonormal, network, x, 7, lr=lr)
    for step in range(8):
        covariances = [w @ view.T @ view @ w.T / N for view in x]
        rows = torch.cat([view @ w.T for view in x]).T
        spectrum = torch.linalg.svdvals(torch.cov(rows, correction=0))
        loss = sum((c - torch.eye(D)).square().sum() for c in covariances)
        torch.testing.assert_close(seen.eigenvalues[step], spectrum)
        torch.testing.assert_close(seen.losses[step], loss)
        slopes = (4 * (c - torch.eye(D)) @ w @ view.T @ view / N for c, view in zip(covariances, x, strict=True))
        w = w - lr * sum(slopes)
    assert seen.steps.tolist() == list(range(8))
    assert seen.predictor_eigenvalues is None


def test_simulate_does_not_change_the_network_or_its_gradients() -> None:
    network = linear()
    before = network.weight.detach().clone()
    first, second = (simulate(orthonormal, network, data(), 3, lr=0.03) for _ in range(2))
    assert torch.equal(network.weight, before)
    assert network.weight.grad is None
    assert torch.equal(first.eigenvalues, second.eigenvalues)


def test_every_selects_the_recorded_steps_and_the_last_is_always_recorded() -> None:
    network, x = linear(), data()
    everything = simulate(orthonormal, network, x, 10, lr=0.03)
    some = simulate(orthonormal, network, x, 10, lr=0.03, every=4)
    assert some.steps.tolist() == [0, 4, 8, 10]
    assert torch.equal(some.eigenvalues, everything.eigenvalues[some.steps])
    assert torch.equal(some.losses, everything.losses[some.steps])


def test_data_may_change_with_the_step() -> None:
    asked: list[int] = []

    def drawn(step: int) -> Tensor:
        asked.append(step)
        return data() * (1 + step)

    network = linear()
    seen = simulate(lambda z: 0 * z.sum(), network, drawn, 3)
    assert asked == [0, 1, 2, 3]
    torch.testing.assert_close(seen.eigenvalues[3], 16 * seen.eigenvalues[0])


def test_eigenvalues_with_euclidean_distance_follow_the_paper() -> None:
    """IsoLoss eq 9 with λ = s^α and inputs of unit covariance: s' = 2 s λ(1 − λ), in units of the learning rate."""
    x = torch.linalg.qr(torch.randn(40, 1 + M, dtype=torch.float64) + torch.eye(40, 1 + M)).Q
    x = torch.linalg.qr((x - x.mean(dim=0))[:, :M]).Q * math.sqrt(40)
    network = nn.Linear(M, M, bias=False, dtype=torch.float64)
    start = torch.linspace(0.1, 1.3, M, dtype=torch.float64)
    network.weight.data = start.sqrt().diag()
    lr, steps, alpha = 1e-3, 3000, 0.5
    predictor = DirectPredictor(M, alpha, momentum=0.0, normalize=False)
    objective = partial(objectives.asymmetric, distance="euclidean")
    seen = simulate(objective, network, x.expand(2, -1, -1), steps, lr=lr, predictor=predictor, every=steps)
    s = start.clone()
    for _ in range(steps):
        power = s**alpha
        s = s + 2 * lr * s * power * (1 - power)
    # Two discretizations of the same equation differ by the order of the learning rate.
    torch.testing.assert_close(seen.eigenvalues[-1], s.flip(0), rtol=0, atol=lr)
    torch.testing.assert_close(seen.predictor_eigenvalues[-1], seen.eigenvalues[-1].sqrt(), rtol=1e-6, atol=0)


def test_before_step_can_change_the_predictor() -> None:
    predictor = DirectPredictor(D, 1.0, momentum=0.0, normalize=False)

    def before_step(step: int) -> None:
        predictor.exponent = 1.0 if step < 2 else 0.0

    objective = partial(objectives.asymmetric, distance="euclidean")
    seen = simulate(objective, linear(), data(), 3, predictor=predictor, before_step=before_step)
    assert not torch.allclose(seen.predictor_eigenvalues[1], torch.ones(D).double())
    torch.testing.assert_close(seen.predictor_eigenvalues[2:], torch.ones(2, D).double())


def test_each_view_predicts_the_next() -> None:
    network, x = linear(), torch.cat([data(), data()[:1] + 1])
    expected = torch.stack([network(x[view]) for view in (1, 2, 0)])

    def objective(_: Tensor, target: Tensor, matrix: Tensor) -> Tensor:
        torch.testing.assert_close(target, expected)
        return 0 * target.sum() * matrix.sum()

    simulate(objective, network, x, 1, predictor=DirectPredictor(D))


def test_trainable_predictor_is_trained() -> None:
    predictor = nn.Linear(D, D, dtype=torch.float64)
    before = predictor.weight.detach().clone()
    seen = simulate(objectives.asymmetric, linear(), data(), 30, predictor=predictor)
    assert not torch.allclose(predictor.weight, before)
    assert seen.losses[-1] < seen.losses[0]
    assert seen.predictor_eigenvalues is None


LABELS = torch.arange(N) % 3
ROWS = torch.nn.functional.normalize(torch.randn(N, D, generator=torch.Generator().manual_seed(2)), dim=1).double()
START = torch.eye(D).double().expand(2, D, D)
OBJECTIVES: dict[str, Callable[..., Any]] = {
    "frossl": objectives.frossl,
    "frossl without logarithm": partial(objectives.frossl, logarithm=False),
    "vicreg": objectives.vicreg,
    "barlow_twins": objectives.barlow_twins,
    "w_mse": objectives.w_mse,
    "corinfomax": lambda z: objectives.corinfomax(z, START, weight=1.0),
    "info_nce": partial(objectives.info_nce, temperature=0.5),
    "contrastive": lambda z: objectives.contrastive(z, objectives.family("soft_triplet")),
    "alpha_cl": objectives.alpha_cl,
    "spectral_contrastive": objectives.spectral_contrastive,
    "ridge_graph": lambda z: objectives.ridge_graph(z.flatten(0, 1), objectives.view_graph(N, 2), 0.1),
    "ridge_labels": lambda z: objectives.ridge_labels(z.flatten(0, 1), LABELS.repeat(2), 0.1),
    "graph_vicreg": lambda z: objectives.graph_vicreg(z.flatten(0, 1), objectives.view_graph(N, 2), 0.1),
    "orthogonal_head": lambda z: objectives.orthogonal_head(z.flatten(0, 1), torch.arange(N).repeat(2)),
    "batch_cross_entropy": lambda z: objectives.batch_cross_entropy(z.flatten(0, 1), ROWS, torch.arange(N).repeat(2)),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_decreases(name: str) -> None:
    network = nn.Sequential(nn.Linear(M, 16), nn.Tanh(), nn.Linear(16, D)).double()
    seen = simulate(OBJECTIVES[name], network, data(), 30, lr=0.003)
    assert seen.losses[-1] < seen.losses[0]
    assert seen.eigenvalues.shape == (31, D)
    assert (seen.eigenvalues.diff(dim=1) <= 0).all()


@pytest.mark.parametrize("objective", [objectives.asymmetric, objectives.isoloss])
def test_predictive_objectives_decrease_with_batch_norm(objective: Callable[..., Any]) -> None:
    predictor = DirectPredictor(D, epsilon=0.1)
    seen = simulate(
        objective, mlp(M, (16, D)), data().float(), 20, lr=1e-2, optimizer=torch.optim.Adam, predictor=predictor
    )
    assert seen.losses[-1] < seen.losses[0]
    assert seen.predictor_eigenvalues.shape == (21, D)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"steps": 0}, "steps=0"),
        ({"every": 0}, "every=0"),
        ({"data": torch.zeros(1, N, M).double()}, "two views"),
        ({"data": torch.zeros(N, M).double()}, "two views"),
        ({"network": nn.Sequential(linear(), nn.Unflatten(1, (2, 2)))}, r"\[24, 2, 2\]"),
        ({"lr": 1e6}, "an lr below 1e\\+06"),
    ],
)
def test_invalid_arguments_raise_errors(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"objective": orthonormal, "network": linear(), "data": data(), "steps": 50}
    with pytest.raises(TwofoldError, match=message):
        simulate(**(given | change))


SNIPPET = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_snippets_of_the_docs_print_the_numbers_in_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "theory.md").read_text(encoding="utf-8")
    (first,) = SNIPPET.findall((docs / "how-to" / "watch-a-loss.md").read_text(encoding="utf-8"))
    (second,) = SNIPPET.findall(page)
    scope: dict[str, Any] = {}
    exec(compile(first, "docs/how-to/watch-a-loss.md", "exec"), scope)
    torch.testing.assert_close(scope["trajectory"].eigenvalues[-1], torch.ones(5).double(), rtol=0, atol=0.05)
    capsys.readouterr()
    exec(compile(second, "docs/theory.md", "exec"), scope)
    printed = [line.rsplit(maxsplit=7) for line in capsys.readouterr().out.splitlines()]
    in_page = [re.split(r" *\| *", row)[1:-1] for row in re.findall(r"^\| (?:α =|schedule).*$", page, re.MULTILINE)]
    assert [name for name, *_ in printed] == [name for name, *_ in in_page] == list(scope["runs"])
    for (_, *values), (_, *expected) in zip(printed, in_page, strict=True):
        assert [float(value) for value in values] == pytest.approx([float(value) for value in expected], rel=0.06)

    scope["euclidean"] = partial(objectives.isoloss, distance="euclidean")
    passed = [int((run.eigenvalues[:, -1] < 0.5).sum()) for run in (scope["learn"](1.0), scope["runs"]["schedule"])]
    assert passed == pytest.approx([11, 36], abs=1)
