"""The training loop: what a step changes, what is recorded, and resuming."""

import dataclasses
import json
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import running
from twofold import dist
from twofold.device import choose_device
from twofold.display import Stage
from twofold.errors import Diverged, Interrupted, TwofoldError
from twofold.runs import checkpoint
from twofold.runs.folder import RunFolder
from twofold.train import guards
from twofold.train import trainer as trainer_module
from twofold.train.trainer import Trainer
from twofold.train.watch import is_online_epoch


def snapshot(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer.method.state_dict().items()}


def changed(before: dict[str, torch.Tensor], trainer: Trainer) -> set[str]:
    return {name for name, value in trainer.method.state_dict().items() if not torch.equal(before[name], value)}


def test_seed_determines_the_initial_weights() -> None:
    one, same, other = running.trainer(seed=3), running.trainer(seed=3), running.trainer(seed=4)
    assert all(torch.equal(a, b) for a, b in zip(one.method.parameters(), same.method.parameters(), strict=True))
    assert not torch.equal(next(one.method.parameters()), next(other.method.parameters()))


def test_building_a_trainer_keeps_the_global_random_state() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    running.trainer()
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("method", ["simclr", "frossl", "byol"])
def test_step_changes_every_trained_weight(method: str) -> None:
    trainer = running.trainer(method)
    trainer.method.train()
    before = snapshot(trainer)
    trainer.take_step(0)
    changed_names = changed(before, trainer)
    assert {name for name, _ in trainer.method.trained_parameters()} <= changed_names


def test_every_view_has_a_forward_pass_of_its_own_on_a_cpu() -> None:
    trainer = running.trainer("byol", views=3)
    trainer.method.train()
    sizes: list[int] = []
    for network in trainer.method.networks():
        network.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    trainer.take_step(0)
    assert sizes == [trainer.config.batch_size] * 3 * 4  # encoder, projector, predictor and teacher


def test_evaluation_changes_nothing() -> None:
    trainer = running.trainer("byol")
    trainer.method.train()
    trainer.take_step(0)
    before = snapshot(trainer)
    trainer.online_accuracy(trainer.data.test)
    trainer.features(trainer.data.train)
    assert changed(before, trainer) == set()
    assert trainer.method.encoder.training


def test_online_probe_sends_no_gradient_to_the_encoder() -> None:
    with_labels, without = running.trainer(), running.trainer()
    without.observers.probe = None
    for trainer in (with_labels, without):
        trainer.method.train()
        for step in range(3):
            trainer.take_step(step)
    for a, b in zip(with_labels.method.parameters(), without.method.parameters(), strict=True):
        assert torch.equal(a, b)


def test_spectrum_is_that_of_an_exponentially_weighted_covariance() -> None:
    trainer = running.trainer()
    seen: list[torch.Tensor] = []
    forward = trainer.method.forward

    def spy(views: torch.Tensor, batch: object, **options: object) -> object:
        embeddings = forward(views, batch, **options)
        seen.append(embeddings.z.detach().double().flatten(0, 1))
        return embeddings

    trainer.method.forward = spy
    trainer.method.train()
    for step in range(4):
        trainer.take_step(step)
    weights = torch.tensor([0.9 ** (3 - k) for k in range(4)], dtype=torch.float64)
    expected = sum(w * torch.cov(z.T) for w, z in zip(weights, seen, strict=True)) / weights.sum()
    torch.testing.assert_close(trainer.observers.spectra["embeddings"].read(), expected, rtol=1e-4, atol=1e-7)


def test_run_records_metrics_and_spectra(tmp_path: Path) -> None:
    trainer = running.trainer()
    folder = RunFolder.create(tmp_path / "run", "{}")
    trainer.train(folder)
    metrics = folder.read("metrics.jsonl")
    assert [line["step"] for line in metrics] == sorted({line["step"] for line in metrics})
    assert metrics[0]["step"] == 1
    assert metrics[-1]["step"] == trainer.total_steps == 22
    assert {"loss", "loss/variance", "loss/invariance", "online_train_accuracy", "effective_rank"} <= metrics[0].keys()
    assert "online_accuracy" in metrics[-1]
    assert not {"seconds", "images_per_second"} & metrics[-1].keys()
    for line in folder.read("spectrum.jsonl"):
        assert line["eigenvalues"] == sorted(line["eigenvalues"], reverse=True)
        assert len(line["eigenvalues"]) == {"features": 256, "embeddings": 16}[line["of"]]


