"""TIFF files of several channels or pages. tifffile and imagecodecs are not installed for `make test`."""

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from twofold.data import tiff
from twofold.data.decode import decode_image, read_header
from twofold.data.decode_options import DecodeOptions, Unreadable
from twofold.data.load import load_data
from twofold.data.open import open_source
from twofold.data.readers.folder import read_folder

RNG = np.random.default_rng(0)
BANDS = {"photometric": "minisblack", "planarconfig": "contig"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def tifffile() -> Any:
    pytest.importorskip("imagecodecs")
    return pytest.importorskip("tifffile")


def noise(*shape: int, dtype: str = "u1", high: int = 256) -> np.ndarray:
    return RNG.integers(0, high, shape).astype(dtype)


def like_grey_images(pixels: np.ndarray, size: int) -> np.ndarray:
    """Decode each channel of uint8 [H, W, C] as a grey PNG file, with Pillow alone."""
    found = []
    for channel in range(pixels.shape[2]):
        file = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(pixels[:, :, channel])).save(file, "PNG")
        found.append(decode_image(file.getvalue(), size, 1)[0])
    return np.stack(found)


@pytest.mark.extras
@pytest.mark.parametrize("channels", [2, 4, 7])
@pytest.mark.parametrize("compression", [None, "lzw"])
@pytest.mark.parametrize("planes", ["contig", "separate"])
def test_channels_are_decoded_like_grey_images(
    tmp_path: Path, tifffile: Any, channels: int, compression: str | None, planes: str
) -> None:
    pixels = noise(20, 30, channels)
    written = pixels if planes == "contig" else np.moveaxis(pixels, 2, 0)
    tifffile.imwrite(
        tmp_path / "a.tif", written, photometric="minisblack", planarconfig=planes, compression=compression
    )
    header = read_header(tmp_path / "a.tif")
    assert (header.side, header.longer, header.channels, header.bits) == (20, 30, channels, 8)
    np.testing.assert_array_equal(decode_image(tmp_path / "a.tif", 8, channels), like_grey_images(pixels, 8))


@pytest.mark.extras
def test_colours_with_infrared_have_four_channels_and_transparent_colours_three(tmp_path: Path, tifffile: Any) -> None:
    pixels = noise(12, 12, 4)
    for kind, channels in (("unspecified", 4), ("unassalpha", 3)):
        tifffile.imwrite(tmp_path / f"{kind}.tif", pixels, photometric="rgb", extrasamples=[kind])
        assert read_header(tmp_path / f"{kind}.tif").channels == channels
    found = decode_image(tmp_path / "unspecified.tif", 12, 4)
    np.testing.assert_array_equal(found, pixels.transpose(2, 0, 1))


@pytest.mark.extras
@pytest.mark.parametrize("dtype, white", [("u2", 65535), ("f4", 1.0)])
def test_deep_channels_are_scaled(tmp_path: Path, tifffile: Any, dtype: str, white: float) -> None:
    pixels = (noise(9, 9, 5, high=65536) / 65535 * white).astype(dtype)
    tifffile.imwrite(tmp_path / "a.tif", pixels, **BANDS)
    expected = np.rint(pixels.astype(float) / white * 255).transpose(2, 0, 1)
    np.testing.assert_allclose(decode_image(tmp_path / "a.tif", 9, 5), expected, atol=1e-3)
    halved = decode_image(tmp_path / "a.tif", 9, 5, DecodeOptions(pixel_range=(0, white / 2)))
    np.testing.assert_array_equal(halved == 255, pixels.transpose(2, 0, 1) / white * 510 >= 254.5)


@pytest.mark.extras
def test_colours_of_12_bits_in_16_keep_their_low_bits(tmp_path: Path, tifffile: Any) -> None:
    pixels = noise(9, 9, 3, dtype="u2", high=4096)
    for number in range(2):
        tifffile.imwrite(tmp_path / f"{number}.tif", pixels, photometric="rgb")
    source = open_source(tmp_path)
    assert source.decode.pixel_range == (0, 4095)
    found = load_data(source, image_size=9, channels=3, test_fraction=0).train.images[1]
    np.testing.assert_array_equal(found.numpy(), np.rint(pixels / 4095 * 255).transpose(2, 0, 1))


@pytest.mark.extras
@pytest.mark.parametrize("orientation", range(1, 9))
def test_rotated_files_are_turned_upright_as_by_pillow(tmp_path: Path, tifffile: Any, orientation: int) -> None:
    pixels, exif = noise(6, 10), Image.Exif()
    exif[tiff.ORIENTATION] = orientation
    Image.fromarray(pixels).save(tmp_path / "grey.png", exif=exif)
    tags = [(tiff.ORIENTATION, "H", 1, orientation, True)]
    tifffile.imwrite(tmp_path / "five.tif", np.stack([pixels] * 5, axis=2), **BANDS, extratags=tags)
    expected = decode_image(tmp_path / "grey.png", 6, 1)
    np.testing.assert_array_equal(decode_image(tmp_path / "five.tif", 6, 5), np.repeat(expected, 5, axis=0))


