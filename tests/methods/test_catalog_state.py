"""Queues, centres and running covariances in training: updated once per step after the loss, and resumed."""

import copy
import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import running
from twofold.config import dump
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.methods import schema
from twofold.runs.folder import RunFolder
from twofold.train.trainer import Trainer
from twofold.types import Batch, Embeddings
from twofold.verbs import pretrain

SMALL = {"batch_size": 64, "prototypes": 24, "queue": 200}


def trainer(method: str, **overrides: object) -> Trainer:
    small = {key: value for key, value in SMALL.items() if key in schema(method)}
    made = running.trainer(method, **running.quick(method, **(small | overrides)))
    made.method.train()
    return made


def take_steps(trainer: Trainer, count: int) -> list[tuple[Embeddings, Tensor]]:
    """Take training steps. Return the embeddings and the loss of each step."""
    seen: list[tuple[Embeddings, Tensor]] = []
    forward, objective = trainer.method.forward, trainer.method.objective
    embeddings: list[Embeddings] = []

    def spy_forward(views: Tensor, batch: Batch, *small: Tensor, **options: object) -> Embeddings:
        embeddings.append(forward(views, batch, *small, **options))
        return embeddings[-1]

    def spy_objective(e: Embeddings) -> object:
        loss = objective(e)
        seen.append((e, loss.total.detach().clone()))
        return loss

    trainer.method.forward, trainer.method.objective = spy_forward, spy_objective
    for _ in range(count):
        trainer.take_step(trainer.step)
        trainer.step += 1
    trainer.method.forward, trainer.method.objective = forward, objective
    assert len(embeddings) == len(seen) == count
    return seen


def evaluate(trainer: Trainer) -> None:
    trainer.method.eval()
    trainer.features(trainer.data.test)
    trainer.online_accuracy(trainer.data.test)
    trainer.method.train()


def test_queue_of_moco_contains_teacher_embeddings_of_earlier_steps() -> None:
    made = trainer("moco")
    seen = take_steps(made, 4)
    assert seen[0][1] == 0, "the queue is empty at the first step"
    e, _ = seen[-1]
    assert not torch.equal(e.z, e.target), "the teacher must differ from the student"
    keys = torch.cat([e.target.flatten(0, 1) for e, _ in seen])[-200:]
    assert sorted(made.method.memory.rows.tolist()) == sorted(keys.tolist())
    # The next loss, computed by hand with these negatives.
    ((e, loss),) = take_steps(made, 1)
    z, target, keys = (nn.functional.normalize(x.detach().double(), dim=-1) for x in (e.z, e.target, keys))
    index = torch.cat([e.index.repeat(2) for e, _ in seen])[-200:]
    losses = []
    for v, w in ((0, 1), (1, 0)):
        own = index == e.index[:, None]
        against = (z[v] @ keys.T).masked_fill(own, -torch.inf)
        logits = torch.cat([(z[v] * target[w]).sum(-1, keepdim=True), against], dim=1) / 0.2
        losses.append(nn.functional.cross_entropy(logits, torch.zeros(64, dtype=torch.int64)))
    assert loss.item() == pytest.approx(torch.stack(losses).mean().item(), rel=1e-5)


def test_own_image_in_the_queue_of_moco_is_not_a_negative() -> None:
    made = trainer("moco")
    ((e, _),) = take_steps(made, 1)
    are_negatives = made.method.memory.others(e.index)
    assert are_negatives[:, :128].sum(dim=1).tolist() == [126] * 64
    assert not are_negatives[:, 128:].any()


def test_centre_and_teacher_prototypes_of_dino_are_running_averages() -> None:
    made = trainer("dino", teacher_momentum=0.9)
    memory = made.method.memory
    prototypes = [memory["head"].network.weight.double().clone()]
    centre = torch.zeros(24, dtype=torch.float64)
    for number in range(1, 4):
        ((e, _),) = take_steps(made, 1)
        target = nn.functional.normalize(e.target.double(), dim=-1) @ nn.functional.normalize(prototypes[-1], dim=-1).T
        centre = 0.9 * centre + 0.1 * target.flatten(0, 1).mean(dim=0)
        torch.testing.assert_close(memory["centre"].mean.double(), centre, rtol=1e-4, atol=1e-6)
        tau = 1 - 0.1 * (torch.cos(torch.tensor(torch.pi * number / made.total_steps)).item() + 1) / 2
        prototypes.append(tau * prototypes[-1] + (1 - tau) * made.method.head.weight.detach().double())
        torch.testing.assert_close(memory["head"].network.weight.double(), prototypes[-1], rtol=1e-4, atol=1e-6)


