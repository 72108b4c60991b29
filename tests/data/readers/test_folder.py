import os
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from twofold.data import parallel
from twofold.data.item_split import ItemSplit
from twofold.data.load import load_data
from twofold.data.open import open_source
from twofold.data.parallel import map_in_order
from twofold.data.readers import file_index
from twofold.data.readers.folder import find_image_files, read_folder
from twofold.data.source import Skipped
from twofold.errors import TwofoldError

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _temporary_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    return tmp_path / "photos"


def draw(root: Path, *names: str, size: tuple[int, int] = (12, 10), mode: str = "RGB") -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shape = (size[1], size[0]) if mode == "L" else (size[1], size[0], len(mode))
        Image.fromarray(RNG.integers(0, 256, shape, dtype=np.uint8)).save(root / name)


def labels_of(split: ItemSplit, classes: tuple[str, ...]) -> list[str]:
    return [classes[label] for label in split.labels]


def test_flat_folder_is_sorted_and_has_no_labels(root: Path) -> None:
    draw(root, "b.png", "a.JPG", "c.webp")
    train, test, classes = read_folder(root)
    assert train.files == ("a.JPG", "b.png", "c.webp")
    assert (train.labels, test, classes) == (None, None, None)
    assert (train.side, train.channels) == (10, 3)


def test_hidden_and_other_files_are_ignored(root: Path) -> None:
    draw(root, "a.png", "b.png", ".c.png", ".hidden/d.png", "cat/.e.png")
    (root / "notes.txt").write_text("no image")
    (root / "model.pt").write_bytes(b"x")
    (root / "folder.png").mkdir()
    train, _, _ = read_folder(root)
    assert train.files == ("a.png", "b.png")


def test_sub_folders_are_classes_and_include_nested_folders(root: Path) -> None:
    draw(root, "dog/1.png", "cat/2.png", "cat/old/deep/3.png", "bird-x/4.png", "bird/5.png")
    (root / "empty").mkdir()
    (root / "docs").mkdir()
    (root / "docs/readme.md").write_text("text")
    train, test, classes = read_folder(root)
    assert classes == ("bird", "bird-x", "cat", "dog")
    assert train.files == ("bird/5.png", "bird-x/4.png", "cat/2.png", "cat/old/deep/3.png", "dog/1.png")
    assert labels_of(train, classes) == ["bird", "bird-x", "cat", "cat", "dog"]
    assert test is None


def test_images_next_to_sub_folders_make_one_set_without_labels(root: Path) -> None:
    draw(root, "x.png", "cat/1.png", "dog/2.png")
    train, _, classes = read_folder(root)
    assert train.files == ("cat/1.png", "dog/2.png", "x.png")
    assert (train.labels, classes) == (None, None)


@pytest.mark.parametrize(
    "name, test_name",
    [
        *(("train", each) for each in ("test", "val", "valid", "Val", "validation", "eval", "dev")),
        ("Training", "testing"),
    ],
)
def test_train_and_test_folders_are_splits(root: Path, name: str, test_name: str) -> None:
    draw(root, f"{name}/cat/1.png", f"{name}/dog/2.png", f"{test_name}/dog/3.png", f"{test_name}/cow/4.png", "e/5.png")
    train, test, classes = read_folder(root)
    assert classes == ("cat", "cow", "dog")
    assert train.files == (f"{name}/cat/1.png", f"{name}/dog/2.png")
    assert labels_of(train, classes) == ["cat", "dog"]
    assert labels_of(test, classes) == ["cow", "dog"]


def test_skipped_folders_are_reported(root: Path) -> None:
    draw(root, "train/a/1.png", "train/b/1.png", "val/a/3.png", "val/b/3.png")
    assert read_folder(root)[0].remark == ""
    draw(root, "unlabelled/1.png", "unlabelled/2.png", "test/a/1.png")
    train, test, _ = read_folder(root)
    assert len(train) + len(test) == 3
    assert train.remark.startswith("skipped 4 images that are in neither the training nor the test folder: ")
    assert "unlabelled" in train.remark


def test_ignored_sub_folders_are_reported(root: Path) -> None:
    draw(root, "cats/1.png", "dogs/1.png")
    assert read_folder(root)[0].remark == ""
    draw(root, "stray.png")
    train, _, classes = read_folder(root)
    assert classes is None
    assert train.remark == "sub-folders are not used as classes, because images lie next to them (1, such as stray.png)"


def test_two_training_folders_raise_an_error(root: Path) -> None:
    draw(root, "train/a/1.png", "train/b/1.png", "training/a/2.png", "val/a/3.png")
    with pytest.raises(TwofoldError, match=r"train and .*training both look like"):
        read_folder(root)


def test_test_folder_with_one_known_class_has_labels(root: Path) -> None:
    draw(root, "train/cat/1.png", "train/dog/2.png", "test/dog/3.png")
    _, test, classes = read_folder(root)
    assert (classes, test.labels.tolist()) == (("cat", "dog"), [1])


