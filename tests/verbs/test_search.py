"""search: matches compared with all similarities, and the cache of features."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import twofold
from running import run, small
from twofold.evaluate.encoder import Encoder
from twofold.verbs.all_images import AllImages


def similarities(workspace: Path, tmp_path: Path) -> tuple[np.ndarray, list[str]]:
    with np.load(twofold.embed(workspace / "run", workspace / "photos", tmp_path / "all.npz")) as file:
        features, files = file["features"].astype(np.float64), file["files"].tolist()
    rows = features / np.linalg.norm(features, axis=1, keepdims=True)
    return rows @ rows.T, files


def test_matches_are_the_nearest_images_in_order(workspace: Path, tmp_path: Path) -> None:
    expected, files = similarities(workspace, tmp_path)
    queries = [workspace / "photos" / files[number] for number in (3, 20)]
    found = twofold.search(workspace / "run", workspace / "photos", queries, k=7)
    for matches, values in zip(found, expected[[3, 20]], strict=True):
        order = np.argsort(-values)[:7]
        assert [match.file for match in matches] == [files[number] for number in order]
        assert [match.index for match in matches] == order.tolist()
        assert [match.name for match in matches] == [files[number][:4] for number in order]
        np.testing.assert_allclose([match.similarity for match in matches], values[order], atol=1e-5)
    assert found[0][0].file == files[3]
    assert found[0][0].similarity == pytest.approx(1, abs=1e-6)


def test_no_similarity_is_above_1(workspace: Path) -> None:
    found = twofold.search(workspace / "run", workspace / "photos", sorted((workspace / "photos").rglob("*.png")), k=1)
    assert max(best.similarity for (best,) in found) <= 1.0


def test_k_above_the_number_of_images_returns_all_images(workspace: Path) -> None:
    (matches,) = twofold.search(workspace / "run", workspace / "photos", workspace / "photos" / "ants" / "00.png", k=99)
    assert sorted(match.index for match in matches) == list(range(30))


def test_second_search_reads_features_from_the_cache(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path))
    query = workspace / "photos" / "bees" / "00.png"
    first = twofold.search(workspace / "run", workspace / "photos", query)
    computed: list[int] = []
    blocks = Encoder.blocks

    def counted(encoder: Encoder, images: AllImages, stage: object) -> object:
        computed.append(len(images))
        return blocks(encoder, images, stage)

    monkeypatch.setattr(Encoder, "blocks", counted)
    assert twofold.search(workspace / "run", workspace / "photos", query) == first
    assert computed == []
    (features,) = tmp_path.glob("features-*.u8")
    features.write_bytes(features.read_bytes()[:100])  # like after a full disk or a kill
    assert twofold.search(workspace / "run", workspace / "photos", query) == first
    assert computed == [30]


def test_features_of_another_encoder_are_cached_separately(workspace: Path, tmp_path: Path) -> None:
    query = workspace / "photos" / "bees" / "00.png"
    first = twofold.search(workspace / "run", workspace / "photos", query)
    other = twofold.pretrain(
        workspace / "photos", method="simclr", out=tmp_path / "b", **small("simclr", epochs=1, batch_size=8, seed=5)
    )
    ((best, second, *_),) = twofold.search(other, workspace / "photos", query)
    assert best.similarity == pytest.approx(1, abs=1e-6)
    assert second.similarity != first[0][1].similarity


def test_arrays_and_pillow_images_can_be_searched(workspace: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 255, (9, 12, 12, 3), dtype=np.uint8)
    ((best, *_),) = twofold.search(workspace / "run", pixels, Image.fromarray(pixels[4]), k=3)
    assert (best.index, best.file, best.name) == (4, None, None)
    assert best.similarity == pytest.approx(1, abs=1e-6)


def test_invalid_queries_raise_an_error(workspace: Path) -> None:
    with pytest.raises(twofold.TwofoldError, match=r"the query nowhere.jpg cannot be read: No such file"):
        twofold.search(workspace / "run", workspace / "photos", ["nowhere.jpg"])
    with pytest.raises(twofold.TwofoldError, match=r"config.json cannot be read: not an image"):
        twofold.search(workspace / "run", workspace / "photos", workspace / "run" / "config.json")
    with pytest.raises(twofold.TwofoldError, match="there is no query: give at least one image file"):
        twofold.search(workspace / "run", workspace / "photos", [])
    for k in (0, 2.5):
        with pytest.raises(twofold.TwofoldError, match=f"k={k} is not a whole number at least 1"):
            twofold.search(workspace / "run", workspace / "photos", "x.jpg", k=k)
    ((*found,),) = twofold.search(
        workspace / "run", workspace / "photos", workspace / "photos" / "bees" / "00.png", k=2.0
    )
    assert len(found) == 2


def test_command_prints_paths_of_existing_files(workspace: Path) -> None:
    words = ("photos/bees/00.png", "photos/ants/03.png")
    result = run("search", "run", "photos", *words, "-k", "2", "--quiet", cwd=workspace)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == list(words)
    assert lines[1].split() == ["1", "1.0000", "photos/bees/00.png", "(bees)"]
    for line in lines:
        assert line.startswith("photos") or (workspace / line.split()[2]).is_file()


def test_features_of_other_images_are_cached_separately(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path))
    for seed in (1, 2):
        pixels = np.random.default_rng(seed).integers(0, 255, (9, 12, 12, 3), dtype=np.uint8)
        ((best, *_),) = twofold.search(workspace / "run", pixels, Image.fromarray(pixels[4]), k=3)
        assert best.index == 4
        assert best.similarity == pytest.approx(1, abs=1e-6)


def test_features_of_modules_with_other_normalization_are_cached_separately(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path))
    pixels = np.random.default_rng(1).integers(0, 255, (9, 12, 12, 3), dtype=np.uint8)
    module = twofold.load_encoder(workspace / "run")
    first = twofold.search(module, pixels, Image.fromarray(pixels[4]))
    assert twofold.search(module, pixels, Image.fromarray(pixels[4])) == first
    module.preprocess.mean.add_(0.5)
    assert twofold.search(module, pixels, Image.fromarray(pixels[4])) != first
    assert len(list(tmp_path.glob("features-*.u8"))) == 2


def test_features_of_queries_are_kept(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file among the images nothing is computed; of other files only once."""
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path))
    encoded: list[object] = []
    encode = Encoder.encode
    monkeypatch.setattr(Encoder, "encode", lambda self, images: encoded.append(images) or encode(self, images))
    inside, copy = workspace / "photos" / "bees" / "00.png", tmp_path / "copy.png"
    copy.write_bytes(inside.read_bytes())
    of_inside = twofold.search(workspace / "run", workspace / "photos", inside)
    assert encoded == []
    first = twofold.search(workspace / "run", workspace / "photos", copy)
    assert len(encoded) == 1
    assert [match.index for match in first[0]] == [match.index for match in of_inside[0]]
    assert [match.similarity for match in first[0]] == pytest.approx([m.similarity for m in of_inside[0]], abs=1e-5)
    assert twofold.search(workspace / "run", workspace / "photos", copy) == first
    copy.write_bytes((workspace / "photos" / "ants" / "07.png").read_bytes())
    assert twofold.search(workspace / "run", workspace / "photos", copy)[0][0].file == "ants/07.png"
    assert len(encoded) == 2


