"""probe, knn and diagnose: the same numbers as the run's own evaluation, and independent ones."""

import errno
import json
import math
import shutil
import sys
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from scipy.stats import entropy
from sklearn.datasets import load_digits
from torch import nn
from typer.testing import CliRunner

import running
import twofold
from twofold.cli import app, main
from twofold.data.sources import find_again
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.runs.folder import RunFolder
from twofold.train.trainer import Trainer
from twofold.verbs import pretrain
from twofold.verbs.diagnose import diagnose
from twofold.verbs.knn import knn
from twofold.verbs.probe import probe
from twofold.verbs.probing import load_probe_data

SETTINGS = {"epochs": 2, "lr": 0.01, "batch_size": 64}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 digits, of which 80 are held out."""
    path = tmp_path_factory.mktemp("images") / "images.npz"
    digits = load_digits()
    np.savez(path, x=(digits.images[:400] * 15).astype(np.uint8), y=digits.target[:400])
    return path


@pytest.fixture(scope="module")
def run(images: Path, tmp_path_factory: pytest.TempPathFactory) -> twofold.Run:
    out = tmp_path_factory.mktemp("inspected") / "run"
    return twofold.pretrain(images, method="byol", out=out, **running.small("byol", **SETTINGS))


@pytest.fixture(scope="module")
def unfinished(run: twofold.Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, as it would be when stopped after its last checkpoint."""
    path = tmp_path_factory.mktemp("unfinished") / "run"
    shutil.copytree(run.path, path)
    for name in ("encoder.safetensors", "results.json", "report.html"):
        (path / name).unlink()
    return path


def test_probe_and_knn_find_what_the_run_found(run: twofold.Run) -> None:
    linear, neighbours = probe(run, labels_per_class=[10]), knn(run)
    expected = {row["name"]: row for row in run.results["table"]}
    assert [row["name"] for row in linear["rows"]] == ["trained", "untrained", "raw pixels"]
    for row in linear["rows"]:
        assert row["top1"] == pytest.approx(expected[row["name"]]["linear_accuracy"], abs=1.5 / 80)
        (few,) = row["few_labels"]
        assert few["mean"] == pytest.approx(expected[row["name"]]["few_labels_accuracy"], abs=0.02)
        assert np.sum(row["confusion"]) == linear["test_images"] == 80
        assert np.trace(row["confusion"]) / 80 == pytest.approx(row["top1"])
        assert row["top1"] <= row["top5"] <= 1
    for row in neighbours["rows"]:
        assert row["top1"] == pytest.approx(expected[row["name"]]["knn_accuracy"], abs=1.5 / 80)
    assert linear["classes"] == [str(number) for number in range(10)]