def test_nonfinite_loss_raises_an_error_with_a_suggestion(tmp_path: Path) -> None:
    trainer = running.trainer(lr=1e30, optimizer="sgd", epochs=1, warmup_epochs=0)
    with pytest.raises(Diverged, match=r"^loss/\w+.* not finite from step [2-4] on\. Lower lr"):
        trainer.train(RunFolder.create(tmp_path / "run", "{}"))
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_resume_with_changed_data_raises_an_error(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "{}")
    trainer = running.trainer(epochs=1)
    trainer.train(folder)
    other = running.trainer(epochs=1, test_fraction=0.5)
    with pytest.raises(TwofoldError, match=r"data .* have changed"):
        other.restore(folder)


def test_run_stops_if_asked_while_saving_the_last_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = Trainer.save

    def save_and_ask(self: Trainer) -> None:
        guards.ask_to_stop()
        save(self)

    monkeypatch.setattr(Trainer, "save", save_and_ask)
    trainer = running.trainer(epochs=1)
    with pytest.raises(Interrupted):
        trainer.train(RunFolder.create(tmp_path / "run", "{}"))
    assert checkpoint.load_latest(tmp_path / "run")[0] == trainer.total_steps


def test_clipping_bounds_the_gradient() -> None:
    trainer = running.trainer(clip=1e-3)
    trainer.method.train()
    trainer.take_step(0)
    norm = torch.stack([p.grad.norm() for _, p in trainer.method.trained_parameters()]).norm()
    assert norm <= 1e-3 * 1.001


def test_unknown_device_raises_an_error() -> None:
    with pytest.raises(TwofoldError, match="device=warp"):
        choose_device("warp")


