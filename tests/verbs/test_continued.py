"""Runs that start from weights: the recipe, what stays frozen, learning rates by part, and the encoder's own input."""

import copy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import twofold
from running import stopped_at
from twofold.data.open import open_source
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.encoder import open_encoder
from twofold.models import build_encoder
from twofold.runs.own_input import IMAGENET_MEAN, IMAGENET_STD, of_timm, own_input
from twofold.train.trainer import Trainer
from twofold.verbs import choose, explain, pretrain
from twofold.verbs.continued import nearest_size

PIXELS = np.random.default_rng(0).integers(0, 255, (40, 3, 8, 8), dtype=np.uint8)
MEAN, STD = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
KEYS: dict[str, Any] = {"projector": "16,8", "batch_size": 10, "epochs": 3, "head_epochs": 1, "map_points": 0}
KEYS |= {"freeze": None, "adapter": False}
KEYS |= {"mean": MEAN, "std": STD, "device": "cpu"}


class Own(nn.Module):
    """A user's pretrained network: its BatchNorm layers have statistics."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(6, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU())
        self.last = nn.Conv2d(8, 8, 3)
        for norm in (self.stem[1], self.body[1]):
            norm.running_mean.uniform_(-0.1, 0.1)
            norm.running_var.uniform_(0.5, 1.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.body(self.stem(x))).mean(dim=(2, 3))


def run_of(tmp_path: Path, module: nn.Module, **overrides: Any) -> twofold.Run:
    return twofold.pretrain(PIXELS, encoder=module, out=tmp_path / "run", **KEYS | overrides)


def trainer_of(module: nn.Module, **overrides: Any) -> Trainer:
    config, source = pretrain.configure(PIXELS, None, KEYS | {"encoder": "Own"} | overrides, module=module)
    display = Display(quiet=True)
    return Trainer(config, pretrain.read_data(config, source, display), display, module)


def changed(before: dict[str, Tensor], after: nn.Module) -> set[str]:
    return {name for name, value in after.state_dict().items() if not torch.equal(value.cpu(), before[name])}


@pytest.mark.parametrize("minutes", [0.02, 3])
def test_a_module_can_be_trained_for_minutes(minutes: float, tmp_path: Path) -> None:
    """The timing run trains a copy of the module, which has no name to be built from."""
    module = Own()
    before = copy.deepcopy(module.state_dict())
    keys = {name: value for name, value in KEYS.items() if name not in ("epochs", "head_epochs")}
    config, _ = pretrain.configure(PIXELS, None, keys | {"encoder": "Own"}, minutes=minutes, module=module)
    assert not changed(before, module)
    assert 1 <= config.epochs <= 20
    run = twofold.pretrain(PIXELS, encoder=module, minutes=minutes, out=tmp_path / "run", **keys)
    assert run.config.epochs <= 20  # more would change the weights more


def test_weights_choose_the_recipe_unless_the_user_sets_another() -> None:
    keys = {"encoder": "Own"}
    continued, _ = pretrain.configure(PIXELS, None, keys, module=Own())
    assert (continued.method, continued.optimizer, continued.freeze_batchnorm) == ("simclr", "adamw", "statistics")
    assert continued.origin["optimizer"] == "recipe"
    asked, _ = pretrain.configure(PIXELS, "byol", keys | {"encoder_lr": 0.5}, module=Own())
    assert (asked.method, asked.encoder_lr, asked.origin["encoder_lr"]) == ("byol", 0.5, "user")
    scratch, _ = pretrain.configure(PIXELS, None, keys | {"recipe": "scratch"}, module=Own())
    plain, _ = pretrain.configure(PIXELS, None, {})
    assert scratch.method == "frossl"
    assert scratch.origin.keys() - plain.origin.keys() == {"recipe"}
    new = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert pretrain.configure(PIXELS, None, keys, module=new)[0].recipe == "scratch"
    with pytest.raises(TwofoldError, match="recipe=continued needs weights"):
        pretrain.configure(PIXELS, None, {"recipe": "continued"})


@pytest.mark.parametrize("method", ["simclr", "byol", "s-diet"])
def test_statistics_of_batchnorm_do_not_change(method: str, tmp_path: Path) -> None:
    module = Own()
    before = copy.deepcopy(module.state_dict())
    run_of(tmp_path, module, method=method)
    after = changed(before, module)
    assert not {name for name in after if "running" in name or "tracked" in name}
    assert {"stem.0.weight", "stem.1.weight", "last.weight"} <= after
    assert all(parameter.requires_grad for parameter in module.parameters())


def test_frozen_statistics_are_used_in_the_forward_pass() -> None:
    trainer = trainer_of(Own(), method="byol", freeze=1)
    trainer.method.train()
    encoder, images = trainer.method.encoder, torch.randn(4, 3, 8, 8)
    assert encoder.training
    assert trainer.method.projector.training
    torch.testing.assert_close(encoder(images), Own().eval()(images))
    torch.testing.assert_close(trainer.method.teacher.network[0](images), encoder(images))


def test_frozen_weights_are_bit_identical_and_have_no_optimizer_state(tmp_path: Path) -> None:
    module = Own()
    before = copy.deepcopy(module.state_dict())
    run_of(tmp_path, module, freeze=("stem", "body.0"))
    assert changed(before, module) == {"body.1.weight", "body.1.bias", "last.weight", "last.bias"}
    trainer = trainer_of(Own(), freeze=("stem", "body.0"))
    trained = {id(weight) for group in trainer.optimizer.param_groups for weight in group["params"]}
    assert not trained & {id(weight) for weight in trainer.method.encoder.stem.parameters()}


def test_frozen_first_blocks_have_no_autograd_graph() -> None:
    trainer = trainer_of(Own(), freeze=2, head_epochs=0)
    trainer.method.train()
    seen: list[bool] = []
    trainer.method.encoder.body.register_forward_hook(lambda _, __, output: seen.append(output.requires_grad))
    trainer.take_step(0)
    assert seen
    assert not any(seen)


def test_only_the_heads_train_at_first() -> None:
    trainer = trainer_of(Own(), freeze_batchnorm="none")
    trainer.method.train()
    before = {name: copy.deepcopy(part.state_dict()) for name, part in trainer.method.named_children()}
    for step in range(trainer.head_steps):
        trainer.take_step(step)
    assert trainer.head_steps == trainer.loader.steps_per_epoch
    assert not changed(before["encoder"], trainer.method.encoder)
    assert changed(before["projector"], trainer.method.projector)
    assert not set(map(id, trainer.method.encoder.parameters())) & set(map(id, trainer.optimizer.state))
    for step in range(trainer.head_steps, 2 * trainer.head_steps):
        trainer.take_step(step)
    assert {"stem.0.weight", "stem.1.running_mean"} <= changed(before["encoder"], trainer.method.encoder)


def test_learning_rates_by_part() -> None:
    """Independent reference: the rate of the head times encoder_lr / lr times a factor for each block."""
    trainer = trainer_of(Own(), lr=0.1, encoder_lr=0.01, layer_decay=0.5, head_epochs=0, schedule="constant")
    trainer.method.train()
    for step in range(3):
        trainer.take_step(step)
    rate = {id(weight): group["lr"].item() for group in trainer.optimizer.param_groups for weight in group["params"]}
    encoder = trainer.method.encoder
    now = rate[id(trainer.method.projector[0].weight)]
    assert now == pytest.approx(0.1)
    for part, expected in {"last": 0.01, "body": 0.005, "stem": 0.0025}.items():
        for weight in encoder.get_submodule(part).parameters():
            assert rate[id(weight)] == pytest.approx(expected)


def test_the_schedule_of_the_encoder_starts_after_the_heads() -> None:
    trainer = trainer_of(Own(), warmup_epochs=0)
    heads = trainer.head_steps
    assert (trainer.encoder_rates[:heads] == 0).all()
    assert trainer.encoder_rates[heads] == trainer.rates[0]


@pytest.mark.parametrize("method, keys", [("simclr", {}), ("byol", {"pieces": 2}), ("s-diet", {"layer_decay": 0.7})])
def test_resumed_run_is_bit_identical(method: str, keys: dict[str, Any], tmp_path: Path) -> None:
    keys = keys | {"method": method, "freeze": 1, "freeze_batchnorm": "all", "checkpoint__seconds": 0}
    whole, parts = Own(), Own()
    run_of(tmp_path / "whole", whole, **keys)
    with stopped_at(2), pytest.raises(KeyboardInterrupt):  # while only the heads are trained
        run_of(tmp_path / "parts", parts, **keys)
    with stopped_at(6), pytest.raises(KeyboardInterrupt):
        twofold.resume(tmp_path / "parts" / "run", PIXELS, encoder=parts)
    twofold.resume(tmp_path / "parts" / "run", PIXELS, encoder=parts)
    assert not changed(whole.state_dict(), parts)


def test_micro_batches_train_as_the_whole_batch_does() -> None:
    """With frozen statistics, no layer of the encoder couples samples any more."""
    found = []
    for pieces in (1, 2):
        trainer = trainer_of(Own(), pieces=pieces, method="s-diet", projector="none", optimizer="sgd")
        trainer.method.train()
        for step in range(8):
            trainer.take_step(step)
        found.append(trainer.method.encoder.state_dict())
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name], rtol=1e-4, atol=1e-6)


def test_training_and_the_loaded_encoder_use_the_normalisation_of_the_network(tmp_path: Path) -> None:
    module = Own()
    seen: list[Tensor] = []
    with patch("twofold.data.augment.EvalTransform.normalise", autospec=True) as normalise:
        normalise.side_effect = lambda self, pixels: (
            seen.append(self.mean) or ((pixels - self.mean.view(-1, 1, 1)) / self.std.view(-1, 1, 1))
        )
        run = run_of(tmp_path, module)
    assert all(torch.equal(mean, torch.tensor(MEAN)) for mean in seen)
    encoder = twofold.load_encoder(run, encoder=Own())
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    expected = (torch.from_numpy(PIXELS[:2]) / 255 - mean) / std
    torch.testing.assert_close(encoder.preprocess(PIXELS[:2]), expected)


def test_normalisation_that_does_not_fit_raises_an_error() -> None:
    with pytest.raises(TwofoldError, match="mean and std belong together"):
        pretrain.configure(PIXELS, None, {"mean": MEAN})
    with pytest.raises(TwofoldError, match="mean has 1 value for 3 channels"):
        pretrain.configure(PIXELS, None, {"mean": (0.5,), "std": (0.5,)})


class OfTimm(Own):
    """Has timm's description of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.pretrained_cfg = {"input_size": (3, 96, 96), "mean": MEAN, "std": STD, "fixed_input_size": False}


