import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import twofold
from twofold import config
from twofold.data.readers import file_index, named_sets
from twofold.data.readers.arrays import ArraySplit, Splits
from twofold.data.sources import load, natural_size, network_for, open_source
from twofold.data.split import hold_out, hold_out_groups
from twofold.errors import TwofoldError

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Ten 12 x 12 images in each of two classes."""
    for number in range(20):
        path = tmp_path / "photos" / ("cat" if number < 10 else "dog") / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise(12, 12, 3)).save(path)
    return tmp_path / "photos"


def noise(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def test_digits_with_their_defaults() -> None:
    source = open_source("digits")
    assert (source.name, len(source), source.labelled, source.test) == ("digits", 1797, True, None)
    suited = {key: value for key, value in source.defaults.items() if key in config.RUN_KEYS}
    chosen = config.resolve(config.RUN_KEYS, {"data source": suited, "chosen from the data": source.chosen})
    assert (chosen.image_size, chosen.channels, chosen.encoder, chosen.augment.flip) == (8, 1, "conv", 0)
    data = load(source, image_size=8, channels=1, test_fraction=0.2)
    assert len(data.test) == 359
    assert sorted(torch.cat([data.train.index, data.test.index]).tolist()) == list(range(1797))
    for store in (data.train, data.test):
        assert torch.equal(store.labels, torch.from_numpy(source.train.labels)[store.index])
        assert (store.images[:, 0].numpy() == source.train.images[store.index, ..., 0]).all()
        assert (store.index.diff() > 0).all()
    shares = torch.bincount(data.test.labels) / torch.bincount(torch.from_numpy(source.train.labels))
    assert ((shares - 0.2).abs() < 0.01).all()


@pytest.mark.parametrize("name, size", [("cifar10", 32), ("cifar100", 32), ("mnist", 28), ("fashion-mnist", 28)])
def test_every_named_set_is_opened_from_data_dir(
    name: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Path, bool]] = []
    split = ArraySplit(noise(6, size, size, 3), np.arange(6))

    def read(data_dir: Path, download: bool) -> Splits:
        asked.append((data_dir, download))
        return split, split, tuple("abcdef")

    monkeypatch.setitem(named_sets.NAMED, name, (read, named_sets.NAMED[name][1]))
    source = open_source(name, data_dir=tmp_path, download=True)
    assert asked == [(tmp_path, True)]
    assert (source.name, source.location, source.chosen["image_size"]) == (name, name, size)
    assert (source.defaults["encoder"], source.defaults["stem"]) == ("resnet18", "small")


def test_a_test_set_of_its_own_is_used_and_numbered_after_the_training_set(tmp_path: Path) -> None:
    tests = noise(5, 8, 8)
    np.savez(
        tmp_path / "set.npz", x_train=noise(30, 8, 8), y_train=np.arange(30) % 3, x_test=tests, y_test=[0, 1, 2, 2, 2]
    )
    source = open_source(str(tmp_path / "set.npz"))
    data = load(source, image_size=8, channels=1, test_fraction=0.2)
    assert (source.name, data.name, len(source), len(data.train)) == ("set", "set", 35, 30)
    assert data.test.index.tolist() == [30, 31, 32, 33, 34]
    assert data.test.labels.tolist() == [0, 1, 2, 2, 2]
    np.testing.assert_array_equal(data.test.images[:, 0].numpy(), tests)


def test_a_folder_from_end_to_end(photos: Path) -> None:
    source = open_source(photos)
    assert source.name == "photos"
    assert source.chosen == {"image_size": 12, "channels": 3, "stem": "small", "encoder": "conv"}
    calls: list[tuple[int, int]] = []
    data = load(
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


def test_unreadable_files_are_skipped_listed_and_keep_their_number(photos: Path) -> None:
    (photos / "cat/03.png").write_bytes(b"no image")
    (photos / "dog/15.png").write_bytes((photos / "dog/15.png").read_bytes()[:200])
    for _ in range(2):  # the second time from the cache
        data = load(open_source(photos), image_size=12, channels=3, test_fraction=0)
        assert [(item.path, bool(item.reason)) for item in data.skipped] == [("cat/03.png", True), ("dog/15.png", True)]
        assert data.train.index.tolist() == [number for number in range(20) if number not in (3, 15)]
        assert data.train.files == tuple(f"{'cat' if n < 10 else 'dog'}/{n:02d}.png" for n in data.train.index)
        drawn = np.asarray(Image.open(photos / "dog/16.png")).transpose(2, 0, 1)
        np.testing.assert_array_equal(data.train.images[14].numpy(), drawn)


def test_the_cache_is_reused_and_rebuilt_when_truncated(
    photos: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[Path] = []
    original = file_index.decode
    monkeypatch.setattr(file_index, "decode", lambda path, *rest: (decoded.append(path), original(path, *rest))[1])

    def again(**changes: object) -> torch.Tensor:
        decoded.clear()
        options = {"image_size": 12, "channels": 3, "test_fraction": 0.2, **changes}
        return load(open_source(photos), **options).train.images.clone()

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


def test_a_folder_that_has_changed_is_decoded_where_it_has(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[str] = []
    original = file_index.decode
    monkeypatch.setattr(file_index, "decode", lambda path, *rest: (decoded.append(path.name), original(path, *rest))[1])

    def again(test_fraction: float = 0.2) -> list[torch.Tensor]:
        decoded.clear()
        data = load(open_source(photos), image_size=12, channels=3, test_fraction=test_fraction)
        return [part.images.clone() for part in (data.train, data.test) if part is not None]

    again()
    again(test_fraction=0.4)
    assert decoded == [], "other parts of the same images"
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


def test_the_fingerprint_follows_content_and_settings(photos: Path) -> None:
    def fingerprint(data: object, **changes: object) -> str:
        options = {"image_size": 12, "channels": 3, "test_fraction": 0.2, **changes}
        return load(open_source(data), **options).fingerprint

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


def test_the_fingerprint_is_the_same_in_every_process() -> None:
    images = (np.arange(4 * 8 * 8) % 251).astype(np.uint8).reshape(4, 8, 8)
    data = load(open_source((images, [0, 1, 0, 1])), image_size=8, channels=1, test_fraction=0.5)
    assert data.fingerprint == "28bb4fb7a6f0b1013f15a967438f352b"
    assert sorted(data.test.labels.tolist()) == [0, 1]


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    fraction=st.floats(0.01, 0.9),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=80)
def test_hold_out_is_stratified_and_leaves_every_class_a_training_image(
    sizes: list[int], fraction: float, seed: int
) -> None:
    order = np.random.default_rng(seed).permutation(sum(sizes))
    labels = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes)[order])
    index = torch.arange(len(labels)) * 5
    held = hold_out(index, labels, fraction)
    for name, size in enumerate(sizes):
        count = int(held[labels == name].sum())
        assert count <= size - 1
        assert count == size - 1 or abs(count - fraction * size) < 1 + 1e-9
    if min(sizes) * (1 - fraction) >= 1:
        assert abs(int(held.sum()) - fraction * len(labels)) < 1 + 1e-9
    shuffled = torch.from_numpy(order.copy())
    assert torch.equal(hold_out(index[shuffled], labels[shuffled], fraction), held[shuffled])


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=40),
    alone=st.integers(0, 20),
    fraction=st.floats(0.01, 0.9),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=80)
def test_groups_are_held_out_whole(sizes: list[int], alone: int, fraction: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = torch.from_numpy(np.concatenate([np.repeat(np.arange(len(sizes)) * 3, sizes), np.full(alone, -1)]))
    labels = torch.from_numpy(rng.integers(0, 4, len(groups)))
    index = torch.arange(len(groups)) * 5
    held = hold_out_groups(index, labels, groups, fraction)
    for group in groups[groups >= 0].unique():
        assert len(held[groups == group].unique()) == 1
    for name in labels.unique():
        assert not held[labels == name].all()
    # A class that had to keep a group, of which there can be four, may bring the share further down.
    assert -4 * 9 - 4.5 <= int(held.sum()) - fraction * len(groups) <= 4.5 + 1e-9
    shuffled = torch.from_numpy(rng.permutation(len(groups)))
    assert torch.equal(hold_out_groups(index[shuffled], labels[shuffled], groups[shuffled], fraction), held[shuffled])


def test_nothing_of_a_group_that_is_held_out_is_trained_on(tmp_path: Path) -> None:
    lines = ["path,label,group"]
    for number in range(60):
        Image.fromarray(noise(8, 8, 3)).save(tmp_path / f"{number:02d}.png")
        label = "" if number % 3 == 2 else "ab"[number % 2]
        lines.append(f"{number:02d}.png,{label},{f'patient {number // 6}' if number < 54 else ''}")
    (tmp_path / "list.csv").write_text("\n".join(lines))
    data = load(open_source(tmp_path / "list.csv"), image_size=8, channels=3, test_fraction=0.25)
    assert data.test is not None
    assert 8 <= len(data.test) <= 12
    assert (data.test.labels >= 0).all()
    known = data.test.groups[data.test.groups >= 0]
    assert set(known.tolist()).isdisjoint(data.train.groups.tolist())
    left_out = 60 - len(data.train) - len(data.test)
    assert left_out == 2 * len(known.unique()), "of each, its two images without a label"
    assert data.rest is None
    whole = load(open_source(tmp_path / "list.csv"), image_size=8, channels=3, test_fraction=0.25, rest=True)
    assert torch.equal(whole.train.index, data.train.index)
    assert len(whole.rest) == left_out
    everything = torch.cat([whole.train.index, whole.test.index, whole.rest.index])
    assert sorted(everything.tolist()) == list(range(60))
    run = twofold.pretrain(
        tmp_path / "list.csv", out=tmp_path / "run", epochs=1, batch_size=16, projector="16,8", map_points=0,
        test_fraction=0.25,
    )  # fmt: skip
    with np.load(twofold.embed(run, tmp_path / "list.csv", tmp_path / "features.npz")) as file:
        assert file["index"].tolist() == list(range(60))
        trained = file["index"][file["split"] == "train"]
    assert trained.tolist() == sorted(data.train.index.tolist()), "what was not trained on is not called so"


def test_a_name_that_is_also_a_folder_says_which_was_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_source("digits").remark == ""
    (tmp_path / "digits").mkdir()
    assert open_source("digits").remark == "digits is the set of that name; the folder here is ./digits"


def test_groups_without_a_readable_label_hold_nothing_out(tmp_path: Path) -> None:
    for name in "abc":
        Image.fromarray(noise(8, 8, 3)).save(tmp_path / f"{name}.png")
    (tmp_path / "a.png").write_bytes(b"no image")
    (tmp_path / "list.csv").write_text("path,label,group\na.png,cat,x\nb.png,,x\nc.png,,y\n")
    data = load(open_source(tmp_path / "list.csv"), image_size=8, channels=3, test_fraction=0.5)
    assert (len(data.train), data.test) == (2, None)


def test_hold_out_is_no_pattern_of_the_order() -> None:
    labels = torch.arange(4000) % 2
    held = hold_out(torch.arange(4000), labels, 0.25)
    assert int(held.sum()) == 1000
    quarters = held.reshape(4, 1000).sum(1)
    assert ((quarters - 250).abs() < 60).all()
    neighbours = (held[2::2] & held[:-2:2]).float().mean()
    assert abs(float(neighbours) - 0.0625) < 0.03


def test_classes_of_one_image_stay_in_training() -> None:
    data = load(open_source((noise(6, 8, 8), list("aabbbc"))), image_size=8, channels=1, test_fraction=0.9)
    assert set(data.train.labels.tolist()) == {0, 1, 2}
    assert 2 not in data.test.labels


def test_natural_size_and_network() -> None:
    sides = (3, 8, 28, 32, 47, 64, 70, 81, 100, 127, 145, 200, 500, 4000)
    assert [natural_size(side) for side in sides] == [3, 8, 28, 32, 47, 64, 64, 96, 96, 128, 160, 224, 224, 224]
    assert network_for(19) == {"stem": "small", "encoder": "conv"}
    assert [network_for(size)["stem"] for size in (20, 48, 49, 80, 81, 224)] == [
        "small", "small", "small-pool", "small-pool", "large", "large",
    ]  # fmt: skip
    assert "encoder" not in network_for(20)


def test_the_number_of_training_images_is_known_before_decoding(photos: Path) -> None:
    for data, fraction in (
        (photos, 0.0),
        (photos, 0.3),
        (noise(9, 8, 8), 0.5),
        ((noise(9, 8, 8), list("abcabcabc")), 0.5),
    ):
        source = open_source(data)
        loaded = load(source, image_size=8, channels=1, test_fraction=fraction)
        assert source.training_images(fraction) == len(loaded.train)


def test_the_location_finds_the_source_again_from_anywhere(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        ("holiday/photos", "digits, cifar10, cifar100, mnist, fashion-mnist"),
    ],
)
def test_a_missing_path_names_the_nearest_source(word: str, hint: str) -> None:
    with pytest.raises(TwofoldError, match=hint) as caught:
        open_source(word)
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_opened(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("text")
    (tmp_path / "photos.tar.gz").write_bytes(b"")
    single = tmp_path / "single"
    single.mkdir()
    Image.new("RGB", (8, 8)).save(single / "a.png")
    cases = {
        "single image": photos / "cat/00.png",
        "not a folder": tmp_path / "notes.md",
        "is packed: unpack it": tmp_path / "photos.tar.gz",
        "there is no": tmp_path / "none.npy",
        "single has one image": single,
        "array has one image": noise(1, 8, 8),
        "a list": [1, 2, 3],
    }
    for message, data in cases.items():
        with pytest.raises(TwofoldError, match=message) as caught:
            open_source(data)
        assert "\n" not in str(caught.value)


def test_images_that_all_fail_to_decode(tmp_path: Path) -> None:
    root = tmp_path / "broken"
    root.mkdir()
    for name in ("a.png", "b.png", "c.png"):
        Image.fromarray(noise(32, 32, 3)).save(root / name)
        (root / name).write_bytes((root / name).read_bytes()[:500])
    source = open_source(root)
    with pytest.raises(TwofoldError, match=r"0 images that can be decoded.*a\.png") as caught:
        load(source, image_size=32, channels=3, test_fraction=0)
    assert "\n" not in str(caught.value)


def test_a_name_is_the_source_and_a_path_the_folder(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos.rename(photos.parent / "digits")
    monkeypatch.chdir(photos.parent)
    assert len(open_source("digits")) == 1797
    for path in ("./digits", Path("digits")):
        assert len(open_source(path)) == 20
        assert open_source(path).location == str(photos.parent / "digits")
    monkeypatch.chdir(photos.parent / "digits")
    assert open_source(".").name == "digits"