def test_test_folder_with_classes_is_preferred(root: Path) -> None:
    draw(root, "train/cat/1.png", "train/dog/2.png", "test/3.png", "test/4.png", "val/cat/5.png", "val/dog/6.png")
    _, test, _ = read_folder(root)
    assert test.files == ("val/cat/5.png", "val/dog/6.png")


def test_flat_splits_have_no_labels(root: Path) -> None:
    draw(root, "train/1.png", "train/2.png", "test/3.png")
    train, test, classes = read_folder(root)
    assert (train.labels, test.labels, classes) == (None, None, None)
    assert test.files == ("test/3.png",)


def test_folder_that_contains_only_one_folder_is_entered(root: Path) -> None:
    draw(root, "photos/2021/1.png", "photos/2021/2.png")
    assert read_folder(root)[2] is None
    other = root.parent / "wrapped"
    draw(other, "set/train/images/cat/1.png", "set/train/images/dog/2.png", "set/test/dog/3.png", "set/test/cat/4.png")
    train, test, classes = read_folder(other)
    assert classes == ("cat", "dog")
    assert (labels_of(train, classes), labels_of(test, classes)) == (["cat", "dog"], ["cat", "dog"])
    assert read_folder(other / "set/train")[2] == ("cat", "dog")


def test_links_are_followed_without_infinite_loops(root: Path) -> None:
    draw(root, "b/1.png", "c/2.png")
    outside = root.parent / "outside"
    draw(outside, "3.png", "deep/4.png")
    (root / "linked").symlink_to(outside)
    (root / "b/up").symlink_to(root)
    (root / "c/self").symlink_to(root / "c")
    (outside / "deep/back").symlink_to(outside)
    (root / "a-again").symlink_to(root / "b")
    (root / "b/file.png").symlink_to(outside / "3.png")
    (root / "b/dangling.png").symlink_to(root / "nowhere.png")
    (root / "b/loop.png").symlink_to(root / "b/loop.png")
    found, closed, _ = find_image_files(root)
    assert found == ["b/1.png", "b/file.png", "c/2.png", "linked/3.png", "linked/deep/4.png"]
    assert closed == {
        "b/dangling.png": "No such file or directory",
        "b/loop.png": "Too many levels of symbolic links",
    }
    assert read_folder(root)[2] == ("b", "c", "linked")
    assert dict(read_folder(root)[0].unreadable) == closed


def test_dangling_links_are_skipped_and_listed_and_do_not_change_the_classes(root: Path) -> None:
    draw(root, *(f"{name}/{number}.png" for name in ("cat", "dog") for number in range(5)))
    (root / "dangling.jpg").symlink_to(root / "nowhere.jpg")
    (root / "notes.txt").symlink_to(root / "nowhere.txt")
    data = load_data(open_source(root), image_size=8, channels=3, test_fraction=0.2)
    assert data.classes == ("cat", "dog")
    assert data.skipped == (Skipped("dangling.jpg", "No such file or directory"),)
    lost = root.parent / "lost"
    lost.mkdir()
    for number in range(10):
        (lost / f"{number}.jpg").symlink_to(root / "nowhere.jpg")
    with pytest.raises(TwofoldError, match=r"no images in .*0\.jpg: No such file") as caught:
        read_folder(lost)
    assert "9.jpg" not in str(caught.value)


def test_file_names_that_are_not_utf8_are_read(root: Path) -> None:
    draw(root, "a.png")
    os.rename(root / "a.png", os.fsencode(root) + b"/\xff\xfe.png")
    draw(root, "ü ö.png")
    train, _, _ = read_folder(root)
    assert len(train.readable()) == 2
    assert len(train.digest()) == 16
    assert len(train.decode(train.readable(), 8, 3, "key", None).images) == 2


def test_size_and_colour_are_read_from_headers(root: Path) -> None:
    for number, side in enumerate((20, 30, 90)):
        draw(root, f"{number}.png", size=(100, side), mode="L")
    train, _, _ = read_folder(root)
    assert (train.side, train.channels) == (30, 1)
    draw(root, "colour.png")
    assert read_folder(root)[0].channels == 3


def test_unreadable_files_are_listed_and_skipped(root: Path) -> None:
    draw(root, "a/1.png", "b/2.png", "b/3.png")
    (root / "a/0.png").write_bytes(b"no image")
    (root / "b/9.jpg").write_bytes(b"")
    train, _, classes = read_folder(root)
    assert dict(train.unreadable) == {"a/0.png": "not an image that Pillow can read", "b/9.jpg": "empty file"}
    assert train.readable().tolist() == [1, 2, 3]
    assert labels_of(train, classes) == ["a", "a", "b", "b", "b"]


def test_class_without_readable_images_is_not_a_class(root: Path) -> None:
    draw(root, "cats/1.png", "dogs/2.png")
    (root / "birds").mkdir()
    (root / "birds/0.png").write_bytes(b"no image")
    train, _, classes = read_folder(root)
    assert classes == ("cats", "dogs")
    assert train.labels.tolist() == [-1, 0, 1]


