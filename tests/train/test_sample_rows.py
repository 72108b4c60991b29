"""Per-image classifier rows in training: never stale, consistent with checkpoints, loaded in the background."""

import errno
import os
import random
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import running
import twofold
from twofold.config import Config, Head, dump
from twofold.cuda.step_graph import StepGraph
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.models import BatchRows
from twofold.models.sample_head import row_store
from twofold.runs import checkpoint
from twofold.runs.folder import RunFolder
from twofold.train import sample_rows
from twofold.train.row_slots import device_slots
from twofold.train.sample_rows import SampleRows
from twofold.train.trainer import Trainer
from twofold.verbs import pretrain

PATH, SECONDS = "head.path", "checkpoint.seconds"


class FixedOrder:
    """A batch order that returns given batches."""

    def __init__(self, batches: list[Tensor]):
        self.batches, self.steps_per_epoch = batches, len(batches)

    def rows(self, step: int) -> Tensor:
        return self.batches[step]


def gradient_of(rows: Tensor, step: int) -> Tensor:
    return 0.1 * rows + torch.sin(rows * step)


def rows_for(batches: list[Tensor]) -> SampleRows:
    config, _ = pretrain.configure("digits", "s-diet", {"epochs": 1, "batch_size": 5})
    return SampleRows(config, BatchRows(30, 4, Head()), FixedOrder(batches))


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("slow", [None, "read", "write"])
def test_rows_are_never_stale(on_device: bool, slow: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches share rows with the next one, the one after it, both, or none. The last batch is short."""
    if on_device:
        monkeypatch.setattr(sample_rows, "make_slots", device_slots)
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randperm(30, generator=generator)[:5] for _ in range(20)]
    batches += [torch.arange(5), torch.arange(5), torch.arange(5, 10), torch.arange(3, 8), torch.arange(20, 25)]
    batches += [torch.tensor([22, 1])]
    plain, rows = rows_for(batches).head, rows_for(batches)
    if slow is not None:
        quick = getattr(rows.head, slow)
        monkeypatch.setattr(rows.head, slow, lambda *args: (time.sleep(0.01), quick(*args))[1])
    for step, index in enumerate(batches):
        rows.send(step)
        part, size = rows.part, len(index)
        expected = plain.take(index)
        assert torch.equal(part.rows[part.labels[:size]], expected), step
        part.gradient[:size] = gradient_of(part.rows[:size], step)
        rows.receive(step)
        plain.step(index, gradient_of(expected, step))
    rows.save()
    assert torch.equal(rows.head.dense(), plain.dense())


def test_rows_are_read_and_written_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a step computes, rows of the next step are read and those of the previous step are written."""
    rows = rows_for(list(torch.arange(30).split(5)))
    done: list[tuple[str, int]] = []
    load, apply = rows.head.load, rows.head.apply
    monkeypatch.setattr(rows.head, "load", lambda index, step: (done.append(("read", step)), load(index, step))[1])
    monkeypatch.setattr(rows.head, "apply", lambda held, g: (done.append(("moved", held.step)), apply(held, g))[1])
    for step in range(4):
        rows.send(step)
        rows._slots[(step + 1) % sample_rows.SLOTS].read.result()
        assert ("read", step + 1) in done
        rows.receive(step)
    assert [step for what, step in done if what == "moved"] == [0, 1]  # the update of step 2 waits for the device
    rows.save()
    assert [step for what, step in done if what == "moved"] == [0, 1, 2, 3]


def small(**overrides: Any) -> dict[str, Any]:
    return running.small("s-diet", lr=0.01, **overrides)


def trainer_for(config: Config) -> Trainer:
    source = pretrain.open_source("digits")
    return Trainer(config, pretrain.read_data(config, source, Display(quiet=True)), Display(quiet=True))


def train(out: Path, **overrides: Any) -> Path:
    """Train a new run or the rest of a started run, without the evaluation at the end."""
    if (out / "config.json").exists():
        trainer, folder = trainer_for(twofold.Run(out).config), RunFolder.open(out)
        trainer.restore(folder)
    else:
        config, _ = pretrain.configure("digits", "s-diet", small(**overrides))
        trainer, folder = trainer_for(config), RunFolder.create(out, dump(config))
    trainer.train(folder)
    return out


def rows_of(run: Path) -> Tensor:
    """All classifier rows of the last checkpoint of a run."""
    trainer = trainer_for(twofold.Run(run).config)
    trainer.restore(RunFolder.open(run))
    with trainer.rows.opened(run):
        return trainer.rows.head.dense()


def assert_same(a: Path, b: Path) -> None:
    for name in ("metrics.jsonl", "spectrum.jsonl"):
        assert (a / name).read_bytes() == (b / name).read_bytes(), name
    assert torch.equal(rows_of(a), rows_of(b))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("uninterrupted") / "run")


