"""embed: content, order and splits of feature files, and errors."""

import csv
import errno
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import twofold
from running import small
from twofold.data.decode import decode_image
from twofold.errors import TwofoldError
from twofold.keys import Positive
from twofold.methods import CATALOG, Method, Parts, registry
from twofold.models import mlp
from twofold.types import LossTerms
from twofold.verbs.diagnose import diagnose
from twofold.verbs.feature_files import WRITERS, read_features


@pytest.fixture(scope="module")
def expected(workspace: Path) -> dict[str, np.ndarray]:
    """Features that are computed from the image files, one after the other."""
    files = sorted(str(path.relative_to(workspace / "photos")) for path in (workspace / "photos").rglob("*.png"))
    encoder = twofold.load_encoder(workspace / "run")
    pixels = np.stack([decode_image(workspace / "photos" / name, 12, 3) for name in files])
    with torch.no_grad():
        features = encoder(encoder.preprocess(torch.from_numpy(pixels))).numpy()
    return {"files": np.array(files), "features": features, "classes": np.array([name[:4] for name in files])}


def test_npz_contains_features_labels_files_and_split_of_every_image(
    workspace: Path, expected: dict[str, np.ndarray]
) -> None:
    out = twofold.embed(workspace / "run", workspace / "photos", workspace / "features.npz")
    with np.load(out) as file:
        assert set(file.files) == {"features", "index", "split", "labels", "classes", "files"}
        assert file["index"].tolist() == list(range(30))
        assert file["files"].tolist() == expected["files"].tolist()
        assert file["classes"][file["labels"]].tolist() == expected["classes"].tolist()
        np.testing.assert_allclose(file["features"], expected["features"], rtol=1e-4, atol=1e-5)
        assert file["features"].dtype == np.float32
        held_out = (file["split"] == "test").sum()
    assert held_out == twofold.Run(workspace / "run").results["test_images"] > 0


def test_other_data_has_no_held_out_images(workspace: Path) -> None:
    with np.load(twofold.embed(workspace / "run", workspace / "photos" / "..", workspace / "other.npz")) as file:
        assert set(file["split"]) == {"train"}


def test_single_image_is_embedded_with_its_label(
    workspace: Path, expected: dict[str, np.ndarray], tmp_path: Path
) -> None:
    pixels = decode_image(workspace / "photos" / expected["files"][0], 12, 3).transpose(1, 2, 0)[None]
    with np.load(twofold.embed(workspace / "run", (pixels, ["ants"]), tmp_path / "one.npz")) as file:
        np.testing.assert_allclose(file["features"], expected["features"][:1], rtol=1e-4, atol=1e-5)
        assert file["classes"][file["labels"]].tolist() == ["ants"]


def test_held_out_images_stay_held_out_when_images_are_added(workspace: Path, tmp_path: Path) -> None:
    def splits(where: Path) -> dict[str, str]:
        table = np.load(twofold.embed(tmp_path / "run", where, tmp_path / "out.npz"))
        return dict(zip(table["files"].tolist(), table["split"].tolist(), strict=True))

    shutil.copytree(workspace / "photos", tmp_path / "photos")
    settings = small("frossl", epochs=1, batch_size=8)
    twofold.pretrain(tmp_path / "photos", out=tmp_path / "run", **settings)
    before = splits(tmp_path / "photos")
    shutil.copytree(tmp_path / "photos", tmp_path / "moved")
    assert splits(tmp_path / "moved") == before  # the same images in another folder
    for name in ("ants/-1.png", "bees/zz.png"):
        shutil.copy(workspace / "photos" / "ants" / "00.png", tmp_path / "photos" / name)
    after = splits(tmp_path / "photos")
    assert {name: split for name, split in after.items() if name in before} == before
    assert [after["ants/-1.png"], after["bees/zz.png"]] == ["test", "test"]
    measured = twofold.probe(tmp_path / "run")
    assert (measured["train_images"], measured["test_images"]) == (
        sum(split == "train" for split in before.values()),
        2 + sum(split == "test" for split in before.values()),
    )


def test_folder_with_only_new_images_counts_as_other_data(workspace: Path, tmp_path: Path) -> None:
    shutil.copytree(workspace / "photos", tmp_path / "photos")
    twofold.pretrain(tmp_path / "photos", out=tmp_path / "run", **small("frossl", epochs=1, batch_size=8))
    for path in sorted((tmp_path / "photos").glob("*/*.png")):
        path.rename(path.with_name(f"new-{path.name}"))
    table = np.load(twofold.embed(tmp_path / "run", tmp_path / "photos", tmp_path / "out.npz"))
    assert len(table["features"]) == 30


