"""The dataset `stl10`, as small files in its layout."""

from pathlib import Path

import numpy as np
import pytest

from twofold.data.load import load_data
from twofold.data.open import open_source
from twofold.errors import TwofoldError
from twofold.verbs import pretrain

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _temporary_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))


def stl10(data_dir: Path) -> dict[str, np.ndarray]:
    """Return images [n, H, W, C]. The files contain all red, green and blue values, each column by column."""
    folder = data_dir / "stl10_binary"
    folder.mkdir(parents=True)
    images = {
        name: RNG.integers(0, 256, (count, 96, 96, 3), dtype=np.uint8)
        for name, count in (("train", 4), ("test", 3), ("unlabeled", 5))
    }
    for name, pixels in images.items():
        (folder / f"{name}_X.bin").write_bytes(
            b"".join(
                bytes(image[:, column, channel]) for image in pixels for channel in range(3) for column in range(96)
            )
        )
    (folder / "train_y.bin").write_bytes(bytes([1, 2, 3, 1]))
    (folder / "test_y.bin").write_bytes(bytes([3, 3, 2]))
    (folder / "class_names.txt").write_text("airplane\nbird\ncar\n")
    return images


def test_stl10_trains_on_all_images_and_has_labels_for_some(tmp_path: Path) -> None:
    images = stl10(tmp_path)
    source = open_source("stl10", data_dir=tmp_path)
    assert source.train.side == 96
    data = load_data(source, image_size=96, channels=3, test_fraction=0.2)
    assert data.train.labels.tolist() == [0, 1, 2, 0, -1, -1, -1, -1, -1]
    assert (data.test.labels.tolist(), data.classes) == ([2, 2, 1], ("airplane", "bird", "car"))
    everything = np.concatenate([images["train"], images["unlabeled"]])
    np.testing.assert_array_equal(data.train.images.permute(0, 2, 3, 1), everything)
    np.testing.assert_array_equal(data.test.images.permute(0, 2, 3, 1), images["test"])
    assert len(data.train.labelled()) == 4


def test_stl10_defaults_have_the_stem_and_the_blur_of_the_papers(tmp_path: Path) -> None:
    stl10(tmp_path)
    config, _ = pretrain.configure("stl10", "isoloss", {"data_dir": str(tmp_path)})
    assert (config.encoder, config.stem, config.image_size, config.augment.blur) == ("resnet18", "large", 96, 0.5)


@pytest.mark.parametrize(
    "file, content, message",
    [
        ("train_X.bin", b"x" * 5000, "complete images"),
        ("train_y.bin", bytes([1, 2, 3]), "label from 1 to 3"),
        ("test_y.bin", bytes([0, 1, 2]), "label from 1 to 3"),
    ],
)
def test_error_names_the_damaged_stl10_file(tmp_path: Path, file: str, content: bytes, message: str) -> None:
    stl10(tmp_path)
    (tmp_path / "stl10_binary" / file).write_bytes(content)
    with pytest.raises(TwofoldError, match=rf"{file}.*{message}"):
        open_source("stl10", data_dir=tmp_path)