@pytest.fixture
def quick_steps() -> Iterator[None]:
    """Steps that take one second at 96 pixels, in proportion to the number of pixels."""
    with patch.object(choose, "measure_step", lambda config, *_: (config.image_size / 96) ** 2):
        yield


@pytest.mark.usefixtures("quick_steps")
def test_a_network_is_used_at_its_own_size_or_as_near_as_the_time_allows() -> None:
    photos = np.random.default_rng(0).integers(0, 255, (400, 40, 40, 3), dtype=np.uint8)
    keys = {"encoder": "OfTimm", "batch_size": 100}  # 20 steps: 20 seconds at 96 pixels
    assert own_input(nn.Sequential(OfTimm())).mean == MEAN
    enough, _ = pretrain.configure(photos, None, keys, minutes=1, module=OfTimm())
    assert (enough.image_size, enough.epochs, enough.mean, enough.origin["mean"]) == (96, 15, MEAN, "init")
    hurried, _ = pretrain.configure(photos, None, keys, minutes=0.25, module=OfTimm())
    assert (hurried.image_size, hurried.epochs) == (80, 5)
    asked, _ = pretrain.configure(photos, None, keys | {"image_size": 48, "mean": None, "std": None}, module=OfTimm())
    assert (asked.image_size, asked.mean) == (48, None)


