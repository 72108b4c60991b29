"""duplicates: planted duplicates are found and written to files."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance
from sklearn.datasets import load_digits

import running
import twofold
from twofold.errors import TwofoldError
from twofold.verbs.duplicates import find_duplicates, write_duplicates

KINDS = {"copy": ".png", "jpeg": ".jpg", "larger": ".png", "darker": ".png"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> twofold.Run:
    return twofold.pretrain("digits", out=tmp_path_factory.mktemp("run") / "run", **running.small("frossl", epochs=4))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 digits. Five of them also have a copy of the file, a JPEG, a larger and a darker version."""
    here = tmp_path_factory.mktemp("digits")
    for number, pixels in enumerate(load_digits().images[:400]):
        image = Image.fromarray(np.rint(pixels * 255 / 16).astype(np.uint8)).resize((32, 32), Image.Resampling.NEAREST)
        image.save(here / f"{number}.png")
        if number % 80 == 7:
            shutil.copy(here / f"{number}.png", here / f"{number}-copy.png")
            image.save(here / f"{number}-jpeg.jpg", quality=80)
            image.resize((48, 48), Image.Resampling.BICUBIC).save(here / f"{number}-larger.png")
            ImageEnhance.Brightness(image).enhance(0.75).save(here / f"{number}-darker.png")
    return here


def planted() -> set[frozenset[str]]:
    kinds = [f"-{kind}{ending}" for kind, ending in KINDS.items()]
    return {frozenset([f"{number}.png", *(f"{number}{kind}" for kind in kinds)]) for number in (7, 87, 167, 247, 327)}


def test_planted_duplicates_are_found_and_nothing_else(run: twofold.Run, folder: Path) -> None:
    groups = find_duplicates(run, folder)
    assert {frozenset(image.file for image in group) for group in groups} == planted()
    for group in groups:
        assert {image.file: image.similarity for image in group}[group[0].file] == pytest.approx(1, abs=1e-3)


def test_digits_have_no_duplicates(run: twofold.Run) -> None:
    assert find_duplicates(run) == []


def test_duplicates_of_images_of_a_run_show_its_split(tmp_path: Path) -> None:
    """Images of the run have its split, also if they are passed as data."""
    for number, pixels in enumerate(load_digits().images[:40]):
        for name in ("a", "b"):
            path = tmp_path / "photos" / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.rint(pixels * 255 / 16).astype(np.uint8)).save(path)
    settings = running.small("frossl", epochs=1) | {"encoder": "conv", "batch_size": 16}
    trained = twofold.pretrain(tmp_path / "photos", out=tmp_path / "run", **settings)
    twofold.embed(trained, tmp_path / "photos", tmp_path / "features.npz")
    with np.load(tmp_path / "features.npz") as file:
        splits = dict(zip(file["files"].tolist(), file["split"].tolist(), strict=True))
    assert set(splits.values()) == {"train", "test"}
    for data in (None, tmp_path / "photos"):
        groups = find_duplicates(trained, data)
        assert len(groups) == 40
        assert all(image.split == splits[image.file] for group in groups for image in group)
        assert any(len({image.split for image in group}) == 2 for group in groups)


def test_duplicates_are_written_as_csv_json_and_text(run: twofold.Run, folder: Path, tmp_path: Path) -> None:
    groups = find_duplicates(run, folder)
    rows = list(csv.DictReader(write_duplicates(tmp_path / "a.csv", groups).open()))
    assert [row["file"] for row in rows] == [image.file for group in groups for image in group]
    assert {row["group"] for row in rows} == {"1", "2", "3", "4", "5"}
    read = json.loads(write_duplicates(tmp_path / "a.json", groups).read_text())
    assert read[0][0] == {
        "index": groups[0][0].index,
        "split": "train",
        "file": groups[0][0].file,
        "similarity": groups[0][0].similarity,
    }
    text = write_duplicates(tmp_path / "a.txt", groups).read_text()
    assert text.count("5 images\n") == 5
    with pytest.raises(TwofoldError, match=r"give a \.json, \.csv or \.txt file"):
        write_duplicates(tmp_path / "a.xlsx", groups)


def test_command_prints_and_writes_duplicates(run: twofold.Run, folder: Path, tmp_path: Path) -> None:
    done = running.call("duplicates", str(run.path), str(folder), "--out", str(tmp_path / "groups.csv"))
    assert done.returncode == 0, done.stderr
    assert "5 groups of duplicates; 20 images could be removed" in done.stdout
    assert "87-jpeg.jpg" in done.stdout
    assert (tmp_path / "groups.csv").exists()