def test_after_the_projector_are_the_embeddings_of_the_checkpoint(run: twofold.Run, images: Path) -> None:
    config, source = pretrain.configure(images, "byol", running.small("byol", **SETTINGS))
    trainer = Trainer(config, pretrain.read_data(config, source, Display(quiet=True)), Display(quiet=True))
    store = trainer.data.test

    def embeddings() -> torch.Tensor:
        method = trainer.method.eval()
        with torch.no_grad():
            return method.projector(method.encoder(trainer.augment.eval_transform(store.images)))

    untrained = embeddings()
    trainer.restore(RunFolder.open(run.path))
    trained = embeddings()
    found = load_probe_data(run, None, "post", None, Display(quiet=True)).representations
    torch.testing.assert_close(found["untrained"][1], untrained, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found["trained"][1], trained, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(trained, untrained, atol=1e-2)


def test_a_run_that_is_not_finished_is_measured_from_its_checkpoint(
    run: twofold.Run, unfinished: Path, images: Path
) -> None:
    assert knn(unfinished)["rows"] == knn(run)["rows"]
    assert knn(unfinished, images)["rows"] == knn(run)["rows"]  # its own images, named
    with pytest.raises(TwofoldError, match="not finished"):
        knn(unfinished, "digits")
    shutil.rmtree(unfinished / "checkpoints")
    with pytest.raises(TwofoldError, match="no checkpoint yet"):
        knn(unfinished)


def test_graphs_of_the_training_images_are_not_needed_for_others(images: Path, tmp_path: Path) -> None:
    settings = running.small("ridge-graph", **SETTINGS) | {"graph.source": "labels"}
    run = twofold.pretrain({"data": images, **settings}, method="ridge-graph", out=tmp_path / "run")
    generator = np.random.default_rng(0)
    np.savez(
        tmp_path / "other.npz",
        x=generator.integers(0, 255, (40, 8, 8), dtype=np.uint8),
        y=np.arange(40) % 2,
        x_test=generator.integers(0, 255, (10, 8, 8), dtype=np.uint8),
        y_test=np.arange(10) % 2,
    )
    found = knn(run, tmp_path / "other.npz", layer="post", k=3)
    assert (found["train_images"], found["test_images"], found["classes"]) == (40, 10, ["0", "1"])
    assert found["rows"][0]["top5"] is None


@pytest.mark.parametrize(
    "words, message",
    [
        (["probe", "nowhere"], "there is no run folder nowhere"),
        (["probe", "RUN", "--solver", "lbfg"], "did you mean 'lbfgs'?"),
        (["probe", "RUN", "--layer", "middle"], "pre (the encoder's features) or post"),
        (["probe", "RUN", "--labels-per-class", "1,0"], "whole numbers from 1 on"),
        (["probe", "RUN", "--out", "numbers.txt"], "written as .json"),
        (["knn", "RUN", "-k", "0"], "k=0 is not a whole number at least 1"),
        (["knn", "RUN", "plain.npy"], "has no labels"),
        (["diagnose", "nowhere.npy"], "there is no nowhere.npy"),
        (["diagnose", "RUN/encoder.safetensors"], "give DATA"),
        (["diagnose", "plain.npy"], "embeddings are floats"),
        (
            ["diagnose", "notes.txt"],
            "diagnose cannot read notes.txt: give a .npy, .npz, .csv, .parquet or .safetensors",
        ),
        (["diagnose", "people.csv"], "people.csv cannot be read: a table of embeddings has columns f0, f1, …"),
        (["diagnose", "cut.csv"], "cut.csv cannot be read: line 3 has 2 cells, and the heading 3"),
        (["diagnose", "words.csv"], "words.csv cannot be read: could not convert string to float: 'x'"),
        (["diagnose", "one.csv"], "embeddings are floats [rows, dimensions], two rows or more"),
    ],
)
def test_refusals(
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
    monkeypatch.setattr("sys.argv", ["twofold", *(word.replace("RUN", str(run.path)) for word in words)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_commands_print_tables_and_write_json(
    run: twofold.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["twofold", "knn", str(run.path), "--out", str(tmp_path / "numbers.json")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    said = capsys.readouterr().out
    for text in ("trained", "untrained", "raw pixels", "top-5", "taken for"):
        assert text in said
    written = json.loads((tmp_path / "numbers.json").read_text())
    assert written["k"] == 20
    assert len(written["rows"][0]["confusion"]) == 10


@pytest.mark.parametrize("command", ["probe", "knn", "diagnose"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_work(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    with pytest.raises(TwofoldError, match=f"the folder {tmp_path} cannot be written; choose another"):
        CliRunner().invoke(
            app, [command, "looked-for-later", "--out", str(tmp_path / "numbers.json")], catch_exceptions=False
        )


def test_numbers_that_a_full_disk_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    np.save(tmp_path / "z.npy", rows_of_rank(40))
    monkeypatch.setattr(Path, "write_text", full)
    words = ["diagnose", str(tmp_path / "z.npy"), "--out", str(tmp_path / "numbers.json")]
    with pytest.raises(
        TwofoldError, match=rf"could not be written into {tmp_path} \(No space left on device\): make room"
    ):
        CliRunner().invoke(app, words, catch_exceptions=False)


def test_as_many_labels_as_there_are_make_no_column(run: twofold.Run) -> None:
    words = ["probe", str(run.path), "--labels-per-class", "2,1000"]
    said = " ".join(CliRunner().invoke(app, words, catch_exceptions=False).stdout.split())
    assert "2 per class" in said
    assert "1,000 per class are left out" in said
    assert "1000 per class" not in said
    found = probe(run, labels_per_class=[1000])
    assert [row["few_labels"] for row in found["rows"]] == [[], [], []]


def test_numbers_that_are_no_counts_are_refused(run: twofold.Run) -> None:
    for count in (0, 1.5, [5, 0], "few"):
        with pytest.raises(TwofoldError, match=r"labels_per_class=.* is not a whole number at least 1"):
            probe(run, labels_per_class=count)
    for k in (0, 1.5):
        with pytest.raises(TwofoldError, match=f"k={k} is not a whole number at least 1"):
            knn(run, k=k)
    with pytest.raises(TwofoldError, match="temperature=0 is not a number above 0"):
        knn(run, temperature=0)
    assert [few["labels_per_class"] for few in probe(run, labels_per_class=5)["rows"][0]["few_labels"]] == [5]


def rows_of_rank(rank: int, dimension: int = 64) -> np.ndarray:
    generator = np.random.default_rng(rank)
    spread = generator.normal(size=(400, rank)) @ generator.normal(size=(rank, dimension))
    return (spread + generator.normal(size=dimension)).astype(np.float32)


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


def test_diagnose_takes_a_run_and_an_array(run: twofold.Run, tmp_path: Path) -> None:
    assert twofold.diagnose(run)["measures"] == twofold.diagnose(run.path)["measures"]
    rows = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    of_file = twofold.diagnose(tmp_path / "rows.npy")["measures"]
    assert twofold.diagnose(rows)["measures"] == of_file
    assert twofold.diagnose(torch.from_numpy(rows))["measures"] == of_file
    with pytest.raises(TwofoldError, match="the array holds int64 of shape 3x2"):
        twofold.diagnose(np.ones((3, 2), np.int64))
    with pytest.raises(TwofoldError, match="leave out data"):
        twofold.diagnose(rows, "digits")
    with pytest.raises(TwofoldError, match="knows its encoder"):
        twofold.diagnose(run, encoder="resnet18")
    with pytest.raises(TwofoldError, match="diagnose takes no list"):
        twofold.diagnose([[1.0, 2.0]])


def test_diagnose_takes_an_encoder_and_a_run_of_ones_own(run: twofold.Run, images: Path, tmp_path: Path) -> None:
    of_run = twofold.diagnose(run)["measures"]["effective_rank"]
    assert twofold.diagnose(twofold.load_encoder(run), images)["measures"]["effective_rank"] == pytest.approx(of_run)
    own = twofold.pretrain(images, encoder=running.Own(), out=tmp_path / "own", **running.small("frossl", epochs=1))
    trained = twofold.diagnose(own, encoder=running.Own())
    assert trained["dimension"] == 20
    module = twofold.load_encoder(own, encoder=running.Own())
    assert twofold.diagnose(module, images)["measures"] == trained["measures"]
    module.train()
    twofold.diagnose(module, images)
    assert module.training  # the caller's stays as it was
    del module.preprocess  # then images are normalised by themselves, as training did
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
    assert "2 groups of rows that are nearly the same; the largest has 3: 7, 30, 200" in " ".join(result.stdout.split())


def test_diagnose_looks_for_no_copies_among_rows_that_are_all_nearly_the_same() -> None:
    noise = np.random.default_rng(0).normal(size=(500, 64))
    found = diagnose((1 + 1e-4 * noise).astype(np.float32))
    assert found["verdict"]["kind"] == "complete collapse"
    assert found["duplicates"] is None
    assert diagnose((40 + noise).astype(np.float32))["duplicates"] == []


@pytest.mark.parametrize("rows, rank, dimension", [(600, 5, 512), (600, 7, 512), (30, 2, 512)])
def test_diagnose_sees_a_low_rank_of_equal_directions(rows: int, rank: int, dimension: int) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(rows, rank)) @ generator.normal(size=(rank, dimension))
    assert diagnose(x.astype(np.float32))["verdict"]["kind"] == "dimensional collapse"


def test_diagnose_says_which_eigenvalues_a_condition_number_is_of(tmp_path: Path) -> None:
    np.save(tmp_path / "z.npy", rows_of_rank(6, 6))
    result = CliRunner().invoke(app, ["diagnose", str(tmp_path / "z.npy")], catch_exceptions=False)
    assert "first eigenvalue over the 14th, or the last" in " ".join(result.stdout.split())


def test_diagnose_names_what_is_wrong_with_a_file(tmp_path: Path) -> None:
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
    few = rows_of_rank(40)[:10]  # ten rows have nine directions, whatever they are
    np.save(tmp_path / "short.npy", few)
    assert len(diagnose(tmp_path / "short.npy")["eigenvalues"]) == 9


def test_diagnose_an_encoder(run: twofold.Run, images: Path, tmp_path: Path) -> None:
    found = diagnose(run.path)
    features = twofold.embed(run, images, tmp_path / "digits.npz")
    assert found["rows"] == 400
    by_file = diagnose(features)
    np.testing.assert_allclose(found["eigenvalues"], by_file["eigenvalues"], rtol=1e-3, atol=1e-6)
    assert found["training"]["kind"] == run.results["verdict"]["kind"]

    # As another program would save them: without our header, and with a classifier.
    foreign = tmp_path / "foreign.safetensors"
    save_file(load_file(run.path / "encoder.safetensors") | {"fc.weight": torch.zeros(3, 256)}, foreign)
    with pytest.raises(TwofoldError, match="--encoder"):
        diagnose(foreign, images)
    with pytest.raises(TwofoldError, match="not of that encoder: it lacks"):
        diagnose(foreign, images, encoder="resnet18")
    again = diagnose(foreign, images, encoder="conv")
    assert again["measures"]["effective_rank"] == pytest.approx(found["measures"]["effective_rank"], rel=0.02)


def test_diagnose_a_model_of_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    """timm itself is not needed for the test: what is asked of it, and that it is used as it says."""
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


def test_a_run_finds_its_own_images_again(tmp_path: Path) -> None:
    for number, name in enumerate(("cats", "dogs", "owls") * 4):
        path = tmp_path / "photos" / name / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 9), (20 * number, 0, 0)).save(path)
    (tmp_path / "classes.txt").write_text("cats\nowls\n")
    config, source = pretrain.configure(tmp_path / "photos", "frossl", {"class_list": tmp_path / "classes.txt"})
    assert source.classes == ("cats", "owls")
    assert find_again(config).fingerprint == source.fingerprint
    for gone in ("array", "dataset"):
        with pytest.raises(TwofoldError, match="cannot be found again"):
            find_again(replace(config, data=gone))
    shutil.move(tmp_path / "photos", tmp_path / "moved")
    with pytest.raises(TwofoldError, match="photos, which is not there any more: say where they are now"):
        find_again(config)


def test_images_without_a_label_are_left_out_of_probes(tmp_path: Path) -> None:
    """Of the training images, and of the test images."""
    digits = load_digits()
    pixels, labels = (digits.images[:160] * 15).astype(np.uint8), digits.target[:160] % 2
    labels[::4] = -1
    data = {"train": (pixels[:120], labels[:120]), "test": (pixels[120:], labels[120:])}
    run = twofold.pretrain(
        data, method="simclr", out=tmp_path / "run", **running.small("simclr", epochs=1, batch_size=32)
    )
    expected = {row["name"]: row for row in run.results["table"]}
    for found, key in ((probe(run, data), "linear_accuracy"), (knn(run, data), "knn_accuracy")):
        assert (found["train_images"], found["test_images"], found["test_images_trained_on"]) == (90, 30, 0)
        for row in found["rows"]:
            assert row["top1"] == pytest.approx(expected[row["name"]][key], abs=1.5 / 30)
    assert (run.results["train_labelled"], run.results["test_labelled"]) == (90, 30)
