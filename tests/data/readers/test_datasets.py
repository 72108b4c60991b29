"""Datasets of other libraries. The libraries are not installed; classes with the same interface imitate them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

import twofold
from twofold.data.load import load_data
from twofold.data.open import open_source
from twofold.data.readers.datasets import is_dataset, is_splits
from twofold.errors import TwofoldError

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (24, 8, 8, 3), dtype=np.uint8)


@pytest.fixture(autouse=True)
def _temporary_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))


class Items(Dataset):
    def __init__(self, items: list[Any]) -> None:
        self.given, self.asked = items, 0

    def __len__(self) -> int:
        return len(self.given)

    def __getitem__(self, row: int) -> Any:
        self.asked += 1
        if isinstance(self.given[row], Exception):
            raise self.given[row]
        return self.given[row]


class Feature:
    names = ("cat", "dog", "cow")


class HuggingFace:
    """The used parts of `datasets.Dataset`: columns by name, rows by number, a fingerprint."""

    def __init__(self, fingerprint: str = "f00", count: int = 24) -> None:
        self._fingerprint, self.count, self.rows_asked = fingerprint, count, 0
        self.features = {"img": object(), "label": Feature()}
        self.column_names = ["img", "label"]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return [row % 3 for row in range(self.count)]
        self.rows_asked += 1
        return {"img": Image.fromarray(PIXELS[key % len(PIXELS)]), "label": key % 3}


@pytest.mark.parametrize(
    "make",
    [
        lambda pixels: Image.fromarray(pixels),
        lambda pixels: pixels,
        lambda pixels: torch.from_numpy(pixels).permute(2, 0, 1),
        lambda pixels: torch.from_numpy(pixels).permute(2, 0, 1) / 255,
        lambda pixels: {"image": Image.fromarray(pixels)},
        lambda pixels: (pixels, np.zeros((2, 2))),
    ],
)
def test_images_of_every_type_are_read_without_loss(make: Any) -> None:
    data = load_data(open_source(Items([make(pixels) for pixels in PIXELS])), image_size=8, channels=3, test_fraction=0)
    np.testing.assert_array_equal(data.train.images.permute(0, 2, 3, 1), PIXELS)
    assert (data.train.labels, data.classes) == (None, None)
    assert data.train.index.tolist() == list(range(24))


def test_labels_are_read_from_tuples_dicts_and_tensors() -> None:
    labels = [row % 3 for row in range(24)]
    tensors = TensorDataset(torch.from_numpy(PIXELS).permute(0, 3, 1, 2), torch.tensor(labels))
    tuples = Items([(pixels, label) for pixels, label in zip(PIXELS, labels, strict=True)])
    dicts = Items(
        [{"image": pixels, "label": ["cat", "dog", "cow"][n]} for pixels, n in zip(PIXELS, labels, strict=True)]
    )
    for dataset in (tensors, tuples):
        source = open_source(dataset)
        assert (source.train.labels.tolist(), source.classes) == (labels, ("0", "1", "2"))
    named = open_source(dicts)
    assert [named.classes[label] for label in named.train.labels[:3]] == ["cat", "dog", "cow"]
    some = open_source(
        Items([(pixels, None if label == 2 else label) for pixels, label in zip(PIXELS, labels, strict=True)])
    )
    assert some.train.labels.tolist() == [-1 if label == 2 else label for label in labels]


def test_one_hot_and_nan_labels_are_read_and_invalid_labels_raise_an_error() -> None:
    labels = [row % 3 for row in range(24)]

    def of(*second: Any) -> Any:
        return open_source(Items([(pixels, value) for pixels, value in zip(PIXELS, second, strict=True)]))

    assert of(*torch.eye(3)[labels]).train.labels.tolist() == labels  # one-hot
    unknown = [torch.tensor(float("nan")), np.float32("nan"), *labels[2:]]
    assert of(*unknown).train.labels.tolist() == [-1, -1, *labels[2:]]
    for bad in (torch.tensor([0.5, 0.5, 0.0]), 0.37):
        with pytest.raises(TwofoldError, match="item 0 of the training set has the label"):
            of(*[bad] * 24)
    boxes = of(*[{"boxes": [1, 2]}] * 24)
    assert boxes.train.labels is None
    named = open_source(Items([{"x": pixels, "y": n} for pixels, n in zip(PIXELS, labels, strict=True)]))
    assert named.train.labels.tolist() == labels


def test_items_without_label_are_unlabelled_and_items_without_image_are_skipped() -> None:
    tuples: list[Any] = [(pixels, row % 3) for row, pixels in enumerate(PIXELS)]
    tuples[4], tuples[5], tuples[6] = (PIXELS[4],), None, ()
    dicts: list[Any] = [{"image": pixels, "label": row % 3} for row, pixels in enumerate(PIXELS)]
    dicts[4], dicts[5], dicts[6] = {"image": PIXELS[4]}, None, {"label": 1}
    for items in (tuples, dicts):
        data = load_data(open_source(Items(items)), image_size=8, channels=3, test_fraction=0)
        assert data.train.index.tolist() == [row for row in range(24) if row not in (5, 6)]
        assert data.train.labels.tolist()[3:6] == [0, -1, 1]
        assert [item.path for item in data.skipped] == ["item 5", "item 6"]
    with pytest.raises(TwofoldError, match="data is a type"):
        open_source(TensorDataset)


def test_hugging_face_dataset_is_identified_by_its_fingerprint_without_reading_all_rows() -> None:
    dataset = HuggingFace(count=5000)
    source = open_source(dataset)
    assert dataset.rows_asked < 1100
    assert source.classes == Feature.names
    assert source.train.labels.tolist() == [row % 3 for row in range(5000)]
    assert open_source(HuggingFace(count=5000)).fingerprint == source.fingerprint
    assert open_source(HuggingFace("f01", count=5000)).fingerprint != source.fingerprint
    both = open_source({"train": HuggingFace(), "validation": HuggingFace("v")})
    assert (len(both.train), len(both.test)) == (24, 24)


def test_fingerprint_depends_on_the_content_of_the_dataset() -> None:
    first, second = PIXELS.copy(), PIXELS.copy()
    second[17, 3, 3, 1] ^= 1
    prints = [open_source(Items(list(pixels))).fingerprint for pixels in (first, second, first)]
    assert prints[0] == prints[2] != prints[1]


def test_unreadable_items_are_skipped_and_listed_by_index() -> None:
    items: list[Any] = list(PIXELS)
    items[0], items[5], items[9] = OSError("disk gone"), np.zeros((4, 4, 7), np.uint8), np.full((8, 8), np.nan)
    data = load_data(open_source(Items(items)), image_size=8, channels=3, test_fraction=0)
    assert data.train.index.tolist() == [row for row in range(24) if row not in (0, 5, 9)]
    assert [item.path for item in data.skipped] == ["item 0", "item 5", "item 9"]
    assert "disk gone" in data.skipped[0].reason


def test_random_transforms_raise_an_error() -> None:
    class RandomItems(Items):
        def __getitem__(self, row: int) -> Any:
            return RNG.integers(0, 256, (8, 8, 3), dtype=np.uint8)

    with pytest.raises(TwofoldError, match="random transforms"):
        open_source(RandomItems([None] * 5))


def test_objects_that_are_not_image_datasets_raise_an_error() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    for data in ([1, 2], (1, 2), {"a": 1}, "text", PIXELS, numbers(), 5, {"train": [1]}):
        assert not is_dataset(data)
        assert not is_splits(data)
    cases = {
        "is empty": Items([]),
        "none of them is an image": Items([{"text": "x"}, {"text": "y"}]),
        "do not start with an image": Items([("x", 1), ("y", 2)]),
        "are of type str; return an image": Items(["x", "y"]),
        "cannot be read: OSError: gone": Items([OSError("gone"), OSError("gone")]),
    }
    for message, data in cases.items():
        with pytest.raises(TwofoldError, match=message) as caught:
            open_source(data)
        assert "\n" not in str(caught.value)


def test_result_of_random_split_is_a_training_and_a_test_set() -> None:
    whole = Items([(pixels, row % 2) for row, pixels in enumerate(PIXELS[:10])])
    source = open_source(torch.utils.data.random_split(whole, [7, 3], torch.Generator().manual_seed(0)))
    assert (len(source.train), len(source.test)) == (7, 3)
    with pytest.raises(TwofoldError, match="data is a list of"):
        open_source(torch.utils.data.random_split(whole, [4, 3, 3]))  # three parts are ambiguous


def test_training_and_resuming_with_datasets_from_python(tmp_path: Path) -> None:
    pairs = [
        Items([(pixels, row % 2) for row, pixels in enumerate(PIXELS[part])]) for part in (slice(16), slice(16, 24))
    ]
    options: dict[str, Any] = {"epochs": 1, "batch_size": 8, "projector": (16, 8)}
    run = twofold.pretrain((pairs[0], pairs[1]), out=tmp_path / "a", **options)
    assert (run.results["train_images"], run.results["test_images"], run.config.data) == (16, 8, "dataset")
    mapping = twofold.pretrain({"train": pairs[0], "test": pairs[1]}, out=tmp_path / "b", **options)
    assert mapping.metrics == run.metrics
    (tmp_path / "a" / "results.json").unlink()
    with pytest.raises(TwofoldError, match="pass them again"):
        twofold.resume(run)
    assert twofold.resume(run, data=(pairs[0], pairs[1])).results is not None


def test_normalized_pixels_raise_an_error_that_suggests_a_fix() -> None:
    items = Items([torch.randn(3, 8, 8) for _ in range(6)])
    with pytest.raises(TwofoldError, match=r"cannot be read: float pixels from .*; remove Normalize"):
        open_source(items)
    rounded = Items([torch.full((3, 8, 8), 1 + 1e-6) for _ in range(3)])  # rounding errors of a weighted sum
    assert (load_data(open_source(rounded), image_size=8, channels=3, test_fraction=0.0).train.images == 255).all()


def test_unreadable_first_item_is_skipped() -> None:
    broken = torch.full((3, 8, 8), 7.0)
    source = open_source(Items([broken, *(torch.rand(3, 8, 8) for _ in range(5))]))
    assert len(load_data(source, image_size=8, channels=3, test_fraction=0.0).train) == 5
