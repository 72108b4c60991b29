"""`encoder=timm:NAME`: with a fake timm, and with timm itself if it is installed."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import twofold
from running import small
from twofold.errors import TwofoldError
from twofold.models import build_encoder, feature_dimension

PICTURES = np.random.default_rng(0).integers(0, 255, (48, 32, 32, 3), dtype=np.uint8)
LABELS = np.arange(48) % 3


class Patches(nn.Module):
    """Like timm's ViTs, it accepts one image size only and checks it with an assertion."""

    def __init__(self, side: int, in_chans: int, img_size: int = 224):
        super().__init__()
        self.patch_embed = nn.Module()
        self.patch_embed.proj = nn.Conv2d(in_chans, 12, side, side)
        self.img_size = img_size
        self.places = nn.Parameter(torch.randn((img_size // side) ** 2, 12))

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[2] == self.img_size, f"Input height ({x.shape[2]}) doesn't match model ({self.img_size})."
        return (self.patch_embed.proj(x).flatten(2).mT + self.places).mean(dim=1)


class AnySize(nn.Module):
    def __init__(self, in_chans: int):
        super().__init__()
        self.conv = nn.Conv2d(in_chans, 10, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).mean(dim=(2, 3))


def windows(*, img_size: int, in_chans: int) -> nn.Module:  # noqa: ARG001 — the keywords are timm's
    raise AssertionError("windows do not fit")


MODELS = {
    "vit_tiny_patch16_224": lambda **options: Patches(16, **options),
    "vit_tiny_patch14_224": lambda **options: Patches(14, **options),
    "resnet18": AnySize,
    "swin_tiny": windows,
}


@pytest.fixture
def create_model_calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Install a fake timm with these models. Return the recorded arguments of `create_model`."""
    calls: list[dict[str, Any]] = []

    def create_model(name: str, *, pretrained: bool, num_classes: int, **rest: Any) -> nn.Module:
        calls.append({"name": name, "pretrained": pretrained, "num_classes": num_classes, **rest})
        return MODELS[name](**rest)

    timm = ModuleType("timm")
    timm.__dict__.update(__version__="0", list_models=lambda: sorted(MODELS), create_model=create_model)
    monkeypatch.setitem(sys.modules, "timm", timm)
    return calls


def build(name: str, *, channels: int = 3, image_size: int = 32) -> nn.Module:
    return build_encoder(name, channels=channels, stem="small", image_size=image_size)


def test_model_is_created_for_image_size_and_channels_and_without_classes(
    create_model_calls: list[dict[str, Any]],
) -> None:
    encoder = build("timm:vit_tiny_patch16_224", channels=1, image_size=64)
    expected = {"pretrained": False, "num_classes": 0, "in_chans": 1, "img_size": 64}
    assert create_model_calls == [{"name": "vit_tiny_patch16_224", **expected}]
    assert feature_dimension(encoder, 1, 64) == 12


def test_model_for_any_size_is_created_without_image_size(create_model_calls: list[dict[str, Any]]) -> None:
    encoder = build("timm:resnet18")
    assert create_model_calls[-1] == {"name": "resnet18", "pretrained": False, "num_classes": 0, "in_chans": 3}
    assert feature_dimension(encoder, 3, 32) == feature_dimension(encoder, 3, 16) == 10


@pytest.mark.usefixtures("create_model_calls")
@pytest.mark.parametrize("name", ["vit_tiny_patch16", "vit_tiny_patch16_224.augreg_in21k"])
def test_error_for_an_unknown_model_suggests_the_nearest_names(name: str) -> None:
    with pytest.raises(TwofoldError, match=r"has no model .*; the nearest are timm:vit_tiny_patch16_224, timm:vit"):
        build(f"timm:{name}")


@pytest.mark.usefixtures("create_model_calls")
def test_unsupported_image_sizes_raise_an_error() -> None:
    with pytest.raises(TwofoldError, match="patches of 14 pixels: set image_size to a multiple of 14, not 32"):
        build("timm:vit_tiny_patch14_224")
    with pytest.raises(TwofoldError, match=r"cannot be built for 3 channels and image_size=32: windows do not fit"):
        build("timm:swin_tiny")
    with pytest.raises(TwofoldError, match=r"does not accept images \(3, 16, 16\): Input height \(16\)"):
        feature_dimension(build("timm:vit_tiny_patch16_224"), 3, 16)


@pytest.mark.usefixtures("create_model_calls")
def test_other_errors_of_timm_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "resnet18", lambda img_size: None)  # noqa: ARG005 — a model without in_chans
    with pytest.raises(TwofoldError, match=r"cannot be built for 3 channels .*in_chans"):
        build("timm:resnet18")


def test_error_without_timm_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(TwofoldError, match=r"needs timm.*pip install 'twofold\[timm\]'"):
        build("timm:resnet18")
    with pytest.raises(TwofoldError, match="timm:NAME"):
        build("wholly-unlike")


def check_run(tmp_path: Path, name: str, features: int) -> None:
    """Train, save, load and resume a run by the name of its encoder."""
    values = small("frossl", epochs=1, batch_size=16, image_size=32, seed=3)
    run = twofold.pretrain((PICTURES, LABELS), method="frossl", encoder=name, out=tmp_path / "run", **values)
    encoder = twofold.load_encoder(run)
    before = twofold.load_encoder(run)(encoder.preprocess(PICTURES[:4].transpose(0, 3, 1, 2).copy()))
    assert before.shape == (4, features)
    trained = {key: value.clone() for key, value in encoder.state_dict().items()}
    for file in ("results.json", "encoder.safetensors"):
        (run.path / file).unlink()
    twofold.resume(run, data=(PICTURES, LABELS))
    resumed = twofold.load_encoder(run).state_dict()
    assert trained.keys() == resumed.keys()
    assert all(torch.equal(trained[key], resumed[key]) for key in trained)


@pytest.mark.usefixtures("create_model_calls")
@pytest.mark.parametrize("name, features", [("timm:vit_tiny_patch16_224", 12), ("timm:resnet18", 10)])
def test_training_with_a_model_of_a_fake_timm(tmp_path: Path, name: str, features: int) -> None:
    check_run(tmp_path, name, features)


# timm's documented widths: ViT-tiny 192, ViT-small 384, ResNet-18 512.
@pytest.mark.parametrize(
    "name, features",
    [("timm:vit_tiny_patch16_224", 192), ("timm:vit_small_patch16_224", 384), ("timm:resnet18", 512)],
)
def test_training_with_a_model_of_timm(tmp_path: Path, name: str, features: int) -> None:
    pytest.importorskip("timm", reason="timm is not installed: pip install timm")
    check_run(tmp_path, name, features)


def test_seed_determines_the_weights_of_timm_models() -> None:
    pytest.importorskip("timm", reason="timm is not installed: pip install timm")
    states = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        states.append(build("timm:vit_tiny_patch16_224").state_dict()["patch_embed.proj.weight"])
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])
