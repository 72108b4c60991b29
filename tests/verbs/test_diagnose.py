"""diagnose: measures of files, runs and encoders, compared with independent computations."""

import errno
import json
import math
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from scipy.stats import entropy
from torch import nn
from typer.testing import CliRunner

import running
import twofold
from twofold.cli import app, main
from twofold.cli.diagnose import copies
from twofold.errors import TwofoldError
from twofold.evaluate import spectrum
from twofold.verbs.diagnose import diagnose
from twofold.verbs.duplicates import find_duplicates


def rows_of_rank(rank: int, dimension: int = 64) -> np.ndarray:
    generator = np.random.default_rng(rank)
    spread = generator.normal(size=(400, rank)) @ generator.normal(size=(rank, dimension))
    return (spread + generator.normal(size=dimension)).astype(np.float32)


def test_full_disk_raises_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    np.save(tmp_path / "z.npy", rows_of_rank(40))
    monkeypatch.setattr(Path, "write_bytes", full)
    words = ["diagnose", str(tmp_path / "z.npy"), "--out", str(tmp_path / "numbers.json")]
    with pytest.raises(
        TwofoldError, match=rf"could not be written to {tmp_path} \(No space left on device\): free some disk space"
    ):
        CliRunner().invoke(app, words, catch_exceptions=False)


def test_diagnose_measures_a_file(tmp_path: Path) -> None:
    x = rows_of_rank(40)
    np.save(tmp_path / "z.npy", x)
    found = diagnose(tmp_path / "z.npy")
    singular = np.linalg.svd(x.astype(float) - x.mean(0, dtype=float), compute_uv=False)
    measures = found["measures"]
    assert measures["effective_rank"] == pytest.approx(math.exp(entropy(singular)), rel=1e-4)
    assert measures["stable_rank"] == pytest.approx((singular**2).sum() / singular[0] ** 2, rel=1e-6)
    assert measures["dimensions_above"] == (singular > 0.1 * singular[0]).sum()
    assert measures["norm"] == pytest.approx(np.sqrt((x.astype(float) ** 2).sum(1).mean()), rel=1e-6)
    np.testing.assert_allclose(found["eigenvalues"][:40], singular[:40] ** 2 / 399, rtol=1e-4)
    assert (found["rows"], found["dimension"], found["verdict"]["kind"]) == (400, 64, "healthy")
    assert found["duplicates"] == []
    json.dumps(found, allow_nan=False)


def test_diagnose_accepts_runs_and_arrays(run: twofold.Run, tmp_path: Path) -> None:
    assert twofold.diagnose(run)["measures"] == twofold.diagnose(run.path)["measures"]
    rows = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    of_file = twofold.diagnose(tmp_path / "rows.npy")["measures"]
    assert twofold.diagnose(rows)["measures"] == of_file
    assert twofold.diagnose(torch.from_numpy(rows))["measures"] == of_file
    with pytest.raises(TwofoldError, match="the array contains int64 of shape 3x2"):
        twofold.diagnose(np.ones((3, 2), np.int64))
    with pytest.raises(TwofoldError, match="leave them out"):
        twofold.diagnose(rows, "digits")
    with pytest.raises(TwofoldError, match="is a run, which defines its encoder"):
        twofold.diagnose(run, encoder="resnet18")
    with pytest.raises(TwofoldError, match="diagnose cannot measure a list"):
        twofold.diagnose([[1.0, 2.0]])


def test_diagnose_accepts_modules_and_runs_of_own_encoders(run: twofold.Run, images: Path, tmp_path: Path) -> None:
    of_run = twofold.diagnose(run)["measures"]["effective_rank"]
    assert twofold.diagnose(twofold.load_encoder(run), images)["measures"]["effective_rank"] == pytest.approx(of_run)
    own = twofold.pretrain(images, encoder=running.Own(), out=tmp_path / "own", **running.small("frossl", epochs=1))
    trained = twofold.diagnose(own, encoder=running.Own())
    assert trained["dimension"] == 20
    module = twofold.load_encoder(own, encoder=running.Own())
    assert twofold.diagnose(module, images)["measures"] == trained["measures"]
    module.train()
    twofold.diagnose(module, images)
    assert module.training  # the module of the caller is unchanged
    del module.preprocess  # then images are normalized by their own statistics, as in training
    again = twofold.diagnose(module, images)
    assert again["of"] == "Own"
    assert again["measures"]["effective_rank"] == pytest.approx(trained["measures"]["effective_rank"], rel=0.02)
    with pytest.raises(TwofoldError, match="give DATA"):
        twofold.diagnose(running.Own())


