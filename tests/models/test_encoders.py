"""Encoders: names and shapes compared with torchvision's models, stems, and feature dimensions."""

from typing import get_args, get_type_hints

import pytest
import torch
from torch import nn

from twofold.config import Config
from twofold.errors import TwofoldError
from twofold.models import ENCODERS, build_encoder, feature_dimension
from twofold.models.encoders import STEMS

# torchvision 0.26 without fc: number of parameters, entries of the state dict, and some names with shapes.
TORCHVISION = {
    "resnet18": (
        11_176_512,
        120,
        {"layer4.1.conv2.weight": (512, 512, 3, 3), "layer2.0.downsample.0.weight": (128, 64, 1, 1)},
    ),
    "resnet34": (21_284_672, 216, {"layer3.5.bn2.running_var": (256,), "layer4.0.downsample.1.bias": (512,)}),
    "resnet50": (
        23_508_032,
        318,
        {"layer1.0.downsample.0.weight": (256, 64, 1, 1), "layer4.2.conv3.weight": (2048, 512, 1, 1)},
    ),
}


@pytest.mark.parametrize("name", sorted(TORCHVISION))
def test_resnets_have_the_names_and_shapes_of_torchvision(name: str) -> None:
    encoder = build_encoder(name, channels=3, stem="large", image_size=32)
    parameters, entries, shapes = TORCHVISION[name]
    state = encoder.state_dict()
    assert sum(p.numel() for p in encoder.parameters()) == parameters
    assert len(state) == entries
    for key, shape in shapes.items():
        assert tuple(state[key].shape) == shape
    assert tuple(state["conv1.weight"].shape) == (64, 3, 7, 7)


@pytest.mark.extras
@pytest.mark.parametrize("name", sorted(TORCHVISION))
def test_weights_can_be_loaded_into_torchvision(name: str) -> None:
    models = pytest.importorskip("torchvision.models", reason="torchvision is not installed")
    ours = build_encoder(name, channels=3, stem="large", image_size=32).eval()
    theirs = getattr(models, name)()
    theirs.fc = nn.Identity()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(theirs.eval()(x), ours(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "stem, side, expected",
    [
        ("small", 32, (4, 4)),
        ("small-padded", 32, (5, 5)),
        ("small-pool", 64, (4, 4)),
        ("large", 96, (3, 3)),
        ("large", 224, (7, 7)),
    ],
)
def test_stems_reduce_the_resolution_as_in_the_papers(stem: str, side: int, expected: tuple[int, int]) -> None:
    encoder = build_encoder("resnet18", channels=3, stem=stem, image_size=side).eval()
    seen: list[torch.Tensor] = []
    encoder.layer4.register_forward_hook(lambda *call: seen.append(call[2][0]))
    with torch.no_grad():
        encoder(torch.zeros(1, 3, side, side))
    assert tuple(seen[0].shape[2:]) == expected


def test_padded_stem_equals_the_small_stem_on_a_zero_padded_image() -> None:
    padded = build_encoder("resnet18", channels=3, stem="small-padded", image_size=8).eval()
    small = build_encoder("resnet18", channels=3, stem="small", image_size=8).eval()
    small.load_state_dict(padded.state_dict())
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(padded(x), small(nn.functional.pad(x, (1, 1, 1, 1))))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", sorted(ENCODERS))
def test_feature_dimension_equals_the_width_of_the_features(name: str, channels: int) -> None:
    encoder = build_encoder(name, channels=channels, stem="small", image_size=8)
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    assert feature_dimension(encoder, channels, 8) == encoder.features
    assert encoder.training
    assert all(torch.equal(before[key], value) for key, value in encoder.state_dict().items())


def test_error_for_an_unknown_encoder_suggests_the_nearest_name() -> None:
    with pytest.raises(TwofoldError, match="did you mean 'resnet18'"):
        build_encoder("resnet8", channels=3, stem="small", image_size=32)


def test_modules_that_are_not_encoders_raise_an_error() -> None:
    with pytest.raises(TwofoldError, match=r"must return features \[N, K\]"):
        feature_dimension(nn.Conv2d(3, 4, 3), 3, 8)
    with pytest.raises(TwofoldError, match="does not accept images"):
        feature_dimension(nn.Linear(5, 4), 3, 8)


def test_every_stem_is_a_value_of_the_key() -> None:
    assert set(get_args(get_args(get_type_hints(Config, include_extras=True)["stem"])[0])) == set(STEMS)


def test_features_made_from_images_are_0_in_training_and_are_not_trained() -> None:
    encoder = build_encoder("conv-patches", channels=3, stem="small", image_size=12)
    encoder.patches.projection.normal_()
    images = torch.rand(4, 3, 12, 12)
    width = encoder.patches.width
    trained = encoder(images)
    assert not trained[:, :width].any()
    assert trained[:, width:].any()
    before = {name: value.clone() for name, value in encoder.patches.state_dict().items()}
    trained.square().sum().backward()
    assert {name.partition(".")[0] for name, weight in encoder.named_parameters() if weight.grad is not None} == {
        "conv"
    }
    assert all(torch.equal(before[name], value) for name, value in encoder.patches.state_dict().items())
    torch.testing.assert_close(encoder.eval()(images)[:, :width], encoder.patches(images))


def test_features_made_from_images_can_be_exported() -> None:
    encoder = build_encoder("conv-patches", channels=3, stem="small", image_size=12).eval()
    encoder.patches.projection.normal_()
    traced = torch.jit.trace(encoder, torch.rand(2, 3, 12, 12))
    images = torch.rand(130, 3, 12, 12)
    torch.testing.assert_close(traced(images), encoder(images), rtol=1e-4, atol=1e-4)
