"""The datasets of the papers with the official numbers, names and sizes of files, which the small files do not have.

Files of STL-10 are sparse: they have the official size, but only some images are written. Folders of images have hard
links to a few images. The tests that read every image are marked `full`.
"""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from standard_files import python2_pickle
from twofold.data.decode import crop_and_resize
from twofold.data.item_split import ItemSplit
from twofold.data.load import load_data
from twofold.data.open import open_source
from twofold.data.readers.cifar import read_cifar100
from twofold.data.readers.folder_sets import FOLDER_SETS

RNG = np.random.default_rng(0)
STL10 = {"train": 5_000, "test": 8_000, "unlabeled": 100_000}
STL10_CLASSES = ["airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck"]
IMAGENET100 = FOLDER_SETS["imagenet100"].classes


def square(split: ItemSplit, row: int, size: int) -> np.ndarray:
    return split.fetch(row, size, lambda image: crop_and_resize(image, size, 3))


@pytest.fixture(autouse=True)
def _temporary_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))


def stl10(data_dir: Path) -> dict[tuple[str, int], np.ndarray]:
    """The binary files of STL-10 with their official sizes; the first and the last image of each are written."""
    folder = data_dir / "stl10_binary"
    folder.mkdir()
    written = {}
    for part, count in STL10.items():
        with (folder / f"{part}_X.bin").open("wb") as file:
            for row in (0, count - 1):
                written[part, row] = image = RNG.integers(0, 256, (96, 96, 3), dtype=np.uint8)
                file.seek(row * 27_648)
                file.write(image.transpose(2, 1, 0).tobytes())  # by channel, then column by column
    for part in ("train", "test"):
        (folder / f"{part}_y.bin").write_bytes(bytes(1 + row % 10 for row in range(STL10[part])))
    (folder / "class_names.txt").write_text("\n".join(STL10_CLASSES))
    (folder / "fold_indices.txt").write_text("0 1 2\n" * 10)
    return written


def test_stl10_of_official_size_is_read(tmp_path: Path) -> None:
    written = stl10(tmp_path)
    assert (tmp_path / "stl10_binary/unlabeled_X.bin").stat().st_size == 2_764_800_000
    source = open_source("stl10", data_dir=tmp_path)
    assert (len(source.train), len(source.test), source.classes) == (105_000, 8_000, tuple(STL10_CLASSES))
    assert source.train.labels[:11].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
    assert set(source.train.labels[5_000:]) == {-1}
    places = {"train": (source.train, 0), "unlabeled": (source.train, 5_000), "test": (source.test, 0)}
    for (part, row), image in written.items():
        split, before = places[part]
        np.testing.assert_array_equal(square(split, before + row, 96).transpose(1, 2, 0), image)


@pytest.mark.full
def test_every_image_of_stl10_is_read(tmp_path: Path) -> None:
    written = stl10(tmp_path)
    data = load_data(open_source("stl10", data_dir=tmp_path), image_size=16, channels=3, test_fraction=0.2)
    assert (len(data.train.images), len(data.test.images)) == (105_000, 8_000)
    assert len(data.train.labelled()) == 5_000
    lit = data.train.images.flatten(1).any(1).nonzero().flatten().tolist()
    assert lit == [0, 4_999, 5_000, 104_999]  # all other images are black
    exact = np.stack([written["train", 0], written["unlabeled", 99_999]]).reshape(2, 16, 6, 16, 6, 3).mean((2, 4))
    np.testing.assert_allclose(data.train.images[[0, 104_999]].permute(0, 2, 3, 1), exact, atol=48)  # another kernel


@pytest.mark.full
def test_cifar100_of_official_size_is_read(tmp_path: Path) -> None:
    """Pickles of Python 2 with 50,000 and 10,000 images, and the names of all images."""
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    contents: dict[str, dict[str, object]] = {}
    for name, count in (("train", 50_000), ("test", 10_000)):
        contents[name] = {
            "filenames": [f"bos_taurus_s_{number:06}.png" for number in range(count)],
            "batch_label": "training batch 1 of 1" if name == "train" else "testing batch 1 of 1",
            "fine_labels": RNG.permutation(np.arange(count) % 100).tolist(),
            "coarse_labels": RNG.integers(0, 20, count).tolist(),
            "data": RNG.integers(0, 256, (count, 3072), dtype=np.uint8),
        }
        (folder / name).write_bytes(python2_pickle(contents[name]))
    names = [f"class_{number}" for number in range(100)]
    meta = {"fine_label_names": names, "coarse_label_names": [f"group_{number}" for number in range(20)]}
    (folder / "meta").write_bytes(python2_pickle(meta))
    train, test, classes = read_cifar100(tmp_path, download=False)
    assert classes == tuple(names)
    for split, name in ((train, "train"), (test, "test")):
        np.testing.assert_array_equal(split.images.transpose(0, 3, 1, 2).reshape(-1, 3072), contents[name]["data"])
        assert split.labels is not None
        assert split.labels.tolist() == contents[name]["fine_labels"]


