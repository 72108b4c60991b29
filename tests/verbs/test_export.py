"""export: names and shapes of torchvision and timm, features, and the sidecar file."""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn

import twofold
from running import run as command
from twofold.config import dump, resolve
from twofold.data.decode import REDUCING_GAP, crop_and_resize_array, decode_image
from twofold.methods import schema
from twofold.models import build_encoder
from twofold.runs.folder import RunFolder
from twofold.runs.weights import save_encoder
from twofold.verbs import export_formats

# From torchvision 0.29.2 and timm 1.0.30, which agree: the number of entries of a state_dict, and the SHA-256 of its
# sorted lines "name 64x3x7x7".
RECORDED = {
    "resnet18": (122, "f0e35161599236f315cd146cd4248bf0732a9445b57a806ea3787184467b15b4"),
    "resnet34": (218, "c1372162bc2e8e861f0e7c2d13d683bdb9d66996aa4447248d69bc670d51b4bf"),
    "resnet50": (320, "fe1d335c3c7786ffda005558842d02e739fc8008f65d509710f49da78719aa43"),
}
VARIANTS = [("small", 3), ("small-padded", 3), ("small-pool", 3), ("large", 3), ("small", 1), ("large", 4)]


def run_folder(path: Path, kind: str, stem: str = "small", channels: int = 3, image_size: int = 32) -> Path:
    """A run folder with an untrained encoder and random BatchNorm statistics."""
    torch.manual_seed(0)
    encoder = build_encoder(kind, channels=channels, stem=stem, image_size=image_size)
    for module in encoder.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    RunFolder.create(path, dump(resolve(schema("frossl"), {"user": {"encoder": kind}})))
    description: dict[str, Any] = {"encoder": kind, "stem": stem, "channels": channels, "image_size": image_size}
    description |= {"mean": [0.4] * channels, "std": [0.2] * channels}
    save_encoder(path / "encoder.safetensors", encoder, description)
    return path


