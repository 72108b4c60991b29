"""CIFAR images with an MNIST digit of their label in the fourth channel, and how both are augmented."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from standard_files import CLASSES, cifar10_contents, idx
from twofold.data.array_split import ArraySplit
from twofold.data.open import open_source
from twofold.data.readers import cifar
from twofold.data.readers.mnist_on_cifar import choose_digits
from twofold.errors import TwofoldError
from twofold.verbs import pretrain

DIGIT_LABELS = {"train": np.repeat(np.arange(10), 9), "t10k": np.arange(10).repeat(2)}


def digits(labels: np.ndarray) -> np.ndarray:
    """Digits that can be told apart: the row number in the top left quarter, the label elsewhere."""
    images = np.broadcast_to(labels[:, None, None] + 100, (len(labels), 28, 28)).astype(np.uint8)
    images[:, :14, :14] = np.arange(len(labels))[:, None, None]
    return images


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    for name, record in cifar10_contents().items():
        (tmp_path / name).write_bytes(pickle.dumps(record))
    for part, labels in DIGIT_LABELS.items():
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx(digits(labels)))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels.astype(np.uint8)))
    return tmp_path


def test_each_image_has_a_digit_of_its_label(data_dir: Path) -> None:
    source = open_source("mnist-on-cifar", data_dir=data_dir)
    pictures = open_source("cifar10", data_dir=data_dir)
    assert source.classes == tuple(CLASSES)
    assert (source.train.side, source.train.channels) == (32, 4)
    for split, plain, part in ((source.train, pictures.train, "train"), (source.test, pictures.test, "t10k")):
        np.testing.assert_array_equal(split.images[..., :3], plain.images)
        np.testing.assert_array_equal(split.labels, plain.labels)
        channel = split.images[..., 3]
        np.testing.assert_array_equal(channel[:, -1, -1], 100 + split.labels)
        rows = channel[:, 0, 0].astype(int)
        np.testing.assert_array_equal(DIGIT_LABELS[part][rows], split.labels)
        enlarged = Image.fromarray(digits(DIGIT_LABELS[part])[rows[0]]).resize((32, 32), Image.Resampling.BILINEAR)
        np.testing.assert_allclose(channel[0], np.asarray(enlarged), atol=1)


def test_digits_of_a_label_repeat_only_after_all_were_used() -> None:
    labels = np.array([0, 1] * 10 + [0] * 15)
    chosen = choose_digits(labels, np.repeat(np.arange(2), [10, 20]), "train")
    zeros, ones = chosen[labels == 0], chosen[labels == 1]
    assert sorted(zeros[:10]) == list(range(10))
    np.testing.assert_array_equal(zeros[10:20], zeros[:10])
    assert len(set(ones)) == 10
    assert set(ones) <= set(range(10, 30))
    assert list(ones) != sorted(ones)  # in random order
    other = choose_digits(labels, np.repeat(np.arange(2), [10, 20]), "test")
    assert list(other) != list(chosen)


def test_label_without_digits_raises_an_error() -> None:
    with pytest.raises(TwofoldError, match=r"no digit 2 among MNIST's test images"):
        choose_digits(np.array([0, 2]), np.array([0, 1]), "test")


def test_masked_variant_differs_only_in_a_black_digit_channel(data_dir: Path) -> None:
    shown, masked = (open_source(f"mnist-on-cifar{kind}", data_dir=data_dir) for kind in ("", "-masked"))
    for split, other in ((shown.train, masked.train), (shown.test, masked.test)):
        np.testing.assert_array_equal(split.images[..., :3], other.images[..., :3])
        np.testing.assert_array_equal(split.labels, other.labels)
        assert (split.images[..., 3].max(), other.images[..., 3].max()) > (0, 0)
        assert other.images[..., 3].max() == 0


def test_augmentation_of_the_digit_follows_the_paper(data_dir: Path) -> None:
    config, _ = pretrain.configure("mnist-on-cifar", "diet", {"data_dir": str(data_dir)})
    augment = config.augment
    assert (augment.crop_scale, augment.flip, augment.grayscale) == ((0.08, 1.0), 0.5, 0.2)
    assert (augment.extra_scale, augment.extra_blur > 0) == ((0.75, 1.0), True)
    assert (config.channels, config.encoder, config.stem) == (4, "resnet18", "small")


def test_smaller_named_sets_have_the_first_images_of_each_class(data_dir: Path) -> None:
    whole = open_source("cifar10", data_dir=data_dir)
    small = open_source("cifar10-5k", data_dir=data_dir)  # the files of this test have fewer images than the limit
    np.testing.assert_array_equal(small.train.images, whole.train.images)
    chosen = cifar._first_of_each_class(cifar.read_cifar10(data_dir, False), [2, 1, 0] + [9] * 7)[0]
    for label, count in ((0, 2), (1, 1), (2, 0)):
        expected = whole.train.images[whole.train.labels == label][:count]
        np.testing.assert_array_equal(chosen.images[chosen.labels == label], expected)
    np.testing.assert_array_equal(
        open_source("mnist-on-cifar-5k", data_dir=data_dir).train.images[..., :3], small.train.images
    )
    assert not open_source("mnist-on-cifar-5k-masked", data_dir=data_dir).train.images[..., 3].any()


def test_long_tailed_set_has_the_counts_of_cifar10_lt(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = ArraySplit(np.zeros((50_000, 1, 1, 3), np.uint8), np.arange(50_000) % 10)
    monkeypatch.setattr(cifar, "read_cifar10", lambda *_: (everything, everything, ()))
    train, test, _ = cifar.read_cifar10_long_tailed(Path(), False)
    published = [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]  # Cui et al. 2019, imbalance factor 100
    assert np.bincount(train.labels).tolist() == published
    assert len(test.labels) == 50_000
