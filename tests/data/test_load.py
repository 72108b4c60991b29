import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from twofold.data.load import load_data
from twofold.data.open import open_source
from twofold.data.readers import file_index
from twofold.errors import TwofoldError

RNG = np.random.default_rng(0)


def noise(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def test_digits_are_loaded_with_their_defaults() -> None:
    source = open_source("digits")
    assert (source.name, len(source), source.labelled, source.test) == ("digits", 1797, True, None)
    assert (source.train.side, source.train.channels) == (8, 1)
    assert (source.defaults["encoder"], source.defaults["augment.flip"]) == ("conv", 0)
    data = load_data(source, image_size=8, channels=1, test_fraction=0.2)
    assert len(data.test) == 359
    assert sorted(torch.cat([data.train.index, data.test.index]).tolist()) == list(range(1797))
    for store in (data.train, data.test):
        assert torch.equal(store.labels, torch.from_numpy(source.train.labels)[store.index])
        assert (store.images[:, 0].numpy() == source.train.images[store.index, ..., 0]).all()
        assert (store.index.diff() > 0).all()
    shares = torch.bincount(data.test.labels) / torch.bincount(torch.from_numpy(source.train.labels))
    assert ((shares - 0.2).abs() < 0.01).all()


def test_given_test_set_is_used_and_numbered_after_the_training_set(tmp_path: Path) -> None:
    tests = noise(5, 8, 8)
    np.savez(
        tmp_path / "set.npz", x_train=noise(30, 8, 8), y_train=np.arange(30) % 3, x_test=tests, y_test=[0, 1, 2, 2, 2]
    )
    source = open_source(str(tmp_path / "set.npz"))
    data = load_data(source, image_size=8, channels=1, test_fraction=0.2)
    assert (source.name, data.name, len(source), len(data.train)) == ("set", "set", 35, 30)
    assert data.test.index.tolist() == [30, 31, 32, 33, 34]
    assert data.test.labels.tolist() == [0, 1, 2, 2, 2]
    np.testing.assert_array_equal(data.test.images[:, 0].numpy(), tests)


def test_folder_is_loaded_with_labels_pixels_and_a_held_out_set(photos: Path) -> None:
    source = open_source(photos)
    assert source.name == "photos"
    assert (source.train.side, source.train.channels) == (12, 3)
    calls: list[tuple[int, int]] = []
    data = load_data(
        source, image_size=12, channels=3, test_fraction=0.2, progress=lambda done, total: calls.append((done, total))
    )
    assert (len(data.train), len(data.test), data.classes, data.skipped) == (16, 4, ("cat", "dog"), ())
    assert calls == [(done, 20) for done in range(1, 21)]
    for store in (data.train, data.test):
        for row, name in enumerate(store.files):
            assert name == source.train.files[store.index[row]]
            assert data.classes[store.labels[row]] == name.split("/")[0]
            drawn = np.asarray(Image.open(photos / name)).transpose(2, 0, 1)
            np.testing.assert_array_equal(store.images[row].numpy(), drawn)
    assert torch.bincount(data.test.labels).tolist() == [2, 2]


def test_unreadable_files_are_skipped_and_listed_and_indices_stay_the_same(photos: Path) -> None:
    (photos / "cat/03.png").write_bytes(b"no image")
    (photos / "dog/15.png").write_bytes((photos / "dog/15.png").read_bytes()[:200])
    for _ in range(2):  # the second time reads the cache
        data = load_data(open_source(photos), image_size=12, channels=3, test_fraction=0)
        assert [(item.path, bool(item.reason)) for item in data.skipped] == [("cat/03.png", True), ("dog/15.png", True)]
        assert data.train.index.tolist() == [number for number in range(20) if number not in (3, 15)]
        assert data.train.files == tuple(f"{'cat' if n < 10 else 'dog'}/{n:02d}.png" for n in data.train.index)
        drawn = np.asarray(Image.open(photos / "dog/16.png")).transpose(2, 0, 1)
        np.testing.assert_array_equal(data.train.images[14].numpy(), drawn)


def test_cache_is_reused_and_rebuilt_when_truncated(photos: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[Path] = []
    original = file_index.with_image
    monkeypatch.setattr(
        file_index, "with_image", lambda path, *rest, **page: (decoded.append(path), original(path, *rest, **page))[1]
    )

    def again(**changes: object) -> torch.Tensor:
        decoded.clear()
        options = {"image_size": 12, "channels": 3, "test_fraction": 0.2, **changes}
        return load_data(open_source(photos), **options).train.images.clone()

    first = again()
    assert len(decoded) == 20
    assert torch.equal(again(), first)
    assert decoded == []
    for pixels in cache.glob("*-train-*.u8"):
        os.truncate(pixels, 1000)
    assert torch.equal(again(), first)
    assert len(decoded) == 16
    again(image_size=8)
    assert len(decoded) == 20
    Image.fromarray(noise(12, 12, 3)).save(photos / "cat/00.png")
    again()
    assert len(decoded) == 1


def test_only_changed_files_of_a_folder_are_decoded(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[str] = []
    original = file_index.with_image
    monkeypatch.setattr(
        file_index,
        "with_image",
        lambda path, *rest, **page: (decoded.append(path.name), original(path, *rest, **page))[1],
    )

    def again(test_fraction: float = 0.2) -> list[torch.Tensor]:
        decoded.clear()
        data = load_data(open_source(photos), image_size=12, channels=3, test_fraction=test_fraction)
        return [part.images.clone() for part in (data.train, data.test) if part is not None]

    again()
    again(test_fraction=0.4)
    assert decoded == [], "a different split of the same images"
    Image.fromarray(noise(12, 12, 3)).save(photos / "cat/new.png")
    Image.fromarray(noise(12, 12, 3)).save(photos / "dog/12.png")
    (photos / "dog/13.png").write_bytes(b"no image")
    (photos / "cat/05.png").rename(photos / "cat/renamed.png")
    (photos / "dog/19.png").unlink()
    found = again()
    assert sorted(decoded) == ["12.png", "new.png", "renamed.png"]
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "elsewhere"))
    expected = again()
    assert len(decoded) == 19
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_fingerprint_depends_on_content_and_settings(photos: Path) -> None:
    def fingerprint(data: object, **changes: object) -> str:
        options = {"image_size": 12, "channels": 3, "test_fraction": 0.2, **changes}
        return load_data(open_source(data), **options).fingerprint

    base = fingerprint(photos)
    assert fingerprint(str(photos)) == base
    images = noise(10, 12, 12, 3)
    labels = np.arange(10) % 2
    others = [
        fingerprint(photos, image_size=8),
        fingerprint(photos, channels=1),
        fingerprint(photos, test_fraction=0.3),
        fingerprint(images),
        fingerprint((images, labels)),
        fingerprint((images, 1 - labels)),
        fingerprint((images, labels + 5)),
    ]
    assert fingerprint((images.copy(), labels)) == others[4]
    (photos / "cat/00.png").unlink()
    assert len({base, fingerprint(photos), *others}) == 9


def test_fingerprint_is_the_same_in_every_process() -> None:
    images = (np.arange(4 * 8 * 8) % 251).astype(np.uint8).reshape(4, 8, 8)
    data = load_data(open_source((images, [0, 1, 0, 1])), image_size=8, channels=1, test_fraction=0.5)
    assert data.fingerprint == "28bb4fb7a6f0b1013f15a967438f352b"
    assert sorted(data.test.labels.tolist()) == [0, 1]


def test_images_that_all_fail_to_decode_raise_an_error(tmp_path: Path) -> None:
    root = tmp_path / "broken"
    root.mkdir()
    for name in ("a.png", "b.png", "c.png"):
        Image.fromarray(noise(32, 32, 3)).save(root / name)
        (root / name).write_bytes((root / name).read_bytes()[:500])
    source = open_source(root)
    with pytest.raises(TwofoldError, match=r"0 images that can be decoded.*a\.png") as caught:
        load_data(source, image_size=32, channels=3, test_fraction=0)
    assert "\n" not in str(caught.value)