def shapes(state: dict[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in state.items()}


def shapes_of_encoder(kind: str, stem: str, channels: int) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        return shapes(build_encoder(kind, channels=channels, stem=stem, image_size=64).state_dict())


@pytest.mark.parametrize("kind", RECORDED)
def test_names_and_shapes_equal_torchvision_and_timm_without_the_classifier(kind: str) -> None:
    ours = shapes_of_encoder(kind, "large", 3)
    width = 2048 if kind == "resnet50" else 512
    theirs = ours | {"fc.weight": (1000, width), "fc.bias": (1000,)}
    lines = sorted(f"{name} {'x'.join(map(str, shape))}" for name, shape in theirs.items())
    assert (len(lines), hashlib.sha256("\n".join(lines).encode()).hexdigest()) == RECORDED[kind]
    for stem, channels in VARIANTS:
        side = 7 if stem == "large" else 3
        assert shapes_of_encoder(kind, stem, channels) == ours | {"conv1.weight": (64, channels, side, side)}


def test_file_contains_exactly_the_encoder(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", "resnet18", "large")
    out = twofold.export(run, "safetensors", tmp_path / "x.safetensors")
    assert shapes(load_file(out)) == shapes_of_encoder("resnet18", "large", 3)


def loaded(out: Path, library: str) -> Any:
    """Run the lines of the sidecar that load the encoder."""
    lines = json.loads(out.with_name(out.name + ".json").read_text())["load"][library]
    scope: dict[str, Any] = {}
    before = Path.cwd()
    os.chdir(out.parent)
    try:
        exec("\n".join(lines), scope)
    finally:
        os.chdir(before)
    return scope["encoder"]


def installed(library: str) -> None:
    try:
        __import__(library)
    except (ImportError, RuntimeError) as error:  # RuntimeError: torchvision for another version of torch
        pytest.skip(f"{library} cannot be imported: {error}")


@pytest.mark.extras
@pytest.mark.parametrize(
    "kind, stem, channels",
    [
        *(("resnet18", stem, channels) for stem, channels in VARIANTS),
        pytest.param("resnet50", "large", 3, marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("library", ["torchvision", "timm"])
def test_loading_code_of_the_sidecar_gives_the_same_encoder(
    library: str, kind: str, stem: str, channels: int, tmp_path: Path
) -> None:
    installed(library)
    run = run_folder(tmp_path / "run", kind, stem, channels)
    other = loaded(twofold.export(run, "safetensors", tmp_path / "weights.safetensors"), library)
    images = torch.randn(2, channels, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(other(images), twofold.load_encoder(run)(images), rtol=1e-4, atol=1e-5)


def preprocessed_by_sidecar(facts: dict[str, Any], **given: Any) -> np.ndarray:
    scope = dict(given)
    exec("\n".join(facts["preprocessing"]["pillow"]), scope)
    return np.asarray(scope["image"])


@pytest.mark.parametrize("channels", [1, 3])
def test_preprocessing_code_of_the_sidecar_gives_the_pixels_of_training(channels: int, tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", "conv", channels=channels, image_size=16)
    twofold.export(run, "torchscript")
    facts = json.loads((run / "encoder.pt.json").read_text())
    assert f"reducing_gap={REDUCING_GAP}" in facts["preprocessing"]["interpolation"]
    generator = np.random.default_rng(0)
    turned = Image.Exif()
    turned[0x0112] = 6
    for width, height in ((41, 28), (97, 301), (150, 149), (16, 17), (9, 13), (613, 407)):
        pixels = generator.integers(0, 256, (height, width, 4), dtype=np.uint8)
        picture = Image.fromarray(pixels[:, :, :3])
        picture.save(tmp_path / "colour.png")
        picture.save(tmp_path / "turned.jpg", exif=turned)
        picture.convert("L").save(tmp_path / "grey.png")
        picture.convert("P").save(tmp_path / "palette.png")
        Image.fromarray(pixels).save(tmp_path / "clear.png")
        Image.fromarray(generator.integers(0, 65536, (height, width), dtype=np.uint16)).save(tmp_path / "deep.png")
        Image.fromarray(generator.random((height, width), dtype=np.float32)).save(tmp_path / "float.tiff")
        for path in [each for ending in ("png", "jpg", "tiff") for each in tmp_path.glob(f"*.{ending}")]:
            found = preprocessed_by_sidecar(facts, path=path).reshape(16, 16, channels).transpose(2, 0, 1)
            assert np.array_equal(found, decode_image(path, 16, channels)), (path.name, width, height)


def test_preprocessing_code_of_the_sidecar_resizes_each_of_many_channels(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", "conv", channels=4, image_size=16)
    twofold.export(run, "torchscript")
    facts = json.loads((run / "encoder.pt.json").read_text())
    pixels = np.random.default_rng(0).integers(0, 256, (83, 61, 4), dtype=np.uint8)
    found = [preprocessed_by_sidecar(facts, channel=plane) for plane in pixels.transpose(2, 0, 1)]
    assert np.array_equal(found, crop_and_resize_array(pixels, 16, 4))


def test_sidecar_fields_suffice_to_compute_features(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", "conv", image_size=16)
    out = twofold.export(run, format="torchscript")  # a keyword like the option
    assert out == run / "encoder.pt"
    facts = json.loads((run / "encoder.pt.json").read_text())
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (41, 28, 3), dtype=np.uint8))
    picture.save(tmp_path / "picture.png")
    square = preprocessed_by_sidecar(facts, path=tmp_path / "picture.png")
    mean, std = np.array(facts["preprocessing"]["mean"]), np.array(facts["preprocessing"]["std"])
    images = ((np.asarray(square) / 255 - mean) / std).transpose(2, 0, 1)[None].astype(np.float32)
    encoder = twofold.load_encoder(run)
    with torch.no_grad():
        features = loaded(out, "torch")(torch.from_numpy(images))
        torch.testing.assert_close(features, encoder(encoder.preprocess(picture)), atol=1e-5, rtol=1e-5)
    assert list(features.shape[1:]) == facts["output"]["shape"][1:] == [256]
    assert facts["input"]["shape"] == ["batch", 3, 16, 16]
    assert facts["largest_difference"] <= 1e-4
    assert facts["method"] == "frossl"


def check_onnx(run: Path, out: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install onnxruntime")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed: pip install onnxscript")
    twofold.export(run, "onnx", out)
    session = runtime.InferenceSession(str(out))
    encoder = twofold.load_encoder(run)
    size = encoder.preprocess.image_size
    for count in (1, 7):
        images = torch.randn(count, 3, size, size)
        (features,) = session.run(["features"], {"images": images.numpy()})
        with torch.no_grad():
            assert np.abs(features - encoder(images).numpy()).max() < 1e-4
    assert np.array_equal(loaded(out, "onnxruntime")(images.numpy()), features)
    assert sorted(path.name for path in out.parent.iterdir() if path != run) == [out.name, out.name + ".json"]


@pytest.mark.extras
def test_onnx_agrees_for_any_number_of_images(tmp_path: Path) -> None:
    check_onnx(run_folder(tmp_path / "run", "conv", image_size=8), tmp_path / "x.onnx")


@pytest.mark.extras
@pytest.mark.full
@pytest.mark.parametrize("stem", ["small", "large"])
def test_onnx_agrees_for_a_resnet(tmp_path: Path, stem: str) -> None:
    check_onnx(run_folder(tmp_path / "run", "resnet18", stem), tmp_path / "x.onnx")


def test_export_with_wrong_features_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_folder(tmp_path / "run", "conv")
    other = lambda *_: lambda images: images.flatten(1)[:, :256]  # noqa: E731
    broken = export_formats.Format(".pt", export_formats.write_torchscript, other, dict)
    monkeypatch.setitem(export_formats.FORMATS, "torchscript", broken)
    before = sorted(run.iterdir())
    with pytest.raises(twofold.TwofoldError, match="features of the exported encoder differ by"):
        twofold.export(run, "torchscript")
    assert sorted(run.iterdir()) == before


def test_invalid_exports_raise_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_folder(tmp_path / "run", "conv")
    before = sorted(run.iterdir())
    with pytest.raises(twofold.TwofoldError, match="unknown format 'onx', did you mean 'onnx'"):
        twofold.export(run, "onx")
    with pytest.raises(twofold.TwofoldError, match="in a folder that exists"):
        twofold.export(run, "torchscript", tmp_path / "no" / "x.pt")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(twofold.TwofoldError, match=r"pip install 'twofold\[onnx\]'"):
        twofold.export(run, "onnx")
    assert sorted(run.iterdir()) == before


def test_command_writes_both_files_and_no_warnings(tmp_path: Path) -> None:
    run_folder(tmp_path / "run", "conv")
    result = command("export", "run", "--format", "safetensors", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "run/encoder.safetensors.json" in result.stdout
    encoder = loaded(tmp_path / "run" / "encoder.safetensors", "twofold")
    assert encoder.preprocess(Image.new("RGB", (50, 40))).shape == (1, 3, 32, 32)
