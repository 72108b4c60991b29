"""Adapter files: what load_encoder makes of them, and that the encoder's file stays plain."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import twofold
from twofold.errors import TwofoldError
from twofold.models import build_encoder
from twofold.models.adapter import AdaptedEncoder, Adapter
from twofold.runs.folder import adapter_file
from twofold.runs.weights import save_adapter, save_encoder

DESCRIPTION = {"encoder": "resnet18", "stem": "small", "channels": 3, "image_size": 16, "mean": [0.5] * 3} | {
    "std": [0.2] * 3
}


@pytest.fixture
def encoder_path(tmp_path: Path) -> Path:
    network = build_encoder("resnet18", channels=3, stem="small", image_size=16)
    save_encoder(tmp_path / "encoder.safetensors", network, DESCRIPTION)
    return tmp_path / "encoder.safetensors"


def with_adapter(path: Path, adapter: Adapter | None = None) -> Adapter:
    adapter = adapter or Adapter(torch.randn(512), torch.randn(64, 512))
    made = {"variant": "within", "settings": {"shrinkage": 0.5}, "größe": 3}
    save_adapter(adapter_file(path), adapter, load_file(path), made)
    return adapter


def test_loaded_encoder_applies_its_adapter_unless_told_not_to(encoder_path: Path) -> None:
    plain = twofold.load_encoder(encoder_path)
    adapter = with_adapter(encoder_path)
    images = torch.randint(0, 256, (3, 3, 16, 16), dtype=torch.uint8)
    adapted, without = twofold.load_encoder(encoder_path), twofold.load_encoder(encoder_path, adapter=False)
    assert isinstance(adapted, AdaptedEncoder)
    assert type(without) is type(plain)
    with torch.no_grad():
        features = plain(plain.preprocess(images))
        assert torch.equal(without(without.preprocess(images)), features)
        expected = (features - adapter.mean) @ adapter.matrix.T
        assert torch.equal(adapted(adapted.preprocess(images)), expected)
    assert not adapted.training
    assert adapted.name == "within (shrinkage 0.5)"
    assert twofold.load_encoder(encoder_path.parent).name == adapted.name


def test_adapter_is_computed_in_float32_under_autocast() -> None:
    adapter = Adapter(torch.randn(8), torch.randn(8, 8))
    features = torch.randn(4, 8)
    with torch.autocast("cpu", torch.bfloat16):
        found = adapter(features)
        assert adapter(features.bfloat16()).dtype == torch.float32
    assert torch.equal(found, (features - adapter.mean) @ adapter.matrix.T)


def test_file_of_the_encoder_stays_plain_and_the_adapter_describes_itself(encoder_path: Path) -> None:
    before = encoder_path.read_bytes()
    with_adapter(encoder_path)
    assert encoder_path.read_bytes() == before
    network = build_encoder("resnet18", channels=3, stem="small", image_size=16)
    network.load_state_dict(load_file(encoder_path))
    with safe_open(adapter_file(encoder_path), framework="pt") as file:
        description = json.loads(file.metadata()["twofold"])
        assert set(file.keys()) == {"mean", "matrix"}
    assert description["variant"] == "within"
    assert description["größe"] == 3


def test_adapter_of_other_weights_is_refused(encoder_path: Path) -> None:
    with_adapter(encoder_path)
    other = build_encoder("resnet18", channels=3, stem="small", image_size=16)
    save_encoder(encoder_path, other, DESCRIPTION)
    with pytest.raises(TwofoldError, match=r"adapter\.safetensors was made for other weights.*twofold adapt.*adapter="):
        twofold.load_encoder(encoder_path)
    twofold.load_encoder(encoder_path, adapter=False)


def test_file_that_is_not_an_adapter_is_refused(encoder_path: Path) -> None:
    for content in (b"text", encoder_path.read_bytes()):
        adapter_file(encoder_path).write_bytes(content)
        with pytest.raises(TwofoldError, match=r"adapter\.safetensors is not an adapter that Twofold wrote"):
            twofold.load_encoder(encoder_path)


def test_each_file_of_an_encoder_has_its_own_adapter() -> None:
    assert adapter_file(Path("run/encoder.safetensors")) == Path("run/adapter.safetensors")
    assert adapter_file(Path("cats.safetensors")) == Path("cats.adapter.safetensors")


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(TwofoldError, match=r"mean \[K\] and a matrix \[R, K\], not \[3\] and \[2, 4\]"):
        Adapter(torch.zeros(3), torch.zeros(2, 4))