def test_diagnose_finds_copies(tmp_path: Path) -> None:
    x = rows_of_rank(40)
    x[[30, 200]] = 1.0001 * x[7]
    x[300] = x[8]
    np.save(tmp_path / "z.npy", x)
    assert diagnose(tmp_path / "z.npy")["duplicates"] == [(7, 30, 200), (8, 300)]
    result = CliRunner().invoke(app, ["diagnose", str(tmp_path / "z.npy")], catch_exceptions=False)
    assert "2 groups of near-duplicate rows; the largest has 3 rows: 7, 30, 200" in " ".join(result.stdout.split())


def test_diagnose_skips_the_search_for_copies_after_a_complete_collapse() -> None:
    noise = np.random.default_rng(0).normal(size=(500, 64))
    found = diagnose((1 + 1e-4 * noise).astype(np.float32))
    assert found["verdict"]["kind"] == "complete collapse"
    assert found["duplicates"] is None
    assert diagnose((40 + noise).astype(np.float32))["duplicates"] == []


@pytest.mark.parametrize("rows, rank, dimension", [(600, 5, 512), (600, 7, 512), (30, 2, 512)])
def test_diagnose_detects_low_rank_with_equal_eigenvalues(rows: int, rank: int, dimension: int) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(rows, rank)) @ generator.normal(size=(rank, dimension))
    assert diagnose(x.astype(np.float32))["verdict"]["kind"] == "dimensional collapse"


@pytest.mark.parametrize("rows, dimension", [(60, 40), (60, 60), (40, 60), (2, 9)])
def test_diagnose_finds_the_eigenvalues_of_numpy(rows: int, dimension: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectrum, "MOMENT_NUMBERS", 7 * 60)  # several blocks
    x = 5 + np.random.default_rng(0).normal(size=(rows, dimension)) * np.linspace(0.1, 2, dimension)
    expected = np.linalg.eigvalsh(np.cov(x.T))[::-1][: min(rows - 1, dimension)]
    found = diagnose(x)
    np.testing.assert_allclose(found["eigenvalues"], expected, rtol=1e-4)
    assert found["measures"]["norm"] == pytest.approx(np.sqrt(np.square(x).sum(1).mean()), rel=1e-5)


def test_memory_of_few_rows_does_not_grow_with_the_square_of_the_dimensions(tmp_path: Path) -> None:
    np.save(tmp_path / "z.npy", np.random.default_rng(0).normal(size=(20, 30_000)).astype(np.float32))
    code = (
        "import sys, twofold; from twofold.device import process_memory; twofold.diagnose(sys.argv[1]); before = "
        "process_memory(); twofold.diagnose(sys.argv[2]); print(process_memory() - before)"
    )
    np.save(tmp_path / "small.npy", np.random.default_rng(0).normal(size=(20, 30)).astype(np.float32))
    words = [sys.executable, "-c", code, str(tmp_path / "small.npy"), str(tmp_path / "z.npy")]
    added = float(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert added < 100  # MiB; a matrix of 30,000 x 30,000 numbers would have 7,000


def test_diagnose_names_the_eigenvalues_of_the_condition_number(tmp_path: Path) -> None:
    np.save(tmp_path / "z.npy", rows_of_rank(6, 6))
    result = CliRunner().invoke(app, ["diagnose", str(tmp_path / "z.npy")], catch_exceptions=False)
    assert "first eigenvalue divided by the 14th" in " ".join(result.stdout.split())


def test_diagnose_gives_verdicts_for_degenerate_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "few.npz", embeddings=rows_of_rank(2))
    assert diagnose(tmp_path / "few.npz")["verdict"]["kind"] == "dimensional collapse"
    np.save(tmp_path / "same.npy", np.ones((50, 16), np.float32))
    same = diagnose(tmp_path / "same.npy")
    assert same["verdict"]["kind"] == "complete collapse"
    json.dumps(same, allow_nan=False)
    np.save(tmp_path / "aside.npy", 1000 + rows_of_rank(40))
    assert diagnose(tmp_path / "aside.npy")["verdict"]["kind"] == "common offset"
    broken = rows_of_rank(40)
    broken[7, 3], broken[9] = np.nan, np.inf
    np.save(tmp_path / "broken.npy", broken)
    assert "2 of 400 rows" in diagnose(tmp_path / "broken.npy")["verdict"]["sentence"]
    few = rows_of_rank(40)[:10]  # ten centred rows span at most nine directions
    np.save(tmp_path / "short.npy", few)
    assert len(diagnose(tmp_path / "short.npy")["eigenvalues"]) == 9


