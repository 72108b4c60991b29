"""Samples with several images: each view is drawn from the images of its object."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import twofold
from twofold.data.load import load_data
from twofold.data.loader import Loader
from twofold.data.objects import Objects
from twofold.data.open import open_source
from twofold.data.store import ImageStore
from twofold.errors import TwofoldError
from twofold.runs.weights import read_encoder
from twofold.train.trainer import Trainer

SMALL = {"method": "simclr", "encoder": "conv", "epochs": 2, "map_points": 0, "image_size": 12}
COUNTS = [3, 1, 2, 1, 4, 2, 1, 3] * 3  # images of each object


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))


def store_of(numbers: list[int]) -> ImageStore:
    """Return a store whose images have one pixel: the number of their row."""
    rows = torch.arange(len(numbers))
    return ImageStore(
        rows.to(torch.uint8).view(-1, 1, 1, 1), rows * 10, 100 + rows, objects=Objects.of(np.array(numbers))
    )


def write_list(folder: Path, *, heading: str = "path,label,object") -> Path:
    """Write a list whose objects each have images of one brightness, in a shuffled order."""
    rng = np.random.default_rng(0)
    lines = []
    for number, count in enumerate(COUNTS):
        for view in range(count):
            name = f"{number:02}-{view}.png"
            pixels = rng.integers(0, 6, (12, 12)) + 10 * number
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name)
            lines.append(f"{name},{'ab'[number % 2]},{f'o{number}' if count > 1 else ''}")
    rng.shuffle(lines)
    (folder / "list.csv").write_text("\n".join([heading, *lines]))
    return folder / "list.csv"


def test_objects_are_numbered_by_their_first_image() -> None:
    assert Objects.of(np.array([5, 3, 1])) is None
    assert Objects.of(np.array([-1, -1])) is None
    objects = Objects.of(np.array([7, -1, 2, 7, 2, -1, 7]))
    assert objects is not None
    assert objects.first.tolist() == [0, 1, 2, 5]
    assert objects.of_row.tolist() == [0, 1, 2, 0, 2, 3, 0]
    assert objects.count.tolist() == [3, 1, 2, 1]
    groups = [
        objects.rows[start : start + count].tolist() for start, count in zip(objects.start, objects.count, strict=True)
    ]
    assert groups == [[0, 3, 6], [1], [2, 4], [5]]


def test_images_are_drawn_without_replacement_and_evenly() -> None:
    objects = Objects.of(np.repeat(np.arange(4), [1, 2, 3, 5]))
    assert objects is not None
    chosen, steps = torch.arange(4), 3000
    found = torch.stack([objects.choose(chosen, chosen, step, 0, 3) for step in range(steps)])  # [steps, 4, 3]
    own = [
        set(objects.rows[start : start + count].tolist())
        for start, count in zip(objects.start, objects.count, strict=True)
    ]
    for number, count in enumerate([1, 2, 3, 5]):
        drawn = found[:, number]
        assert set(drawn.flatten().tolist()) == own[number]
        different = torch.tensor([len(set(row)) for row in drawn.tolist()])
        assert (different == min(count, 3)).all()
        for view in range(3):
            share = torch.bincount(drawn[:, view] - drawn.min()).double() / steps
            torch.testing.assert_close(share, torch.full((count,), 1 / count).double(), atol=0.04, rtol=0)
    assert (found[:, 1, 2] == found[:, 1, 0]).all()  # with more views than images, they repeat
    pairs = {tuple(pair) for pair in found[:, 3, :2].tolist()}
    assert len(pairs) == 20  # every ordered pair of 5 images


def test_a_batch_has_each_object_once_and_the_images_of_its_views() -> None:
    numbers = [0, 1, 0, 2, 1, 0, 3, 4]
    loader = Loader(store_of(numbers), batch_size=5, seed=1, drop_last=True, views=3)
    assert loader.steps_per_epoch == 1
    for step in range(8):
        batch = loader.batch(step)
        assert batch.images.shape == (5, 3, 1, 1, 1)
        assert batch.labels is not None
        assert sorted(batch.index.tolist()) == [100, 101, 103, 106, 107]  # the first image of each object
        assert torch.equal(batch.labels, 10 * (batch.index - 100))
        for index, images in zip(batch.index.tolist(), batch.images.flatten(1).tolist(), strict=True):
            assert {numbers[row] for row in images} == {numbers[index - 100]}
        again = loader.batch(step)
        assert torch.equal(again.images, batch.images)


def test_processes_share_the_batch_of_one_process() -> None:
    images = store_of([0, 1, 0, 2, 1, 0, 3, 4])
    settings = {"batch_size": 4, "seed": 1, "drop_last": True, "views": 3}
    whole = Loader(images, **settings)
    parts = [Loader(images, share=lambda size, _, k=k: torch.arange(k, size, 2), **settings) for k in range(2)]
    for step in range(4):
        expected, shares = whole.batch(step), [part.batch(step) for part in parts]
        for k, share in enumerate(shares):
            assert torch.equal(share.images, expected.images[k::2])
            assert torch.equal(share.index, expected.index[k::2])


def test_the_graph_of_the_device_fills_the_same_batch() -> None:
    loader = Loader(store_of([0, 1, 0, 2, 1, 0, 3, 4]), batch_size=2, seed=1, drop_last=True, views=2)
    for step in range(5):
        expected, filled = loader.batch(step), loader.batch(0)
        loader.set_epoch_of(step)
        loader.fill_on_device(torch.tensor(step), filled)
        assert torch.equal(filled.images, expected.images)
        assert torch.equal(filled.index, expected.index)


def test_a_list_names_the_object_of_each_image(tmp_path: Path) -> None:
    source = open_source(write_list(tmp_path))
    data = load_data(source, image_size=12, channels=1, test_fraction=0.3)
    assert data.test is not None
    sides = [{name[:2] for name in part.files or ()} for part in (data.train, data.test)]
    assert not sides[0] & sides[1]
    assert len(data.test) > 8
    assert data.train.objects is not None
    assert len(data.train.objects) == len(sides[0])
    assert len(data.train.samples()) == len(sides[0])
    plain = open_source(write_list(tmp_path, heading="path,label,other"))
    assert plain.train.objects is None
    assert plain.fingerprint != source.fingerprint


@pytest.mark.parametrize(
    "rows, problem",
    [
        (["00-0.png,a,x,train", "00-1.png,b,x,train"], "the object x has the label a and b, in 00-0.png and 00-1.png"),
        (["00-0.png,a,x,train", "00-1.png,a,x,test"], "the object x has the split training and test"),
    ],
)
def test_an_object_has_one_label_and_one_side(tmp_path: Path, rows: list[str], problem: str) -> None:
    write_list(tmp_path)
    (tmp_path / "bad.csv").write_text("\n".join(["path,label,object,split", *rows]))
    with pytest.raises(TwofoldError, match=problem):
        open_source(tmp_path / "bad.csv")


def test_views_of_a_run_come_from_the_images_of_the_object(tmp_path: Path) -> None:
    """Without augmentation, both views of an object have its brightness, and most are different images."""
    seen: list[tuple[Tensor, Tensor]] = []

    def keep(views: Tensor, draw: Any) -> Tensor:
        seen.append((draw.position, (views * 255).round()))
        return views

    path = write_list(tmp_path)
    settings = SMALL | {"batch_size": 8, "augment__transform": keep, "augment__transform_mode": "instead"}
    run = twofold.pretrain(path, out=tmp_path / "run", test_fraction=0, **settings)
    assert f"{sum(COUNTS)} images of {len(COUNTS)} objects" in run.path.joinpath("log.txt").read_text()
    of_steps = [views for _, views in seen[8:]]  # after the check, which calls the function 8 times
    pairs = list(zip(of_steps[:12:2], of_steps[1:12:2], strict=True))
    same = []
    for first, second in pairs:
        assert torch.equal(first.mean((1, 2, 3)) // 10, second.mean((1, 2, 3)) // 10)
        same += (first == second).flatten(1).all(dim=1).tolist()
    alone = sum(count == 1 for count in COUNTS) / len(COUNTS)
    assert np.mean(same) == alone


@pytest.mark.parametrize("method", ["simclr", "s-diet"])
def test_a_stopped_run_resumes_with_the_same_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    path = write_list(tmp_path)
    settings = SMALL | {"batch_size": 8, "method": method, "augment__local_views": 0}
    whole = twofold.pretrain(path, out=tmp_path / "whole", **settings)
    take_step = Trainer.take_step
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "take_step", lambda self, step: 1 / 0 if step == 3 else take_step(self, step))
        with pytest.raises(ZeroDivisionError):
            twofold.pretrain(path, out=tmp_path / "stopped", checkpoint__seconds=0, **settings)
    resumed = twofold.resume(tmp_path / "stopped")
    expected = read_encoder(whole.path)[0]
    for name, value in read_encoder(resumed.path)[0].items():
        torch.testing.assert_close(value, expected[name], rtol=0, atol=0)
    twofold.embed(whole, path, tmp_path / "all.npz")
    assert len(np.load(tmp_path / "all.npz")["features"]) == sum(COUNTS)


class Objects3(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Items with one to three images of one brightness."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, number: int) -> Any:
        images = [np.full((12, 12), 10 * number + view, np.uint8) for view in range(1 + number % 3)]
        return images, number % 2


def test_items_of_a_dataset_may_have_several_images() -> None:
    source = open_source(Objects3())
    data = load_data(source, image_size=12, channels=1, test_fraction=0.3)
    assert data.test is not None
    assert data.train.objects is not None
    brightness = [set((part.images.flatten(1)[:, 0] // 10).tolist()) for part in (data.train, data.test)]
    assert not brightness[0] & brightness[1]
    assert len(brightness[0] | brightness[1]) == 20
    assert len(data.train) + len(data.test) == sum(1 + number % 3 for number in range(20))
    assert len(data.train.objects) == len(brightness[0])
    assert data.train.labels is not None
    assert torch.equal(data.train.labels, data.train.images.flatten(1)[:, 0] // 10 % 2)