@pytest.mark.extras
def test_large_files_are_reduced_in_strips(tmp_path: Path, tifffile: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = noise(64, 96, 5)
    tifffile.imwrite(tmp_path / "a.tif", pixels, **BANDS)
    monkeypatch.setattr(tiff, "LARGE_VALUES", 1000)
    monkeypatch.setattr(tiff, "SAMPLED_PIXELS", 500)
    found = tiff.read_pixels(tmp_path / "a.tif", 0, DecodeOptions(), 1e9, 16)
    expected = pixels.reshape(16, 4, 24, 4, 5).mean(axis=(1, 3))
    np.testing.assert_allclose(found, expected, atol=0.51)


@pytest.mark.extras
def test_images_of_the_rarer_kind_are_left_out(tmp_path: Path, tifffile: Any) -> None:
    for number in range(3):
        tifffile.imwrite(tmp_path / f"{number}.tif", noise(8, 8, 5), **BANDS)
    Image.fromarray(noise(8, 8, 3)).save(tmp_path / "photo.png")
    source = open_source(tmp_path)
    assert source.train.channels == 5
    assert source.train.unreadable == {
        "photo.png": "3 channels, but most images have 5; pass a list of images of one kind"
    }
    assert load_data(source, image_size=8, channels=5, test_fraction=0).train.images.shape == (3, 5, 8, 8)


@pytest.mark.extras
def test_damaged_files_and_bombs_raise_no_other_error(tmp_path: Path, tifffile: Any) -> None:
    path = tmp_path / "a.tif"
    file = io.BytesIO()
    tifffile.imwrite(file, noise(20, 20, 5, dtype="u2"), **BANDS, compression="zlib")
    for _ in range(60):
        content = bytearray(file.getvalue())
        for place in RNG.integers(0, len(content), 5):
            content[place] = RNG.integers(0, 256)
        path.write_bytes(content)
        for read in (read_header, lambda path: decode_image(path, 8, 5)):
            with contextlib.suppress(Unreadable):
                read(path)
    tifffile.imwrite(path, noise(20, 20, 5), **BANDS)
    for options in (DecodeOptions(pixel_limit=300), DecodeOptions(pixel_limit=420)):  # 5 channels count as more pixels
        for read in (read_header, lambda path, options: decode_image(path, 8, 5, options)):
            with pytest.raises(Unreadable, match="pixel_limit"):
                read(path, options)


def test_without_tifffile_the_reason_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiff, "_is_installed", lambda: False)
    (tmp_path / "a.tif").write_bytes(b"II*\0" + bytes(100))
    with pytest.raises(Unreadable, match=r"pip install 'twofold\[tiff\]'"):
        decode_image(tmp_path / "a.tif", 8, 3)


def write_stacks(folder: Path, counts: list[int]) -> np.ndarray:
    """Write TIFF files with these numbers of pages. Return all pages in their order."""
    folder.mkdir(parents=True)
    pages = noise(sum(counts), 8, 8)
    first = 0
    for number, count in enumerate(counts):
        images = [Image.fromarray(page) for page in pages[first : first + count]]
        images[0].save(folder / f"{number}.tif", save_all=True, append_images=images[1:])
        first += count
    return pages


def test_all_pages_are_images_and_form_a_group(tmp_path: Path) -> None:
    pages = write_stacks(tmp_path / "stacks", [3, 1, 2])
    source = open_source(tmp_path / "stacks", decode=DecodeOptions(pages="all"))
    names = ("0.tif", "0.tif#page=2", "0.tif#page=3", "1.tif", "2.tif", "2.tif#page=2")
    assert source.train.files == names
    assert source.train.groups is not None
    assert source.train.groups.tolist() == [0, 0, 0, 1, 2, 2]
    data = load_data(source, image_size=8, channels=1, test_fraction=0)
    np.testing.assert_array_equal(data.train.images[:, 0].numpy(), pages)
    again = open_source(tmp_path / "stacks", decode=DecodeOptions(pages="all"))
    assert again.fingerprint == source.fingerprint
    np.testing.assert_array_equal(
        load_data(again, image_size=8, channels=1, test_fraction=0).train.images[:, 0].numpy(), pages
    )


def test_by_default_the_first_page_is_used_with_a_note(tmp_path: Path) -> None:
    pages = write_stacks(tmp_path / "stacks", [3, 1, 2])
    train, _, _ = read_folder(tmp_path / "stacks")
    assert train.remark == "only the first page of 2 TIFF files is used (pages=all uses every page)"
    found = load_data(open_source(tmp_path / "stacks"), image_size=8, channels=1, test_fraction=0).train
    np.testing.assert_array_equal(found.images[:, 0].numpy(), pages[[0, 3, 4]])


def test_pages_of_a_file_stay_on_one_side_of_the_split(tmp_path: Path) -> None:
    for name in "ab":
        write_stacks(tmp_path / "set" / name, [4] * 5)
    source = open_source(tmp_path / "set", decode=DecodeOptions(pages="all"))
    data = load_data(source, image_size=8, channels=1, test_fraction=0.4)
    assert data.test is not None
    held_out, kept = ({name.partition("#")[0] for name in part.files or ()} for part in (data.test, data.train))
    assert len(held_out) == 4
    assert not held_out & kept
