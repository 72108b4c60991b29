"""Settings that are chosen from the data, and the estimated cost of a run."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import running
from twofold import text
from twofold.config import RUN_KEYS
from twofold.data.load import load_sample
from twofold.data.open import open_source
from twofold.errors import TwofoldError
from twofold.train import timing_run
from twofold.train.timing_run import Memory, measure_memory, measure_step
from twofold.train.trainer import Trainer
from twofold.verbs import choose, explain, pretrain

RNG = np.random.default_rng(0)


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))
    for number in range(40):
        path = tmp_path / "photos" / ("cat" if number % 2 else "dog") / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(RNG.integers(0, 256, (12, 14, 3), dtype=np.uint8)).save(path)
    return tmp_path / "photos"


def test_sample_is_spread_over_the_images_and_not_cached(photos: Path, tmp_path: Path) -> None:
    (photos / "cat/01.png").write_bytes(b"no image")
    source = open_source(photos)
    data = load_sample(source, 5, image_size=12, channels=3)
    assert len(data.train) == 5
    assert data.train.index[0] == 1
    assert data.train.index[-1] == 39
    whole = np.asarray(Image.open(photos / data.train.files[2]))[:, 1:13]
    np.testing.assert_array_equal(data.train.images[2].permute(1, 2, 0), whole)
    assert not list((tmp_path / "cache").glob("*.u8"))
    assert len(load_sample(source, 1000, image_size=12, channels=3).train) == 39


@pytest.mark.parametrize("side, blurred", [(64, 0.0), (100, 0.5)])
def test_large_images_are_blurred_by_default(side: int, blurred: float) -> None:
    images = RNG.integers(0, 256, (8, side, side, 3), dtype=np.uint8)
    config, _ = pretrain.configure(images, "frossl", {"batch_size": 4})
    assert config.augment.blur == blurred
    assert config.origin.get("augment.blur") == ("chosen" if blurred else None)
    assert pretrain.configure(images, "frossl", {"batch_size": 4, "augment.blur": 0.1})[0].augment.blur == 0.1


def test_batch_is_halved_until_it_fits() -> None:
    memory = Memory(fixed=100, per_image=10)
    assert memory.bytes(16) == timing_run.SPARE * 260
    assert choose.halved_to_fit(256, memory, timing_run.SPARE * 1000) == 64
    assert choose.halved_to_fit(256, memory, 1e9) == 256
    assert choose.halved_to_fit(256, memory, 1) == 8


def test_batch_size_is_reduced_to_fit_into_memory_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = measure_memory(running_config(), open_source("digits")).bytes(128)
    monkeypatch.setattr(choose, "available_memory", lambda *_: 1.01 * needed / choose.MEMORY_SHARE)
    config, source = pretrain.configure("digits", "frossl")
    assert (config.batch_size, config.origin["batch_size"]) == (128, "chosen")
    assert [row.why for row in explain.explained(config, source) if row.key == "batch_size"] == ["fits into memory"]
    assert pretrain.configure("digits", "frossl", {"batch_size": 256})[0].batch_size == 256
    assert pretrain.configure("digits", "frossl", {"pieces": 2})[0].batch_size == 256


def running_config(**overrides: object) -> pretrain.Config:
    return pretrain.configure("digits", "frossl", overrides)[0]


def test_measured_memory_equals_that_counted_by_hand() -> None:
    """A network whose activations can be counted by hand: y = relu(x W), twice."""

    class TwoLayers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(64, 1000, bias=False), torch.nn.Linear(1000, 1000, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x.flatten(1)).relu())

    config = running_config(projector="8,8", optimizer="sgd")
    source = open_source("digits")
    network = TwoLayers()
    memory = measure_memory(config, source, network)
    weights = 4 * sum(parameter.numel() for parameter in network.parameters())
    assert 3 * weights < memory.fixed < 3.1 * weights  # weights, gradients, momentum
    views = 4 * 2 * (64 + 1000 + 1000)  # inputs of both products and of the projector, in two views
    assert views < memory.per_image < 1.2 * views


def test_timing_a_step_keeps_the_random_state_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    now = [0.0]

    def take_step(self: Trainer, _: int) -> None:
        steps.append(self.config.batch_size)
        torch.rand(1)
        now[0] += 0.001 * self.config.batch_size + 0.01

    monkeypatch.setattr(Trainer, "take_step", take_step)
    monkeypatch.setattr(timing_run.time, "perf_counter", lambda: now[0])
    torch.manual_seed(3)
    before = torch.get_rng_state()
    config, source = running_config(), open_source("digits")
    assert measure_step(config, source) == pytest.approx(0.266)
    assert (min(steps), max(steps)) == (16, 256)
    assert torch.equal(torch.get_rng_state(), before)
    monkeypatch.setattr(timing_run, "LONG_STEP", 0.02)
    steps.clear()
    assert measure_step(config, source) == pytest.approx(0.026 * 16)
    assert max(steps) == 16


def test_minutes_choose_the_number_of_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "measure_step", lambda *_: 0.5)
    config, source = pretrain.configure("digits", "simclr", {"batch_size": 128, "seed": 4}, minutes=2)
    steps = 1438 // 128
    assert config.epochs == int(120 / (steps * 0.5)) == 21
    assert (config.origin["epochs"], config.warmup_epochs) == ("chosen", pytest.approx(2.1))
    assert "fit into the training time" in {row.why for row in explain.explained(config, source)}
    assert pretrain.configure("digits", "simclr", minutes=0.001)[0].epochs == 1
    for options, minutes in (({"epochs": 3}, 2.0), ({}, 0.0), ({}, -1.0), ({}, math.nan), ({}, math.inf)):
        with pytest.raises(TwofoldError, match=r"either epochs or minutes|minutes=.*: give a finite number above 0"):
            pretrain.configure("digits", "simclr", options, minutes=minutes)


def test_every_value_that_is_not_a_default_has_an_origin_and_a_reason(photos: Path) -> None:
    config, source = pretrain.configure(photos, "byol", {"epochs": 7})
    rows = {row.key: row for row in explain.explained(config, source)}
    different = {
        name for name, key in RUN_KEYS.items()
        if name not in ("data", "data_dir", "method") and pretrain.flat(config)[name] != key.default
    }  # fmt: skip
    assert different <= set(rows)
    assert (rows["epochs"].origin, rows["epochs"].value) == ("user", "7")
    assert rows["image_size"].why == "the median of the images' shorter sides is 12 pixels"
    assert rows["batch_size"].why == "gives at least two steps per epoch with 32 images"
    assert all(row.why for row in rows.values())


def test_dry_run_prints_settings_and_cost_and_writes_nothing(photos: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    result = running.call("pretrain", str(photos), "--dry-run", "epochs=3", "projector=16,8", cwd=workspace)
    assert result.returncode == 0, result.stderr
    message = ("40 images, 2 classes", "about", "6 steps", "MB", "image_size", "you set it", "dry run")
    for words in message:
        assert words in result.stdout
    assert list(workspace.iterdir()) == []
    assert not list((tmp_path / "cache").rglob("*.u8"))


def test_unreadable_images_are_counted_separately(photos: Path) -> None:
    for name in ("train/cat/a.png", "train/dog/b.png", "test/cat/c.png", "test/dog/d.png"):
        (photos.parent / "split" / name).parent.mkdir(parents=True)
        shutil.copy(photos / "cat/01.png", photos.parent / "split" / name)
    for broken in (photos / "cat/01.png", photos / "dog/02.png", photos.parent / "split/test/cat/e.png"):
        broken.write_bytes(b"no image")
    costs = explain.Cost(1.0, 1, 1.0, 1.0, 1.0, (0.5,), (0.5,))
    for folder, message in ((photos, "38 images, 2 classes"), (photos.parent / "split", "4 images, 2 classes")):
        config, source = pretrain.configure(folder, "frossl", {"batch_size": 2})
        text = explain.described(config, source, costs)["data"]
        assert message in text
        assert text.endswith(f"; {2 if folder == photos else 1} more could not be read")


def test_projector_is_adapted_to_few_images_unless_it_is_given(photos: Path) -> None:
    config, source = pretrain.configure(photos, "frossl", {})
    assert (config.parameters["projector"], config.origin["projector"]) == ((512, 512, 64), "chosen")
    (why,) = [row.why for row in explain.explained(config, source) if row.key == "projector"]
    assert why.startswith("recommended for frossl with ")
    asked, _ = pretrain.configure(photos, "frossl", {"projector": "128,32"})
    assert asked.parameters["projector"] == (128, 32)
    others, _ = pretrain.configure(photos, "vicreg", {})
    assert "projector" not in others.origin
    many, _ = pretrain.configure("digits", "frossl", {})
    assert many.origin["projector"] == "data"


def test_projector_of_frossl_is_adapted_to_the_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.zeros((700, 32, 32, 3), np.uint8)
    for size, widths in ((64, (2048, 2048, 128)), (128, (2048, 2048, 256))):
        config, source = pretrain.configure(images, "frossl", {"batch_size": size})
        assert (config.parameters["projector"], config.origin["projector"]) == (widths, "chosen")
        (why,) = [row.why for row in explain.explained(config, source) if row.key == "projector"]
        assert why == f"recommended for frossl with batch_size={size}"
    asked, _ = pretrain.configure(images, "frossl", {"batch_size": 64, "projector": "128,32"})
    assert asked.parameters["projector"] == (128, 32)
    usual, _ = pretrain.configure(images, "frossl", {})
    assert usual.batch_size == 256
    assert "projector" not in usual.origin
    others, _ = pretrain.configure(images, "vicreg", {"batch_size": 64})
    assert "projector" not in others.origin
    monkeypatch.setattr(choose, "fitting_batch_size", lambda *_: 32)
    small, _ = pretrain.configure(images, "frossl", {})
    assert (small.batch_size, small.parameters["projector"]) == (32, (2048, 2048, 64))


@pytest.mark.parametrize(
    "method, settings, message",
    [
        ("frossl", {}, "2 classes (for evaluation only)"),
        ("supervised", {}, "2 classes (trained on)"),
        ("ridge-graph", {"graph.source": "labels"}, "2 classes (trained on)"),
        ("ridge-graph", {}, "2 classes (for evaluation only)"),
    ],
)
def test_use_of_labels_is_described(method: str, settings: dict[str, str], message: str, photos: Path) -> None:
    config, source = pretrain.configure(photos, method, settings | {"batch_size": 2})
    assert explain.labels_in_words(config, source.classes) == message
    assert explain.labels_in_words(config, None) == "no labels"


def test_measuring_creates_no_classifier_file(tmp_path: Path) -> None:
    head = tmp_path / "head"
    config, source = pretrain.configure("digits", "s-diet", {"head.path": head, "epochs": 1, "device": "cpu"})
    assert timing_run.measure_step(config, source) > 0
    assert timing_run.measure_memory(config, source).per_image > 0
    assert not head.exists()


def test_durations_and_sizes_are_written_in_words() -> None:
    assert [text.rough_duration(seconds) for seconds in (0.1, 75, 100, 5000, 10000)] == [
        "about 1 seconds", "about 75 seconds", "about 2 minutes", "about 83 minutes", "about 2.8 hours",
    ]  # fmt: skip
    assert [text.bytes_in_words(count) for count in (10, 2.5e6, 3.04e9)] == ["under 1 MB", "2.5 MB", "3.0 GB"]


def test_available_gpu_memory_excludes_images_that_move_to_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_run, "free_memory", lambda _: 100.0)
    device = torch.device("meta")
    assert [timing_run.available_memory(device, images) for images in (10, 60, 61)] == [90, 40, 100]
    assert timing_run.available_memory(torch.device("cpu"), 10) > 2**20
