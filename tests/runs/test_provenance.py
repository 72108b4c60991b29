"""Which images are held out, and how a run recognises the images that it was trained on."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import running
import twofold
from twofold.config import Config
from twofold.data.hold_out import hold_out_groups
from twofold.data.load import load_data
from twofold.data.open import open_source
from twofold.data.source import Source
from twofold.errors import TwofoldError
from twofold.runs import provenance


def folder(path: Path, count: int, seed: int = 0) -> Path:
    path.mkdir()
    generator = np.random.default_rng(seed)
    for number in range(count):
        Image.fromarray(generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path / f"{number}.png")
    return path


def test_the_held_out_share_is_right_to_within_half_of_the_largest_group() -> None:
    groups = torch.arange(2).repeat_interleave(10)
    held = hold_out_groups(torch.arange(20), torch.zeros(20, dtype=torch.int64), groups, 0.3)
    assert held.sum() == 10


def record(run: Path, source: Source, test_fraction: float) -> None:
    """Record the training images as `pretrain` does."""
    provenance.record_trained_images(
        run,
        source,
        Config(test_fraction=test_fraction),
        load_data(source, image_size=8, channels=3, test_fraction=test_fraction),
    )


def test_new_images_without_a_label_are_not_held_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))
    here = folder(tmp_path / "desk", 6)
    (here / "list.csv").write_text(
        "path,label\n" + "".join(f"{n}.png,{'' if n == 5 else 'ab'[n % 2]}\n" for n in range(6))
    )
    source = dataclasses.replace(open_source(here / "list.csv"), held_out=np.arange(6) >= 4)
    data = load_data(source, image_size=8, channels=3, test_fraction=0.2)
    assert data.test.index.tolist() == [4]
    assert 5 in data.train.index.tolist()


def test_a_folder_with_only_one_of_the_images_counts_as_other_images(tmp_path: Path) -> None:
    here = folder(tmp_path / "photos", 6)
    record(tmp_path, open_source(here), 0.0)
    for number in range(5):
        (here / f"{number}.png").rename(here / f"new-{number}.png")
    source = open_source(here)
    assert provenance.with_run_split(tmp_path, SimpleNamespace(data=source.location), source, pytest.fail) is source


def test_other_groups_change_the_fingerprint(tmp_path: Path) -> None:
    here = folder(tmp_path / "desk", 4)
    found = set()
    for groups in ("aabb", "abab"):
        (here / "list.csv").write_text("path,group\n" + "".join(f"{n}.png,{groups[n]}\n" for n in range(4)))
        found.add(open_source(here / "list.csv").fingerprint)
    assert len(found) == 2


def test_a_folder_that_moved_is_split_as_in_the_run(tmp_path: Path) -> None:
    """Files were added, one is missing, and all have other times. A folder with few of the names is not the run's."""
    here = folder(tmp_path / "photos", 10)
    source = dataclasses.replace(open_source(here), held_out=np.arange(10) >= 7)
    record(tmp_path, source, 0.3)
    config, messages = SimpleNamespace(data=str(here)), []
    there = folder(tmp_path / "elsewhere", 12)
    (there / "0.png").unlink()
    moved = provenance.with_run_split(tmp_path, config, open_source(there), messages.append)
    names = moved.train.names(np.arange(11))
    assert {name for name, out in zip(names, moved.held_out, strict=True) if out} == {f"{n}.png" for n in range(7, 12)}
    assert "count as held out" in messages[0]
    others = open_source(folder(tmp_path / "others", 3))
    assert provenance.with_run_split(tmp_path, config, others, pytest.fail) is others


def test_a_folder_that_moved_keeps_the_class_list(tmp_path: Path) -> None:
    for top in ("photos", "moved"):
        (tmp_path / top).mkdir()
        for name in ("cats", "dogs", "owls"):
            folder(tmp_path / top / name, 4)
    (tmp_path / "classes.txt").write_text("cats\nowls\n")
    first = open_source(tmp_path / "photos", class_list=tmp_path / "classes.txt")
    record(tmp_path, first, 0.25)
    config = Config(data=first.location, class_list=str(tmp_path / "classes.txt"))
    again = provenance.open_run_source(tmp_path, config, lambda _: None, tmp_path / "moved")
    assert again.classes == ("cats", "owls")
    assert len(again) == 8
    assert int(again.held_out.sum()) == 2
    birds = folder(tmp_path / "birds", 4)  # without these classes, all images are used
    assert len(provenance.open_run_source(tmp_path, config, pytest.fail, birds)) == 4


