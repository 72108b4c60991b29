"""`encoder=timm:NAME`: with a fake timm, and with timm itself if it is installed."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

import twofold
from running import small
from twofold.errors import TwofoldError
from twofold.evaluate.encoder import open_encoder
from twofold.models import build_encoder, feature_dimension
from twofold.runs.initial_weights import read_lite0

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
@pytest.mark.extras
@pytest.mark.parametrize(
    "name, features",
    [("timm:vit_tiny_patch16_224", 192), ("timm:vit_small_patch16_224", 384), ("timm:resnet18", 512)],
)
def test_training_with_a_model_of_timm(tmp_path: Path, name: str, features: int) -> None:
    pytest.importorskip("timm", reason="timm is not installed: pip install timm")
    check_run(tmp_path, name, features)


@pytest.mark.extras
def test_seed_determines_the_weights_of_timm_models() -> None:
    pytest.importorskip("timm", reason="timm is not installed: pip install timm")
    states = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        states.append(build("timm:vit_tiny_patch16_224").state_dict()["patch_embed.proj.weight"])
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return timm's ResNet-18 whose weights the model hub "has", with the real timm and without a network."""
    timm = pytest.importorskip("timm")
    torch.manual_seed(7)
    network = timm.create_model("resnet18", pretrained=False).eval()
    save_file(network.state_dict(), tmp_path / "hub.safetensors")
    monkeypatch.setattr(timm.models._hub, "hf_hub_download", lambda *_, **__: str(tmp_path / "hub.safetensors"))
    network.reset_classifier(0)
    return network


@pytest.mark.extras
def test_pretrained_weights_of_timm_give_its_features_and_can_be_shared(hub: Any, tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    settings = timm.data.resolve_model_data_config(hub)
    opened = open_encoder("timm:resnet18.a1_in1k", lambda: pytest.fail("needs no images"))
    assert opened.preprocess.image_size == settings["input_size"][1]
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (224, 224, 3), dtype=np.uint8))
    mean, std = (torch.tensor(settings[name]).view(3, 1, 1) for name in ("mean", "std"))
    with torch.no_grad():
        expected = hub(((torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1) / 255 - mean) / std)[None])
        torch.testing.assert_close(opened.encode(picture), expected, rtol=1e-4, atol=1e-4)
        folder = twofold.export("timm:resnet18.a1_in1k", "folder", tmp_path / "shared")
        encoder = twofold.load_encoder(folder)
        torch.testing.assert_close(encoder(encoder.preprocess(picture)), expected, rtol=1e-4, atol=1e-4)
    card = (folder / "README.md").read_text()
    assert "its weights are those of `timm:resnet18.a1_in1k`" in card
    scope: dict[str, Any] = {}
    code = card.split("With timm, and without Twofold:")[1].split("```python\n")[1].split("```")[0]
    exec(code.replace("'encoder.safetensors'", repr(str(folder / "encoder.safetensors"))), scope)
    assert torch.equal(scope["encoder"].state_dict()["conv1.weight"], hub.state_dict()["conv1.weight"])


@pytest.mark.extras
def test_without_a_network_the_error_names_the_model_and_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("timm")
    monkeypatch.setattr(pytest.importorskip("huggingface_hub").constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(TwofoldError, match=r"timm could not load weights for resnet26t .*; check .* the network"):
        open_encoder("timm:resnet26t", lambda: pytest.fail("needs no images"))
    with pytest.raises(TwofoldError, match=r"timm could not load weights for resnet81 \(Unknown model \(resnet81\)\)"):
        open_encoder("timm:resnet81", lambda: pytest.fail("needs no images"))


@pytest.mark.extras
def test_weights_of_efficientnet_lite0_give_the_features_of_timms_network() -> None:
    timm = pytest.importorskip("timm")
    theirs = timm.create_model("tf_efficientnet_lite0", pretrained=False, num_classes=0).eval()
    theirs.load_state_dict(read_lite0())
    opened = open_encoder("efficientnet-lite0", lambda: pytest.fail("needs no images"))
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        torch.testing.assert_close(opened.network(images), theirs(images), rtol=1e-4, atol=1e-4)


def test_a_torchvision_for_another_torch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def find_spec(self, name: str, *_: Any) -> None:
            if name == "timm":
                raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.delitem(sys.modules, "timm", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    for use in (lambda: build("timm:resnet18"), lambda: open_encoder("timm:resnet18", list)):
        with pytest.raises(TwofoldError, match=r"torchvision, which was built for another torch.*--force-reinstall"):
            use()
