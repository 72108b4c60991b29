from collections.abc import Callable
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from twofold.errors import TwofoldError
from twofold.evaluate.features import extract, pixels
from twofold.models import build_encoder


class Images:
    def __init__(self, count: int, channels: int = 3, height: int = 8, width: int = 8) -> None:
        self.images = torch.from_numpy(
            np.random.default_rng(0).integers(0, 256, (count, channels, height, width), dtype=np.uint8)
        )

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        assert rows.dtype == torch.int64
        return self.images[rows], None


def scaled(images: Tensor) -> Tensor:
    return images.float() / 255


@pytest.fixture
def encoder() -> nn.Module:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    network[1].running_mean.normal_()
    network[1].running_var.uniform_(0.5, 2)
    return network


def reference(encoder: nn.Module, images: Tensor) -> Tensor:
    convolution, norm = encoder[0], encoder[1]
    x = convolution(images.float() / 255)
    shape = (1, -1, 1, 1)
    x = (x - norm.running_mean.view(shape)) / (norm.running_var.view(shape) + norm.eps).sqrt()
    return x.relu().mean((2, 3)).detach()


@pytest.mark.parametrize("batch_size", [1, 4, 11, 512])
def test_features_are_those_of_the_frozen_encoder(encoder, batch_size):
    store = Images(11)
    features = extract(encoder.train(), store, scaled, batch_size=batch_size, device="cpu")
    assert features.dtype == torch.float32
    assert not features.requires_grad
    torch.testing.assert_close(features, reference(encoder, store.images))


@pytest.mark.parametrize("name", ["conv", "resnet18"])
def test_our_networks_get_images_with_the_channels_innermost(name):
    network, seen = build_encoder(name, channels=3, stem="small", image_size=8), []
    network.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    store = Images(5)
    features = extract(network, store, scaled, device="cpu")
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        torch.testing.assert_close(features, network.eval()(scaled(store.images)), rtol=1e-4, atol=1e-6)


def test_other_networks_get_images_as_they_are():
    class Views(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.view(len(x), -1)

    store = Images(5)
    torch.testing.assert_close(extract(Views(), store, scaled, device="cpu"), scaled(store.images).flatten(1))


def test_extraction_leaves_the_encoder_as_it_was(encoder):
    encoder.train()
    encoder[1].eval()  # a frozen BatchNorm inside a network in training
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    extract(encoder, Images(20), scaled, batch_size=7, device="cpu")
    assert [module.training for module in encoder] == [True, False, True, True, True, True]
    assert encoder.training
    for name, value in encoder.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(parameter.grad is None and parameter.requires_grad for parameter in encoder.parameters())


def test_mode_is_restored_after_an_error(encoder):
    def broken(_: Tensor) -> Tensor:
        raise ValueError("no such image")

    encoder.train()
    with pytest.raises(ValueError, match="no such image"):
        extract(encoder, Images(3), broken, device="cpu")
    assert encoder.training
    assert encoder[1].training


def test_autocast_surrounds_the_forward_pass_alone(encoder):
    entered = []

    @contextmanager
    def half():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            entered.append(True)
            yield

    store = Images(10)
    features = extract(encoder, store, scaled, batch_size=4, device="cpu", autocast=half)
    assert len(entered) == 3
    assert features.dtype == torch.float32
    exact = reference(encoder, store.images)
    assert not torch.equal(features, exact)
    torch.testing.assert_close(features, exact, atol=0.02, rtol=0.02)


def test_progress_counts_images(encoder):
    seen: list[tuple[int, int]] = []
    record: Callable[[int, int], None] = lambda done, total: seen.append((done, total))  # noqa: E731
    extract(encoder, Images(10), scaled, batch_size=4, device="cpu", progress=record)
    assert seen == [(4, 10), (8, 10), (10, 10)]


@pytest.mark.parametrize("batch_size", [2, 256])
def test_pixels_of_small_images_are_the_images(batch_size):
    store = Images(5, channels=2, height=7, width=32)
    expected = store.images.numpy().reshape(5, -1).astype(np.float64) / 255
    result = pixels(store, batch_size=batch_size)
    assert result.dtype == torch.float32
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-7)


def test_pixels_of_large_images_are_averaged_to_32():
    store = Images(3, channels=3, height=64, width=128)
    blocks = store.images.numpy().astype(np.float64).reshape(3, 3, 32, 2, 32, 4) / 255
    np.testing.assert_allclose(pixels(store).numpy(), blocks.mean((3, 5)).reshape(3, -1), atol=1e-6)


def test_only_the_long_side_is_averaged():
    store = Images(2, channels=1, height=5, width=64)
    blocks = store.images.numpy().astype(np.float64).reshape(2, 5, 32, 2) / 255
    np.testing.assert_allclose(pixels(store).numpy(), blocks.mean(3).reshape(2, -1), atol=1e-6)


def test_an_empty_set_is_refused(encoder):
    with pytest.raises(TwofoldError, match="no images"):
        extract(encoder, Images(0), scaled, device="cpu")
    with pytest.raises(TwofoldError, match="no images"):
        pixels(Images(0))