def test_diagnose_measures_encoders_of_runs_and_files(run: twofold.Run, images: Path, tmp_path: Path) -> None:
    found = diagnose(run.path)
    features = twofold.embed(run, images, tmp_path / "digits.npz")
    assert found["rows"] == 400
    by_file = diagnose(features)
    np.testing.assert_allclose(found["eigenvalues"], by_file["eigenvalues"], rtol=1e-3, atol=1e-6)
    assert found["training"]["kind"] == run.results["verdict"]["kind"]

    # A file of another program: without Twofold's header, and with a classifier.
    foreign = tmp_path / "foreign.safetensors"
    save_file(load_file(run.path / "encoder.safetensors") | {"fc.weight": torch.zeros(3, 256)}, foreign)
    with pytest.raises(TwofoldError, match="--encoder"):
        diagnose(foreign, images)
    with pytest.raises(TwofoldError, match="does not fit this encoder: it lacks"):
        diagnose(foreign, images, encoder="resnet18")
    again = diagnose(foreign, images, encoder="conv")
    assert again["measures"]["effective_rank"] == pytest.approx(found["measures"]["effective_rank"], rel=0.02)


def test_diagnose_measures_models_of_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake timm replaces timm. The test checks the arguments of `create_model` and the use of its data
    configuration."""
    asked = []

    def create_model(name: str, **options: object) -> nn.Module:
        asked.append((name, options))
        if name != "tiny":
            raise RuntimeError("No pretrained weights exist for it")
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 12))

    timm = types.ModuleType("timm")
    timm.create_model = create_model
    timm.data = types.SimpleNamespace(
        resolve_model_data_config=lambda _: {"input_size": (3, 16, 16), "mean": (0.5,) * 3, "std": (0.2,) * 3}
    )
    monkeypatch.setitem(sys.modules, "timm", timm)
    found = diagnose("timm:tiny", "digits")
    assert asked == [("tiny", {"pretrained": True, "num_classes": 0})]
    assert (found["rows"], found["dimension"]) == (1797, 12)
    with pytest.raises(TwofoldError, match="No pretrained weights"):
        diagnose("timm:none", "digits")


@pytest.mark.parametrize(
    "words, message",
    [
        (["nowhere.npy"], "there is no file or run nowhere.npy"),
        (["RUN/encoder.safetensors"], "give DATA"),
        (["plain.npy"], "embeddings must be floats"),
        (
            ["notes.txt"],
            "diagnose cannot read notes.txt: give a .npy, .npz, .csv, .parquet, .safetensors or",
        ),
        (["people.csv"], "people.csv cannot be read: there are no columns f0, f1, …"),
        (["cut.csv"], "cut.csv cannot be read: line 3 has 2 cells, but the header has 3"),
        (["words.csv"], "words.csv cannot be read: could not convert string to float: 'x'"),
        (["one.csv"], "embeddings must be floats of shape [rows, dimensions] with at least two rows"),
    ],
)
def test_invalid_arguments_print_an_error(
    run: twofold.Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    np.save(tmp_path / "plain.npy", np.zeros((6, 8, 8), np.uint8))
    tables = {"notes.txt": "", "people.csv": "name,age\n", "cut.csv": "file,f0,f1\na,1,2\nb,1\n"}
    tables |= {"words.csv": "f0,f1\n1,x\n", "one.csv": "f0,f1\n1,2\n"}
    for name, text in tables.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["twofold", "diagnose", *(word.replace("RUN", str(run.path)) for word in words)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_diagnose_uses_the_images_that_a_run_decoded(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads all images in the order of their files, because the order affects the last digits."""
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path))
    twofold.probe(workspace / "run")  # decodes images as in training
    decoded = sorted(tmp_path.glob("*.u8"))
    assert len(decoded) == 2  # training images and held-out images
    found = diagnose(workspace / "run")
    assert sorted(tmp_path.glob("*.u8")) == decoded
    of_all = diagnose(twofold.load_encoder(workspace / "run"), workspace / "photos")
    assert (found["rows"], found["eigenvalues"], found["measures"]) == (30, of_all["eigenvalues"], of_all["measures"])


def test_duplicates_are_named_and_are_those_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))
    generator = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for number in range(40):
        pixels = generator.integers(0, 200, (12, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{number}.png")
        if number < 3:  # a brighter copy
            Image.fromarray(pixels + 50).save(tmp_path / "photos" / f"{number}-bright.png")
    settings = {"epochs": 1, "batch_size": 16, "encoder": "conv", "map_points": 0}
    run = twofold.pretrain(str(tmp_path / "photos"), method="simclr", out=tmp_path / "run", **settings)
    expected = {frozenset(str(image) for image in group) for group in find_duplicates(run)}
    found = twofold.diagnose(run)
    assert {frozenset(group) for group in found["duplicate_files"]} == expected
    assert frozenset({"0.png", "0-bright.png"}) in expected
    for name in ("features.npz", "features.csv"):
        path = twofold.embed(run, tmp_path / "photos", tmp_path / name)
        of_file = twofold.diagnose(path)
        names = [name for group in of_file["duplicate_files"] for name in group]
        assert all((tmp_path / "photos" / name).is_file() for name in names)
    assert copies([(3, 5)], [["a.png", "b.png"]]).endswith("2 rows: a.png, b.png")
    assert copies([(3, 5)], None).endswith("2 rows: 3, 5")
