"""The S-DIET benchmarks measure correctly: compared with gradients written by hand and known byte counts."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import running
from benchmarks import gradient_cosine, memory
from twofold.data import store


class FixedOutput(nn.Module):
    """Returns its own weight, so that the gradient of the weight is dL/dz."""

    def __init__(self, z: Tensor):
        super().__init__()
        self.z = nn.Parameter(z)

    def forward(self, _: Tensor) -> Tensor:
        return self.z


def gradient_by_hand(z: np.ndarray, rows: np.ndarray, own: np.ndarray, smoothing: float, copies: float) -> np.ndarray:
    """dL/dz of a cross entropy that counts each class except the sample's own `copies` times."""
    classes = len(rows)
    n = 1 + copies * (classes - 1)
    weight = np.full((len(z), classes), copies)
    weight[np.arange(len(z)), own] = 1
    exponential = weight * np.exp(z @ rows.T)
    target = weight * smoothing / n
    target[np.arange(len(z)), own] += 1 - smoothing
    return (exponential / exponential.sum(1, keepdims=True) - target) @ rows / len(z)


@pytest.mark.parametrize("scale, smoothing", [(1.0, 0.8), (8.0, 0.8), (8.0, 0.0)])
def test_cosines_equal_those_of_gradients_written_by_hand(scale: float, smoothing: float) -> None:
    generator = np.random.default_rng(0)
    b, n, D = 16, 200, 12
    rows = generator.normal(size=(n, D)) / np.sqrt(D)
    z = scale * generator.normal(size=(b, D)) / np.sqrt(D)
    own = generator.permutation(n)[:b]
    full = gradient_by_hand(z, rows, own, smoothing, 1.0)
    expected = {
        name: (full * g).sum() / np.linalg.norm(full) / np.linalg.norm(g)
        for name, copies in {"batch": 1.0, "corrected": (n - 1) / (b - 1)}.items()
        for g in [gradient_by_hand(z, rows[own], np.arange(b), smoothing, copies)]
    }
    found = gradient_cosine.cosines(
        FixedOutput(torch.from_numpy(z)),
        nn.Identity(),
        torch.zeros(()),
        torch.from_numpy(rows),
        torch.from_numpy(own),
        normalize=False,
        smoothing=smoothing,
    )
    assert found.pop("logit sd") == pytest.approx((z @ rows.T).std(ddof=1))
    assert found == pytest.approx(expected, abs=1e-9)


def test_cosine_for_random_rows_equals_the_theory() -> None:
    generator = torch.Generator().manual_seed(0)
    b, n, D = 256, 4096, 512
    rows = torch.randn(n, D, generator=generator) / D**0.5
    encoder = FixedOutput(torch.randn(b, D, generator=generator))
    own = torch.randperm(n, generator=generator)[:b]
    found = gradient_cosine.cosines(encoder, nn.Identity(), torch.zeros(()), rows, own, normalize=True, smoothing=0.8)
    assert found["batch"] == pytest.approx(gradient_cosine.theory(b, n), abs=5e-4)


def test_cosines_are_written_for_each_point_of_a_run(tmp_path: Path) -> None:
    out = tmp_path / "along.json"
    words = ["--along", "diet", "--data", "digits", "--points", "3", "--device", "cpu", "--out", str(out)]
    gradient_cosine.main([*words, "epochs=1", "batch_size=256"])
    rows = json.loads(out.read_text())["rows"]
    assert [row["step"] for row in rows] == [0, 1, 2, 4]
    assert all(0.8 < row["batch"] <= 1 for row in rows)


def test_measuring_does_not_change_the_run() -> None:
    options = gradient_cosine.arguments(["--along", "diet", "--data", "digits", "--device", "cpu", "epochs=1"])
    watched = {}
    for points in (2, 5):
        options.points = points
        *_, last = gradient_cosine.along_training(options)
        watched[points] = last["batch"]
    assert watched[2] == watched[5]


def kept_bytes_of_real_tensors(trainer) -> int:
    """Bytes that a real forward pass keeps for the backward pass, counted by storage."""
    mine = {value.untyped_storage().data_ptr() for value in trainer.method.state_dict(keep_vars=True).values()}
    sizes, alive = {}, []

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in mine:
            sizes[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    trainer.method.train()
    batch = trainer.loader.batch(0)
    views = trainer.make_views(batch.images, batch.position, trainer.clock)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = trainer.method.objective(trainer.method(views[0], batch))
    assert loss.total.isfinite()
    return sum(sizes.values())


@pytest.mark.parametrize("method", ["diet", "simclr", "byol"])
def test_bytes_counted_with_fake_tensors_equal_those_of_real_tensors(method: str) -> None:
    trainer = running.trainer(method)
    counted = memory.kept_bytes(trainer)
    # Small integers and scalars, such as positions, may exist in only one of the two.
    assert counted == pytest.approx(kept_bytes_of_real_tensors(trainer), rel=0.01)


def test_memory_is_split_into_gradients_optimizer_and_kept_tensors() -> None:
    trainer = running.trainer("diet", optimizer="adamw", batch_size=64)
    parts = memory.counted(trainer)
    weights = sum(parameter.numel() for parameter in trainer.method.parameters())
    assert parts["gradients"] == 4 * weights / 2**20
    assert parts["optimizer"] == 2 * parts["gradients"]
    # Every convolution keeps two tensors: its input, and the one that BatchNorm and ReLU share.
    sides = [(1, 8, 8), (32, 8, 8), (64, 4, 4), (128, 4, 4), (256, 2, 2)]
    inputs = 4 * 64 * sum(np.prod(side) for side in sides[:-1]) / 2**20
    outputs = 4 * 64 * sum(np.prod(side) for side in sides[1:]) / 2**20
    logits = 4 * 64 * len(trainer.data.train) / 2**20
    assert inputs + outputs + logits < parts["kept"] < 1.2 * (inputs + outputs + logits)


def test_unknown_methods_are_skipped_with_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "DEVICE_SHARE", store.DEVICE_SHARE)  # restored after the test; the benchmark sets it
    out = tmp_path / "memory.json"
    words = ["--methods", "no-such,diet,simclr", "--encoders", "conv", "--precisions", "float32,bf16", "--batch", "64"]
    memory.main([*words, "--images", "200", "--device", "cpu", "--out", str(out)])
    assert "no-such is not in the catalog" in capsys.readouterr().out
    rows = json.loads(out.read_text())["rows"]
    assert [(row["method"], row["precision"]) for row in rows] == [
        ("diet", "float32"), ("simclr", "float32"), ("diet", "bf16"), ("simclr", "bf16")
    ]  # fmt: skip
    assert rows[1]["to simclr"] == 1
    assert rows[0]["counted"] < rows[1]["counted"]
    assert rows[3]["kept"] < 0.7 * rows[1]["kept"]