def test_sizes_of_a_pretrained_network() -> None:
    assert nearest_size(224, 500) == 224
    assert nearest_size(224, 32) == 128  # small images are enlarged at most four times
    assert nearest_size(224, 8) == 64
    assert nearest_size(224, 150, 1) == 144
    assert nearest_size(50, 500) == 50


@pytest.mark.usefixtures("quick_steps")
def test_a_resnet_file_of_torchvision_gets_the_values_of_imagenet(tmp_path: Path) -> None:
    weights = build_encoder("resnet18", channels=3, stem="large", image_size=32).state_dict()
    save_file(weights, tmp_path / "resnet.safetensors")
    config, source = pretrain.configure(PIXELS, None, {"init": str(tmp_path / "resnet.safetensors")})
    assert (config.mean, config.std, config.image_size) == (IMAGENET_MEAN, IMAGENET_STD, 64)
    reasons = {row.key: row.why for row in explain.explained(config, source)}
    assert "torchvision" in reasons["mean"]
    opened = open_encoder(tmp_path / "resnet.safetensors", lambda: open_source(PIXELS), module="resnet18")
    assert opened.preprocess.mean.tolist() == pytest.approx(IMAGENET_MEAN)
    assert opened.preprocess.image_size == 224


def test_opening_a_module_uses_its_own_normalisation() -> None:
    opened = open_encoder(OfTimm(), lambda: open_source(PIXELS))
    assert (opened.preprocess.image_size, opened.preprocess.mean.tolist()) == (96, pytest.approx(MEAN))
    settings = SimpleNamespace(input_size=(3, 32, 32), mean=MEAN, std=STD)
    assert of_timm(settings).image_size == 32
