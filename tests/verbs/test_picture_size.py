"""The choice of `picture_size`, and runs that use pictures."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import running
import twofold
from twofold import config as configuration
from twofold.data.load import read_data
from twofold.data.open import open_source
from twofold.display import Display
from twofold.errors import Interrupted, TwofoldError
from twofold.methods import schema_of_run
from twofold.train.trainer import Trainer
from twofold.verbs import explain, picture_size
from twofold.verbs.choose import decoded_bytes
from twofold.verbs.pretrain import configure

QUIET = Display(quiet=True)
KEYS = {"encoder": "conv", "image_size": 12, "batch_size": 8, "picture_size": "auto"}


def photographs(folder: Path, sizes: list[tuple[int, int]], count: int = 20) -> Path:
    generator = np.random.default_rng(0)
    for number in range(count):
        path = folder / ("cat" if number % 2 else "dog") / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        height, width = sizes[number % len(sizes)]
        Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(path)
    return folder


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))
    return photographs(tmp_path / "photos", [(30, 45), (64, 32), (40, 200)])


def why(folder: object, **keys: object) -> str:
    config, source = configure(folder, "frossl", KEYS | keys)
    return next(row.why for row in explain.explained(config, source) if row.key == "picture_size")


def test_pictures_of_twice_the_image_size_are_chosen_for_photographs(photos: Path) -> None:
    config, source = configure(photos, "frossl", KEYS)
    assert (config.picture_size, config.origin["picture_size"]) == (24, "chosen")
    assert why(photos) == "random crops show the whole aspect ratio and more detail"
    data = read_data(config, source, QUIET, pictures=True)
    assert data.train.pictures is not None
    # Pictures of 24 x 36, 24 x 48 and 24 x 48, in equal shares; with two classes, a fifth of 20 images is held out.
    assert picture_size.picture_bytes(config, source, 24) == pytest.approx(16 * 3 * 24 * 44, rel=0.01)
    assert data.train.pictures.nbytes == pytest.approx(16 * 3 * 24 * 44, rel=0.06)
    assert decoded_bytes(config, source) == 20 * 3 * 12**2 + picture_size.picture_bytes(config, source, 24)
    assert read_data(config, source, QUIET).train.pictures is None


@pytest.mark.parametrize(
    "sizes, keys, chosen",
    [
        ([(12, 12)], {}, 0),  # the squares show everything
        ([(9, 9)], {}, 0),
        ([(15, 15)], {}, 15),
        ([(9, 12)], {}, 9),
        ([(30, 40)], {"augment.crop_scale": "1,1", "augment.crop_ratio": "1,1"}, 0),
        ([(30, 40)], {"picture_size": 0}, 0),
        ([(30, 40)], {"picture_size": 14}, 14),
    ],
)
def test_pictures_are_not_larger_than_useful(
    tmp_path: Path, sizes: list[tuple[int, int]], keys: dict[str, object], chosen: int
) -> None:
    config, _ = configure(photographs(tmp_path / "photos", sizes), "frossl", KEYS | keys)
    assert config.picture_size == chosen
    assert config.origin["picture_size"] == ("user" if "picture_size" in keys else "chosen")


def test_small_named_sets_are_unchanged_and_arrays_can_have_pictures() -> None:
    assert configure("digits", "frossl", KEYS | {"image_size": 5})[0].picture_size == 0
    assert why("digits") == "crops of larger pictures would show no more"
    arrays = np.random.default_rng(0).integers(0, 256, (20, 30, 40, 3), dtype=np.uint8)
    config, source = configure(arrays, "frossl", KEYS)
    assert config.picture_size == 24
    assert read_data(config, source, QUIET, pictures=True).train.pictures.sizes.tolist() == [[24, 32]] * 20


def test_pictures_fit_into_memory_and_disk(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, source = configure(photos, "frossl", KEYS)
    for size, chosen in ((24, 24), (23, 21), (18, 18), (12, 12), (11, 0)):
        room = picture_size.picture_bytes(config, source, size) + 1
        monkeypatch.setattr(picture_size, "total_memory", lambda _, room=room: room / picture_size.HOST_SHARE)
        assert configure(photos, "frossl", KEYS)[0].picture_size == chosen
    assert why(photos) == "no room for them; pictures of 24 pixels need under 1 MB, and under 1 MB may be used"
    monkeypatch.undo()
    monkeypatch.setenv("TWOFOLD_CACHE_GB", str((20 * 3 * 12**2 + room) / 1e9))
    assert configure(photos, "frossl", KEYS)[0].picture_size == 0


def test_pictures_are_smaller_if_a_gpu_has_room_for_the_squares_only(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, source = configure(photos, "frossl", KEYS)
    squares, room = picture_size.square_bytes(config, source), picture_size.picture_bytes(config, source, 18)
    monkeypatch.setattr(picture_size, "choose_device", lambda _: torch.device("cuda"))
    for bytes_on_gpu, expected in ((squares + room + 1, 18), (squares + 1, 0), (squares - 1, 24)):
        total = bytes_on_gpu / picture_size.DEVICE_SHARE
        monkeypatch.setattr(picture_size, "total_memory", lambda d, total=total: total if d.type == "cuda" else 1e12)
        choice = picture_size.picture_choice(config, source)
        assert choice == picture_size.PictureChoice(expected, 24)


def test_useless_and_too_large_pictures_are_refused(photos: Path) -> None:
    off = {"augment.crop_scale": "1,1", "augment.crop_ratio": "1,1"}
    with pytest.raises(TwofoldError, match=r"picture_size has no effect with augment\.crop_scale=1,1"):
        configure(photos, "frossl", KEYS | off | {"picture_size": 20})
    with pytest.raises(TwofoldError, match="picture_size=30 is more than twice image_size=12"):
        configure(photos, "frossl", KEYS | {"picture_size": 30})


def test_squares_are_the_default(photos: Path) -> None:
    config, _ = configure(photos, "frossl", {key: value for key, value in KEYS.items() if key != "picture_size"})
    assert config.picture_size == 0
    assert "picture_size" not in config.origin


def test_runs_without_the_key_use_squares(photos: Path, tmp_path: Path) -> None:
    run = twofold.pretrain(photos, out=tmp_path / "run", **(running.small("frossl", epochs=1) | KEYS))
    assert run.config.picture_size == 24
    record = json.loads((run.path / "config.json").read_text())
    del record["values"]["picture_size"], record["origin"]["picture_size"], record["crc32"]
    earlier = configuration.load(json.dumps(record), schema_of_run)
    assert earlier.picture_size == 0
    data = read_data(earlier, open_source(photos), QUIET, pictures=True)
    assert Trainer(earlier, data, QUIET).loader.batch(0).images.shape == (8, 3, 12, 12)


def test_resumed_run_with_pictures_is_bit_identical(photos: Path, tmp_path: Path) -> None:
    keys = running.small("frossl", epochs=3) | KEYS
    whole = twofold.pretrain(photos, out=tmp_path / "whole", **keys)
    with running.stopped_at(2), pytest.raises(Interrupted):
        twofold.pretrain(photos, out=tmp_path / "stopped", **keys)
    resumed = twofold.resume(tmp_path / "stopped")
    assert (resumed.path / "encoder.safetensors").read_bytes() == (whole.path / "encoder.safetensors").read_bytes()
    shown = [json.loads((run.path / "pictures.json").read_text())["views"] for run in (whole, resumed)]
    assert shown[0] == shown[1]