def test_rows_on_disk_train_bit_identically_to_rows_in_memory(
    uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that do not fit into memory are stored in the run folder automatically."""
    monkeypatch.setattr(row_store, "BUFFER_BYTES", 2**14)
    assert not (uninterrupted / "head").exists()
    asked = train(tmp_path / "asked", **{PATH: str(tmp_path / "rows"), SECONDS: 0})
    assert (tmp_path / "rows" / "rows.bin").exists()
    assert_same(uninterrupted, asked)
    monkeypatch.setattr(sample_rows, "MOST_MEMORY", 1000)
    chosen = train(tmp_path / "chosen")
    assert (chosen / "head" / "rows.bin").exists()
    assert_same(uninterrupted, chosen)


def test_training_equals_that_of_a_dense_classifier() -> None:
    """The reference uses AdamW on all rows, and cross entropy over the rows of the batch. The last batch is short.

    The network is not trained, because AdamW amplifies the rounding errors of zero gradients and results would diverge.
    """
    trainer, reference = (
        running.trainer("s-diet", **small(drop_last=False, batch_size=100, epochs=3, weight_decay=0.05))
        for _ in range(2)
    )
    assert trainer.loader.last_batch_size == 38
    weight = nn.Parameter(trainer.rows.head.dense().clone())
    optimizer = torch.optim.AdamW([weight], lr=1.0, weight_decay=0.05)
    rates = trainer.rates.tolist()
    trainer.rates.zero_()
    trainer.method.train()
    reference.method.train()
    for step in range(2 * trainer.loader.steps_per_epoch + 3):
        trainer.take_step(step)

        batch = reference.loader.batch(step)
        views = reference.make_views(batch.images, batch.position, torch.tensor(step))
        z = nn.functional.normalize(reference.method(views[0], batch).z[0].detach())
        own = torch.searchsorted(reference.data.train.index, batch.index)
        loss = nn.functional.cross_entropy(z @ weight[own].T, torch.arange(len(own)), label_smoothing=0.8)
        optimizer.zero_grad()
        loss.backward()
        optimizer.param_groups[0]["lr"] = rates[step]
        optimizer.step()
        assert trainer.observers.means.read()["loss"] == pytest.approx(loss.item(), rel=1e-6)
    trainer.rows.save()
    difference = (trainer.rows.head.dense() - weight.detach()).abs().flatten()
    # Rows with gradients near 0 are affected, too: Adam's division amplifies their rounding errors.
    assert difference.quantile(0.999) < 1e-6
    assert difference.max() < 1e-4


def test_recorded_step_uses_the_same_tensors_for_every_batch() -> None:
    """A CUDA graph needs tensors at fixed addresses. This is tested on a CPU."""

    class Recording:
        def side_stream(self) -> Any:
            return nullcontext()

        def join(self) -> None:
            pass

        def first(self, step: Any) -> None:
            step()

        def waits(self, step: Any) -> bool:
            step()
            return False

        def record(self, step: Any) -> Any:
            return step

    plain, recorded = (running.trainer("s-diet", **small()) for _ in range(2))
    parts = recorded.loader, recorded.make_views, recorded.train_step, recorded.clock
    recorded.run_step = StepGraph(*parts, Recording())
    places = set()
    for step in range(8):
        for trainer in (plain, recorded):
            trainer.method.train()
            trainer.take_step(step)
        part = recorded.method.head
        places.add((part.rows.data_ptr(), part.labels.data_ptr(), part.gradient.data_ptr()))
    assert len(places) == 1
    for trainer in (plain, recorded):
        trainer.rows.save()
    assert torch.equal(plain.rows.head.dense(), recorded.rows.head.dense())


def test_run_stopped_by_a_full_disk_can_be_resumed(
    uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_store, "BUFFER_BYTES", 2**14)
    write, calls = os.write, 0

    def full(file: int, data: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 9:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_store.os, "write", full)
        with pytest.raises(TwofoldError, match=r"No space left on device.*free some disk space"):
            train(tmp_path / "run", **{PATH: str(tmp_path / "rows"), SECONDS: 0})
    step, _ = checkpoint.load_latest(tmp_path / "run")
    assert 0 < step < 22
    train(tmp_path / "run")
    assert_same(uninterrupted, tmp_path / "run")


def test_rows_on_disk_belong_to_the_newest_checkpoint_only(uninterrupted: Path, tmp_path: Path) -> None:
    """If that checkpoint is damaged, resuming raises an error and changes no files. Rows in memory are saved in older
    ones, too."""
    rows = {PATH: str(tmp_path / "rows"), SECONDS: 0}
    for run in (train(tmp_path / "disk", **rows), train(tmp_path / "memory", **{SECONDS: 0})):
        os.truncate(run / "checkpoints" / "step-22" / "state.json", 100)
    records = {name: (tmp_path / "disk" / name).read_bytes() for name in ("metrics.jsonl", "checkpoints/latest")}
    with pytest.raises(TwofoldError, match=r"step-22 is damaged"):
        train(tmp_path / "disk")
    for name, content in records.items():
        assert (tmp_path / "disk" / name).read_bytes() == content
    train(tmp_path / "memory")
    assert_same(uninterrupted, tmp_path / "memory")


def test_rows_of_another_run_raise_an_error(tmp_path: Path) -> None:
    rows = {PATH: str(tmp_path / "rows")}
    first = train(tmp_path / "first", epochs=1, **rows)
    with pytest.raises(TwofoldError, match="another run"):
        twofold.pretrain({"data": "digits", **small(**rows)}, method="s-diet", out=tmp_path / "second")
    assert not (tmp_path / "second").exists()
    (first / "head.json").write_text('{"run": "other"}')  # as if another run's folder had replaced it
    with pytest.raises(TwofoldError, match="of another run"):
        train(first)


@pytest.mark.parametrize("optimizer", ["lars", "adam"])
def test_unsupported_optimizers_raise_an_error(optimizer: str) -> None:
    with pytest.raises(TwofoldError, match="adamw or sgd"):
        running.trainer("s-diet", **small(optimizer=optimizer))


@pytest.mark.parametrize(
    "overrides",
    [
        {"optimizer": "sgd"},
        {"head.update": "multistep"},
        {"correction": True},
        {"projector": None},
        {"normalize": False},
    ],
    ids=str,
)
def test_every_option_changes_exactly_the_used_rows(overrides: dict[str, Any]) -> None:
    trainer = running.trainer("s-diet", **small(weight_decay=0.0) | overrides)
    trainer.method.train()
    before = trainer.rows.head.dense()
    for step in range(3):
        trainer.take_step(step)
    trainer.rows.save()
    after = trainer.rows.head.dense()
    used = torch.zeros(len(after), dtype=torch.bool)
    used[torch.cat([trainer.loader.order.rows(step) for step in range(3)])] = True
    assert torch.equal((after != before).any(dim=1), used)
    assert torch.isfinite(after).all()


def start(run: Path, rows: Path) -> subprocess.Popen[str]:
    program = (
        "import sys, test_sample_rows as t; t.train(t.Path(sys.argv[1]), **{t.PATH: sys.argv[2], t.SECONDS: 0.05})"
    )
    places = [str(Path(__file__).parent), *sys.path]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(places)}
    command = [sys.executable, "-c", program, str(run), str(rows)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def check_kills(uninterrupted: Path, tmp_path: Path, seed: int, kills: int) -> None:
    run, rows = tmp_path / "run", tmp_path / "rows"
    running.kill_and_resume(lambda: start(run, rows), run, random.Random(seed), kills, last_step=22, pause=0.05)
    assert_same(uninterrupted, run)


def test_killed_run_resumes_bit_identically(uninterrupted: Path, tmp_path: Path) -> None:
    check_kills(uninterrupted, tmp_path, seed=0, kills=1)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(10))
def test_run_killed_at_random_times_resumes_bit_identically(seed: int, uninterrupted: Path, tmp_path: Path) -> None:
    check_kills(uninterrupted, tmp_path, seed, kills=4)


def test_rows_use_the_betas_and_weight_decay_of_the_run() -> None:
    adamw = running.trainer("s-diet", optimizer="adamw", betas=(0.8, 0.95), weight_decay=0.02)
    assert adamw.rows.head.optimizer.settings[:2] == (0.02, (0.8, 0.95))


def test_rows_use_the_momentum_and_weight_decay_of_the_run() -> None:
    sgd = running.trainer("s-diet", optimizer="sgd", momentum=0.7, weight_decay=0.02)
    assert sgd.rows.head.optimizer.settings == (0.02, 0.7)
