"""Encoders that Twofold did not train, wherever a run is accepted: in any form, an encoder gives the same numbers."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits
from torch import nn
from typer.testing import CliRunner

import twofold
from running import small
from twofold.cli import app
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.verbs.diagnose import diagnose
from twofold.verbs.duplicates import find_duplicates
from twofold.verbs.encoder_report import report_encoder


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 digits, of which a run holds out 80."""
    path = tmp_path_factory.mktemp("images") / "images.npz"
    digits = load_digits()
    np.savez(path, x=(digits.images[:400] * 15).astype(np.uint8), y=digits.target[:400])
    return path


@pytest.fixture(scope="module")
def run(images: Path, tmp_path_factory: pytest.TempPathFactory) -> twofold.Run:
    return twofold.pretrain(images, out=tmp_path_factory.mktemp("any") / "run", **small("frossl", epochs=1))


@pytest.fixture(scope="module")
def foreign(run: twofold.Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights of the run as another program would write them."""
    path = tmp_path_factory.mktemp("foreign") / "weights.safetensors"
    save_file(load_file(run.path / "encoder.safetensors"), path)
    return path


@pytest.fixture
def onnx_file(run: twofold.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose network a fake onnxruntime computes with the encoder of the run, four images at a time."""
    network = twofold.load_encoder(run)

    def compute(_: list[str], inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        (images,) = inputs.values()
        assert images.shape == (4, 1, 8, 8)
        with torch.no_grad():
            return [network(torch.from_numpy(images)).numpy()]

    session = SimpleNamespace(
        get_inputs=lambda: [SimpleNamespace(name="pixels", type="tensor(float)", shape=[4, 1, 8, 8])],
        get_outputs=lambda: [
            SimpleNamespace(name="map", shape=[4, 3, 2, 2]),
            SimpleNamespace(name="features", shape=[4, "K"]),
        ],
        run=compute,
    )
    runtime: Any = ModuleType("onnxruntime")
    runtime.get_available_providers = lambda: ["CPUExecutionProvider"]
    runtime.InferenceSession = lambda content, providers: session  # noqa: ARG005
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    path = tmp_path / "network.onnx"
    path.write_bytes(b"weights")
    preprocess = network.preprocess
    stated = {"resize": [8, 8], "mean": preprocess.mean.tolist(), "std": preprocess.std.tolist()}
    (tmp_path / "network.onnx.json").write_text(json.dumps({"preprocessing": stated}))
    return path


def features(path: Path) -> np.ndarray:
    with np.load(path) as file:
        return file["features"]


Form = Callable[[pytest.FixtureRequest], tuple[Any, dict[str, Any]]]
FORMS: dict[str, Form] = {
    "module": lambda request: (twofold.load_encoder(request.getfixturevalue("run")), {}),
    "safetensors": lambda request: (request.getfixturevalue("foreign"), {"encoder": "conv"}),
    "onnx": lambda request: (request.getfixturevalue("onnx_file"), {}),
}


@pytest.mark.parametrize("form", FORMS)
def test_embed_search_and_duplicates_accept_any_encoder(
    form: str, request: pytest.FixtureRequest, run: twofold.Run, images: Path, tmp_path: Path
) -> None:
    what, settings = FORMS[form](request)
    expected = features(twofold.embed(run, images, tmp_path / "expected.npz"))
    found = features(twofold.embed(what, images, tmp_path / "found.npz", **settings))
    # A file without preprocessing gets the statistics of all images, not those of the training images only.
    np.testing.assert_allclose(found, expected, rtol=0.05, atol=0.05)
    query = np.load(images)["x"][7]
    (matches,) = twofold.search(what, images, Image.fromarray(query), k=3, **settings)
    assert (matches[0].index, matches[0].similarity) == (7, pytest.approx(1, abs=1e-5))
    assert isinstance(find_duplicates(what, images, threshold=0.99, **settings), list)
    with pytest.raises(TwofoldError, match="give DATA"):
        find_duplicates(what, **settings)


@pytest.mark.parametrize("form", FORMS)
def test_probe_and_knn_accept_any_encoder(
    form: str, request: pytest.FixtureRequest, run: twofold.Run, images: Path
) -> None:
    what, settings = FORMS[form](request)
    expected, found = twofold.knn(run), twofold.knn(what, images, **settings)
    assert (found["train_images"], found["test_images"]) == (320, 80)  # the images that the run held out
    names = [row["name"] for row in found["rows"]]
    has_untrained = form == "safetensors"  # only such an encoder can be built again with new weights
    assert names == ["trained", *(["untrained"] if has_untrained else []), "HOG + colour", "raw pixels"]
    assert found["rows"][0]["top1"] == pytest.approx(expected["rows"][0]["top1"], abs=1.5 / 80)
    assert found["rows"][-1] == expected["rows"][-1]
    with pytest.raises(TwofoldError, match="give DATA"):
        twofold.probe(what, **settings)
    with pytest.raises(TwofoldError, match="without a projector"):
        twofold.probe(what, images, layer="post", **settings)


def test_export_accepts_any_encoder(run: twofold.Run, foreign: Path, images: Path, tmp_path: Path) -> None:
    module = twofold.load_encoder(run)
    batch = torch.rand(3, 1, 8, 8)
    with torch.no_grad():
        expected = module(batch)
    out = twofold.export(foreign, "torchscript", tmp_path / "x.pt", encoder="conv", data=images)
    torch.testing.assert_close(torch.jit.load(out)(batch), expected)
    out = twofold.export(foreign, "safetensors", tmp_path / "x.safetensors", encoder="conv", data=images)
    again = twofold.load_encoder(out)
    torch.testing.assert_close(again(batch).detach(), expected)
    twofold.export(module, "safetensors", tmp_path / "module.safetensors")
    assert module.preprocess is not None  # the module of the caller is unchanged
    with pytest.raises(TwofoldError, match="is not in a run folder: pass --out FILE"):
        twofold.export(foreign, "torchscript", encoder="conv", data=images)
    with pytest.raises(TwofoldError, match="give DATA"):
        twofold.export(foreign, "torchscript", tmp_path / "x.pt", encoder="conv")


def test_adapt_and_export_keep_an_onnx_network_in_their_files(onnx_file: Path, images: Path, tmp_path: Path) -> None:
    adapted = twofold.adapt(onnx_file, images, out=tmp_path / "adapted", variant="within")
    plain = features(twofold.embed(adapted, images, tmp_path / "plain.npz", adapter=False))
    np.testing.assert_array_equal(plain, features(twofold.embed(onnx_file, images, tmp_path / "onnx.npz")))
    changed = features(twofold.embed(adapted, images, tmp_path / "changed.npz"))
    assert not np.allclose(plain, changed)
    assert twofold.probe(adapted)["rows"][0]["name"] == "trained + adapter"
    exported = twofold.export(onnx_file, "safetensors", tmp_path / "x.safetensors")
    np.testing.assert_array_equal(plain, features(twofold.embed(exported, images, tmp_path / "exported.npz")))
    with pytest.raises(TwofoldError, match="is an ONNX network and cannot be exported as torchscript"):
        twofold.export(onnx_file, "torchscript", tmp_path / "x.pt")


def test_onnx_files_need_their_preprocessing(onnx_file: Path, images: Path, tmp_path: Path) -> None:
    described = tmp_path / "network.onnx.json"
    text = described.read_text()
    for content, message in (
        (None, r"does not state its preprocessing: write network.onnx.json next to it.*\[8, 8\]"),
        ("{}", r"does not state the preprocessing of network.onnx .*'preprocessing'"),
        (text.replace("[8, 8]", "[0, 0]"), "does not state the preprocessing .*resize is 0"),
        (text.replace("[8, 8]", "[9, 9]"), "needs images of 8 pixels with 1 channels"),
    ):
        described.unlink(missing_ok=True)
        if content is not None:
            described.write_text(content)
        with pytest.raises(TwofoldError, match=message):
            diagnose(onnx_file, images)


def test_sizes_and_architectures_of_runs_are_refused(run: twofold.Run, images: Path, tmp_path: Path) -> None:
    for verb in (
        twofold.probe,
        twofold.knn,
        lambda what, **more: twofold.embed(what, images, tmp_path / "x.npz", **more),
    ):
        with pytest.raises(TwofoldError, match="which defines its encoder"):
            verb(run, encoder="conv")
        with pytest.raises(TwofoldError, match="leave out"):
            verb(run, image_size=16)


def test_commands_accept_a_pretrained_model(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timm: Any = ModuleType("timm")
    timm.create_model = lambda name, pretrained, num_classes: nn.Sequential(nn.Flatten(), nn.Linear(192, 12))  # noqa: ARG005
    settings = {"input_size": (3, 8, 8), "mean": (0.5,) * 3, "std": (0.2,) * 3}
    timm.data = SimpleNamespace(resolve_model_data_config=lambda _: settings)
    timm.list_models = list
    monkeypatch.setitem(sys.modules, "timm", timm)
    words = ["embed", "timm:tiny", str(images), "--out", str(tmp_path / "x.npz"), "--quiet"]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert features(tmp_path / "x.npz").shape == (400, 12)
    words = ["duplicates", "timm:tiny", str(images), "--quiet"]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    with pytest.raises(TwofoldError, match="did you mean 'efficientnet-lite0'"):
        CliRunner().invoke(app, ["embed", "efficientnet", str(images), "--out", "x.npz"], catch_exceptions=False)


def test_reports_and_comparisons_of_encoders_without_a_run(run: twofold.Run, foreign: Path, tmp_path: Path) -> None:
    digits = load_digits()
    few = tmp_path / "few.npz"
    np.savez(few, x=(digits.images[:120] * 15).astype(np.uint8), y=digits.target[:120] % 2)
    page = tmp_path / "page.html"
    words = ["report", str(foreign), str(few), "--encoder", "conv", "--map", "10", "--out", str(page)]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    html = page.read_text()
    for shown in (
        "linear accuracy",
        "untrained",
        "HOG + colour",
        "raw pixels",
        "final_spectrum",
        "Nearest neighbours",
        "uniformity",
    ):
        assert shown in html
    for missing in ("Reproduce this run", "This run is not finished", "Augmented views", "twofold resume", "Loss"):
        assert missing not in html
    exported = twofold.export(foreign, "safetensors", tmp_path / "stock.safetensors", encoder="conv", data=few)
    words = ["compare", str(run.path), str(exported), str(foreign), "--encoder", "conv", "--data", str(few)]
    words += ["--out", str(tmp_path / "compare.html")]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    compared = (tmp_path / "compare.html").read_text()
    assert "3 runs compared" in compared
    assert "stock.safetensors" in compared
    assert "weights.safetensors" in compared
    with pytest.raises(TwofoldError, match="is not in a run folder: pass --out FILE"):
        CliRunner().invoke(app, ["report", str(foreign), str(few)], catch_exceptions=False)
    with pytest.raises(TwofoldError, match="there is no run folder"):
        CliRunner().invoke(app, ["compare", str(run.path), "nowhere"], catch_exceptions=False)


def test_reports_without_labels_show_the_spectrum(run: twofold.Run, tmp_path: Path) -> None:
    few = tmp_path / "few.npy"
    np.save(few, (load_digits().images[:40] * 15).astype(np.uint8))
    page = report_encoder(twofold.load_encoder(run), few, tmp_path / "page.html", Display(quiet=True), points=5)
    html = page.read_text()
    assert "there are no labels or no held-out images" in html
    assert "effective rank of features" in html


@pytest.mark.extras
@pytest.mark.full
def test_onnxruntime_gives_the_features_of_the_exported_encoder(run: twofold.Run, images: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    exported = twofold.export(run, "onnx", tmp_path / "encoder.onnx")
    expected = features(twofold.embed(run, images, tmp_path / "expected.npz"))
    found = features(twofold.embed(exported, images, tmp_path / "found.npz"))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    (tmp_path / "damaged.onnx").write_bytes(b"nonsense")
    (tmp_path / "damaged.onnx.json").write_text((tmp_path / "encoder.onnx.json").read_text())
    with pytest.raises(TwofoldError, match="cannot be read as an ONNX network"):
        twofold.embed(tmp_path / "damaged.onnx", images, tmp_path / "x.npz")