def link(image: Path, *copies: Path) -> None:
    for copy in copies:
        copy.parent.mkdir(parents=True, exist_ok=True)
        os.link(image, copy)


def pictures(folder: Path, count: int, size: tuple[int, int]) -> list[Path]:
    """JPEG files of uniform brightness: the first is the darkest. Each fifth is grey, as some official images are."""
    folder.mkdir()
    paths = [folder / f"{number}.JPEG" for number in range(count)]
    for number, path in enumerate(paths):
        mode = "L" if number % 5 == 4 else "RGB"
        Image.new(mode, size, color=number if mode == "L" else (number,) * 3).save(path, quality=95)
    return paths


def tiny_imagenet(data_dir: Path, per_class: int, val: int, test: int) -> list[str]:
    """Tiny-ImageNet with its 200 classes, and the classes of the validation images."""
    root = data_dir / "tiny-imagenet-200"
    names = [f"n{1_443_537 + 1_000 * number:08}" for number in range(200)]
    images = pictures(data_dir / "images", 200, (64, 64))
    for name, image in zip(names, images, strict=True):
        link(image, *(root / f"train/{name}/images/{name}_{number}.JPEG" for number in range(per_class)))
        boxes = "".join(f"{name}_{number}.JPEG\t0\t10\t63\t58\n" for number in range(per_class))
        (root / f"train/{name}/{name}_boxes.txt").write_text(boxes)
    order = RNG.permutation(np.arange(val) % 200).tolist()
    for number, place in enumerate(order):
        link(images[place], root / f"val/images/val_{number}.JPEG")
    for number in range(test):
        link(images[number % 200], root / f"test/images/test_{number}.JPEG")
    lines = [f"val_{number}.JPEG\t{names[place]}\t0\t32\t44\t62\n" for number, place in enumerate(order)]
    (root / "val/val_annotations.txt").write_text("".join(lines))
    (root / "wnids.txt").write_text("\n".join(reversed(names)) + "\n")
    (root / "words.txt").write_text("".join(f"{name}\ta word, another\n" for name in names))
    return [names[place] for place in order]


@pytest.mark.parametrize(
    "per_class, val", [(2, 200), pytest.param(500, 10_000, marks=pytest.mark.full, id="official size")]
)
def test_tiny_imagenet_is_read_whole(tmp_path: Path, per_class: int, val: int) -> None:
    of_val = tiny_imagenet(tmp_path, per_class, val, val)
    source = open_source("tiny-imagenet", data_dir=tmp_path)
    assert (len(source.train), len(source.test), len(source.classes)) == (200 * per_class, val, 200)
    assert [source.classes[label] for label in by_number(source.test)] == of_val
    data = load_data(source, image_size=8, channels=3, test_fraction=0.2)
    for split in (data.train, data.test):
        brightness = split.images.float().mean((1, 2, 3)).round().int()
        assert (brightness - split.labels).abs().max() <= 2  # the brightness of a picture is its class


def by_number(split: ItemSplit) -> list[int]:
    """The labels of val_0, val_1, …; files are sorted by name, in which val_10 comes before val_2."""
    numbers = [int(Path(name).stem.removeprefix("val_")) for name in split.files]
    return [label for _, label in sorted(zip(numbers, split.labels.tolist(), strict=True))]


@pytest.mark.parametrize(
    "per_class, val", [(2, 1), pytest.param(1_300, 50, marks=pytest.mark.full, id="official size")]
)
def test_imagenet100_is_read_whole(tmp_path: Path, per_class: int, val: int) -> None:
    """126,000 images in 100 of the classes of ImageNet. ImageNet has a PNG file and CMYK files with the name .JPEG."""
    root = tmp_path / "ILSVRC2012"
    images = pictures(tmp_path / "images", 100, (500, 375))
    Image.new("RGB", (500, 375), (7, 7, 7)).save(images[7], format="PNG")
    Image.new("CMYK", (500, 375), (0, 0, 0, 255 - 9)).save(images[9], format="JPEG", quality=95)
    names = sorted(IMAGENET100)
    for name, image in zip(names, images, strict=True):
        link(image, *(root / f"train/{name}/{name}_{number}.JPEG" for number in range(per_class)))
        link(image, *(root / f"val/{name}/ILSVRC2012_val_{name}{number:04}.JPEG" for number in range(val)))
    link(images[0], root / "train/n00000001/n00000001_1.JPEG", root / "val/n00000001/ILSVRC2012_val_1.JPEG")
    source = open_source("imagenet100", data_dir=tmp_path)
    assert (len(source.train), len(source.test), source.classes) == (100 * per_class, 100 * val, tuple(names))
    assert source.train.side == 375
    for row in range(len(source.test)):
        assert abs(int(square(source.test, row, 32).mean().round()) - source.test.labels[row]) <= 2
    for label, row in enumerate(range(0, len(source.train), per_class)):
        assert abs(int(square(source.train, row, 32).mean().round()) - label) <= 2