def test_named_gpu_becomes_the_current_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams and Triton kernels use the current device, wherever the tensors are."""
    current: list[torch.device] = []
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: None)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    assert [choose_device(name) for name in ("cuda:1", "cuda", "cpu")] == list(
        map(torch.device, ("cuda:1", "cuda", "cpu"))
    )
    assert current == [torch.device("cuda:1")]


def test_epochs_of_the_online_evaluation() -> None:
    chosen = [epoch for epoch in range(1, 121) if is_online_epoch(epoch, 117)]
    assert chosen == [1, 2, 3, 5, 7, 10, 20, 30, 50, 70, 100, 117]
    assert not is_online_epoch(1.5, 10)


def test_timing_is_recorded_in_a_separate_file(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "{}")
    running.trainer(epochs=1).train(folder)
    timing = [json.loads(line) for line in (folder.path / "timing.jsonl").read_text().splitlines()]
    assert all(line["images_per_second"] > 0 for line in timing)


def stopped_between_log_points(folder: RunFolder, stop: int) -> None:
    """Save a run at a step that is not a log point, train on for a while, and stop without saving."""
    first = running.trainer()
    first.spectrum_points, first.folder = {22}, folder
    first.started, first.started_at = 0.0, 0
    first.method.train()
    stage = Stage("", 22, None, None)
    while first.step < stop + 8:
        first.take_step(first.step)
        first.step += 1
        if first.step == stop:
            first.save()
        if first.step % 11 == 0:
            first.log(stage)


def test_run_resumed_between_log_points_has_bit_identical_records(tmp_path: Path) -> None:
    whole, parts = RunFolder.create(tmp_path / "whole", "{}"), RunFolder.create(tmp_path / "parts", "{}")
    reference = running.trainer()
    reference.spectrum_points = {22}
    reference.train(whole)
    stopped_between_log_points(parts, stop=5)
    assert len(parts.read("metrics.jsonl")) == 1, "there must be a line after the checkpoint"
    second = running.trainer()
    second.spectrum_points = {22}
    second.restore(parts)
    assert second.step == 5
    second.train(parts)
    for name in ("metrics.jsonl", "spectrum.jsonl"):
        assert (whole.path / name).read_bytes() == (parts.path / name).read_bytes()


def test_dropout_depends_on_seed_and_step_and_the_random_state_is_kept(tmp_path: Path) -> None:
    """Dropout in a user's encoder is a function of seed and step, so it does not depend on earlier draws."""
    weights = []
    for noise in (0, 1):
        torch.manual_seed(noise)
        trainer = running.trainer(epochs=1)
        trainer.method.projector.append(nn.Dropout(0.5))
        expected = torch.get_rng_state()
        trainer.train(RunFolder.create(tmp_path / str(noise), "{}"))
        assert torch.equal(torch.get_rng_state(), expected)
        weights.append([parameter.detach().clone() for parameter in trainer.method.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


def test_online_accuracy_ignores_unlabelled_images() -> None:
    trainer = running.trainer()
    trainer.method.train()
    trainer.take_step(0)
    test = trainer.data.test
    some = torch.where(torch.arange(len(test)) % 2 == 0, test.labels, -1)
    gaps = dataclasses.replace(test, labels=some)
    alone = gaps.labelled()
    assert len(alone) < len(test)
    assert trainer.online_accuracy(gaps) == trainer.online_accuracy(alone)


def test_online_probe_follows_the_schedule_but_not_the_batch_scaling() -> None:
    trainer = running.trainer(schedule="constant", warmup_epochs=0)  # batch 128: scaled_lr is half of lr
    assert trainer.config.scaled_lr != trainer.config.lr
    factors, observe = [], trainer.observers.observe

    def spy(embeddings: object, loss: object, batch: object, factor: Tensor, samples: object = None) -> None:
        factors.append(factor.item())
        observe(embeddings, loss, batch, factor, samples)

    trainer.observers.observe = spy
    trainer.method.train()
    trainer.take_step(0)
    assert factors == pytest.approx([1.0])


def test_every_epoch_is_logged_and_some_are_evaluated_online(tmp_path: Path) -> None:
    trainer = running.trainer(epochs=6, batch_size=512)
    trainer.spectrum_points = {1}
    folder = RunFolder.create(tmp_path / "run", "{}")
    trainer.train(folder)
    each = trainer.loader.steps_per_epoch
    lines = folder.read("metrics.jsonl")
    assert [line["step"] for line in lines] == [1, *range(each, 6 * each + 1, each)]
    assert [line["epoch"] for line in lines if "online_accuracy" in line] == [1, 2, 3, 5, 6]


def test_every_step_of_every_process_has_its_own_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = running.trainer()
    seeds = []
    monkeypatch.setattr(trainer_module, "seed_all", lambda seed, _: seeds.append(seed))
    monkeypatch.setattr(trainer.run_step, "train_step", lambda *_: None)
    for rank in range(3):
        monkeypatch.setattr(dist, "rank", lambda rank=rank: rank)
        for step in range(5):
            trainer.take_step(step)
    assert len(set(seeds)) == 15


def test_speed_is_measured_since_the_last_log_point(tmp_path: Path) -> None:
    trainer = running.trainer()
    trainer.folder = RunFolder.create(tmp_path / "run", "{}")
    trainer.method.train()
    trainer.take_step(0)
    trainer.step = 11
    trainer.measured_from = time.monotonic() - 100, 10
    trainer.log(Stage("", 22, None, None))
    assert trainer.folder.read("timing.jsonl")[-1]["images_per_second"] == pytest.approx(1.28, rel=0.05)


def test_nonfinite_weights_are_not_saved(tmp_path: Path) -> None:
    trainer = running.trainer()
    trainer.folder = RunFolder.create(tmp_path / "run", "{}")
    next(trainer.method.parameters()).data.flatten()[0] = torch.nan
    with pytest.raises(Diverged, match="weights are not finite at step 0"):
        trainer.save()
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_time_to_save_is_counted_from_the_last_save(tmp_path: Path) -> None:
    trainer = running.trainer(**{"checkpoint.seconds": 100})
    trainer.folder = RunFolder.create(tmp_path / "run", "{}")
    trainer.started = trainer.last_save = time.monotonic() - 200
    assert trainer.is_time_to_save(None)
    trainer.save()
    assert not trainer.is_time_to_save(None)


def test_verdict_of_a_resumed_run_uses_all_its_spectra(tmp_path: Path) -> None:
    first, folder = running.trainer(epochs=1), RunFolder.create(tmp_path / "run", "{}")
    first.train(folder)
    second = running.trainer(epochs=1)
    second.restore(folder)
    assert second.watch.snapshots == first.watch.snapshots != []
    assert second.watch.metrics == first.watch.metrics
    assert second.watch.verdict == first.watch.verdict
