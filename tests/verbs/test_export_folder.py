"""export --format folder: the model card, and a folder that is accepted wherever a run is."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token
from PIL import Image
from sklearn.datasets import load_digits

import running
import twofold
from twofold.errors import TwofoldError
from twofold.runs.weights import fingerprint, load_encoder
from twofold.verbs.check import check

# Names of classes that Markdown, HTML, tables, YAML or formulas could read as something else.
CLASSES = [
    "<script>alert(1)",
    "a|b",
    "`rm` ```",
    "[x](http:evil)",
    "$5$",
    "_u_ **",
    "naïve: 日本",
    "www.evil.org",
    "'\"",
    "{{x}}",
]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secret") / "photos & <b>"
    digits = load_digits()
    for row in range(160):
        place = folder / CLASSES[digits.target[row]]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray((digits.images[row] * 15).astype(np.uint8)).save(place / f"{row}.png")
    return folder


@pytest.fixture(scope="module")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> twofold.Run:
    settings = running.small("simclr", epochs=1, batch_size=32, map_points=20, adapter=True)
    return twofold.pretrain(photos, method="simclr", out=tmp_path_factory.mktemp("secret-runs") / "run", **settings)


@pytest.fixture(scope="module")
def folder(run: twofold.Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    twofold.adapt(run, variant="within", overwrite=True)  # the run may have chosen none
    return twofold.export(run, "folder", tmp_path_factory.mktemp("shared") / "digits encoder")


def card(folder: Path) -> tuple[dict[str, Any], list[Token]]:
    """The front matter and the parsed Markdown of a card, as hubs read them."""
    _, front, text = (folder / "README.md").read_text().split("---\n", 2)
    parser = MarkdownIt("commonmark", {"linkify": False}).enable("table")
    tokens = [each for token in parser.parse(text) for each in [token, *(token.children or [])]]
    return yaml.safe_load(front), tokens


def lines_of(folder: Path) -> str:
    return next(token.content for token in card(folder)[1] if token.type == "fence" and "load_encoder" in token.content)


def features(encoder: Any, images: Path) -> torch.Tensor:
    with torch.inference_mode():
        return encoder(encoder.preprocess(Image.open(images)))


def test_the_lines_of_the_card_compute_the_features_of_the_run(
    run: twofold.Run, folder: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = next(photos.rglob("*.png"))
    (tmp_path / folder.name).symlink_to(folder)
    Image.open(picture).save(tmp_path / "photo.jpg", quality=95)
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    lines = lines_of(folder)
    assert len(lines.splitlines()) == 5
    exec(lines, scope)
    # Not bit by bit: the place of weights in memory changes the order of sums in matrix products.
    torch.testing.assert_close(scope["features"], features(load_encoder(run), Path("photo.jpg")), rtol=1e-4, atol=1e-6)


def test_the_card_shows_the_numbers_of_the_run_and_names_as_they_are(run: twofold.Run, folder: Path) -> None:
    front, tokens = card(folder)
    results = run.results
    adapted = next(row for row in results["table"] if row["name"] == "with adapter")
    (measured,) = front["model-index"][0]["results"]
    assert front["library_name"] == "twofold"
    assert measured["dataset"]["name"] == "photos & <b>"
    found = {each["name"]: each["value"] for each in measured["metrics"]}
    assert found["accuracy, linear"] == pytest.approx(100 * adapted["linear_accuracy"], abs=0.05)
    assert found["accuracy, kNN"] == pytest.approx(100 * adapted["knn_accuracy"], abs=0.05)
    kinds = {token.type for token in tokens}
    assert not kinds & {"html_block", "html_inline", "link_open"}
    assert [token.attrs["src"] for token in tokens if token.type == "image"] == ["map.png"]
    shown = {token.content for token in tokens if token.type == "code_inline"}
    assert {*CLASSES, "photos & <b>", "simclr", "digits encoder"} <= shown
    words = "".join(token.content for token in tokens if token.type == "text")
    assert results["verdict"]["sentence"] in words
    assert "128 training images and 32 held-out images" in words
    table = [token.content for token in tokens if token.type == "inline"]
    rows = {row["name"]: f"{100 * row['knn_accuracy']:.1f}" for row in results["table"]}
    for name, text in (("without adapter", rows["trained"]), ("raw pixels", rows["raw pixels"])):
        assert table[table.index(name) + 3].strip("*") == text
    with Image.open(folder / "map.png") as picture:
        assert picture.width > 500
        assert len(picture.convert("RGB").getcolors(2**20)) > 10  # white, and a colour for each class


def test_nothing_in_the_folder_tells_where_it_was_made(folder: Path) -> None:
    assert sorted(os.listdir(folder)) == [
        "README.md", "adapter.safetensors", "encoder.safetensors", "encoder.safetensors.json", "map.png"
    ]  # fmt: skip
    for file in folder.iterdir():
        assert b"secret" not in file.read_bytes(), file  # part of the paths of the images and of the run


def test_commands_and_init_accept_the_folder(run: twofold.Run, folder: Path, photos: Path, tmp_path: Path) -> None:
    both = [twofold.embed(what, photos, tmp_path / f"{number}.npz") for number, what in enumerate((run, folder))]
    ours, theirs = (np.load(path)["features"] for path in both)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    expected, found = twofold.knn(run), twofold.knn(folder, photos)
    assert [row["top1"] for row in found["rows"]][:1] == [row["top1"] for row in expected["rows"]][:1]
    with pytest.raises(
        TwofoldError, match=r"were in photos & <b>, which no longer exists; pass their new path as DATA"
    ):
        twofold.knn(folder)
    settings = running.small("simclr", epochs=1, batch_size=64, recipe="scratch")
    continued = twofold.pretrain(photos, method="simclr", init=folder, out=tmp_path / "continued", **settings)
    weights = fingerprint(load_encoder(folder, adapter=False).state_dict())
    assert continued.config.init == f"{(folder / 'encoder.safetensors').resolve()}@{weights}"
    again = twofold.export(folder, "folder", tmp_path / "again")
    theirs = np.load(twofold.embed(again, photos, tmp_path / "again.npz"))["features"]
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_check_finds_damage_in_every_file_with_a_checksum(folder: Path, tmp_path: Path) -> None:
    assert not check(folder).damaged
    for name in ("encoder.safetensors", "adapter.safetensors", "encoder.safetensors.json", "map.png"):
        copy = tmp_path / name
        copy.mkdir()
        for file in folder.iterdir():
            (copy / file.name).write_bytes(file.read_bytes())
        content = bytearray((copy / name).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / name).write_bytes(content)
        assert [file.name for file in check(copy).damaged] == [name]


def test_the_card_of_an_encoder_without_a_run_says_what_is_known(
    run: twofold.Run, photos: Path, tmp_path: Path
) -> None:
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes((run.path / "encoder.safetensors").read_bytes())
    unknown = twofold.export(weights, "folder", tmp_path / "unknown")
    front, tokens = card(unknown)
    words = "".join(token.content for token in tokens if token.type == "text")
    assert "model-index" not in front
    assert "Twofold knows nothing about the images that this encoder was trained on." in words
    assert "weights.safetensors" in {token.content for token in tokens if token.type == "code_inline"}
    with pytest.raises(TwofoldError, match="this encoder has no images of its own: give DATA"):
        twofold.knn(unknown)
    front, tokens = card(twofold.export(weights, "folder", tmp_path / "measured", data=photos))
    words = "".join(token.content for token in tokens if token.type == "text")
    assert "The encoder was measured on " in words
    assert (tmp_path / "measured" / "map.png").exists()
    row = next(row for row in run.results["table"] if row["name"] == "trained")
    (result,) = front["model-index"][0]["results"]
    assert result["metrics"][0]["value"] == pytest.approx(100 * row["linear_accuracy"], abs=0.05)


def test_the_lines_for_a_users_module_name_its_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.random.default_rng(0).integers(0, 256, (16, 8, 8), dtype=np.uint8)
    settings = running.small("simclr", batch_size=8, epochs=1, recipe="scratch")
    module = running.SmallEncoder()
    run = twofold.pretrain(images, method="simclr", encoder=module, out=tmp_path / "run", **settings)
    folder = twofold.export(run, "folder", tmp_path / "own", encoder=running.SmallEncoder())
    monkeypatch.chdir(tmp_path)
    Image.fromarray(images[0]).save("photo.jpg")
    scope: dict[str, Any] = {"SmallEncoder": running.SmallEncoder}
    exec(lines_of(folder), scope)
    expected = features(load_encoder(run, encoder=module), Path("photo.jpg"))
    torch.testing.assert_close(scope["features"], expected)
    assert "whose code this folder does not contain" in (folder / "README.md").read_text()


def test_folders_without_a_name_and_existing_ones_are_refused(run: twofold.Run, tmp_path: Path) -> None:
    with pytest.raises(TwofoldError, match="a folder to share needs a name: pass --out FOLDER"):
        twofold.export(run, "folder")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.txt").write_text("mine")
    with pytest.raises(TwofoldError, match="exists already"):
        twofold.export(run, "folder", tmp_path / "here")
    with pytest.raises(TwofoldError, match="unknown format 'foldr', did you mean 'folder'"):
        twofold.export(run, "foldr", tmp_path / "new")