def test_second_search_imports_no_torch(workspace: Path) -> None:
    query = workspace / "photos" / "bees" / "00.png"
    twofold.search(workspace / "run", workspace / "photos", query)
    program = (
        "import sys; from twofold.__main__ import main\ntry: main()\nexcept SystemExit: print('torch' in sys.modules)"
    )
    words = ["search", str(workspace / "run"), str(workspace / "photos"), str(query), "--quiet"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program, *words], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "False"
    assert "1.0000" in done.stdout.splitlines()[1]
    assert "00.png" in done.stdout.splitlines()[1]


def test_unreadable_images_have_no_features(workspace: Path, tmp_path: Path) -> None:
    shutil.copytree(workspace / "photos", tmp_path / "photos")
    (tmp_path / "photos" / "ants" / "03.png").write_bytes(b"no image")
    (tmp_path / "photos" / "bees" / "14.png").write_bytes(b"no image")
    for _ in range(2):  # computed, then read
        (found,) = twofold.search(workspace / "run", tmp_path / "photos", tmp_path / "photos" / "bees" / "13.png", k=50)
        assert len(found) == 28
        assert (found[0].file, found[0].name, found[0].index) == ("bees/13.png", "bees", 28)
        assert found[0].similarity == pytest.approx(1, abs=1e-6)
        assert {match.file for match in found}.isdisjoint({"ants/03.png", "bees/14.png"})
