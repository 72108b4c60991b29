"""Images of more than 8 bits: which of their values become black and white."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import twofold
from twofold.data.decode import decode_image
from twofold.data.decode_options import DecodeOptions, Unreadable
from twofold.data.load import load_data
from twofold.data.open import open_source
from twofold.data.pixel_range import choose_range, extremes_of_strip

RNG = np.random.default_rng(0)


def write_images(folder: Path, highest: int, count: int = 4) -> list[np.ndarray]:
    """Write 16-bit images of a camera whose values are at most `highest`."""
    folder.mkdir(exist_ok=True)
    images = [RNG.integers(0, highest + 1, (8, 8)).astype(np.uint16) for _ in range(count)]
    for number, image in enumerate(images):
        image[0, 0] = highest
        Image.fromarray(image).save(folder / f"{number}.{('png', 'tif')[number % 2]}")
    return images


def decoded(folder: Path, options: DecodeOptions) -> torch.Tensor:
    source = open_source(folder, decode=options)
    return load_data(source, image_size=8, channels=1, test_fraction=0).train.images[:, 0]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("highest, white", [(4000, 4095), (255, 255), (16383, 16383), (60_000, 65_535)])
def test_the_range_of_a_camera_is_chosen_from_the_images(tmp_path: Path, highest: int, white: int) -> None:
    images = np.stack(write_images(tmp_path / "photos", highest))
    found = decoded(tmp_path / "photos", DecodeOptions())
    np.testing.assert_array_equal(found.numpy(), np.rint(images / white * 255))


def test_a_given_range_clips_and_another_range_is_decoded_anew(tmp_path: Path) -> None:
    images = np.stack(write_images(tmp_path / "photos", 4095)).astype(float)
    for low, high in ((1000, 2000), (0, 4095), (-100.0, 9000.5)):
        found = decoded(tmp_path / "photos", DecodeOptions(pixel_range=(low, high)))
        expected = ((images - low) / (high - low)).clip(0, 1) * 255
        np.testing.assert_allclose(found.numpy(), expected, atol=0.5001)
    dark = decoded(tmp_path / "photos", DecodeOptions(pixel_range="type"))
    np.testing.assert_array_equal(dark.numpy(), np.rint(images / 257))


def test_with_image_each_image_has_its_own_range(tmp_path: Path) -> None:
    for number, (dark, bright) in enumerate([(100, 300), (5000, 60_000)]):
        ramp = np.linspace(dark, bright, 64 * 64).reshape(64, 64).astype(np.uint16)
        Image.fromarray(ramp).save(tmp_path / f"{number}.png")
        found = decode_image(tmp_path / f"{number}.png", 64, 1, DecodeOptions(pixel_range="image"))
        np.testing.assert_allclose(found.ravel(), np.linspace(0, 255, 64 * 64), atol=3)


def test_signed_and_float_images_need_a_range(tmp_path: Path) -> None:
    scan = RNG.integers(-1000, 2000, (8, 8)).astype(np.int32)
    Image.fromarray(scan).save(tmp_path / "scan.tif")
    heights = (scan / 7).astype(np.float32)
    heights[0, 0] = np.nan
    Image.fromarray(heights).save(tmp_path / "heights.tif")
    for name in ("scan.tif", "heights.tif"):
        with pytest.raises(Unreadable, match="set pixel_range=LOW,HIGH"):
            decode_image(tmp_path / name, 8, 1)
    found = decode_image(tmp_path / "scan.tif", 8, 1, DecodeOptions(pixel_range=(-1000, 2000)))[0]
    np.testing.assert_allclose(found, (scan + 1000) / 3000 * 255, atol=0.5001)
    found = decode_image(tmp_path / "heights.tif", 8, 1, DecodeOptions(pixel_range=(-200, 300)))[0]
    assert found[0, 0] == 0
    np.testing.assert_allclose(found.ravel()[1:], (heights.ravel()[1:] + 200) / 500 * 255, atol=0.5001)


def test_12_bit_tiff_files_are_not_dark(tmp_path: Path) -> None:
    """Pillow reads their values from 0 to 4095."""
    values = np.array([[0, 4095], [2048, 1000]])
    packed = b"".join(bytes([a >> 4, (a & 15) << 4 | b >> 8, b & 255]) for a, b in values.tolist())
    entries = [(256, 2), (257, 2), (258, 12), (259, 1), (262, 1), (273, 8), (277, 1), (278, 2), (279, len(packed))]
    directory = b"".join(
        tag.to_bytes(2, "little") + b"\4\0\1\0\0\0" + value.to_bytes(4, "little") for tag, value in entries
    )
    head = b"II*\0" + (8 + len(packed)).to_bytes(4, "little") + packed
    (tmp_path / "a.tif").write_bytes(head + len(entries).to_bytes(2, "little") + directory + bytes(4))
    np.testing.assert_array_equal(decode_image(tmp_path / "a.tif", 2, 1)[0], np.rint(values / 4095 * 255))


def test_an_encoder_applies_the_range_of_its_run_to_other_images(tmp_path: Path) -> None:
    write_images(tmp_path / "photos", 4095, count=12)
    settings = {"encoder": "conv", "epochs": 1, "batch_size": 4, "map_points": 0, "image_size": 8}
    run = twofold.pretrain(tmp_path / "photos", method="simclr", out=tmp_path / "run", **settings)
    assert run.config.pixel_range == (0, 4095)
    write_images(tmp_path / "dark", 900)  # on its own, its range would be 0 to 1023
    adapted = twofold.adapt(run.path / "encoder.safetensors", tmp_path / "photos", out=tmp_path / "adapted", views=1)
    found = []
    for number, what in enumerate((run.path, run.path / "encoder.safetensors", adapted.path)):
        twofold.embed(what, tmp_path / "dark", tmp_path / f"{number}.npz", adapter=False)
        found.append(np.load(tmp_path / f"{number}.npz")["features"])
    encoder = twofold.load_encoder(run)
    images = [Image.open(path) for path in sorted((tmp_path / "dark").iterdir())]
    with torch.inference_mode():
        found.append(encoder(encoder.preprocess(images)).numpy())
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-4, atol=1e-5)


def test_the_range_of_the_type_is_kept_for_floats_and_for_values_that_fill_it() -> None:
    def of(*values: float, kind: str = "u2") -> object:
        return choose_range([extremes_of_strip(np.array(values, kind))])

    assert of(0, 40_000) == "type"
    assert of(0, 0.5, kind="f4") == "type"
    assert of(-3, 7, kind="i2") == "type"
    assert of(5, 1023) == (0, 1023)
    assert choose_range([]) == "type"