def test_training_images_are_recognised_by_their_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the files were renamed, if they come as arrays, or together with other images."""
    here = folder(tmp_path / "photos", 6)
    source = open_source(here)
    record(tmp_path, source, 0.0)

    def count_trained_on(source: Source) -> int:
        images = load_data(source, image_size=8, channels=3, test_fraction=0.0).train
        return provenance.count_trained_on(tmp_path, images)

    assert count_trained_on(source) == 6
    pixels = np.stack([np.asarray(Image.open(here / f"{number}.png")) for number in range(6)])
    assert count_trained_on(open_source(pixels)) == 6
    (here / "0.png").rename(here / "new.png")
    assert count_trained_on(open_source(here)) == 6
    others = np.random.default_rng(5).integers(0, 256, (3, *pixels.shape[1:]), dtype=np.uint8)
    assert count_trained_on(open_source(np.concatenate([pixels[:2], others]))) == 2
    monkeypatch.setattr(provenance, "MAX_HASHED_BYTES", 0)
    assert count_trained_on(open_source(pixels)) == 0  # too many to hash


def test_a_resumed_run_records_its_images_if_it_was_killed_before_it_did(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = rng.integers(0, 256, (40, 8, 8), dtype=np.uint8), np.arange(40) % 2
    keys = {"epochs": 1, "batch_size": 20, "projector": "16,8", "map_points": 0}
    run = twofold.pretrain(data, out=tmp_path / "run", **keys)
    recorded = dict(np.load(run.path / "images.npz"))
    for name in ("images.npz", "results.json", "encoder.safetensors"):
        (run.path / name).unlink()
    twofold.resume(run, data=data)
    again = dict(np.load(run.path / "images.npz"))
    assert again.keys() == recorded.keys()
    assert all(np.array_equal(again[name], recorded[name]) for name in recorded)


def test_a_run_reports_exact_copies(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    train, test = (rng.integers(0, 256, (count, 8, 8), dtype=np.uint8) for count in (40, 20))
    labels = {"train": np.arange(40) % 2, "test": np.arange(20) % 2}
    keys = {"epochs": 1, "batch_size": 20, "projector": "16,8", "map_points": 0}

    def copies(name: str) -> list[str]:
        data = {"train": (train, labels["train"]), "test": (test, labels["test"])}
        run = twofold.pretrain(data, out=tmp_path / name, **keys)
        return [line for line in (run.path / "log.txt").read_text().splitlines() if "copies" in line]

    assert copies("none") == []
    train[30:33] = train[0]
    test[5] = train[7]
    (line,) = copies("some")
    results = twofold.Run(tmp_path / "some").results
    assert results["test_images_trained_on"] == 1
    assert "; 1 of these is a copy of a training image." in (tmp_path / "some" / "report.html").read_text()
    assert "of these" not in (tmp_path / "none" / "report.html").read_text()
    assert "3 of 40 training images are exact copies of other ones" in line
    assert "1 of 20 held-out images is a copy of a training image, so accuracies are too high" in line


def test_probes_report_how_many_test_images_were_used_for_training(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (60, 8, 8), dtype=np.uint8), np.arange(60) % 2
    run = twofold.pretrain(
        images, out=tmp_path / "run", method="simclr", **running.small("simclr", epochs=1, batch_size=16)
    )
    found = twofold.knn(run, (images, labels))
    assert found["test_images_trained_on"] == found["test_images"] == 12
    fresh = twofold.knn(run, (rng.integers(0, 256, (60, 8, 8), dtype=np.uint8), labels))
    assert fresh["test_images_trained_on"] == 0


def test_a_run_can_be_resumed_and_evaluated_after_its_images_moved(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / "photos").mkdir(exist_ok=True)
        folder(tmp_path / "photos" / name, 12, seed=ord(name))
    keys = running.small("frossl", batch_size=8, epochs=3)
    with running.stopped_at(2), pytest.raises(KeyboardInterrupt):
        twofold.pretrain(tmp_path / "photos", out=tmp_path / "run", **keys)
    (tmp_path / "photos").rename(tmp_path / "moved")
    with pytest.raises(TwofoldError, match="no longer exists; pass their new path"):
        twofold.resume(tmp_path / "run")
    assert twofold.knn(tmp_path / "run", tmp_path / "moved")["test_images"] > 0
    with pytest.raises(TwofoldError, match="to measure it on its own images"):
        twofold.knn(tmp_path / "run", "digits")
    twofold.resume(tmp_path / "run", data=tmp_path / "moved")


def test_changed_images_are_counted_and_named(tmp_path: Path) -> None:
    here = folder(tmp_path / "photos", 6)
    load = lambda: load_data(open_source(here), image_size=8, channels=3, test_fraction=0.0)  # noqa: E731
    record(tmp_path, open_source(here), 0.0)
    assert provenance.describe_changes(tmp_path, load()) == ""
    (here / "0.png").unlink()
    for name in ("1.png", "new.png"):
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(here / name)
    found = provenance.describe_changes(tmp_path, load())
    assert found == "1 image is missing: 0.png; 1 image is new: new.png; 1 image is changed: 1.png"


def test_resume_names_the_changed_images(tmp_path: Path) -> None:
    here = folder(tmp_path / "photos", 8)
    settings = running.small("simclr", batch_size=4, encoder="conv", image_size=8)
    with pytest.raises(KeyboardInterrupt), running.stopped_at(2):
        twofold.pretrain(str(here), method="simclr", out=tmp_path / "run", **settings)
    (here / "3.png").unlink()
    with pytest.raises(
        TwofoldError, match=r"have changed since the run started \(1 image is missing: 3.png\); restore"
    ):
        twofold.resume(tmp_path / "run")
