"""The online probe compared with SGD in float64, and other observed measures with NumPy."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import running
from twofold.errors import Diverged, TwofoldError
from twofold.evaluate.metrics import effective_rank
from twofold.runs.folder import RunFolder
from twofold.train.observers import Means, Observers, OnlineProbe, geometry
from twofold.train.watch import Watch, refuse_nonfinite, spectra
from twofold.types import Batch, Embeddings, LossTerms

CPU = torch.device("cpu")
V, N, K, C = 2, 7, 5, 3


def probe() -> OnlineProbe:
    return OnlineProbe(K, C, 0.5, CPU)


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(V, N, K, generator=generator), torch.randint(0, C, (N,), generator=generator)


def test_probe_equals_sgd_with_momentum_on_the_cross_entropy() -> None:
    online = probe()
    classifier = torch.nn.Linear(K, C).double()
    torch.nn.init.zeros_(classifier.weight)
    torch.nn.init.zeros_(classifier.bias)
    optimizer = torch.optim.SGD(classifier.parameters(), lr=0.5, momentum=0.9)
    for step in range(6):
        factor = 1 - step / 10
        features, labels = batch(step)
        values = online.observe(features, labels, torch.tensor(factor))
        rows, targets = features.double().flatten(0, 1), labels.repeat(V)
        optimizer.param_groups[0]["lr"] = 0.5 * factor
        optimizer.zero_grad()
        logits = classifier(rows)
        loss = F.cross_entropy(logits, targets)
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(values["online_loss"].double(), loss.detach(), rtol=1e-5, atol=0)
        assert values["online_train_accuracy"] == (logits.argmax(dim=1) == targets).float().mean()
        torch.testing.assert_close(online.logits(features[0]).double(), classifier(rows[:N]), rtol=1e-4, atol=1e-5)


def test_untrained_probe_predicts_the_first_class() -> None:
    features, _ = batch(0)
    labels = torch.tensor([0, 0, 1, 2, 1, 2, 0])
    assert probe().observe(features, labels, torch.tensor(1.0))["online_train_accuracy"] == torch.tensor(3 / 7)


def observe_step(
    observers: Observers, step: int, labels: torch.Tensor, terms: dict[str, torch.Tensor] | None = None
) -> None:
    features, _ = batch(step)
    loss = LossTerms(torch.tensor(1.0), terms or {})
    observers.observe(
        Embeddings(features=features, z=features, index=torch.arange(N)),
        loss,
        Batch(images=torch.empty(0), index=torch.arange(N), position=torch.arange(N), labels=labels),
        torch.tensor(1.0),
    )


def test_probe_averages_are_over_labelled_images_only() -> None:
    """With a learning rate of 0 it predicts class 0: correct for 2 of 5 labels, in batches with 4, 1 and 0 labels."""
    observers = Observers(K, K, C, 0.0, CPU)
    unknown = torch.full((N,), -1)
    for step, known in enumerate(([0, 1, 2, 0], [1], [])):
        labels = unknown.clone()
        labels[: len(known)] = torch.tensor(known, dtype=labels.dtype)
        observe_step(observers, step, labels)
    values = observers.read()
    assert values["online_train_accuracy"] == pytest.approx(2 / 5)
    assert values["online_loss"] == pytest.approx(math.log(C))
    assert "labelled" not in values
    observe_step(observers, 3, unknown)
    assert not {"online_train_accuracy", "online_loss", "labelled"} & observers.read().keys()


def test_loss_terms_are_identified_by_name() -> None:
    observers = Observers(K, K, None, 0.0, CPU)
    a, b = torch.tensor(1.0), torch.tensor(2.0)
    labels = torch.zeros(N, dtype=torch.int64)
    observe_step(observers, 0, labels, {"a": a, "b": b})
    observe_step(observers, 1, labels, {"b": b, "a": a})
    values = observers.read()
    assert (values["loss/a"], values["loss/b"]) == (1, 2)
    with pytest.raises(TwofoldError, match="loss/b ended, loss/c began"):
        observe_step(observers, 2, labels, {"a": a, "c": b})


def test_probe_continues_from_its_state() -> None:
    whole, halves, rest = probe(), probe(), probe()
    for step in range(4):
        whole.observe(*batch(step), torch.tensor(1.0))
        (halves if step < 2 else rest).observe(*batch(step), torch.tensor(1.0))
        if step == 1:
            state = {name: value.contiguous() for name, value in halves.state_dict().items()}
            assert state["weight"].shape == (K + 1, C)  # the shape in checkpoints, for any memory format
            rest.load_state_dict(state)
    assert torch.equal(whole.weight, rest.weight)
    assert torch.equal(whole.velocity, rest.velocity)


def test_means_record_the_step_of_the_first_nonfinite_value() -> None:
    means = Means()
    for step in range(1, 7):
        a = torch.tensor(torch.nan if step == 3 else 1.0)
        means.observe({"a": a, "b": torch.tensor(torch.inf if step >= 5 else 2.0), "c": torch.tensor(float(step))})
    values = means.read()
    assert values["c"] == 3.5
    assert {name: 6 - ago for name, ago in means.broken.items()} == {"a": 3, "b": 5}
    means.observe({"a": torch.tensor(1.0), "b": torch.tensor(1.0), "c": torch.tensor(1.0)})
    assert means.read() == {"a": 1, "b": 1, "c": 1}
    assert means.broken == {}


@pytest.mark.parametrize("views", [1, 2])
def test_geometry_of_a_batch_equals_numpy(views: int) -> None:
    features, z = torch.randn(views, 9, 4), 3 * torch.randn(views, 9, 6) + 1
    found = geometry(Embeddings(features, z, torch.arange(9)), torch.arange(9))
    x, u = z.numpy().astype(float), F.normalize(z.double(), dim=2).numpy()
    distances = ((u[0][:, None] - u[0][None]) ** 2).sum(2)
    pairs = np.exp(-2 * distances)[~np.eye(9, dtype=bool)]
    assert found["embedding_norm"].item() == pytest.approx(np.sqrt((x**2).sum(2).mean()), rel=1e-5)
    assert found["feature_norm"].item() == pytest.approx(features.square().sum().item() ** 0.5 / (9 * views) ** 0.5)
    assert found["uniformity"].item() == pytest.approx(np.log(pairs.mean()), rel=1e-4)
    assert ("alignment" in found) == (views == 2)
    if views == 2:
        assert found["alignment"].item() == pytest.approx(((u[0] - u[1]) ** 2).sum(1).mean(), rel=1e-4)


def test_spectrum_of_a_trained_predictor_comes_from_its_outputs() -> None:
    trainer = running.trainer("byol")
    outputs: list[tuple[torch.Tensor, torch.Tensor]] = []
    forward = trainer.method.forward

    def spy(*inputs: object, **options: object) -> Embeddings:
        embeddings = forward(*inputs, **options)
        outputs.append(
            tuple(part.detach().double().flatten(0, 1) for part in (embeddings.prediction, embeddings.z))  # type: ignore[arg-type]
        )
        return embeddings

    trainer.method.forward = spy  # type: ignore[method-assign]
    trainer.method.train()
    for step in range(4):
        trainer.take_step(step)
    weights = np.array([0.9 ** (3 - k) for k in range(4)])
    dimension = outputs[0][1].shape[1]
    # numpy's cov of the columns of [p, z]: its blocks are the covariance of p, and of p with z.
    both = sum(
        weight * np.cov(torch.cat(pair, dim=1).T.numpy())
        for weight, pair in zip(weights / weights.sum(), outputs, strict=True)
    )
    found, values = spectra(trainer.observers, trainer.method.direct)
    expected = np.linalg.eigvalsh(both[:dimension, :dimension])[::-1]
    np.testing.assert_allclose(found["predictor"].numpy(), expected, rtol=1e-3, atol=1e-5 * expected[0])
    s, u = np.linalg.eigh(both[dimension:, dimension:])
    moved = both[:dimension, dimension:] @ u
    cosines = np.abs((u * moved).sum(0)) / np.linalg.norm(moved, axis=0)
    assert values["predictor_alignment"] == pytest.approx((cosines * s).sum() / s.sum(), rel=1e-3)


def test_spectrum_of_a_closed_form_predictor_comes_from_its_matrix() -> None:
    trainer = running.trainer("isoloss")
    trainer.method.train()
    for step in range(4):
        trainer.take_step(step)
    found, values = spectra(trainer.observers, trainer.method.direct)
    correlation = trainer.method.direct.correlation.numpy()
    expected = np.linalg.eigvalsh(correlation)[::-1].clip(0)
    np.testing.assert_allclose(found["predictor"].numpy(), np.sqrt(expected / expected[0]), atol=1e-4)
    assert 0.5 < values["predictor_alignment"] <= 1


def test_method_without_predictor_has_no_predictor_spectrum() -> None:
    trainer = running.trainer("frossl")
    trainer.method.train()
    trainer.take_step(0)
    found, values = spectra(trainer.observers, trainer.method.direct)
    assert set(found) == {"features", "embeddings"}
    assert "predictor_alignment" not in values


def test_images_without_a_label_do_not_change_the_probe() -> None:
    features, labels = batch(0)
    some, alone = probe(), probe()
    known = torch.arange(len(labels)) % 3 != 0
    gaps = some.observe(features, labels.masked_fill(~known, -1), torch.tensor(1.0))
    values = alone.observe(features[:, known], labels[known], torch.tensor(1.0))
    torch.testing.assert_close(some.weight, alone.weight)
    assert gaps.pop("labelled") < values.pop("labelled") == 1
    torch.testing.assert_close(gaps, values)
    before = some.weight.clone()
    some.velocity.zero_()
    nothing = some.observe(features, torch.full_like(labels, -1), torch.tensor(1.0))
    assert torch.equal(some.weight, before)
    assert all(float(value) == 0 for value in nothing.values())


def test_bad_verdict_is_reported_once_and_only_after_three_evaluations(tmp_path: Path) -> None:
    watch = Watch(method="mine")
    lines = [{"step": step, "embedding_norm": 1.0, "loss": 1.0} for step in range(1, 6)]
    reported = [watch.note(line, [0.0] * 8) for line in lines[:4]]
    assert [found is not None for found in reported] == [False, False, True, False]
    assert reported[2] is not None
    assert reported[2].kind == "complete collapse"
    folder = RunFolder.create(tmp_path / "run", "{}")
    for line in lines[:4]:
        folder.append("metrics.jsonl", line)
        folder.append("spectrum.jsonl", {"step": line["step"], "of": "embeddings", "eigenvalues": [0.0] * 8})
    resumed = Watch(method="mine")
    resumed.restore(folder)
    assert resumed.note(lines[4], [0.0] * 8) is None


def test_error_names_the_step_of_the_first_nonfinite_value(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "{}")
    with pytest.raises(Diverged, match=r"^loss/b is not finite from step 7 on"):
        refuse_nonfinite(folder, 10, {"loss": 3, "loss/a": 1, "loss/b": 3, "alignment": 0}, 0.1)


def test_each_rank_is_computed_from_its_own_spectrum() -> None:
    trainer = running.trainer()
    trainer.method.train()
    trainer.take_step(0)
    found, values = spectra(trainer.observers, trainer.method.direct)
    assert values["features_effective_rank"] == effective_rank(found["features"])
    assert values["effective_rank"] == effective_rank(found["embeddings"])
    assert values["effective_rank"] != values["features_effective_rank"]