def test_covariances_of_corinfomax_use_unit_embeddings() -> None:
    made = trainer("corinfomax", covariance_momentum=0.3)
    covariance, mean = torch.eye(64).double().repeat(2, 1, 1), torch.zeros(2, 64).double()
    for _ in range(3):
        ((e, _),) = take_steps(made, 1)
        z = e.z.detach().double()
        torch.testing.assert_close(z.norm(dim=-1), torch.ones(2, 64).double(), rtol=1e-6, atol=0)
        mean = 0.3 * mean + 0.7 * z.mean(dim=1)
        apart = z - mean[:, None]
        covariance = 0.3 * covariance + 0.7 * apart.mT @ apart / 64
        torch.testing.assert_close(made.method.memory.covariances, covariance, rtol=1e-6, atol=1e-9)


def test_queue_of_swav_is_used_from_queue_from_epoch_on() -> None:
    with_queue, without, later = (
        trainer("swav", queue_from_epoch=0),
        trainer("swav", queue=0),
        trainer("swav", queue_from_epoch=1),
    )
    losses = [[loss.item() for _, loss in take_steps(made, 2)] for made in (with_queue, without, later)]
    assert losses[1] == pytest.approx(losses[2], rel=1e-5)
    assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-5), "the queue is still empty"
    assert losses[0][1] != pytest.approx(losses[1][1], rel=1e-4)
    assert "queue" not in without.method.memory


def test_target_temperature_of_dino_rises() -> None:
    """The temperature depends on the epochs before the step, and is constant at the end."""
    made = trainer("dino", rising_epochs=1.5, epochs=2)
    epochs_before = torch.arange(made.total_steps) / made.loader.steps_per_epoch
    for step, temperature in enumerate((0.04 + 0.03 * epochs_before / 1.5).clamp(max=0.07)):
        state = copy.deepcopy(made.method.memory)
        prototypes = nn.functional.normalize(made.method.head.weight.detach().clone(), dim=-1)
        ((e, loss),) = take_steps(made, 1)
        scores = nn.functional.normalize(e.z.detach(), dim=-1) @ prototypes.T / 0.1
        targets = ((state["head"](e.target) - state["centre"].mean) / temperature).softmax(dim=-1)
        losses = [nn.functional.cross_entropy(scores[v], targets[1 - v]) for v in range(2)]
        assert loss.item() == pytest.approx(sum(losses).item() / 2, rel=1e-5), step


@pytest.mark.parametrize("method", ["swav", "dino"])
def test_prototypes_are_frozen_at_the_start(method: str) -> None:
    frozen, free = (trainer(method, frozen_epochs=epochs, weight_decay=0) for epochs in (1, 0))
    before = frozen.method.head.weight.detach().clone()
    assert torch.equal(before, free.method.head.weight)
    for made in (frozen, free):
        take_steps(made, 2)
    assert torch.equal(frozen.method.head.weight, before)
    assert not torch.equal(free.method.head.weight, before)


STATEFUL = ["moco", "swav", "dino", "corinfomax"]


@pytest.mark.parametrize("method", STATEFUL)
def test_evaluation_does_not_change_the_state(method: str) -> None:
    made = trainer(method)
    take_steps(made, 2)
    before = {name: value.clone() for name, value in made.method.memory.state_dict().items()}
    evaluate(made)
    for name, value in made.method.memory.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("method", STATEFUL)
def test_resumed_training_is_bit_identical(method: str, tmp_path: Path) -> None:
    whole = trainer(method)
    folder = RunFolder.create(tmp_path / "run", dump(whole.config))
    whole.folder = folder
    take_steps(whole, 3)
    whole.save()
    resumed = trainer(method)
    resumed.restore(folder)
    assert resumed.step == 3
    for made in (whole, resumed):
        take_steps(made, 3)
    ours, theirs = whole.method.state_dict(), resumed.method.state_dict()
    assert any(name.startswith("memory.") for name in ours)
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name