def test_folder_that_cannot_be_opened_is_listed_as_unreadable(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw(root, "1.png", "2.png", "lost+found/3.png")
    scandir = os.scandir

    def guarded(path: Path):
        if Path(path).name == "lost+found":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    train, _, _ = read_folder(root)
    assert train.files == ("1.png", "2.png")
    assert dict(train.unreadable) == {"lost+found": "Permission denied"}
    with pytest.raises(TwofoldError, match="Permission denied"):
        read_folder(root / "lost+found")


def test_folder_without_readable_images_raises_an_error(root: Path) -> None:
    with pytest.raises(TwofoldError, match=rf"no images in {root}"):
        read_folder(root)
    (root / "notes.txt").write_text("text")
    with pytest.raises(TwofoldError, match=r"no images.*\.png"):
        read_folder(root)
    for name in ("a.png", "b.png"):
        (root / name).write_bytes(b"x")
    with pytest.raises(TwofoldError, match=r"none of the image files .*\(2 tried\); .*a\.png: not an image") as caught:
        read_folder(root)
    assert "\n" not in str(caught.value)


def test_decoding_keeps_the_order_and_skips_unreadable_images(root: Path) -> None:
    names = [f"{number:02d}.png" for number in range(30)]
    draw(root, *names, size=(9, 9))
    (root / "07.png").write_bytes((root / "07.png").read_bytes()[:120])
    train, _, _ = read_folder(root)
    calls: list[tuple[int, int]] = []
    rows = np.array([3, 7, 20, 29])
    decoded = train.decode(rows, 9, 3, "key", lambda done, total: calls.append((done, total)))
    expected = [np.asarray(Image.open(root / names[row])).transpose(2, 0, 1) for row in (3, 20, 29)]
    np.testing.assert_array_equal(decoded.images, expected)
    assert list(decoded.skipped) == [1]
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_second_start_does_not_decode(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw(root, "a.png", "b.png", "c.png")
    train, _, _ = read_folder(root)
    first = train.decode(np.arange(3), 8, 3, "key", None)
    monkeypatch.setattr(file_index, "with_image", lambda *_: pytest.fail("decoded again"))
    assert (train.decode(np.arange(3), 8, 3, "key", None).images == first.images).all()
    monkeypatch.undo()


def test_digest_depends_on_names_sizes_and_times(root: Path) -> None:
    draw(root, "a.png", "b.png", "c.png")
    digest = read_folder(root)[0].digest()
    root.rename(root.parent / "moved")
    root = root.parent / "moved"
    assert read_folder(root)[0].digest() == digest
    status = (root / "b.png").stat()
    os.utime(root / "b.png", ns=(status.st_atime_ns, status.st_mtime_ns + 1000))
    touched = read_folder(root)[0].digest()
    (root / "c.png").rename(root / "d.png")
    renamed = read_folder(root)[0].digest()
    assert len({digest, touched, renamed}) == 3


def test_parallel_map_bounds_pending_work_and_keeps_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "WORKERS", 3)
    lock, asked, taken, most = threading.Lock(), 0, 0, 0

    def items():
        nonlocal asked, most
        for number in range(200):
            with lock:
                asked += 1
                most = max(most, asked - taken)
            yield number

    results = []
    for result in map_in_order(lambda number: number * number, items()):
        taken += 1
        results.append(result)
    assert results == [number * number for number in range(200)]
    assert most <= parallel.ITEMS_PER_TASK * (2 * 3 + 2)


def test_files_with_equal_name_size_and_time_have_different_digests(tmp_path: Path) -> None:
    """Reproducible archives give every file the same time. Bitmaps of one shape have the same size."""
    digests = []
    for name, level in (("dark", 10), ("light", 200)):
        (tmp_path / name).mkdir()
        for number in range(3):
            path = tmp_path / name / f"{number}.bmp"
            Image.fromarray(np.full((8, 8, 3), level, dtype=np.uint8)).save(path)
            os.utime(path, ns=(1, 1))
        digests.append(read_folder(tmp_path / name)[0].digest())
    assert digests[0] != digests[1]


def test_files_that_are_left_out_are_counted_by_extension(root: Path) -> None:
    draw(root, "1.png", "2.png")
    for name in ("a.xyz", "b.XYZ", "notes.txt", "none", ".hidden.txt"):
        (root / name).write_text("no image")
    assert read_folder(root)[0].remark == "left out 2 .xyz files, 1 file without extension, 1 .txt file"
    for number in range(3):
        (root / f"{number}.e{number}").write_text("no image")
    assert read_folder(root)[0].remark.endswith(", 1 .e0 file, 1 .e1 file, 1 .e2 file, 1 other file")


def test_heic_files_say_how_to_read_them(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twofold.data.readers.folder.extensions", lambda: frozenset({".png"}))
    draw(root, "1.png", "2.png")
    for number in range(20):
        (root / f"IMG_{number}.HEIC").write_text("no image")
    assert read_folder(root)[0].remark == "left out 20 .heic files (to read HEIC: pip install 'twofold[heif]')"
    for number in (1, 2):
        (root / f"{number}.png").unlink()
    with pytest.raises(TwofoldError, match=r"no images in .* \(left out 20 .heic files"):
        read_folder(root)
