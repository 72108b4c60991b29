"""Pictures with their whole aspect ratio: how they are decoded, cached, gathered and cropped."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from augmenting import EVERYTHING, at, augmenter, images_of, only
from twofold.config import Augment
from twofold.data import loader as loader_module
from twofold.data import parallel, resample
from twofold.data.array_split import ArraySplit
from twofold.data.decode import Picture, decode_image
from twofold.data.load import load_data, load_sample
from twofold.data.loader import Loader
from twofold.data.open import open_source
from twofold.data.picture_cache import PictureArray, collect_pictures
from twofold.data.pictures import Pictures, gather_batch
from twofold.data.readers import file_index
from twofold.data.source import Data
from twofold.data.store import ImageStore
from twofold.errors import TwofoldError
from twofold.types import Batch

SIZES = [(9, 9), (12, 20), (20, 12), (5, 7), (16, 9), (12, 24)]  # height and width
SIZE, PICTURE = 8, 12


def upright(picture: Picture) -> np.ndarray:
    """The picture as an image [H, W, C]."""
    return picture.lines.transpose((2, 0, 1) if picture.is_wide else (0, 2, 1))


def noise(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, height, width]).integers(0, 256, (height, width, channels), dtype=np.uint8)


def pictures_of(sizes: list[tuple[int, int]], channels: int = 3, width: int = PICTURE) -> tuple[Pictures, list[Tensor]]:
    """Pictures, and the same as images [C, H, W]."""
    images = [noise(*size, channels) for size in sizes]
    lying = [
        Picture(np.ascontiguousarray(image.transpose((1, 2, 0) if w > h else (0, 2, 1))), w > h)
        for image, (h, w) in zip(images, sizes, strict=True)
    ]
    array = collect_pictures(lying, channels, width)
    planar = [torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))) for image in images]
    return Pictures.of(array, torch.from_numpy(array.lines)), planar


def batch_of(pictures: Pictures) -> tuple[Tensor, Tensor]:
    rows = torch.arange(len(pictures))
    return gather_batch(pictures, rows, torch.full(pictures.shape, 77, dtype=torch.uint8)), pictures.sizes


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Photographs of different sizes: JPEG and PNG files of two classes, one of them rotated by its EXIF data."""
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "photos"
    for number, (height, width) in enumerate([(40, 60), (64, 40), (50, 50), (30, 100), (9, 12), (48, 36)] * 2):
        path = folder / ("cat" if number % 2 else "dog") / f"{number:02d}.{'png' if number % 3 else 'jpg'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        image, exif = Image.fromarray(noise(height, width, seed=number)), Image.Exif()
        if number == 3:
            exif[0x0112] = 6  # a quarter turn
        image.save(path, exif=exif)
    return folder


def loaded(folder: Path, picture_size: int = PICTURE, test_fraction: float = 0.25) -> Data:
    source = open_source(folder)
    return load_data(source, image_size=SIZE, channels=3, test_fraction=test_fraction, picture_size=picture_size)


def array_of(store: ImageStore) -> PictureArray:
    assert store.pictures is not None
    return PictureArray(store.pictures.lines.numpy(), store.pictures.sizes.numpy())


def test_pictures_keep_their_aspect_ratio_up_to_two_and_are_not_enlarged(photos: Path) -> None:
    """Compared with Pillow's resize of the opened file; the draft of a JPEG file is as large as for its square."""
    store = loaded(photos).train
    assert store.files is not None
    array = array_of(store)
    assert array.lines.shape[1:] == (3, PICTURE)
    for row, name in enumerate(store.files):
        with Image.open(photos / name) as file:
            file.draft("RGB", (2 * SIZE, 2 * SIZE))
            image = np.asarray(file.convert("RGB"))
        image = np.rot90(image, -1) if "03." in name else image
        (height, width), shorter = image.shape[:2], min(image.shape[:2])
        kept_height, kept_width = min(height, 2 * shorter), min(width, 2 * shorter)
        top, left = (height - kept_height) // 2, (width - kept_width) // 2
        scale = min(1, PICTURE / shorter)
        size = round(kept_width * scale), round(kept_height * scale)
        box = (left, top, left + kept_width, top + kept_height)
        expected = Image.fromarray(np.ascontiguousarray(image)).resize(
            size, Image.Resampling.BILINEAR, box=box, reducing_gap=2
        )
        np.testing.assert_array_equal(upright(array[row]), np.asarray(expected))


