"""adapt: runs, folders without a run, and what the other verbs do with them."""

import json
import shutil
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
from torch import Tensor, nn

import twofold
from twofold.cli import main
from twofold.errors import TwofoldError
from twofold.models import build_encoder
from twofold.models.adapter import AdaptedEncoder
from twofold.runs.folder import adapter_file
from twofold.verbs.diagnose import diagnose
from twofold.verbs.duplicates import find_duplicates


@pytest.fixture(scope="module")
def adapted(run: twofold.Run, tmp_path_factory: pytest.TempPathFactory) -> twofold.Run:
    """A run with an adapter."""
    folder = tmp_path_factory.mktemp("adapted") / "run"
    shutil.copytree(run.path, folder)
    found = twofold.adapt(folder, variant="within")
    assert found.path == folder
    assert found.adaptation.images == 320
    assert [row.name for row in found.rows] == ["as it is", "with adapter"]
    return twofold.Run(folder)


def features_of(path: Path) -> np.ndarray:
    with np.load(path) as file:
        return file["features"]


def applied(folder: Path, features: np.ndarray) -> np.ndarray:
    adapter = load_file(folder / "adapter.safetensors")
    return (features - adapter["mean"].numpy()) @ adapter["matrix"].numpy().T


def test_embed_applies_the_adapter_unless_told_not_to(adapted: twofold.Run, images: Path, tmp_path: Path) -> None:
    plain = features_of(twofold.embed(adapted, images, tmp_path / "plain.npz", adapter=False))
    with_adapter = features_of(twofold.embed(adapted, images, tmp_path / "with.npz"))
    np.testing.assert_allclose(with_adapter, applied(adapted.path, plain), rtol=1e-3, atol=1e-3)
    assert not np.allclose(with_adapter, plain)


def test_probes_measure_both_and_the_adapted_features_come_first(adapted: twofold.Run) -> None:
    for verb in (twofold.probe, twofold.knn):
        names = [row["name"] for row in verb(adapted)["rows"]]
        assert names == ["trained + adapter", "trained", "untrained", "HOG + colour", "raw pixels"]
        without = verb(adapted, adapter=False)["rows"]
        assert [row["name"] for row in without] == names[1:]


def test_accuracies_of_adapt_are_those_of_the_probes(run: twofold.Run, tmp_path: Path) -> None:
    found = twofold.adapt(run, out=tmp_path / "folder", variant="within")
    rows = {row["name"]: row["top1"] for row in twofold.probe(run)["rows"]}
    assert found.rows[0].linear_accuracy == pytest.approx(rows["trained"])
    folder = {row["name"]: row["top1"] for row in twofold.probe(found)["rows"]}  # on the images of adapt
    assert folder["trained"] == pytest.approx(rows["trained"])
    assert found.rows[1].linear_accuracy == pytest.approx(folder["trained + adapter"])


def test_search_and_duplicates_compare_adapted_features(adapted: twofold.Run, images: Path) -> None:
    query = Image.fromarray(np.load(images)["x"][7])
    (plain,) = twofold.search(adapted, images, query, k=5, adapter=False)
    (found,) = twofold.search(adapted, images, query, k=5)
    assert found[0].index == plain[0].index == 7
    assert found[0].similarity == pytest.approx(1, abs=1e-4)
    assert [match.similarity for match in found[1:]] != [match.similarity for match in plain[1:]]
    assert isinstance(find_duplicates(adapted, threshold=0.99), list)


def test_existing_adapter_is_replaced_only_on_request(adapted: twofold.Run) -> None:
    with pytest.raises(TwofoldError, match=r"adapter\.safetensors exists already: replace it with --overwrite"):
        twofold.adapt(adapted)
    before = load_file(adapted.path / "adapter.safetensors")
    twofold.adapt(adapted, variant="within", overwrite=True)
    after = load_file(adapted.path / "adapter.safetensors")
    assert torch.equal(before["matrix"], after["matrix"])


