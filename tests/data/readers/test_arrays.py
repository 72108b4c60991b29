from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import running
import twofold
from twofold.data.load import load_data
from twofold.data.open import open_source
from twofold.data.readers.arrays import from_arrays, read_array_file
from twofold.errors import TwofoldError

RNG = np.random.default_rng(0)


def noise(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def channels_first(images: np.ndarray) -> np.ndarray:
    return images.transpose(0, 3, 1, 2)


@pytest.mark.parametrize(
    "images, expected",
    [
        (grey := noise(4, 6, 5), grey[..., None]),
        (grey[..., None], grey[..., None]),
        (grey[:, None], grey[..., None]),
        (colour := noise(4, 6, 5, 3), colour),
        (channels_first(colour), colour),
        (wide := noise(2, 6, 3, 5).transpose(0, 1, 3, 2), wide),
        (four := noise(2, 6, 5, 4), four),
        (channels_first(four), four),
        (two := noise(2, 6, 5, 2), two),
        (channels_first(two), two),
    ],
    ids=["nHW", "nHW1", "n1HW", "nHW3", "n3HW", "view", "nHW4", "n4HW", "nHW2", "n2HW"],
)
def test_layouts_of_arrays_are_recognized(images: np.ndarray, expected: np.ndarray) -> None:
    train, test, classes = from_arrays("x", images)
    np.testing.assert_array_equal(train.images, expected)
    assert (test, classes, train.labels) == (None, None, None)
    assert train.side == 5
    assert train.channels == expected.shape[3]


@pytest.mark.parametrize(
    "shape, message",
    [
        ((5, 3, 8, 3), "could be"),
        ((5, 1, 8, 1), "could be"),
        ((5, 8, 8, 8), "fewer channels than rows"),
        ((5, 4, 8, 4), "fewer channels than rows"),
        ((64, 48, 3), "one image"),
        ((10, 64), r"\[n, H, W\]"),
        ((0, 8, 8), "no images"),
    ],
)
def test_unsupported_shapes_raise_an_error(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(TwofoldError, match=message) as caught:
        from_arrays("my.npy", np.zeros(shape, np.uint8))
    assert "my.npy" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_from_0_to_1_are_scaled_to_uint8(dtype: type) -> None:
    images = RNG.random((3, 8, 8)).astype(dtype)
    images[0, 0, :2] = (0, 1)
    decoded = from_arrays("x", images)[0].decode(np.arange(3), 8, 1, "key", None)
    np.testing.assert_array_equal(decoded.images[:, 0], np.rint(images.astype(np.float64) * 255))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_outside_0_to_1_by_rounding_alone_are_clipped(dtype: type) -> None:
    images = np.zeros((3, 8, 8), dtype)
    images[0, 0] = (1 + 1e-7, -1e-7, 1.0019, -0.0019, 1, 0, 1.00196, -0.00196)
    decoded = from_arrays("x", images)[0].decode(np.arange(3), 8, 1, "key", None)
    assert decoded.images[0, 0, 0].tolist() == [255, 0] * 4
    images[0, 0, 0] = 1.002
    with pytest.raises(TwofoldError, match=r"from -0.00196 to 1.002; scale them to the range 0 to 1"):
        from_arrays("x", images)


@pytest.mark.parametrize("bad", [-0.01, 1.01, 255.0, np.inf, np.nan])
def test_floats_outside_0_to_1_raise_an_error(bad: float) -> None:
    images = np.zeros((3, 8, 8))
    images[1, 2, 3] = bad
    with pytest.raises(TwofoldError, match="pixels that are NaN" if np.isnan(bad) else "0 to 1"):
        from_arrays("x", images)


@pytest.mark.parametrize("dtype", [np.int64, np.uint16, bool, complex, "U3"])
def test_unsupported_dtypes_raise_an_error(dtype: object) -> None:
    with pytest.raises(TwofoldError, match="uint8"):
        from_arrays("x", np.zeros((3, 8, 8), dtype))


@pytest.mark.parametrize(
    "labels, classes, codes",
    [
        ([7, 3, 7, 5], ("3", "5", "7"), [2, 0, 2, 1]),
        ([[1], [0], [1], [1]], ("0", "1"), [1, 0, 1, 1]),
        (np.array([2.0, 10.0, 2.0, 2.0]), ("2", "10"), [0, 1, 0, 0]),
        (["b", "a", "é", "a"], ("a", "b", "é"), [1, 0, 2, 0]),
        (np.array(["b", "a", "b", "a"], "S"), ("a", "b"), [1, 0, 1, 0]),
    ],
)
def test_labels_become_class_numbers(labels: object, classes: tuple[str, ...], codes: list[int]) -> None:
    train, _, names = from_arrays("x", noise(4, 8, 8), labels)
    assert names == classes
    assert train.labels.dtype == np.int64
    assert train.labels.tolist() == codes


@pytest.mark.parametrize(
    "labels, message",
    [
        ([1, 2], "one label"),
        (np.ones((4, 3)), "row 0 of x has the label"),
        (np.eye(3), "one label"),
        ([0.5, 1, 2, 3], "use integers"),
        ([None, 0.5, 2, 3], "use integers"),
    ],
)
def test_invalid_labels_raise_an_error(labels: object, message: str) -> None:
    with pytest.raises(TwofoldError, match=message):
        from_arrays("x", noise(4, 8, 8), labels)


@pytest.mark.parametrize(
    "labels, classes, codes",
    [
        ([4, -1, 2], ("2", "4"), [1, -1, 0]),
        (["b", "", "a"], ("a", "b"), [1, -1, 0]),
        ([-1, -1, -1], None, None),
        ([4.0, np.nan, 2.0], ("2", "4"), [1, -1, 0]),
        (["b", None, "a"], ("a", "b"), [1, -1, 0]),
    ],
)
def test_negative_and_empty_labels_mean_unknown(labels: list[object], classes: object, codes: object) -> None:
    train, _, found = from_arrays("x", noise(3, 6, 5), labels)
    assert found == classes
    assert (None if train.labels is None else train.labels.tolist()) == codes


def test_training_and_test_set_share_the_classes() -> None:
    train, test, classes = from_arrays("x", noise(3, 8, 8), [5, 1, 5], noise(2, 8, 8), [9, 1])
    assert classes == ("1", "5", "9")
    assert (train.labels.tolist(), test.labels.tolist()) == ([1, 0, 1], [2, 0])
    with pytest.raises(TwofoldError, match="text"):
        from_arrays("x", noise(3, 8, 8), [5, 1, 5], noise(2, 8, 8), ["5", "1"])


@pytest.mark.parametrize(
    "keys", [("images", "labels"), ("x", "y"), ("X", "Y"), ("x_train", "y_train"), ("train_images", "train_labels")]
)
def test_keys_of_npz_files_are_recognized(tmp_path: Path, keys: tuple[str, str]) -> None:
    images, tests = noise(4, 8, 8, 3), noise(2, 8, 8, 3)
    np.savez(tmp_path / "a.npz", **{keys[0]: images, keys[1]: np.arange(4)}, x_test=tests, y_test=np.arange(2))
    train, test, classes = read_array_file(tmp_path / "a.npz")
    np.testing.assert_array_equal(train.images, images)
    np.testing.assert_array_equal(test.images, tests)
    assert (train.labels.tolist(), test.labels.tolist(), len(classes)) == ([0, 1, 2, 3], [0, 1], 4)


def test_npz_without_names_and_npy_are_read(tmp_path: Path) -> None:
    images = noise(4, 8, 8)
    np.savez(tmp_path / "a.npz", images, [0, 1, 0, 1])
    train, test, _ = read_array_file(tmp_path / "a.npz")
    assert (train.labels.tolist(), test) == ([0, 1, 0, 1], None)
    np.save(tmp_path / "a.npy", images)
    train, _, classes = read_array_file(tmp_path / "a.npy")
    np.testing.assert_array_equal(train.images[..., 0], images)
    assert classes is None


def test_unreadable_array_files_raise_an_error_with_their_path(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{}, {}], object), allow_pickle=True)
    np.savez(tmp_path / "objects.npz", images=np.array([{}, {}], object))
    np.savez(tmp_path / "named.npz", pictures=noise(4, 8, 8))
    (tmp_path / "text.npy").write_text("no array")
    (tmp_path / "empty.npz").write_bytes(b"")
    np.save(tmp_path / "short.npy", noise(40, 8, 8))
    (tmp_path / "short.npy").write_bytes((tmp_path / "short.npy").read_bytes()[:500])
    np.savez(tmp_path / "short.npz", images=noise(40, 8, 8))
    (tmp_path / "short.npz").write_bytes((tmp_path / "short.npz").read_bytes()[:500])
    for path in tmp_path.iterdir():
        with pytest.raises(TwofoldError) as caught:
            read_array_file(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert "allow_pickle" not in str(caught.value)
    with pytest.raises(TwofoldError, match=r"pictures.*images"):
        read_array_file(tmp_path / "named.npz")


def test_decoding_crops_the_centre_and_resizes_like_pillow() -> None:
    images = noise(3, 20, 26, 3)
    calls: list[tuple[int, int]] = []
    decoded = from_arrays("x", images)[0].decode(
        np.array([2, 0]), 10, 3, "key", lambda done, total: calls.append((done, total))
    )
    for got, image in zip(decoded.images, images[[2, 0]], strict=True):
        expected = np.asarray(Image.fromarray(image[:, 3:23]).resize((10, 10), Image.Resampling.BILINEAR))
        # The outermost columns may differ, because the reader also averages pixels outside of the centre square.
        np.testing.assert_allclose(got.transpose(1, 2, 0)[:, 1:-1], expected[:, 1:-1].astype(int), atol=1)
    assert calls == [(1, 2), (2, 2)]


def test_decoding_converts_between_grey_and_colour() -> None:
    grey, colour = noise(2, 8, 8), noise(2, 8, 8, 3)
    both = np.arange(2)
    tripled = from_arrays("x", grey)[0].decode(both, 8, 3, "key", None).images
    np.testing.assert_array_equal(tripled, np.repeat(grey[:, None], 3, axis=1))
    luma = from_arrays("x", colour)[0].decode(both, 8, 1, "key", None).images[:, 0]
    np.testing.assert_allclose(luma, colour @ np.array([0.299, 0.587, 0.114]), atol=0.51)


@pytest.mark.parametrize("layout", ["nHWC", "nCHW"])
def test_decoded_images_are_a_copy_of_the_callers_array(layout: str) -> None:
    images = noise(3, 8, 8, 3) if layout == "nHWC" else noise(3, 3, 8, 8)
    decoded = from_arrays("x", images)[0].decode(np.arange(3), 8, 3, "key", None)
    before = decoded.images.copy()
    images[:] = 0
    assert (decoded.images == before).all()
    assert decoded.images.flags.c_contiguous


def test_channels_first_npy_file_is_memory_mapped(tmp_path: Path) -> None:
    images = noise(3, 3, 8, 8)
    np.save(tmp_path / "a.npy", images)
    decoded = read_array_file(tmp_path / "a.npy")[0].decode(np.arange(3), 8, 3, "key", None)
    np.testing.assert_array_equal(decoded.images, images)
    with (tmp_path / "a.npy").open("r+b") as file:
        file.seek(-1, 2)
        file.write(bytes([images[-1, -1, -1, -1] ^ 255]))
    assert decoded.images[-1, -1, -1, -1] == images[-1, -1, -1, -1] ^ 255


def test_digest_depends_on_pixels_and_labels() -> None:
    images, labels = noise(5, 8, 8), [0, 1, 0, 1, 0]
    digest = from_arrays("x", images, labels)[0].digest()
    assert from_arrays("y", images.copy(order="F"), labels)[0].digest() == digest
    changed = images.copy()
    changed[4, 7, 7] ^= 1
    others = (from_arrays("x", changed, labels), from_arrays("x", images), from_arrays("x", images, [1, 1, 0, 1, 0]))
    assert digest not in {split.digest() for split, _, _ in others}


@pytest.mark.parametrize("of", [lambda train, test: {"train": train, "test": test}, lambda train, test: (train, test)])
def test_arrays_with_a_separate_test_set(of: Callable[[object, object], object], tmp_path: Path) -> None:
    images, more = RNG.integers(0, 256, (9, 8, 8), dtype=np.uint8), RNG.integers(0, 256, (4, 8, 8), dtype=np.uint8)
    source = open_source(of((images, np.arange(9) % 3), (more, np.array([2, 0, 1, 2]))))
    assert source.name == "array"
    data = load_data(source, image_size=8, channels=1, test_fraction=0.5)
    assert data.train.labels.tolist() == [0, 1, 2] * 3
    assert data.test.labels.tolist() == [2, 0, 1, 2]
    np.testing.assert_array_equal(data.test.images[:, 0], more)
    labelled = {"train": (np.repeat(images, 8, axis=0), np.arange(72) % 3), "test": (more, np.array([2, 0, 1, 2]))}
    run = twofold.pretrain(
        labelled, method="simclr", out=tmp_path / "run", **running.small("simclr", epochs=1, batch_size=32)
    )
    assert run.results["test_images"] == 4