def test_arrays_have_the_split_of_the_run(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    data = generator.integers(0, 255, (40, 12, 12, 3), dtype=np.uint8), np.arange(40) % 2
    run = twofold.pretrain(data, out=tmp_path / "run", **small("frossl", epochs=1, batch_size=8))
    table = np.load(twofold.embed(run, data, tmp_path / "out.npz"))
    assert (table["split"] == "test").sum() == 8


def test_damaged_list_of_training_images_raises_an_error(workspace: Path, tmp_path: Path) -> None:
    shutil.copytree(workspace / "run", tmp_path / "run")
    (tmp_path / "run" / "images.npz").write_bytes((workspace / "run" / "images.npz").read_bytes()[:100])
    with pytest.raises(TwofoldError, match=r"images.npz, the record of the training images, cannot be read"):
        twofold.embed(tmp_path / "run", workspace / "photos", tmp_path / "out.npz")


def test_changed_array_file_raises_an_error(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (40, 12, 12, 3), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", images=images, labels=np.arange(40) % 2)
    twofold.pretrain(tmp_path / "a.npz", out=tmp_path / "run", **small("frossl", epochs=1, batch_size=8))
    np.savez(tmp_path / "a.npz", images=images[1:], labels=np.arange(39) % 2)
    with pytest.raises(TwofoldError, match=r"has changed since .* its held-out images are no longer known"):
        twofold.probe(tmp_path / "run")


def test_csv_has_the_same_features(workspace: Path, expected: dict[str, np.ndarray]) -> None:
    out = twofold.embed(workspace / "run", workspace / "photos", workspace / "features.csv")
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["file"] for row in rows] == expected["files"].tolist()
    assert [row["class"] for row in rows] == expected["classes"].tolist()
    assert [int(row["index"]) for row in rows] == list(range(30))
    assert {row["split"] for row in rows} == {"train", "test"}
    read = np.array([[float(row[f"f{column}"]) for column in range(256)] for row in rows], np.float32)
    with np.load(twofold.embed(workspace / "run", workspace / "photos", workspace / "same.npz")) as same:
        assert np.array_equal(read, same["features"])


@pytest.mark.extras
def test_parquet_has_the_same_features(workspace: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: pip install pyarrow")
    out = twofold.embed(workspace / "run", workspace / "photos", workspace / "features.parquet")
    table = parquet.read_table(out).to_pydict()
    with np.load(twofold.embed(workspace / "run", workspace / "photos", workspace / "same.npz")) as same:
        assert np.array_equal(np.array(table["features"], np.float32), same["features"])
        assert table["file"] == same["files"].tolist()
        assert table["label"] == same["labels"].tolist()
        assert table["split"] == same["split"].tolist()


def test_error_without_pyarrow_names_the_package_to_install(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(twofold.TwofoldError, match=r"pip install 'twofold\[parquet\]', or choose .npz or .csv"):
        twofold.embed(workspace / "run", workspace / "photos", workspace / "none.parquet")


@pytest.mark.parametrize("name", ["features.txt", "no/features.npz", "features"])
def test_unsupported_endings_and_missing_folders_raise_an_error_first(workspace: Path, name: str) -> None:
    with pytest.raises(twofold.TwofoldError, match=r"give a .npz, .parquet or .csv file in a folder that exists"):
        twofold.embed(workspace / "run", "nowhere", workspace / name)


@pytest.mark.extras
@pytest.mark.parametrize("ending", sorted(WRITERS))
def test_interrupted_embed_keeps_the_old_file_and_leaves_no_other(
    workspace: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if ending == ".parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install pyarrow")
    out = workspace / f"kept{ending}"
    out.write_text("what was there before")
    before = sorted(workspace.iterdir())

    def stopped(*_: object, **__: object) -> object:
        yield np.zeros((2, 3), np.float32)
        raise KeyboardInterrupt

    monkeypatch.setattr("twofold.evaluate.encoder.Encoder.blocks", stopped)
    with pytest.raises(KeyboardInterrupt):
        twofold.embed(workspace / "run", workspace / "photos", out)
    assert sorted(workspace.iterdir()) == before
    assert out.read_text() == "what was there before"


def test_write_errors_are_reported(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", "features.npz")

    monkeypatch.setattr(Path, "replace", read_only)
    with pytest.raises(twofold.TwofoldError, match=rf"could not be written to {workspace} \(Read-only file system\)"):
        twofold.embed(workspace / "run", workspace / "photos", workspace / "refused.npz")
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    with pytest.raises(twofold.TwofoldError, match=f"the folder {workspace} is not writable"):
        twofold.embed("no run, which is looked for later", workspace / "photos", workspace / "refused.npz")


@pytest.mark.extras
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_tables_can_be_diagnosed(workspace: Path, ending: str) -> None:
    if ending == ".parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install pyarrow")
    table = twofold.embed(workspace / "run", workspace / "photos", workspace / f"table{ending}")
    arrays = twofold.embed(workspace / "run", workspace / "photos", workspace / "table.npz")
    assert torch.equal(read_features(table), read_features(arrays))
    assert diagnose(table)["measures"] == diagnose(arrays)["measures"]


def test_run_of_an_unregistered_method_can_be_used_but_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mine(parts: Parts, *, weight: Positive = 2.0) -> Method:
        return Method(parts, mlp(parts.features, (8,)), lambda e: LossTerms(weight * e.z.square().mean(), {}))

    monkeypatch.setitem(CATALOG, "mine", registry.Entry("mine", mine, "own", "", "", {}))
    run = twofold.pretrain("digits", method="mine", out=tmp_path / "run", epochs=1, weight=3.0, encoder="conv")
    known = twofold.embed(run, "digits", tmp_path / "known.npz")
    monkeypatch.delitem(CATALOG, "mine")
    found = twofold.embed(run.path, "digits", tmp_path / "found.npz")
    with np.load(known) as first, np.load(found) as second:
        np.testing.assert_array_equal(first["features"], second["features"])
    assert twofold.knn(run.path)["k"] == 20
    assert twofold.resume(run.path).path == run.path  # it is finished
    for name in ("results.json", "encoder.safetensors"):
        (run.path / name).unlink()
    with pytest.raises(TwofoldError, match=r"not registered here: pass --method FILE\.py:FUNCTION"):
        twofold.resume(run.path)
