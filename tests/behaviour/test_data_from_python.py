"""Images and labels passed from Python: arrays, tensors, pairs of both, and unknown labels."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from twofold.data.load import load_data
from twofold.data.open import open_source
from twofold.errors import TwofoldError

RNG = np.random.default_rng(0)


def noise(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def test_labels_of_a_single_class_are_ignored(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    for pairs in ((images, np.zeros(40, int)), {"train": (images, ["cat"] * 40), "test": (images[:5], ["cat"] * 5)}):
        source = open_source(pairs)
        assert (source.labelled, source.classes) == (False, None)
        data = load_data(source, image_size=8, channels=1, test_fraction=0.2)
        assert (len(data.train), data.train.labels) == (40, None)
        assert data.test is None or data.test.labels is None
    for number in range(3):
        Image.fromarray(images[number]).save(tmp_path / f"{number}.png")
    (tmp_path / "list.csv").write_text("path,label\n0.png,cat\n1.png,cat\n2.png,\n")
    assert not open_source(tmp_path / "list.csv").labelled
    shown = open_source(tmp_path / "list.csv", to_train=False)
    assert (shown.classes, shown.train.labels.tolist()) == (("cat",), [0, 0, -1])
    assert shown.fingerprint == open_source(tmp_path / "list.csv").fingerprint
    assert load_data(shown, image_size=8, channels=1, test_fraction=0.5).test is None


def test_arrays_with_and_without_labels() -> None:
    images = noise(40, 3, 32, 32)
    source = open_source(images)
    assert (source.train.side, source.train.channels) == (32, 3)
    assert (source.name, source.defaults, source.labelled) == ("array", {}, False)
    data = load_data(source, image_size=32, channels=3, test_fraction=0.5)
    assert (data.test, data.classes, data.train.labels, data.train.files) == (None, None, None, None)
    np.testing.assert_array_equal(data.train.images.numpy(), images)
    labelled = load_data(open_source((images, np.arange(40) % 4)), image_size=16, channels=1, test_fraction=0.5)
    assert (len(labelled.train), len(labelled.test), labelled.classes) == (20, 20, ("0", "1", "2", "3"))
    assert labelled.test.images.shape == (20, 1, 16, 16)
    whole = load_data(open_source((images, np.arange(40) % 4)), image_size=16, channels=1, test_fraction=0)
    assert (len(whole.train), whole.test) == (40, None)


UNKNOWN_TEXTS = ["a", float("nan"), "b", None, "", "a"]
UNKNOWN_NUMBERS = [0, None, 1, float("nan"), -1, 0]


@pytest.mark.parametrize(
    "labels",
    [
        UNKNOWN_TEXTS,
        np.array(UNKNOWN_TEXTS, dtype=object),
        UNKNOWN_NUMBERS,
        np.array(UNKNOWN_NUMBERS, dtype=object),
        np.array([0, np.nan, 1, -1, np.nan, 0]),
        np.ma.masked_array([0, 1, 1, 0, 1, 0], mask=[0, 1, 0, 1, 1, 0]),
        torch.tensor([0, -1, 1, -1, -1, 0]),
    ],
    ids=lambda labels: type(labels).__name__,
)
def test_unknown_labels_become_minus_one(labels: object) -> None:
    source = open_source((noise(6, 8, 8), labels))
    assert source.train.labels.tolist() == [0, -1, 1, -1, -1, 0]
    assert source.classes in (("a", "b"), ("0", "1"))


def test_mixed_and_fractional_labels_raise_errors() -> None:
    with pytest.raises(TwofoldError, match="labels that are text and labels that are numbers"):
        open_source((noise(3, 8, 8), np.array(["a", 1, 2], dtype=object)))
    with pytest.raises(TwofoldError, match=r"row 1 of the array has the label '0\.5'"):
        open_source((noise(3, 8, 8), np.array([None, 0.5, 2], dtype=object)))


def test_one_hot_labels_become_class_numbers() -> None:
    numbers = [0, 2, 1, 0]
    assert open_source((noise(4, 8, 8), np.eye(3)[numbers])).train.labels.tolist() == numbers
    with pytest.raises(TwofoldError, match="row 0 of the array has the label"):
        open_source((noise(4, 8, 8), np.full((4, 3), 0.5)))


def test_class_list_with_an_array_raises_an_error(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("0\n")
    with pytest.raises(TwofoldError, match="class_list is only for folders"):
        open_source((noise(4, 8, 8), np.arange(4) % 2), class_list=tmp_path / "classes.txt")


def test_the_names_array_and_dataset_cannot_be_opened() -> None:
    for name in ("array", "dataset"):
        with pytest.raises(TwofoldError, match="stands for objects of a program; pass these objects as data"):
            open_source(name)


def test_tensors_are_read_like_arrays() -> None:
    images, labels = noise(40, 3, 8, 8), np.arange(40) % 4
    expected = open_source((images, labels)).fingerprint
    tensors = (torch.from_numpy(images), torch.from_numpy(labels))
    assert open_source(tensors).fingerprint == expected
    assert open_source((tensors[0], labels)).fingerprint == expected
    assert open_source((tensors[0][:30], tensors[0][30:])).test is not None
    pairs = open_source(((tensors[0][:30], labels[:30]), (tensors[0][30:], labels[30:])))
    assert (pairs.location, len(pairs.train), len(pairs.test)) == ("array", 30, 10)
    half = open_source((tensors[0] / 255).bfloat16())
    assert load_data(half, image_size=8, channels=3, test_fraction=0).train.images.shape == (40, 3, 8, 8)


def test_unknown_name_of_the_test_set_raises_an_error() -> None:
    images, labels = noise(20, 8, 8), np.arange(20) % 2
    parts = {"train": (images[:15], labels[:15]), "tset": (images[15:], labels[15:])}
    with pytest.raises(TwofoldError, match="'train' and 'tset'; rename the test set to one of test, testing, val"):
        open_source(parts)
    assert len(open_source({"train": parts["train"], "test": parts["tset"], "extra": parts["tset"]})) == 20
