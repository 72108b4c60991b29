"""How names, paths and objects are opened as data, and the errors for those that cannot be opened."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from twofold.data import registry
from twofold.data.array_split import ArraySplit, ArraySplits
from twofold.data.open import open_source
from twofold.data.source import ReadOptions
from twofold.errors import TwofoldError

RNG = np.random.default_rng(0)


def noise(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("name, size", [("cifar10", 32), ("cifar100", 32), ("mnist", 28), ("fashion-mnist", 28)])
def test_named_datasets_are_opened_from_data_dir(
    name: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Path, bool]] = []
    split = ArraySplit(noise(6, size, size, 3), np.arange(6))

    def read(options: ReadOptions) -> ArraySplits:
        asked.append((options.data_dir, options.download))
        return split, split, tuple("abcdef")

    monkeypatch.setitem(registry.NAMED_SETS, name, dataclasses.replace(registry.NAMED_SETS[name], read=read))
    source = open_source(name, data_dir=tmp_path, download=True)
    assert asked == [(tmp_path, True)]
    assert (source.name, source.location, source.train.side) == (name, name, size)
    assert (source.defaults["encoder"], source.defaults["stem"]) == ("resnet18", "small")


def test_name_that_is_also_a_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_source("digits").remark == ""
    (tmp_path / "digits").mkdir()
    assert (
        open_source("digits").remark == "digits is the named dataset; to use the folder of the same name, pass ./digits"
    )


def test_location_opens_the_source_again_from_any_folder(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos)
    source = open_source("cat")
    monkeypatch.chdir("/")
    assert open_source(source.location).fingerprint == source.fingerprint
    assert open_source("digits").location == "digits"


@pytest.mark.parametrize(
    "word, hint",
    [
        ("digit", "'digits'"),
        ("CIFAR-10", "'cifar10'"),
        ("cifar-100", "'cifar100'"),
        ("minst", "'mnist'"),
        ("fashionmnist", "'fashion-mnist'"),
        ("holiday/photos", "digits, cifar10, .*, cifar100, mnist, fashion-mnist"),
    ],
)
def test_error_for_a_missing_path_suggests_the_nearest_dataset(word: str, hint: str) -> None:
    with pytest.raises(TwofoldError, match=hint) as caught:
        open_source(word)
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unsupported_data_raises_an_error(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("text")
    (tmp_path / "photos.tar.gz").write_bytes(b"")
    single = tmp_path / "single"
    single.mkdir()
    Image.new("RGB", (8, 8)).save(single / "a.png")
    cases = {
        "single image": photos / "cat/00.png",
        "neither a folder": tmp_path / "notes.md",
        "is a compressed archive; unpack it": tmp_path / "photos.tar.gz",
        "none.npy' does not exist": tmp_path / "none.npy",
        "single has only one readable image": single,
        "array has only one readable image": noise(1, 8, 8),
        "a list": [1, 2, 3],
    }
    for message, data in cases.items():
        with pytest.raises(TwofoldError, match=message) as caught:
            open_source(data)
        assert "\n" not in str(caught.value)


def test_plain_name_is_the_dataset_and_a_path_is_the_folder(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos.rename(photos.parent / "digits")
    monkeypatch.chdir(photos.parent)
    assert len(open_source("digits")) == 1797
    for path in ("./digits", Path("digits")):
        assert len(open_source(path)) == 20
        assert open_source(path).location == str(photos.parent / "digits")
    monkeypatch.chdir(photos.parent / "digits")
    assert open_source(".").name == "digits"
