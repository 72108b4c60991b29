"""Features, compared with an encoder written as formulas, and every kind of encoder that can be opened."""

from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import running
import twofold
from running import small
from twofold import device
from twofold.data.open import open_source
from twofold.data.source import Source
from twofold.errors import TwofoldError
from twofold.evaluate.encoder import Encoder, is_encoder, open_encoder, open_run_encoder
from twofold.models import build_encoder
from twofold.runs.preprocess import Preprocess

CPU = torch.device("cpu")


class Images:
    def __init__(self, count: int) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (count, 3, 8, 8), dtype=np.uint8)
        self.images = torch.from_numpy(pixels)

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        assert rows.dtype == torch.int64
        return self.images[rows], None


def scaled(images: Tensor) -> Tensor:
    return images.float() / 255


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    network[1].running_mean.normal_()
    network[1].running_var.uniform_(0.5, 2)
    return network


@pytest.mark.parametrize(("has_bf16", "precision"), [(True, torch.bfloat16), (False, torch.float32)])
def test_a_bf16_run_is_evaluated_in_float32_where_bf16_is_slow(
    has_bf16: bool, precision: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "computes_bf16", lambda _: has_bf16)
    seen: list[torch.dtype] = []
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
    network.register_forward_hook(lambda *found: seen.append(found[-1].dtype))
    preprocess = Preprocess(8, 3, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    Encoder.on_device(network, preprocess, CPU, "bf16").features(Images(2))
    trainer = running.trainer(precision="bf16")
    trainer.method.encoder.register_forward_hook(lambda *found: seen.append(found[-1].dtype))
    trainer.features(trainer.data.train)
    assert set(seen) == {precision}


def reference(network: nn.Module, images: Tensor) -> Tensor:
    convolution, norm = network[0], network[1]
    x = convolution(images.float() / 255)
    shape = (1, -1, 1, 1)
    x = (x - norm.running_mean.view(shape)) / (norm.running_var.view(shape) + norm.eps).sqrt()
    return x.relu().mean((2, 3)).detach()


@pytest.mark.parametrize("batch_size", [1, 4, 11, 512])
def test_features_equal_those_of_the_frozen_encoder(network: nn.Module, batch_size: int) -> None:
    store = Images(11)
    features = Encoder(network.train(), scaled, CPU).features(store, batch_size=batch_size)
    assert features.dtype == torch.float32
    assert not features.requires_grad
    torch.testing.assert_close(features, reference(network, store.images))


def test_blocks_contain_the_same_features_as_arrays(network: nn.Module) -> None:
    store = Images(520)
    encoder = Encoder(network, scaled, CPU)
    blocks = list(encoder.blocks(store))
    assert [(block.dtype, block.shape) for block in blocks] == [(np.float32, (512, 6)), (np.float32, (8, 6))]
    assert np.array_equal(np.concatenate(blocks), encoder.features(store).numpy())


@pytest.mark.parametrize("name", ["conv", "resnet18"])
def test_encoders_of_twofold_use_channels_last(name: str) -> None:
    network, seen = build_encoder(name, channels=3, stem="small", image_size=8), []
    network.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    store = Images(5)
    features = Encoder(network, scaled, CPU).features(store)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        torch.testing.assert_close(features, network.eval()(scaled(store.images)), rtol=1e-4, atol=1e-6)


def test_other_networks_use_contiguous_images() -> None:
    class Views(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.view(len(x), -1)

    store = Images(5)
    torch.testing.assert_close(Encoder(Views(), scaled, CPU).features(store), scaled(store.images).flatten(1))


def test_features_do_not_change_the_network(network: nn.Module) -> None:
    network.train()
    network[1].eval()  # a frozen BatchNorm inside a network in training
    before = {name: value.clone() for name, value in network.state_dict().items()}
    Encoder(network, scaled, CPU).features(Images(20), batch_size=7)
    assert [module.training for module in network] == [True, False, True, True, True, True]
    assert network.training
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(parameter.grad is None and parameter.requires_grad for parameter in network.parameters())


def test_mode_is_restored_after_an_error(network: nn.Module) -> None:
    def broken(_: Tensor) -> Tensor:
        raise ValueError("no such image")

    network.train()
    with pytest.raises(ValueError, match="no such image"):
        Encoder(network, broken, CPU).features(Images(3))
    assert network.training
    assert network[1].training


def test_autocast_applies_to_the_forward_pass_only(network: nn.Module) -> None:
    entered = []

    @contextmanager
    def half():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            entered.append(True)
            yield

    store = Images(10)
    features = Encoder(network, scaled, CPU, half).features(store, batch_size=4)
    assert len(entered) == 3
    assert features.dtype == torch.float32
    exact = reference(network, store.images)
    assert not torch.equal(features, exact)
    torch.testing.assert_close(features, exact, atol=0.02, rtol=0.02)


def test_progress_counts_images(network: nn.Module) -> None:
    seen: list[tuple[int, int]] = []
    record: Callable[[int, int], None] = lambda done, total: seen.append((done, total))  # noqa: E731
    Encoder(network, scaled, CPU).features(Images(10), batch_size=4, progress=record)
    assert seen == [(4, 10), (8, 10), (10, 10)]


def test_an_empty_set_is_refused(network: nn.Module) -> None:
    with pytest.raises(TwofoldError, match="no images"):
        Encoder(network, scaled, CPU).features(Images(0))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> twofold.Run:
    settings = small("frossl", epochs=1) | {"precision": "bf16"}
    return twofold.pretrain("digits", out=tmp_path_factory.mktemp("encoder") / "run", **settings)


def no_images() -> Source:
    raise AssertionError("this encoder has its own preprocessing")


def test_runs_use_their_own_precision_and_other_encoders_that_of_the_caller(run: twofold.Run) -> None:
    pixels = torch.randint(0, 256, (9, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    module = twofold.load_encoder(run)
    with torch.no_grad():
        exact = module(module.preprocess(pixels))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rounded = module(module.preprocess(pixels)).float()
    assert not torch.equal(exact, rounded)
    assert torch.equal(open_run_encoder(run.path, run.config).encode(pixels), rounded)
    for what in (run, run.path, str(run.path)):
        assert torch.equal(open_encoder(what, no_images).encode(pixels), rounded)
    assert torch.equal(open_encoder(run.path / "encoder.safetensors", no_images).encode(pixels), exact)
    image = Image.fromarray(pixels[4, 0].numpy())
    torch.testing.assert_close(open_encoder(run, no_images).encode(image), rounded[4:5])


def test_encoder_without_preprocessing_normalizes_with_the_statistics_of_its_images(
    run: twofold.Run, tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign.safetensors"
    save_file(load_file(run.path / "encoder.safetensors"), foreign)
    opened = open_encoder(foreign, lambda: open_source("digits"), module="conv")
    module = twofold.load_encoder(run)
    pixels = open_source("digits").train.images / 255
    assert opened.preprocess.mean.item() == pytest.approx(pixels.mean(), rel=1e-5)
    assert opened.preprocess.std.item() == pytest.approx(pixels.std(), rel=1e-5)
    for name, value in module.state_dict().items():
        assert torch.equal(opened.network.state_dict()[name], value)
    del module.preprocess
    module.train()
    again = open_encoder(module, lambda: open_source("digits"))
    assert again.network is not module
    assert module.training
    assert again.preprocess.mean.item() == pytest.approx(pixels.mean(), rel=1e-5)


def test_files_that_are_not_encoders_raise_an_error(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    for what in ("nowhere", tmp_path / "notes.txt", tmp_path / "nowhere.safetensors"):
        assert not is_encoder(what)
        with pytest.raises(TwofoldError, match=r"is not an encoder: give a run folder, a \.safetensors or \.onnx file"):
            open_encoder(what, no_images)
