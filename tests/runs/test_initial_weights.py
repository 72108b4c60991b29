"""`init`: which weights a run starts from, what it records about them, and which weights it refuses."""

import json
import shutil
import sys
from collections import OrderedDict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits
from torch import nn

import twofold
from running import call, small
from twofold.display import Display
from twofold.models import build_encoder
from twofold.runs import initial_weights
from twofold.train.trainer import Trainer
from twofold.verbs import evaluation, pretrain

PICTURES = np.random.default_rng(0).integers(0, 255, (24, 32, 32, 3), dtype=np.uint8)


DIGITS = load_digits()


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits without labels, because evaluation would take most of the time of a short run."""
    path = tmp_path_factory.mktemp("data") / "digits.npy"
    np.save(path, np.rint(DIGITS.images[:100] * 15).astype(np.uint8))
    return path


@pytest.fixture(scope="module")
def first(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> twofold.Run:
    return twofold.pretrain(digits, out=tmp_path_factory.mktemp("first") / "run", **small("frossl", batch_size=32))


def built(data: Any, method: str, **overrides: Any) -> Trainer:
    """The trainer that `pretrain` builds, before the first step."""
    display = Display(quiet=True)
    config, source = pretrain.configure(data, method, small(method, **overrides))
    config, weights = pretrain.with_weights(config)
    return Trainer(config, pretrain.read_data(config, source, display), display, weights=weights)


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_only_the_encoder_and_the_teacher_start_from_the_weights(first: twofold.Run, digits: Path) -> None:
    weights = load_file(first.path / "encoder.safetensors")
    new, given = built(digits, "byol", batch_size=32), built(digits, "byol", batch_size=32, init=str(first.path))
    assert same(given.method.encoder.state_dict(), weights)
    taught = [parameter for _, parameter in given.method.teacher.named_parameters()]
    student = [*given.method.encoder.parameters(), *given.method.projector.parameters()]
    assert all(torch.equal(left, right) for left, right in zip(taught, student, strict=True))
    assert same(given.method.projector.state_dict(), new.method.projector.state_dict())
    assert same(given.untrained.state_dict(), new.untrained.state_dict())
    assert same(given.before.state_dict(), weights)
    assert new.before is None
    assert given.step == 0


def test_init_accepts_a_run_or_its_path(first: twofold.Run, digits: Path) -> None:
    of_run, _ = pretrain.configure(digits, "frossl", {"init": first})
    of_path, _ = pretrain.configure(digits, "frossl", {"init": first.path})
    assert of_run.init == of_path.init == str(first.path / "encoder.safetensors")


def test_a_run_records_its_initial_weights_and_resumes_without_the_original_file(
    first: twofold.Run, digits: Path, tmp_path: Path
) -> None:
    source = tmp_path / "first"
    shutil.copytree(first.path, source)
    values = small("simclr", batch_size=32)
    run = twofold.pretrain(digits, method="simclr", out=tmp_path / "b", init=source, **values)
    where, _, fingerprint = run.config.init.rpartition("@")
    assert where == str((source / "encoder.safetensors").resolve())
    assert len(fingerprint) == 16
    assert f"init={where}@{fingerprint}" in run.results["command"]
    metrics, weights = run.metrics, load_file(run.path / "encoder.safetensors")

    shutil.rmtree(source)
    for name in ("results.json", "encoder.safetensors"):
        (run.path / name).unlink()
    shutil.rmtree(run.path / "checkpoints")  # as if the process had been killed before the first checkpoint
    twofold.resume(run)
    assert run.metrics == metrics
    assert same(load_file(run.path / "encoder.safetensors"), weights)


def test_the_table_compares_with_new_weights_and_with_the_initial_weights(
    first: twofold.Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compared: dict[str, Any] = {}

    def measure_accuracies(representations: dict[str, Any], *_: object, **__: object) -> list[Any]:
        compared.update(representations)
        return []

    monkeypatch.setattr(evaluation, "measure_accuracies", measure_accuracies)
    pixels = np.rint(DIGITS.images[:100] * 15).astype(np.uint8)
    values = small("frossl", batch_size=32, test_fraction=0.2, adapter=False)
    run = twofold.pretrain((pixels, DIGITS.target[:100]), init=first.path, out=tmp_path / "run", **values)
    assert list(compared) == ["trained", "untrained", "before training", "HOG + colour", "raw pixels"]
    preprocess = twofold.load_encoder(run).preprocess
    with torch.no_grad():
        expected = twofold.load_encoder(first)(preprocess(torch.from_numpy(pixels[:, None])))
    held_out = compared["before training"][1]
    assert len(held_out) == 20
    assert torch.cdist(held_out, expected, compute_mode="donot_use_mm_for_euclid_dist").amin(1).max() < 1e-4
    assert not torch.allclose(compared["trained"][1], held_out)
    assert not torch.allclose(compared["untrained"][1], held_out)


def test_the_fingerprint_depends_on_the_weights_and_not_on_the_file(first: twofold.Run, tmp_path: Path) -> None:
    weights = load_file(first.path / "encoder.safetensors")
    save_file(weights, tmp_path / "copy.safetensors")
    name = next(name for name, value in weights.items() if value.ndim == 4)
    weights[name][0, 0, 0, 0] += 1e-3
    save_file(weights, tmp_path / "other.safetensors")
    files = (first.path / "encoder.safetensors", tmp_path / "copy.safetensors", tmp_path / "other.safetensors")
    fingerprints = [
        initial_weights.read_weights(str(path), channels=1, image_size=8)[0].rpartition("@")[2] for path in files
    ]
    assert fingerprints[0] == fingerprints[1] != fingerprints[2]
    shutil.copy(files[2], files[1])
    with pytest.raises(twofold.TwofoldError, match=f"have changed and now have the fingerprint {fingerprints[2]}"):
        initial_weights.read_weights(f"{files[1]}@{fingerprints[0]}", channels=1, image_size=8)


@pytest.mark.parametrize("kind", ["resnet18", "resnet50"])
@pytest.mark.parametrize("stem, channels", [("large", 3), ("small", 1)])
def test_the_encoder_is_chosen_by_the_shapes_in_a_file_of_another_library(
    kind: str, stem: str, channels: int, tmp_path: Path
) -> None:
    with torch.device("meta"):
        names = build_encoder(kind, channels=channels, stem=stem, image_size=32).state_dict()
    weights = {name: torch.zeros(value.shape, dtype=value.dtype) for name, value in names.items()}
    classifier = {"fc.weight": torch.ones(1000, 512), "fc.bias": torch.ones(1000)}
    save_file(weights | classifier, tmp_path / "model.safetensors")
    config, _ = pretrain.configure(PICTURES, "frossl", {"init": str(tmp_path / "model.safetensors"), "image_size": 32})
    assert (config.encoder, config.stem, config.channels) == (kind, stem, channels)
    assert config.origin["encoder"] == "init"
    init, read = initial_weights.read_weights(config.init, channels=channels, image_size=32)
    network = build_encoder(kind, channels=channels, stem=stem, image_size=32)
    initial_weights.load_into(network, read, init)
    assert same(network.state_dict(), weights)
    keys = {"init": config.init, "image_size": 32, "encoder": "resnet34", "stem": "small"}
    asked, _ = pretrain.configure(PICTURES, "frossl", keys)
    assert (asked.encoder, asked.stem) == ("resnet34", "small")


def test_a_layer_called_head_is_loaded_if_the_encoder_has_one() -> None:
    """A classifier is ignored only if the encoder has no layer of the same name."""
    own = nn.Sequential(OrderedDict(body=nn.Linear(4, 8), head=nn.Linear(8, 2)))
    weights = {name: torch.ones(value.shape) for name, value in own.state_dict().items()}
    initial_weights.load_into(own, weights | {"fc.weight": torch.ones(10, 2)}, "a file")
    assert same(own.state_dict(), weights)
    del weights["head.bias"]
    with pytest.raises(twofold.TwofoldError, match=r"1 weight missing: head\.bias"):
        initial_weights.load_into(own, weights, "a file")


def resnet(kind: str, stem: str, channels: int = 3) -> nn.Module:
    with torch.device("meta"):
        return build_encoder(kind, channels=channels, stem=stem, image_size=32)


def zeros(encoder: nn.Module) -> dict[str, torch.Tensor]:
    return {name: torch.zeros(value.shape) for name, value in encoder.state_dict().items()}


@pytest.mark.parametrize(
    "theirs, mine, message",
    [
        # All names and shapes of resnet18 are also in resnet34.
        (("resnet34", "large"), ("resnet18", "large"), "96 weights unknown: layer1.2.conv1.weight, "),
        (("resnet18", "large"), ("resnet34", "large"), "80 weights missing: layer1.2.conv1.weight, "),
        (
            ("resnet18", "large"),
            ("resnet18", "small"),
            r"1 weight of another shape: conv1.weight \(64x3x7x7 instead of 64x3x3x3\); try stem=large$",
        ),
        (("resnet18", "small"), ("resnet18", "large", 1), "try channels=3 stem=small$"),
    ],
)
def test_the_error_lists_the_weights_that_do_not_fit(
    theirs: tuple[Any, ...], mine: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(twofold.TwofoldError, match=message):
        initial_weights.load_into(resnet(*mine), zeros(resnet(*theirs)), "x")


def test_batch_counters_may_be_missing_but_weights_must_be_finite() -> None:
    encoder = build_encoder("conv", channels=1, stem="small", image_size=8)
    weights = {name: value for name, value in zeros(encoder).items() if not name.endswith("num_batches_tracked")}
    initial_weights.load_into(encoder, weights, "x")
    assert all((value == 0).all() for value in encoder.state_dict().values())
    weights["body.0.weight"][0, 0, 0, 0] = float("nan")
    with pytest.raises(twofold.TwofoldError, match=r"not finite: body.0.weight"):
        initial_weights.load_into(encoder, weights, "x")


def test_a_dry_run_checks_the_weights(first: twofold.Run, digits: Path, tmp_path: Path) -> None:
    fits = call("pretrain", str(digits), "--init", str(first.path), "--dry-run", "projector=16,8", cwd=tmp_path)
    assert fits.returncode == 0, fits.stderr
    misfit = call("pretrain", str(digits), "--init", str(first.path), "encoder=resnet18", "--dry-run", cwd=tmp_path)
    assert misfit.returncode == 2
    assert "does not fit the encoder" in misfit.stderr
    assert not list(tmp_path.iterdir())


def test_files_without_weights_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"x")
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 100)
    (tmp_path / "empty").mkdir()
    for name, message in {
        "nowhere": "no such run or file",
        "model.pt": r"is not a .safetensors file",
        "model.safetensors": "cannot be read",
        "empty": "pass the folder of a finished run",
    }.items():
        with pytest.raises(twofold.TwofoldError, match=message):
            twofold.pretrain("digits", init=tmp_path / name, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Grid(nn.Module):
    def __init__(self, in_chans: int, weight: float):
        super().__init__()
        self.conv = nn.Conv2d(in_chans, 10, 3)
        nn.init.constant_(self.conv.weight, weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).mean(dim=(2, 3))


def test_init_downloads_pretrained_weights_of_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    def create_model(name: str, *, pretrained: bool, num_classes: int, in_chans: int) -> nn.Module:
        assert num_classes == 0
        if name.endswith("offline"):
            raise LookupError("no\nnetwork")
        return Grid(in_chans, 7.0 if pretrained else 0.0)

    timm = ModuleType("timm")
    timm.__dict__.update(__version__="0", list_models=lambda: ["grid"], create_model=create_model)
    monkeypatch.setitem(sys.modules, "timm", timm)
    trainer = built(PICTURES, "frossl", init="timm:grid.a1_in1k", batch_size=8)
    assert trainer.config.encoder == "timm:grid"
    assert trainer.config.init.startswith("timm:grid.a1_in1k@")
    assert (trainer.method.encoder.conv.weight == 7).all()
    assert (trainer.untrained.conv.weight == 0).all()
    with pytest.raises(twofold.TwofoldError, match=r"cannot download timm's weights grid.offline: no network"):
        built(PICTURES, "frossl", init="timm:grid.offline", batch_size=8)


def test_the_command_line_accepts_init(first: twofold.Run, digits: Path, tmp_path: Path) -> None:
    settings = [f"{key}={value}" for key, value in small("frossl", epochs=1, batch_size=32).items()]
    result = call("pretrain", str(digits), "--init", str(first.path), "--out", "run", *settings, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert f"weights  {first.path.resolve() / 'encoder.safetensors'}@" in result.stdout
    assert json.loads((tmp_path / "run" / "config.json").read_text())["origin"]["image_size"] == "init"