def test_exported_networks_contain_the_adapter_and_weights_stay_plain(adapted: twofold.Run, tmp_path: Path) -> None:
    images = torch.randn(4, 1, 8, 8)
    network = twofold.load_encoder(adapted)
    with torch.no_grad():
        expected = network(images)
    out = twofold.export(adapted, "torchscript", tmp_path / "x.pt")
    torch.testing.assert_close(torch.jit.load(out)(images), expected)
    assert "inside" in json.loads((tmp_path / "x.pt.json").read_text())["adapter"]
    out = twofold.export(adapted, "safetensors", tmp_path / "x.safetensors")
    assert load_file(out).keys() == load_file(adapted.path / "encoder.safetensors").keys()
    with torch.no_grad():
        torch.testing.assert_close(twofold.load_encoder(out)(images), expected)
        encoder = twofold.load_encoder(out, adapter=False)
        lines = json.loads((tmp_path / "x.safetensors.json").read_text())["adapter"]
        found: dict[str, Any] = {"encoder": encoder, "images": images}
        exec("\n".join(lines).replace("x.adapter", str(tmp_path / "x.adapter")), found)
    torch.testing.assert_close(found["features"], expected)
    twofold.export(adapted, "safetensors", out, adapter=False)
    assert not adapter_file(out).exists()
    assert json.loads((tmp_path / "x.safetensors.json").read_text())["adapter"] is None


def views_by_hand(folder: twofold.Run, pixels: np.ndarray) -> np.ndarray:
    """The mean features of each image of 8 pixels and of its crops of 6 pixels, from the definition."""
    encoder = twofold.load_encoder(folder)
    images = torch.from_numpy(pixels)[:, None]
    crops = [images[:, :, row : row + 6, column : column + 6] for row in (0, 2) for column in (0, 2)]
    with torch.no_grad():
        return torch.stack([encoder(encoder.preprocess(view)) for view in (images, *crops)]).mean(0).numpy()


def test_several_views_give_the_mean_of_the_features_of_an_image_and_its_corners(
    adapted: twofold.Run, images: Path, tmp_path: Path
) -> None:
    features = features_of(twofold.embed(adapted, images, tmp_path / "five.npz", views=5))
    pixels = np.load(images)["x"]
    np.testing.assert_allclose(features, views_by_hand(adapted, pixels), rtol=1e-3, atol=1e-3)
    query = Image.fromarray(pixels[3])
    query.save(tmp_path / "query.png")
    for asked in (query, tmp_path / "query.png"):
        (matches,) = twofold.search(adapted, images, asked, k=2, views=5)
        assert matches[0].index == 3
        assert matches[0].similarity == pytest.approx(1, abs=1e-4)
    (one,) = twofold.search(adapted, images, query, k=2)
    assert one[1].similarity != matches[1].similarity  # features of one view are kept apart from those of five


def test_probes_and_adapt_measure_the_mean_of_views(adapted: twofold.Run, tmp_path: Path) -> None:
    for verb in (twofold.probe, twofold.knn):
        rows = {row["name"]: row["top1"] for row in verb(adapted, views=5)["rows"]}
        assert set(rows) == {"trained + adapter", "trained", "untrained", "HOG + colour", "raw pixels"}
    found = twofold.adapt(adapted, out=tmp_path / "folder", variant="within", views=5)
    names = ["as it is", "with adapter", "as it is, 5 views", "with adapter, 5 views"]
    assert [row.name for row in found.rows] == names
    assert found.rows[3].knn_accuracy > 0.5
    for refused in (0, 3):
        with pytest.raises(TwofoldError, match=f"views={refused} is not possible: use 1"):
            twofold.embed(adapted, "digits", tmp_path / "x.npz", views=refused)


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())

    def forward(self, images: Tensor) -> Tensor:
        return self.body(images)


def test_module_and_weight_file_give_folders_that_the_verbs_accept(images: Path, tmp_path: Path) -> None:
    module = Own()
    found = twofold.adapt(module, images, out=tmp_path / "own", variant="within", image_size=8)
    network = twofold.load_encoder(found, encoder=Own())
    assert isinstance(network, AdaptedEncoder)
    pixels = torch.randn(2, 1, 8, 8)
    torch.testing.assert_close(network.encoder(pixels), module(pixels))
    rows = [row["name"] for row in twofold.knn(found, encoder=Own())["rows"]]
    assert rows == ["trained + adapter", "trained", "HOG + colour", "raw pixels"]
    foreign = tmp_path / "foreign.safetensors"
    save_file(build_encoder("conv", channels=1, stem="small", image_size=8).state_dict(), foreign)
    found = twofold.adapt(foreign, images, out=tmp_path / "foreign", encoder="conv", variant="within", image_size=8)
    twofold.embed(found, images, tmp_path / "features.npz")
    (matches,) = twofold.search(found, images, np_image(images), k=3)
    assert matches[0].index == 0
    assert diagnose(found.path, images)["training"] is None
    assert twofold.adapt(found, overwrite=True, variant="ridge").adaptation.variant == "ridge"


