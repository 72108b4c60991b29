"""Settings of runs for which there is little time, and runs with the encoder that is partly made from the images."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import twofold
from running import stopped_at
from twofold.errors import Interrupted
from twofold.models import patches
from twofold.runs.initial_weights import UNTRAINED_FILE
from twofold.verbs import choose, explain, pretrain, short_runs
from twofold.verbs.probing import initial, made_weights

RNG = np.random.default_rng(0)
LARGE = RNG.integers(0, 256, (400, 70, 70, 3), dtype=np.uint8)
SMALL = (LARGE[:60, :24, :24], np.arange(60) % 3)
TINY_RUN: dict[str, Any] = {"epochs": 2, "batch_size": 16, "projector": "32,16", "map_points": 0, "recipe": "short"}


@pytest.fixture
def few_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the weights from few patches, and few features, to save time."""
    monkeypatch.setattr(patches, "SAMPLED", 500)
    monkeypatch.setattr(patches.PatchFeatures, "WIDTH", 32)


def seconds_per_step(monkeypatch: pytest.MonkeyPatch, of_pixels: float) -> None:
    """Let a step take this time for each pixel of a ResNet's images, and a hundredth of it for others."""

    def measure(config: Any, *_: Any) -> float:
        return of_pixels * config.image_size**2 * (1 if config.encoder.startswith("resnet") else 0.01)

    for module in (choose, short_runs):
        monkeypatch.setattr(module, "measure_step", measure)


def configured(images: Any = LARGE, method: str | None = None, for_use: bool = True, **keys: Any) -> Any:
    return pretrain.configure(images, method, {"device": "cpu"} | keys, minutes=5, for_use=for_use)[0]


def test_short_runs_have_their_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds_per_step(monkeypatch, 1e-4)
    config = configured()
    chosen = (config.recipe, config.method, config.encoder, config.image_size, config.optimizer, config.batch_size)
    assert chosen == ("short", "s-diet", "conv-patches", 64, "adamw", 128)
    assert {config.origin[name] for name in ("recipe", "encoder", "optimizer")} == {"recipe"}
    assert config.epochs == 300 // (2 * 1e-6 * 64**2)
    rows = {row.key: row.why for row in explain.explained(*pretrain.configure(LARGE, None, {"recipe": "short"}))}
    assert "need no training" in rows["encoder"]
    assert configured(method="simclr").method == "simclr"
    assert configured(lr=0.5, encoder="resnet18").lr == 0.5


@pytest.mark.parametrize("keys", [{"recipe": "scratch"}, {"method": "supervised"}, {"for_use": False}])
def test_other_runs_keep_the_recipe_of_their_method(keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    seconds_per_step(monkeypatch, 1e-4)
    images = (LARGE, np.arange(400) % 2)
    config = configured(images, **keys)
    assert (config.recipe, config.encoder) == ("scratch", "resnet18")
    assert "recipe" not in config.origin or keys == {"recipe": "scratch"}


def test_runs_with_time_for_thousands_of_steps_keep_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds_per_step(monkeypatch, 1e-6)
    assert configured().recipe == "scratch"


def test_few_tiny_images_get_short_runs_whatever_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds_per_step(monkeypatch, 1e-4)
    tiny = LARGE[:, :12, :12]
    config = configured(tiny)
    assert (config.recipe, config.encoder, config.image_size) == ("short", "conv-patches", 12)
    assert configured(LARGE, image_size="12").image_size == 12  # as on the command line
    assert configured(tiny, method="simclr").recipe == "scratch"
    assert configured("digits").recipe == "scratch"  # a named data set with settings of its own
    monkeypatch.setattr(short_runs, "FEW_TINY", 400)
    assert configured(tiny).recipe == "scratch"


def test_short_runs_do_not_mirror_grey_images(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds_per_step(monkeypatch, 1e-4)
    grey = LARGE[..., 0]
    assert (configured(grey).augment.flip, configured(grey, **{"augment.flip": 0.3}).augment.flip) == (0.0, 0.3)
    assert configured(LARGE).augment.flip == 0.5
    rows = {row.key: row.why for row in explain.explained(configured(grey), pretrain.configure(grey)[1])}
    assert "mirrored" in rows["augment.flip"]


def test_augmentation_that_a_data_set_recommends_is_kept() -> None:
    config, _ = pretrain.configure("digits", None, {"recipe": "short", "device": "cpu"}, for_use=True)
    assert (config.augment.crop_scale, config.augment.rotate, config.encoder) == ((1.0, 1.0), 15.0, "conv-patches")


def test_keys_of_the_usual_method_keep_that_method(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds_per_step(monkeypatch, 1e-4)
    config = configured(weight=2.0)
    assert (config.recipe, config.method, config.parameters["weight"]) == ("short", "frossl", 2.0)


def test_images_are_reduced_until_hundreds_of_steps_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds_per_step(monkeypatch, 300 / short_runs.ENOUGH_STEPS / 0.01 / 60**2)
    config = configured()
    assert (config.image_size, config.recipe) == (48, "short")
    assert configured(image_size=70).image_size == 70
    assert configured(LARGE[:, :32, :32]).image_size == 32


def test_command_of_a_short_run_repeats_its_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seconds_per_step(monkeypatch, 1e-4)
    np.save(tmp_path / "images.npy", LARGE)
    config = configured(tmp_path / "images.npy", precision="float32")
    words = explain.repeating_command(config, tmp_path / "run").split()  # type: ignore[union-attr]
    method, keys = words[words.index("--method") + 1], dict(word.split("=") for word in words if "=" in word)
    again, _ = pretrain.configure(tmp_path / "images.npy", method, keys, for_use=True)
    assert pretrain.flat(again) == pretrain.flat(config)


@pytest.mark.usefixtures("few_patches")
def test_resumed_run_is_bit_identical_with_weights_made_from_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = twofold.pretrain(SMALL, out=tmp_path / "whole", **TINY_RUN)
    with stopped_at(3), pytest.raises(Interrupted):
        twofold.pretrain(SMALL, out=tmp_path / "part", **TINY_RUN)
    monkeypatch.setattr(patches.PatchFeatures, "fit", None)  # the weights come from the run folder
    resumed = twofold.resume(tmp_path / "part", SMALL)
    found = [load_file(run.path / "encoder.safetensors") for run in (whole, resumed)]
    assert all(torch.equal(found[0][name], value) for name, value in found[1].items())
    assert resumed.results["table"] == whole.results["table"]
    assert found[0]["patches.projection"].any()
    log = (whole.path / "log.txt").read_text()
    assert "warning  6 steps are too few to learn much" in log


@pytest.mark.usefixtures("few_patches")
def test_untrained_encoder_has_the_weights_made_from_images(tmp_path: Path) -> None:
    run = twofold.pretrain(SMALL, out=tmp_path / "run", **TINY_RUN | {"epochs": 1, "method": "simclr"})
    trained = twofold.load_encoder(run, adapter=False)
    images = pretrain.read_data(run.config, pretrain.configure(SMALL)[1], pretrain.Display(quiet=True)).train
    untrained = initial(run.config, images, "pre", None, made_weights(trained))
    kept = load_file(run.path / UNTRAINED_FILE)
    state = untrained.state_dict()
    assert all(torch.equal(state[name], value) for name, value in kept.items())
    assert torch.equal(state["patches.centres"], trained.state_dict()["patches.centres"])
    assert not torch.equal(state["conv.body.0.weight"], trained.state_dict()["conv.body.0.weight"])
