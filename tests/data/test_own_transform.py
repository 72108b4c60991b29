"""A transform of the user's own, and its random numbers."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import twofold
from augmenting import augmenter, images_of
from twofold.config import Augment
from twofold.data.own_transform import Draw, OwnTransform
from twofold.errors import TwofoldError
from twofold.runs.weights import read_encoder
from twofold.train.trainer import Trainer

OWN = """
def shade(views, draw):
    strength = draw.uniform("shade", low=0.2, high=0.9).view(-1, 1, 1, 1)
    return views * strength + 0.1 * draw.normal("grain", *views.shape[1:]).abs()
"""
IMAGES = np.random.default_rng(0).integers(0, 256, (40, 12, 12), dtype=np.uint8)
SMALL = {"method": "simclr", "encoder": "conv", "epochs": 2, "batch_size": 8, "map_points": 0, "image_size": 12}


def draw_for(positions: list[int], *, seed: int = 1, step: int = 2, view: int = 0) -> Draw:
    return Draw(seed, torch.tensor(step), torch.tensor(positions), view)


def shade(views: Tensor, draw: Draw) -> Tensor:
    return views * draw.uniform("shade", low=0.2, high=0.9).view(-1, 1, 1, 1)


def test_draws_depend_on_seed_step_position_view_and_name_alone() -> None:
    found = draw_for([0, 1, 2]).uniform("a", 5)
    assert found.shape == (3, 5)
    torch.testing.assert_close(draw_for([2, 0]).uniform("a", 5), found[[2, 0]], rtol=0, atol=0)
    others = [draw_for([0, 1, 2], **change).uniform("a", 5) for change in ({"seed": 2}, {"step": 3}, {"view": 1})]
    others += [draw_for([0, 1, 2]).uniform("b", 5), draw_for([3, 4, 5]).uniform("a", 5)]
    for other in others:
        assert not (other == found).any()


def test_draws_have_their_distributions() -> None:
    draw = draw_for(list(range(20_000)))
    uniform, normal = draw.uniform("u", low=2, high=4), draw.normal("n")
    assert (uniform.min() >= 2, uniform.max() < 4, uniform.mean().sub(3).abs() < 0.02) == (True, True, True)
    assert (normal.mean().abs() < 0.03, (normal.std() - 1).abs() < 0.03) == (True, True)
    counts = torch.bincount(draw.integers("i", 5), minlength=5)
    assert (len(counts), int((counts / 20_000 - 0.2).abs().mul(100).max())) == (5, 0)
    assert abs(draw.chance("c", 0.3).float().mean().item() - 0.3) < 0.02


def test_each_view_is_changed_after_the_other_augmentations() -> None:
    images, plain = images_of(5, 3, 12, 12), augmenter(Augment(), size=12)
    own = augmenter(Augment(), size=12)
    own.own = OwnTransform(shade, "shade")
    position, step = torch.arange(5), torch.tensor(3)
    before, after = plain.pixels(images, position, step), own.pixels(images, position, step)
    for view in range(len(before)):
        draw = Draw(plain.seed, step, position, view)
        torch.testing.assert_close(after[view], shade(before[view], draw), rtol=0, atol=0)


def of_one_size(views: Tensor, _: Draw) -> Tensor:
    return views[:, :, 1:]


def in_double(views: Tensor, _: Draw) -> Tensor:
    return views.double()


def without_numbers(views: Tensor, _: Draw) -> Tensor:
    return views / 0


def by_torch(views: Tensor, _: Draw) -> Tensor:
    return views * torch.rand(len(views), 1, 1, 1)


def by_python(views: Tensor, _: Draw) -> Tensor:
    return views * random.random()


def mixed(views: Tensor, _: Draw) -> Tensor:
    return (views + views.roll(1, 0)) / 2


def failing(views: Tensor, _: Draw) -> Tensor:
    return views + torch.ones(2, 3, 4, 5, 6, 7)


@pytest.mark.parametrize(
    "function, problem",
    [
        (of_one_size, r"shape \(8, 3, 11, 12\) instead of \(8, 3, 12, 12\)"),
        (in_double, "dtype torch.float64 instead of torch.float32"),
        (lambda views, _: views.numpy(), "returned a ndarray"),
        (without_numbers, "NaN or infinite"),
        (by_torch, "take all random numbers from its second argument"),
        (by_python, "take all random numbers from its second argument"),
        (mixed, "treat each image separately"),
        (failing, "failed on 8 images"),
    ],
)
def test_the_check_names_what_is_wrong(function: Callable[..., Tensor], problem: str) -> None:
    views = torch.rand(2, 8, 3, 12, 12) + 0.1
    OwnTransform(shade, "shade").check(views, 0, torch.arange(8))
    with pytest.raises(TwofoldError, match=f"augment.transform=mine .*{problem}"):
        OwnTransform(function, "mine").check(views, 0, torch.arange(8))


def weights_of(run: twofold.Run) -> dict[str, Tensor]:
    return read_encoder(run.path)[0]


def test_a_resumed_run_finds_the_function_and_ends_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    np.save(tmp_path / "images.npy", IMAGES)
    monkeypatch.chdir(tmp_path)
    own = {"augment__transform": "mine.py:shade", **SMALL}
    whole = twofold.pretrain("images.npy", out=tmp_path / "whole", **own)
    assert whole.config.augment.transform == f"{tmp_path / 'mine.py'}:shade"
    plain = twofold.pretrain("images.npy", out=tmp_path / "plain", **SMALL)
    take_step = Trainer.take_step
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "take_step", lambda self, step: 1 / 0 if step == 6 else take_step(self, step))
        with pytest.raises(ZeroDivisionError):
            twofold.pretrain("images.npy", out=tmp_path / "stopped", checkpoint__seconds=0, **own)
    monkeypatch.chdir("/")
    resumed = twofold.resume(tmp_path / "stopped")
    for name, value in weights_of(whole).items():
        torch.testing.assert_close(weights_of(resumed)[name], value, rtol=0, atol=0)
    assert any(not torch.equal(weights_of(plain)[name], value) for name, value in weights_of(whole).items())
    (tmp_path / "mine.py").unlink()
    with pytest.raises(TwofoldError, match=r"augment.transform=.*mine.py:shade.*cannot be imported"):
        twofold.resume(resumed.path, epochs=3)
    twofold.resume(resumed.path, epochs=3, transform=shade)


def test_a_function_without_a_name_must_be_passed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from twofold.methods import own_function

    np.save(tmp_path / "images.npy", IMAGES)
    settings = SMALL | {"epochs": 1, "augment__transform": lambda views, draw: shade(views, draw)}
    run = twofold.pretrain(tmp_path / "images.npy", out=tmp_path / "run", **settings)
    monkeypatch.setattr(own_function, "_passed", {})  # as in another program
    with pytest.raises(TwofoldError, match=r"pass it again, with twofold.resume\(run, transform=...\)"):
        twofold.resume(run, epochs=2)
    twofold.resume(run, epochs=2, transform=shade)


def test_instead_of_the_augmentations_the_function_gets_the_resized_images(tmp_path: Path) -> None:
    seen: list[Tensor] = []

    def keep(views: Tensor, _: Draw) -> Tensor:
        seen.append(views.clone())
        return views

    settings = {"augment__transform": keep, "augment__transform_mode": "instead", **SMALL, "epochs": 1}
    twofold.pretrain(IMAGES, out=tmp_path / "run", **settings)
    known = {image.tobytes() for image in IMAGES}
    for views in seen:
        for view in views:
            assert (view[0] * 255).round().to(torch.uint8).numpy().tobytes() in known
    with pytest.raises(TwofoldError, match=r"augment.flip has no effect with augment.transform_mode=instead"):
        twofold.pretrain(IMAGES, out=tmp_path / "other", augment__flip=0.3, **settings)


def test_the_function_is_looked_for_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(TwofoldError, match="has no function 'missing'"):
        twofold.pretrain(IMAGES, out=tmp_path / "run", augment__transform="os.path:missing", **SMALL)
    with pytest.raises(TwofoldError, match="cannot be imported"):
        twofold.pretrain(IMAGES, out=tmp_path / "run", augment__transform="no_such_module:f", **SMALL)
    assert not (tmp_path / "run").exists()
