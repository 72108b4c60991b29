"""search: matches compared with all similarities, and the cache of features."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import twofold
from running import run, small
from twofold.display import Display
from twofold.evaluate.encoder import Encoder, open_run_encoder
from twofold.verbs import search as searching
from twofold.verbs.all_images import AllImages, read_all_images


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


def test_features_with_other_normalization_are_cached_separately(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path))
    pixels = np.random.default_rng(1).integers(0, 255, (9, 12, 12, 3), dtype=np.uint8)
    config = twofold.Run(workspace / "run").config
    encoder = open_run_encoder(workspace / "run", config)
    images = AllImages(read_all_images(workspace / "run", config, pixels, Display(quiet=True)))

    def features() -> torch.Tensor:
        return searching._features_from_cache(encoder, images, "the images", Display(quiet=True)).clone()

    first = features()
    encoder.network.preprocess.mean.add_(0.5)
    assert not torch.equal(features(), first)
