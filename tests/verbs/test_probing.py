"""probe and knn: the same numbers as the run's own evaluation."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from typer.testing import CliRunner

import running
import twofold
from twofold.cli import app, main
from twofold.data.open import find_again
from twofold.display import Display
from twofold.errors import TwofoldError
from twofold.runs.folder import RunFolder
from twofold.train.trainer import Trainer
from twofold.verbs import pretrain, probing
from twofold.verbs.knn import knn
from twofold.verbs.probe import probe
from twofold.verbs.probing import load_probe_data

SETTINGS = {"epochs": 2, "lr": 0.01, "batch_size": 64}  # those of `run` in conftest.py


@pytest.fixture(scope="module")
def unfinished(run: twofold.Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run as if it had been stopped after its last checkpoint."""
    path = tmp_path_factory.mktemp("unfinished") / "run"
    shutil.copytree(run.path, path)
    for name in ("encoder.safetensors", "results.json", "report.html"):
        (path / name).unlink()
    return path


def test_probe_and_knn_equal_the_evaluation_of_the_run(run: twofold.Run) -> None:
    linear, neighbours = probe(run, labels_per_class=[10]), knn(run)
    expected = {row["name"]: row for row in run.results["table"]}
    assert [row["name"] for row in linear["rows"]] == ["trained", "untrained", "HOG + colour", "raw pixels"]
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


def test_layer_post_gives_the_embeddings_of_the_checkpoint(run: twofold.Run, images: Path) -> None:
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


def test_unfinished_run_is_measured_from_its_checkpoint(run: twofold.Run, unfinished: Path, images: Path) -> None:
    assert knn(unfinished)["rows"] == knn(run)["rows"]
    assert knn(unfinished, images)["rows"] == knn(run)["rows"]  # its own images, passed as data
    with pytest.raises(TwofoldError, match="not finished"):
        knn(unfinished, "digits")
    shutil.rmtree(unfinished / "checkpoints")
    with pytest.raises(TwofoldError, match="no checkpoint yet"):
        knn(unfinished)


def test_other_images_need_no_graph_of_the_training_images(images: Path, tmp_path: Path) -> None:
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
        (["probe", "nowhere"], "nowhere is not an encoder: give a run folder"),
        (["probe", "RUN", "--solver", "lbfg"], "did you mean 'lbfgs'?"),
        (["probe", "RUN", "--layer", "middle"], "unknown layer 'middle': give pre (the encoder's features) or post"),
        (["probe", "RUN", "--labels-per-class", "1,0"], "whole numbers of at least 1"),
        (["probe", "RUN", "--out", "numbers.txt"], "give a .json file in a folder that exists"),
        (["knn", "RUN", "-k", "0"], "k=0 is not a whole number at least 1"),
        (["knn", "RUN", "plain.npy"], "has no labels"),
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
    output = capsys.readouterr().out
    for text in ("trained", "untrained", "raw pixels", "top-5", "predicted"):
        assert text in output
    written = json.loads((tmp_path / "numbers.json").read_text())
    assert written["k"] == 20
    assert len(written["rows"][0]["confusion"]) == 10


@pytest.mark.parametrize("command", ["probe", "knn", "diagnose"])
def test_unwritable_output_folder_raises_an_error_before_any_work(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    with pytest.raises(TwofoldError, match=f"the folder {tmp_path} is not writable; choose another"):
        CliRunner().invoke(
            app, [command, "looked-for-later", "--out", str(tmp_path / "numbers.json")], catch_exceptions=False
        )


def test_label_counts_above_the_available_labels_are_skipped(run: twofold.Run) -> None:
    words = ["probe", str(run.path), "--labels-per-class", "2,1000"]
    output = " ".join(CliRunner().invoke(app, words, catch_exceptions=False).stdout.split())
    assert "2 per class" in output
    assert "skipping 1,000 labels per class" in output
    assert "1000 per class" not in output
    found = probe(run, labels_per_class=[1000])
    assert [row["few_labels"] for row in found["rows"]] == [[], [], [], []]


def test_invalid_numbers_raise_an_error(run: twofold.Run) -> None:
    for count in (0, 1.5, [5, 0], "few"):
        with pytest.raises(TwofoldError, match=r"labels_per_class=.* is not a whole number at least 1"):
            probe(run, labels_per_class=count)
    for k in (0, 1.5):
        with pytest.raises(TwofoldError, match=f"k={k} is not a whole number at least 1"):
            knn(run, k=k)
    with pytest.raises(TwofoldError, match="temperature=0 is not a number above 0"):
        knn(run, temperature=0)
    assert [few["labels_per_class"] for few in probe(run, labels_per_class=5)["rows"][0]["few_labels"]] == [5]


def test_images_of_a_run_are_found_again(tmp_path: Path) -> None:
    for number, name in enumerate(("cats", "dogs", "owls") * 4):
        path = tmp_path / "photos" / name / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 9), (20 * number, 0, 0)).save(path)
    (tmp_path / "classes.txt").write_text("cats\nowls\n")
    config, source = pretrain.configure(tmp_path / "photos", "frossl", {"class_list": tmp_path / "classes.txt"})
    assert source.classes == ("cats", "owls")
    assert find_again(config).fingerprint == source.fingerprint
    for gone in ("array", "dataset"):
        with pytest.raises(TwofoldError, match="were objects of a program"):
            find_again(replace(config, data=gone))
    shutil.move(tmp_path / "photos", tmp_path / "moved")
    with pytest.raises(TwofoldError, match="photos, which no longer exists; pass their new path"):
        find_again(config)


def test_probes_ignore_unlabelled_images(tmp_path: Path) -> None:
    """In the training set and in the test set."""
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


def test_weights_are_read_once(run: twofold.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    load_encoder = probing.load_encoder
    monkeypatch.setattr(probing, "load_encoder", lambda path, **own: read.append(path) or load_encoder(path, **own))
    knn(run)
    assert read == [run.path]
