"""Pictures of a report: which images they show, their texts, and the page without them."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import running
import twofold
from browser import elements, texts, tile_at
from fake_runs import pictured_run
from twofold.data.load import load_data
from twofold.data.open import open_source
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.evaluate.encoder import Encoder
from twofold.report.page import render, write_anew
from twofold.report.pictures import Sample, gather_pictures, others_nearest, record_trainer
from twofold.runs.folder import RunFolder

QUIET = Display(quiet=True)


def photographs(folder: Path, each: int = 15) -> Path:
    """Write a folder of red and blue images with some noise."""
    generator = np.random.default_rng(0)
    for name, colour in (("red", (200, 30, 30)), ("blue", (30, 30, 200))):
        (folder / name).mkdir(parents=True)
        for number in range(each):
            noise = generator.integers(-30, 30, (12, 12, 3))
            Image.fromarray((np.array(colour) + noise).astype(np.uint8)).save(folder / name / f"{number:02d}.png")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("workspace")
    keys = running.small("frossl", epochs=1, batch_size=8) | {"map_points": 1000}
    twofold.pretrain(str(photographs(here / "photos")), out=here / "run", method="frossl", **keys)
    return here / "run"


@pytest.fixture
def copied(run: Path, tmp_path: Path) -> Path:
    shutil.copytree(run, tmp_path / "run")
    return tmp_path / "run"


def kept(run: Path) -> dict[str, Any]:
    return json.loads((run / "pictures.json").read_text())


def file_of(run: Path, name: str) -> np.ndarray:
    return np.asarray(Image.open(run.parent / "photos" / name))


def test_each_picture_matches_the_file_it_names(run: Path) -> None:
    pictures = kept(run)
    assert pictures["classes"] == ["blue", "red"]
    for part in (pictures["map"], pictures["neighbours"]):
        for number in range(len(part["names"])):
            name = part["names"][number]
            assert np.array_equal(tile_at(part["sheet"], number), file_of(run, name))
            assert pictures["classes"][part["labels"][number]] == name.split("/")[0]
    assert sorted(pictures["map"]["index"]) == list(range(30))
    assert sum(pictures["map"]["held_out"]) == 6
    assert pictures["map"]["perplexity"] == pytest.approx(29 / 3)


def test_the_order_of_images_depends_on_neither_seed_nor_split(tmp_path: Path) -> None:
    source = open_source(str(photographs(tmp_path / "photos")))
    split, whole = (
        Sample(load_data(source, image_size=12, channels=3, test_fraction=fraction), 20) for fraction in (0.2, 0.0)
    )
    assert len(split) == 20
    assert torch.equal(split.index, whole.index)
    rows = torch.arange(20)
    assert torch.equal(split.take(rows)[0], whole.take(rows)[0])
    assert split.about(rows)["names"] == whole.about(rows)["names"]
    assert 0 < split.held_out.sum() < 20
    assert not whole.held_out.any()


def test_neighbours_are_the_nearest_other_images() -> None:
    rows = torch.randn(40, 6)
    rows[3] = rows[0]  # a duplicate: as similar as the row itself
    similarity, found = others_nearest(rows, 12, 5)
    exact = rows.double() / rows.double().norm(dim=1, keepdim=True)
    cosine = (exact @ exact.T).fill_diagonal_(-2)
    values, expected = cosine[:12].topk(5)
    assert torch.equal(found, expected)
    assert torch.allclose(similarity.double(), values, atol=1e-6)
    assert found[0, 0] == 3
    _, all_alike = others_nearest(torch.ones(30, 4), 12, 8)
    assert all_alike.shape == (12, 8)


def test_neighbours_with_another_label_are_counted_and_highlighted(tmp_path: Path) -> None:
    html = render(pictured_run(tmp_path / "run"))
    # In the made-up pictures, two of the three neighbours of each image have its label.
    (lead,) = [text for text in texts(html, "p") if "random images" in text]
    assert "12 random images" in lead
    assert "among 40 images," in lead
    counts = "24 of 36 neighbours have the same label as the image they follow (with raw pixels: 11)"
    assert f"{counts}; the others are highlighted." in lead
    cells = [e.attributes for e in elements(html) if (e.attributes.get("class") or "").startswith("cell")]
    assert [cell["class"] for cell in cells[:4]] == ["cell query", "cell", "cell", "cell other"]
    assert cells[3]["title"] == "9.png · kind 1 · similarity 0.500"
    unlabelled = render(pictured_run(tmp_path / "unlabelled", classes=None))
    assert "have the same label" not in unlabelled
    assert "cell other" not in unlabelled


def test_views_are_the_pixels_of_the_first_step(tmp_path: Path) -> None:
    trainer = running.trainer("dino", **{"augment.local_views": 1, "augment.local_size": 8})
    folder = RunFolder.create(tmp_path / "run", "{}")
    record_trainer(folder, trainer, trainer.method.encoder, QUIET)
    shown = kept(folder.path)["views"]
    assert (shown["images"], shown["views"], shown["small_crops"]) == (6, 2, 1)
    batch = trainer.loader.batch(0)
    views, small = trainer.make_views(batch.images, batch.position, torch.tensor(0))
    mean, std = trainer.augment.eval_transform.mean, trainer.augment.eval_transform.std
    for image in range(6):
        assert np.array_equal(tile_at(shown["sheet"], 4 * image), batch.images[image, 0].numpy())
        for number, view in enumerate((views[0], views[1], small[0]), start=1):
            pixels = (255 * (view[image, 0] * std + mean)).numpy()
            assert np.abs(tile_at(shown["sheet"], 4 * image + number) - pixels).max() < 0.51


class Constant(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: Tensor) -> Tensor:
        return torch.full((len(x), 4), self.value)


@pytest.mark.parametrize("value", [0.0, 1.0, float("nan")])
def test_a_collapsed_encoder_still_has_pictures(tmp_path: Path, value: float) -> None:
    trainer = running.trainer()
    encoder = Encoder(Constant(value), trainer.augment.eval_transform, trainer.device)
    pictures = gather_pictures(trainer.config, trainer.data, encoder, [trainer.augment], 50, QUIET)
    assert pictures["map"] is None
    assert (pictures["neighbours"] is None) == (value != value)
    folder = RunFolder.create(tmp_path / "run", json.dumps({"values": {"method": "frossl", "data": "digits"}}))
    folder.write("pictures.json", json.dumps(pictures))
    html = render(folder)
    assert 'id="views"' in html
    assert 'id="map"' not in html


def test_a_page_can_be_written_again_without_the_images(copied: Path) -> None:
    before = render(RunFolder.open(copied))
    assert before.count('class="row"') == 12
    assert "data:image/png;base64," in before
    # The copy has no images, and none are needed.
    assert write_anew(RunFolder.open(copied), QUIET).read_text() == before


def test_missing_pictures_are_created_if_the_images_are_found(run: Path, copied: Path) -> None:
    (copied / "pictures.json").unlink()
    write_anew(RunFolder.open(copied), QUIET)
    again, before = kept(copied), kept(run)
    for part in ("views", "neighbours"):
        assert again[part] == before[part]
    assert again["map"]["index"] == before["map"]["index"]
    write_anew(RunFolder.open(copied), QUIET, map_points=12)
    assert kept(copied)["map"]["index"] == before["map"]["index"][:12]


def test_without_images_a_message_says_why_pictures_are_missing(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder.open(copied)
    config = json.loads(folder.config_text())
    config["values"]["data"] = str(copied / "gone")
    config.pop("crc32", None)
    folder.write("config.json", json.dumps(config))
    (copied / "pictures.json").unlink()
    html = write_anew(folder, Display()).read_text()
    assert "gone, which no longer exists" in capsys.readouterr().out
    assert 'id="map"' not in html
    assert 'id="numbers"' in html
    with pytest.raises(TwofoldError, match="which no longer exists"):
        write_anew(folder, QUIET, map_points=20)


def test_moved_images_are_accepted_and_other_images_are_refused(run: Path, copied: Path) -> None:
    shutil.copytree(run.parent / "photos", copied.parent / "moved")
    folder = RunFolder.open(copied)
    config = json.loads(folder.config_text())
    config["values"]["data"] = str(copied / "gone")
    config.pop("crc32", None)
    folder.write("config.json", json.dumps(config))
    write_anew(folder, QUIET, data=str(copied.parent / "moved"))
    again, before = kept(copied), kept(run)
    assert again["views"] == before["views"]
    assert again["map"]["index"] == before["map"]["index"]
    page = (copied / "report.html").read_text()
    with pytest.raises(TwofoldError, match=r"others does not have the images that .*run was trained on"):
        write_anew(folder, QUIET, data=str(photographs(copied.parent / "others", each=5)))
    with pytest.raises(TwofoldError, match="digits does not have the images"):
        write_anew(folder, QUIET, data="digits")
    assert (copied / "report.html").read_text() == page


def test_a_read_only_folder_is_refused_before_pictures_are_created(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (copied / "pictures.json").unlink()
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    monkeypatch.setattr("twofold.report.pictures.record_run", lambda *_: pytest.fail("the work was done"))
    with pytest.raises(TwofoldError, match="is not writable, and the report is written to it") as error:
        write_anew(RunFolder.open(copied), QUIET)
    assert str(copied) in str(error.value)
