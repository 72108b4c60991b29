"""Classifiers that are saved by `probe` and by supervised runs, applied to images, and exported."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import twofold
from twofold.cli import app
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.runs.classifier_file import load_classifier
from twofold.verbs.probing import load_probe_data

SETTINGS = {"encoder": "conv", "batch_size": 16, "epochs": 1, "map_points": 0, "image_size": 16, "select": "last"}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of bright and dark images, a supervised run, and the classifier of a probe."""
    here = tmp_path_factory.mktemp("classified")
    generator = np.random.default_rng(0)
    for name, low in (("bright", 150), ("dark", 0)):
        (here / "photos" / name).mkdir(parents=True)
        for number in range(20):
            pixels = generator.integers(low, low + 100, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(here / "photos" / name / f"{number}.png")
    twofold.pretrain(str(here / "photos"), method="supervised", out=here / "run", **SETTINGS)
    twofold.probe(here / "run", classifier=here / "classifier.safetensors")
    return here


def test_predictions_are_those_of_the_probe(here: Path, tmp_path: Path) -> None:
    found = twofold.predict(here / "classifier.safetensors", here / "photos", tmp_path / "table.csv")
    assert [each.predicted for each in found] == [each.file.split("/")[0] for each in found]
    with (tmp_path / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["file", "index", "class", "probability", "nearest", "nearest_class", "similarity"]
    assert [row["class"] for row in rows] == [each.predicted for each in found]
    saved = load_classifier(here / "classifier.safetensors")
    probed = load_probe_data(here / "run", None, "pre", None, Display(quiet=True))
    features = probed.representations["trained"][1]
    expected = twofold.probe(here / "run")["rows"][0]
    predicted = saved.network.probabilities(features).argmax(1)
    assert (predicted == probed.splits.test_labels).double().mean() == expected["top1"]
    for each in found:  # an image that the classifier was trained on is its own nearest image
        assert 0.5 <= each.probability <= 1
        if each.file in saved.labelled.names:
            assert (each.nearest, each.nearest_class) == (each.file, each.predicted)
            assert each.similarity > 0.999


def test_a_single_file_is_classified_as_in_its_folder(here: Path) -> None:
    name = "dark/3.png"
    (alone,) = twofold.predict(here / "classifier.safetensors", here / "photos" / name)
    among = next(
        each for each in twofold.predict(here / "classifier.safetensors", here / "photos") if each.file == name
    )
    assert alone.file.endswith(name)
    assert (alone.predicted, alone.nearest) == (among.predicted, among.nearest)
    assert alone.probability == pytest.approx(among.probability, abs=1e-5)


def test_a_supervised_run_saves_the_classifier_that_it_trained(here: Path) -> None:
    found = twofold.predict(here / "run", here / "photos")
    saved = load_classifier(here / "run" / "classifier.safetensors")
    assert saved.classes == ["bright", "dark"]
    weights = twofold.load_encoder(here / "run").state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in saved.network.encoder.state_dict().items())
    assert {each.predicted for each in found} <= {"bright", "dark"}


def test_the_command_prints_a_table(here: Path, tmp_path: Path) -> None:
    words = ["predict", str(here / "classifier.safetensors"), str(here / "photos"), "--out", str(tmp_path / "t.csv")]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0
    assert "40 images; the first 20 are shown" in result.output
    assert len((tmp_path / "t.csv").read_text().splitlines()) == 41


def test_errors_say_how_to_write_a_classifier(here: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for model in (tmp_path / "empty", here / "run" / "encoder.safetensors"):
        with pytest.raises(TwofoldError, match=r"twofold probe .* --out"):
            twofold.predict(model, here / "photos")
    with pytest.raises(TwofoldError, match="leave out --layer post"):
        twofold.probe(here / "run", layer="post", classifier=tmp_path / "x.safetensors")
    with pytest.raises(TwofoldError, match="first write the encoder to a file with `twofold export"):
        twofold.probe("timm:resnet18", here / "photos", classifier=tmp_path / "x.safetensors")
    with pytest.raises(TwofoldError, match=r"give a .safetensors file"):
        twofold.probe(here / "run", classifier=tmp_path / "x.json")


def test_torchscript_has_features_and_probabilities(here: Path, tmp_path: Path) -> None:
    out = twofold.export(here / "classifier.safetensors", "torchscript", tmp_path / "model.pt")
    facts = json.loads((tmp_path / "model.pt.json").read_text())
    assert facts["classes"] == ["bright", "dark"]
    assert [each["name"] for each in facts["outputs"]] == ["features", "probabilities"]
    images = torch.randn(3, 3, 16, 16)
    saved = load_classifier(here / "classifier.safetensors")
    with torch.no_grad():
        for written, expected in zip(torch.jit.load(out)(images), saved.network(images), strict=True):
            torch.testing.assert_close(written, expected)
    with pytest.raises(TwofoldError, match="choose the format onnx or torchscript"):
        twofold.export(here / "classifier.safetensors", "safetensors", tmp_path / "x.safetensors")


@pytest.mark.extras
@pytest.mark.full
def test_onnx_has_features_and_probabilities(here: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    out = twofold.export(here / "classifier.safetensors", "onnx", tmp_path / "model.onnx")
    images = torch.randn(3, 3, 16, 16)
    saved = load_classifier(here / "classifier.safetensors")
    found = runtime.InferenceSession(str(out)).run(["features", "probabilities"], {"images": images.numpy()})
    with torch.no_grad():
        for written, expected in zip(found, saved.network(images), strict=True):
            torch.testing.assert_close(torch.from_numpy(written), expected, rtol=1e-4, atol=1e-5)