def test_names_of_pretrained_networks_give_folders_that_need_no_download(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fake timm and random weights in place of those of the package: both are built again from the folder alone."""
    made: list[tuple[str, bool]] = []

    def create_model(name: str, *, pretrained: bool, num_classes: int, in_chans: int = 3) -> nn.Module:
        made.append((name, pretrained))
        assert num_classes == 0
        return nn.Sequential(nn.Conv2d(in_chans, 6, 4, stride=4), nn.Flatten())

    timm = ModuleType("timm")
    timm.create_model, timm.list_models = create_model, lambda: ["tiny"]  # type: ignore[attr-defined]
    settings = {"input_size": (3, 8, 8), "mean": (0.5,) * 3, "std": (0.2,) * 3}
    timm.data = SimpleNamespace(resolve_model_data_config=lambda _: settings)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", timm)
    random = build_encoder("efficientnet-lite0", channels=3, stem="small", image_size=32)
    monkeypatch.setattr("twofold.evaluate.foreign_encoders.read_lite0", random.state_dict)
    for name, size, width in (("timm:tiny.tag", None, 24), ("efficientnet-lite0", 32, 1280)):
        out = tmp_path / name.replace(":", "-")
        found = twofold.adapt(name, images, out=out, variant="within", image_size=size, images=50)
        network = twofold.load_encoder(found)
        side = network.preprocess.image_size
        assert side == (size or 8)
        assert network(torch.zeros(1, 3, side, side)).shape == (1, width)
    assert made == [("tiny.tag", True), ("tiny", False)]


def np_image(images: Path) -> Any:
    return Image.fromarray(np.load(images)["x"][0])


def test_labels_and_files_of_groups_are_graphs(run: twofold.Run, tmp_path: Path) -> None:
    found = twofold.adapt(run, out=tmp_path / "labels", graph="labels", variant="whitening")
    assert (
        load_file(found.path / "adapter.safetensors")["matrix"].shape[0] <= 9
    )  # ten classes differ in nine directions
    rows = [f"{number},{number % 40}" for number in range(0, 400, 2)]
    (tmp_path / "groups.csv").write_text("\n".join(rows) + "\n")
    twofold.adapt(run, out=tmp_path / "groups", graph=str(tmp_path / "groups.csv"), variant="within")
    with pytest.raises(TwofoldError, match=r"graph\.source=lables does not exist.*labels"):
        twofold.adapt(run, out=tmp_path / "x", graph="lables")
    assert not (tmp_path / "x").exists()


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command, and return what it prints, in one line."""

    def run_command(*words: str, code: int = 0) -> str:
        monkeypatch.setattr("sys.argv", ["twofold", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        assert (stop.value.code or 0) == code
        found = capsys.readouterr()
        return " ".join((found.err if code else found.out).split())

    return run_command


def test_command_prints_the_choice_and_the_scores(
    run: twofold.Run, images: Path, tmp_path: Path, shown: Callable[..., str]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run.path, folder)
    said = shown("adapt", str(folder), "--variant", "within")
    for text in ("within (shrinkage", "retrieval", "linear", "adapter.safetensors"):
        assert text in said
    embed = ("embed", str(folder), str(images), "--out", str(tmp_path / "f.npz"))
    assert "applied to the features" in shown(*embed)
    assert "adapter" not in shown(*embed, "--no-adapter")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere", "digits"], "nowhere is not an encoder"),
        (["RUN/encoder.safetensors", "digits"], "pass --out FOLDER"),
        (["RUN/encoder.safetensors", "--out", "x"], "give DATA"),
        (["RUN", "--out", "x", "--variant", "witin"], "unknown variant 'witin'"),
        (["RUN", "--out", "RUN"], "exists already; choose another --out"),
        (["RUN", "nowhere/", "--out", "x"], "nowhere"),
    ],
)
def test_errors_name_what_is_wrong(
    run: twofold.Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shown: Callable[..., str],
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in shown("adapt", *(word.replace("RUN", str(run.path)) for word in words), code=2)
    assert not (tmp_path / "x").exists()


@pytest.mark.extras
def test_onnx_file_contains_the_adapter(adapted: twofold.Run, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install onnxruntime")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: pip install onnxscript")
    session = runtime.InferenceSession(str(twofold.export(adapted, "onnx", tmp_path / "x.onnx")))
    images = torch.randn(3, 1, 8, 8)
    with torch.no_grad():
        expected = twofold.load_encoder(adapted)(images)
    (features,) = session.run(["features"], {"images": images.numpy()})
    np.testing.assert_allclose(features, expected, rtol=1e-4, atol=1e-4)