@pytest.mark.parametrize("method", STATEFUL)
def test_methods_that_compare_views_refuse_one_view(method: str) -> None:
    with pytest.raises(TwofoldError, match="two views or more"):
        trainer(method, views=1)


def test_supervised_loss_is_the_cross_entropy_with_the_labels() -> None:
    made = trainer("supervised", label_smoothing=0.1)
    batch = made.loader.batch(0)
    ((e, loss),) = take_steps(made, 1)
    weight = running.trainer("supervised", **running.quick("supervised", batch_size=64)).method.head.weight
    expected = nn.functional.cross_entropy(e.z[0] @ weight.T, batch.labels, label_smoothing=0.1)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_supervised_without_labels_raises_an_error() -> None:
    config, source = pretrain.configure("digits", "supervised", {})
    data = pretrain.read_data(config, source, Display(quiet=True))
    unlabelled = dataclasses.replace(data, train=dataclasses.replace(data.train, labels=None), test=None, classes=None)
    with pytest.raises(TwofoldError, match="needs labels, and these images have none"):
        Trainer(config, unlabelled, Display(quiet=True))


LOCAL = {"augment.local_views": 3, "augment.local_size": 5}


@pytest.mark.parametrize("method", ["moco", "swav", "dino"])
def test_small_crops_have_no_targets(method: str) -> None:
    made = trainer(method, **LOCAL)
    batch = made.loader.batch(0)
    small = made.small_crops(batch.images, batch.position, made.clock)
    assert small.shape == (3, 64, 1, 5, 5)
    expected = made.method.encoder(small[1])
    (e, _), *_ = take_steps(made, 2)
    assert e.z.shape == (5, 64, 64)
    torch.testing.assert_close(e.features[3], expected)
    assert e.target is None or e.target.shape == (2, 64, 64)
    queue = made.method.memory if method == "moco" else made.method.memory["queue"] if method == "swav" else None
    if queue is not None:
        assert queue.filled.sum() == 200
        assert queue.position == 2 * 2 * 64 % 200, "small crops must not enter the queue"


def test_loss_of_dino_with_small_crops_uses_targets_of_full_views() -> None:
    made = trainer("dino", **LOCAL)
    prototypes = nn.functional.normalize(made.method.head.weight.detach().clone(), dim=-1)
    ((e, loss),) = take_steps(made, 1)
    scores = nn.functional.normalize(e.z.detach(), dim=-1) @ prototypes.T / 0.1
    targets = (nn.functional.normalize(e.target, dim=-1) @ prototypes.T / 0.04).softmax(dim=-1)
    losses = [nn.functional.cross_entropy(scores[v], targets[t]) for t in range(2) for v in range(5) if t != v]
    assert loss.item() == pytest.approx(sum(losses).item() / 8, rel=1e-5)


def test_loss_of_swav_with_small_crops_uses_codes_of_full_views() -> None:
    made = trainer("swav", queue=0, **LOCAL)
    prototypes = nn.functional.normalize(made.method.head.weight.detach().double(), dim=-1)
    ((e, loss),) = take_steps(made, 1)
    scores = nn.functional.normalize(e.z.detach().double(), dim=-1) @ prototypes.T
    losses = []
    for t in range(2):
        codes = (scores[t] / 0.05).exp()
        for _ in range(3):
            codes = codes / codes.sum(dim=0)
            codes = codes / codes.sum(dim=1, keepdim=True)
        losses += [nn.functional.cross_entropy(scores[v] / 0.1, codes) for v in range(5) if v != t]
    assert loss.item() == pytest.approx(sum(losses).item() / 8, rel=1e-5)


@pytest.mark.parametrize("method", ["frossl", "byol", "simclr", "corinfomax", "diet", "supervised", "ridge-graph"])
def test_small_crops_raise_an_error_for_methods_that_cannot_use_them(method: str) -> None:
    with pytest.raises(TwofoldError, match="choose dino, swav or moco"):
        trainer(method, **LOCAL)


def test_small_crops_raise_an_error_if_the_encoder_does_not_accept_them() -> None:
    config, source = pretrain.configure("digits", "dino", running.small("dino", **LOCAL))
    data = pretrain.read_data(config, source, Display(quiet=True))
    with pytest.raises(TwofoldError, match=r"does not accept images \(1, 5, 5\)"):
        Trainer(config, data, Display(quiet=True), nn.Sequential(nn.Flatten(), nn.Linear(64, 8)))