@pytest.mark.parametrize("picture_size", [0, PICTURE, 2 * SIZE])
def test_squares_labels_and_fingerprint_are_the_same_with_and_without_pictures(photos: Path, picture_size: int) -> None:
    plain, data = loaded(photos, 0), loaded(photos, picture_size)
    assert data.test is not None
    assert data.train.files is not None
    assert data.fingerprint == plain.fingerprint
    for name, square in zip(data.train.files, data.train.images, strict=True):
        np.testing.assert_array_equal(square.numpy(), decode_image(photos / name, SIZE, 3))
    assert torch.equal(data.train.index, plain.train.index)
    assert data.test.pictures is None
    assert (data.train.pictures is None) == (picture_size == 0)


def test_worker_processes_decode_the_same_squares_and_pictures(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = loaded(photos).train
    monkeypatch.setenv("TWOFOLD_CACHE", str(photos.parent / "other"))
    monkeypatch.setattr(parallel, "is_worthwhile", lambda *_: True)
    monkeypatch.setattr(parallel, "WORKERS", 1)
    found = loaded(photos).train
    assert torch.equal(found.images, expected.images)
    np.testing.assert_array_equal(array_of(found).lines, array_of(expected).lines)
    np.testing.assert_array_equal(array_of(found).sizes, array_of(expected).sizes)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    original = file_index.with_image

    def watched(path: Path, *rest: Any, **page: Any) -> object:
        names.append(path.name)
        return original(path, *rest, **page)

    monkeypatch.setattr(file_index, "with_image", watched)
    return names


def test_each_file_is_opened_once_and_the_second_start_opens_none(photos: Path, opened: list[str]) -> None:
    first = loaded(photos).train
    assert sorted(opened) == sorted(path.name for path in photos.glob("*/*"))
    opened.clear()
    second = loaded(photos).train
    assert opened == []
    np.testing.assert_array_equal(array_of(second).lines, array_of(first).lines)
    np.testing.assert_array_equal(array_of(second).sizes, array_of(first).sizes)


def test_only_changed_files_are_decoded_again(photos: Path, opened: list[str]) -> None:
    loaded(photos, test_fraction=0)
    opened.clear()
    Image.fromarray(noise(33, 44)).save(photos / "cat" / "new.png")
    (photos / "cat" / "broken.png").write_bytes((photos / "cat" / "01.png").read_bytes()[:300])
    store = loaded(photos, test_fraction=0).train
    assert sorted(opened) == ["broken.png", "new.png"]
    sample = load_sample(open_source(photos), 100, image_size=SIZE, channels=3, picture_size=PICTURE).train
    assert store.files == sample.files
    assert torch.equal(store.images, sample.images)
    np.testing.assert_array_equal(array_of(store).lines, array_of(sample).lines)
    np.testing.assert_array_equal(array_of(store).sizes, array_of(sample).sizes)


@pytest.mark.parametrize("damage", ["interrupted", "truncated", "changed", "no pictures"])
def test_incomplete_and_damaged_pictures_are_decoded_again(photos: Path, damage: str) -> None:
    folder = photos.parent / "cache"
    if damage == "interrupted":

        def stop(done: int, _: int) -> None:
            if done == 5:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            load_data(
                open_source(photos),
                image_size=SIZE,
                channels=3,
                test_fraction=0.25,
                progress=stop,
                picture_size=PICTURE,
            )
        assert not [*folder.glob("*.u8"), *folder.glob("*.json"), *folder.glob("*.part")]
        return
    expected = array_of(loaded(photos).train).lines.copy()
    (pixels,) = folder.glob(f"*.{PICTURE}-*.u8")
    content = pixels.read_bytes()
    if damage == "no pictures":
        pixels.unlink()
    else:
        pixels.write_bytes(content[:-9] if damage == "truncated" else bytes([content[0] ^ 1]) + content[1:])
    np.testing.assert_array_equal(array_of(loaded(photos).train).lines, expected)
    assert pixels.read_bytes() == content


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_pictures_of_an_array_have_its_pixels_if_they_are_small_enough(channels: int) -> None:
    images = np.stack([noise(10, 14, channels, seed) for seed in range(5)])
    decoded = ArraySplit(images, None).decode(np.array([4, 1]), SIZE, channels, None, None, PICTURE)
    assert decoded.pictures is not None
    assert decoded.images.shape == (2, channels, SIZE, SIZE)
    for picture, row in zip(decoded.pictures, (4, 1), strict=False):
        np.testing.assert_array_equal(upright(picture), images[row])


def test_pictures_above_twice_the_image_size_are_refused(photos: Path) -> None:
    with pytest.raises(TwofoldError, match="picture_size=17 is more than twice image_size=8; use at most 16"):
        loaded(photos, 2 * SIZE + 1)


def test_batches_hold_each_picture_and_its_size_also_when_they_are_prefetched(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures, images = pictures_of(SIZES * 3)
    squares = torch.zeros(len(images), 3, 4, 4, dtype=torch.uint8)
    store = ImageStore(squares, None, torch.arange(len(images)) + 5, pictures=pictures)
    direct = Loader(store, batch_size=4, seed=1, drop_last=False)
    monkeypatch.setattr(loader_module, "needs_prefetch", lambda _: True)
    prefetching = Loader(store, batch_size=4, seed=1, drop_last=False)
    for step in range(7):
        batch = direct.batch(step)
        assert batch.sizes is not None
        for lines, (height, width), index in zip(batch.images, batch.sizes.tolist(), batch.index, strict=True):
            assert (height, width) == SIZES[(int(index) - 5) % len(SIZES)]
            shown = lines[: max(height, width), :, : min(height, width)]
            image = shown.permute((1, 2, 0) if width > height else (1, 0, 2))
            assert torch.equal(image, images[int(index) - 5])
            rest = lines[max(height, width) :]
            assert torch.equal(rest, shown.new_zeros(1) + lines[max(height, width) - 1].expand_as(rest))
        same(prefetching.batch(step), batch)
    filled = direct.batch(0)
    direct.set_epoch_of(1)
    direct.fill_on_device(torch.tensor(1), filled)
    same(filled, direct.batch(1))


def same(one: Batch, other: Batch) -> None:
    for field in ("images", "index", "position", "sizes"):
        assert torch.equal(getattr(one, field), getattr(other, field))


def random_resized_crop(image: np.ndarray, draws: dict[str, np.ndarray], augment: Augment, size: int) -> np.ndarray:
    """torchvision's RandomResizedCrop and flip of an image [C, H, W] in float64, from uniform draws."""
    _, height, width = image.shape
    low, high = np.log(augment.crop_ratio)
    for area, ratio in zip(draws["crop.area"], draws["crop.ratio"], strict=True):
        pixels = height * width * (augment.crop_scale[0] + (augment.crop_scale[1] - augment.crop_scale[0]) * area)
        aspect = math.exp(low + (high - low) * ratio)
        w, h = round(math.sqrt(pixels * aspect)), round(math.sqrt(pixels / aspect))
        if 0 < w <= width and 0 < h <= height:
            top, left = int(draws["crop.top"] * (height - h + 1)), int(draws["crop.left"] * (width - w + 1))
            break
    else:
        h, w = height, width
        if width / height < augment.crop_ratio[0]:
            h = round(width / augment.crop_ratio[0])
        elif width / height > augment.crop_ratio[1]:
            w = round(height * augment.crop_ratio[1])
        top, left = (height - h) // 2, (width - w) // 2
    rows, columns = triangles(top, h, height, size), triangles(left, w, width, size)
    view = np.einsum("sh,chw,tw->cst", rows, image / 255.0, columns)
    return view[:, :, ::-1] if draws["flip"] < augment.flip else view


def triangles(start: int, length: int, size: int, out: int) -> np.ndarray:
    scale = length / out
    centre = start + (np.arange(out)[:, None] + 0.5) * scale
    weights = np.maximum(0, 1 - np.abs(np.arange(size) + 0.5 - centre) / max(scale, 1))
    return weights / weights.sum(1, keepdims=True)


@pytest.mark.parametrize("scale", [(0.05, 1.0), (0.6, 1.0), (1.0, 1.0)])
def test_views_equal_random_resized_crops_of_the_whole_picture_in_float64(scale: tuple[float, float]) -> None:
    sizes = SIZES * 12
    pictures, images = pictures_of(sizes)
    lines, extents = batch_of(pictures)
    augment = only(crop_scale=scale, crop_ratio=(3 / 4, 4 / 3), flip=0.5)
    views = augmenter(augment, size=SIZE)
    position = torch.arange(len(sizes))
    found = views.pixels(lines, position, at(3), extents)
    drawn = {name: values.double().numpy() for name, values in views._draw(position, at(3)).items()}
    for number, image in enumerate(images):
        for view in range(2):
            draws = {name: values[..., view, number] for name, values in drawn.items()}
            expected = random_resized_crop(image.numpy(), draws, augment, SIZE)
            np.testing.assert_allclose(found[view, number].numpy(), expected, atol=2e-6)


@pytest.mark.parametrize("augment", [Augment(), dataclasses.replace(EVERYTHING, interpolation="bicubic")])
def test_square_pictures_give_the_views_of_the_same_squares(augment: Augment) -> None:
    pictures, images = pictures_of([(PICTURE, PICTURE)] * 9)
    lines, sizes = batch_of(pictures)
    views = augmenter(augment, size=SIZE)
    expected = views(torch.stack(images), torch.arange(9), at(2))
    torch.testing.assert_close(views(lines, torch.arange(9), at(2), sizes), expected, rtol=0, atol=2e-5)


def test_crop_boxes_of_equal_sizes_do_not_depend_on_how_the_sizes_are_given() -> None:
    draws = torch.rand(22, 2, 50, generator=torch.Generator().manual_seed(0))
    for size, scale in (((32, 32), (0.2, 1.0)), ((20, 200), (0.5, 1.0)), ((48, 31), (0.9, 1.0))):
        arguments = draws[:10], draws[10:20], draws[20], draws[21]
        sizes = torch.full((50,), float(size[0])), torch.full((50,), float(size[1]))
        one = resample.crop_boxes(*arguments, size=size, scale=scale, ratios=(3 / 4, 4 / 3))
        each = resample.crop_boxes(*arguments, size=sizes, scale=scale, ratios=(3 / 4, 4 / 3))
        assert all(map(torch.equal, one, each))


def test_view_depends_neither_on_the_batch_nor_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures, _ = pictures_of(SIZES * 4)
    (lines, sizes), position = batch_of(pictures), torch.arange(24) + 100
    views = augmenter(dataclasses.replace(EVERYTHING, local_views=2, local_size=5), size=SIZE)
    small = views.small_crops()
    assert small is not None
    for make in (views, small):
        whole = make(lines, position, at(4), sizes)
        split = zip(lines.split(7), position.split(7), sizes.split(7), strict=True)
        parts = [make(part, place, at(4), size) for part, place, size in split]
        assert torch.equal(torch.cat(parts, dim=1), whole)
        monkeypatch.setattr(resample, "BLOCK_BYTES", 4 * lines[:5].numel())
        assert torch.equal(make(lines, position, at(4), sizes), whole)


def test_pixels_behind_the_end_of_a_picture_are_never_shown() -> None:
    """The lines of a batch are filled up with other pixels."""
    pictures, _ = pictures_of([(5, 7), (7, 5), (12, 24), (6, 6)])
    lines, sizes = batch_of(pictures)
    other = lines.clone()
    for number, size in enumerate(sizes.tolist()):
        other[number, max(size) :], other[number, :, :, min(size) :] = 255, 255
    assert not torch.equal(other, lines)
    for kernel in ("bilinear", "bicubic"):
        views = augmenter(only(crop_scale=(0.1, 1.0), interpolation=kernel), size=SIZE)
        expected = views(lines, torch.arange(4), at(0), sizes)
        assert torch.equal(views(other, torch.arange(4), at(0), sizes), expected)


def test_without_crops_views_are_the_middle_squares_of_the_pictures() -> None:
    pictures, images = pictures_of([(12, 20), (20, 12), (9, 9)])
    lines, sizes = batch_of(pictures)
    views = augmenter(only(flip=(0.0, 1.0)), size=SIZE).pixels(lines, torch.arange(3), at(0), sizes).numpy()
    for number, image in enumerate(images):
        _, height, width = image.shape
        side = min(height, width)
        rows = triangles((height - side) // 2, side, height, SIZE)
        columns = triangles((width - side) // 2, side, width, SIZE)
        middle = np.einsum("sh,chw,tw->cst", rows, image.numpy() / 255.0, columns)
        np.testing.assert_allclose(views[0, number], middle, atol=1e-6)
        np.testing.assert_allclose(views[1, number], middle[:, :, ::-1], atol=1e-6)


def test_extra_channels_of_pictures_can_be_augmented_separately() -> None:
    pictures, _ = pictures_of(SIZES, channels=5)
    (lines, sizes), position = batch_of(pictures), torch.arange(len(SIZES))
    separate = only(crop_scale=(0.2, 1.0), extra_scale=(0.8, 1.0))
    views = augmenter(separate, 5, size=SIZE).pixels(lines, position, at(0), sizes)
    colours = augmenter(only(crop_scale=(0.2, 1.0)), 3, size=SIZE).pixels(lines[:, :, :3], position, at(0), sizes)
    assert views.shape == (2, len(SIZES), 5, SIZE, SIZE)
    assert torch.equal(views[:, :, :3], colours)
    together = augmenter(only(crop_scale=(0.2, 1.0)), 5, size=SIZE).pixels(lines, position, at(0), sizes)
    assert not torch.equal(views[:, :, 3:], together[:, :, 3:])


def test_views_of_pictures_compile_to_a_graph_and_do_not_synchronize() -> None:
    pictures, _ = pictures_of(SIZES)
    lines, sizes = batch_of(pictures)
    views, position = augmenter(EVERYTHING, size=SIZE), torch.arange(len(SIZES))
    compiled = torch.compile(views.__call__, backend="eager", fullgraph=True)
    assert torch.equal(compiled(lines, position, at(4), sizes), views(lines, position, at(4), sizes))
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        inputs = [fake.from_tensor(tensor) for tensor in (lines, position, at(4), sizes)]
        assert views(*inputs).shape == (2, len(SIZES), 3, SIZE, SIZE)


# Pixels of views of squares, computed before pictures existed: views[:, [0, 4, 8], 0, 3, 5].
EARLIER: dict[str, tuple[Augment, tuple[int, ...], int, list[float]]] = {
    "default": (Augment(), (9, 3, 32, 32), 32, [-0.068099, 2.885064, 0.469174, 0.669022, -0.774014, 0.503781]),
    "everything": (EVERYTHING, (9, 3, 20, 26), 16, [1.030762, 2.502751, 2.464409, -0.125402, 2.59395, -0.771871]),
    "small crops of grey images": (
        only(crop_scale=(0.08, 1)),
        (9, 1, 48, 48),
        48,
        [0.648589, 1.775735, 0.72909, 1.341478, 1.002451, 0.913418],
    ),
}


@pytest.mark.parametrize("case", EARLIER)
def test_views_of_squares_are_what_they_were_before_pictures_existed(case: str) -> None:
    augment, shape, size, expected = EARLIER[case]
    views = augmenter(augment, shape[1], size)(images_of(*shape), torch.arange(shape[0]), at(5))
    np.testing.assert_allclose(views[:, [0, 4, 8], 0, 3, 5].flatten().numpy(), expected, atol=1e-5)
