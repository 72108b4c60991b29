"""The command line as a user sees it: exit codes, messages and files. What depends on the process uses a real one."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import twofold
from running import call, run, small, start
from twofold.cli import app, main
from twofold.cli.common import split_words
from twofold.cli.results import results_table
from twofold.errors import TwofoldError
from twofold.methods import CATALOG, schema
from twofold_papers.reproduce.tables import TABLES


def write_images(folder: Path, count: int, size: int = 12) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    for number in range(count):
        Image.fromarray(generator.integers(0, 255, (size, size, 3), dtype=np.uint8)).save(folder / f"{number:03d}.png")
    return folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_images(tmp_path / "photos", 12)


@pytest.fixture
def error_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that must fail with exit code 2, one line and no new files. Return the line.

    It runs in this process, because there are many such commands and each start takes seconds. One test uses a real
    process.
    """

    def check(*words: str) -> str:
        before = sorted(tmp_path.rglob("*"))
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.argv", ["twofold", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        lines = capsys.readouterr().err.strip().splitlines()
        assert stop.value.code == 2
        assert len(lines) == 1, lines
        assert sorted(tmp_path.rglob("*")) == before
        return lines[0]

    return check


def test_error_is_one_line_with_exit_code_2(tmp_path: Path) -> None:
    result = run("pretrain", "--method", "simcrl", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "error: unknown method 'simcrl', did you mean 'simclr'?\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words, message",
    [
        (["--method", "simcrl"], "unknown method 'simcrl', did you mean 'simclr'?"),
        (["epoch=3"], "unknown key 'epoch', did you mean 'epochs'?"),
        (
            ["temperature=0.1", "--method", "frossl"],
            "frossl has no key 'temperature'; methods with this key: alpha-cl, contrastive, dino, moco, simclr, swav",
        ),
        (["temperatur=0.1", "--method", "simclr"], "unknown key 'temperatur', did you mean 'temperature'?"),
        (["head.path=rows"], "frossl has no key 'head.path'; methods with this key: s-diet"),
        (
            ["--method", "s-diet", "head.path=/dev/null/rows"],
            "head.path=/dev/null/rows cannot be written: Not a direct",
        ),
        (["epochs=three"], "epochs=three is not a whole number"),
        (["lr=-1"], "lr=-1 is not a number above 0"),
        (["batch_size=5000"], "batch_size=5000 is larger than the 1438 images"),
        (["nowhere"], "'nowhere' does not exist"),
        ([""], "the name of the data is empty"),
        (["epochs=1e30"], "epochs=1e30 is not a whole number from 1 to 10000000"),
        (["digit"], "did you mean 'digits'?"),
        (["fotos/"], "'fotos' does not exist; did you mean 'photos'?"),
        (["lerning_rate=3"], "unknown key 'lerning_rate', did you mean 'lr'?"),
        (["--method", "ridge-graph", "--graph", "photo"], "graph.source=photo does not exist, did you mean 'photos'?"),
        (["photos", "photos"], "give one DATA, not 2: photos, photos"),
        (["photos", "batch_size=64"], "batch_size=64 is larger than the 12 images; use batch_size=4"),
        (["cifar10"], "cifar-10-python.tar.gz"),
        (["encoder=resnet19"], "unknown encoder 'resnet19', did you mean 'resnet18'?"),
        (["device=warp"], "device=warp"),
        (
            ["--graph", "labels"],
            "frossl has no key 'graph.source'; methods with this key: graph-vicreg, orthogonal-head, ridge-graph",
        ),
        (["digits", "data=mnist"], "data is given twice"),
        (["--method", "byol", "stop_gradient=false"], "teacher_momentum=none"),
        (["--method", "byol", "projector="], "projector="),
        (["--method", "byol", "views=1"], "use views=2"),
        (["--method", "w-mse", "drop_last=false", "projector=60", "batch_size=200"], "cannot whiten 38 samples"),
        (["betas=1,1"], "betas=1,1 is not 2 values (each a number from 0 to below 1)"),
        (["out=there"], "out is an option, not a setting: write --out there"),
        (["dry_run=true"], "dry_run is an option, not a setting: write --dry-run"),
        (["--method", "SimSIAM2"], "did you mean 'simsiam'?"),
        (
            ["optimizer=adam", "momentum=0.5"],
            "momentum has no effect with optimizer=adam: leave it out, or change optimizer",
        ),
        (["--method", "dino", "lars_eta=0.1"], "lars_eta has no effect with optimizer=adamw"),
        (["restart_epochs=3"], "restart_epochs has no effect with schedule=cosine"),
        (
            ["augment.crop_scale=1,1", "augment.crop_ratio=1,1", "augment.interpolation=bicubic"],
            "augment.interpolation has no effect with augment.crop_scale=1,1",
        ),
        (["--method", "ridge-graph", "graph.labelled_fraction=0.1"], "no effect with graph.source=views"),
        (["--method", "ridge-graph", "--graph", "neighbours", "graph.balance=true"], "graph.balance has no effect"),
        (["pieces=3", "--dry-run"], "pieces=3 does not divide batch_size=256"),
        (["batch_size=5000", "--dry-run"], "batch_size=5000 is larger than the 1438 images"),
        (["channels=2", "--dry-run"], "have 1 channels, which cannot be converted to channels=2"),
        (["--dry-run", "--out", "photos"], "photos exists already"),
        (["--method", "simclr", "views=1"], "simclr compares the views of an image: use views=2 or more"),
        (["seed=100000000000000000000"], "seed="),
        (["--method", "ridge-graph", "--graph", "label"], "did you mean 'labels'"),
        (["--method", "alpha-cl", "gamma=2"], "gamma"),
        (["--method", "vicreg", "views=1"], "views"),
    ],
)
@pytest.mark.usefixtures("photos")
def test_invalid_arguments_of_pretrain_print_an_error(
    error_of: Callable[..., str], words: list[str], message: str
) -> None:
    assert message in error_of("pretrain", *words)


def test_empty_folder_and_single_image_print_an_error(tmp_path: Path, error_of: Callable[..., str]) -> None:
    (tmp_path / "empty").mkdir()
    assert "empty" in error_of("pretrain", "empty")
    write_images(tmp_path / "one", 1)
    assert "training needs at least two" in error_of("pretrain", "one")


def test_existing_folder_is_never_overwritten(tmp_path: Path, error_of: Callable[..., str]) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.txt").write_text("mine")
    assert "taken exists already" in error_of("pretrain", "--out", "taken")
    assert (tmp_path / "taken" / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize(
    "words", [["resume", "nowhere"], ["embed", "nowhere", "digits", "--out", "x.npz"], ["report", "photos"]]
)
@pytest.mark.usefixtures("photos")
def test_commands_on_a_missing_run_print_an_error(error_of: Callable[..., str], words: list[str]) -> None:
    assert "run" in error_of(*words)


def test_resume_accepts_no_settings_except_epochs(error_of: Callable[..., str]) -> None:
    line = error_of("resume", "runs/x", "epochs=50", "lr=1")
    assert "resume takes no settings such as lr=1, only epochs: a run keeps the settings it started with" in line
    assert "twofold pretrain DATA --init runs/x epochs=50 lr=1" in line
    assert "epochs=many is not a whole number" in error_of("resume", "runs/x", "epochs=many")


def test_settings_are_separated_from_data() -> None:
    assert split_words(["epochs=3"]) == (None, ["epochs=3"])
    assert split_words(["photos", "augment.flip=0"]) == ("photos", ["augment.flip=0"])
    assert split_words(["./odd=name", "lr=1"]) == ("./odd=name", ["lr=1"])
    with pytest.raises(TwofoldError, match=r"not 2: a, b$"):
        split_words(["a", "b"])


@pytest.mark.parametrize(
    "words, message",
    [
        (["photos", "--epochs", "3"], "there is no option --epochs; did you mean epochs=3?"),
        (["photos", "--batch-size=64"], "there is no option --batch-size=64; did you mean batch_size=64?"),
        (["photos", "--temperature"], "there is no option --temperature; did you mean temperature=VALUE?"),
        (["photos", "epochs", "3"], "give one DATA, not 3: photos, epochs, 3; did you mean epochs=3?"),
        (["photos", "--otu", "x"], "there is no option --otu, did you mean '--out'?"),
        (
            ["temprature=1"],
            "unknown key 'temprature', did you mean 'temperature'? frossl has no key 'temperature'; methods",
        ),
        (["temperature=1"], "frossl has no key 'temperature'; methods with this key: alpha-cl, contrastive,"),
        (["epocs=1"], "unknown key 'epocs', did you mean 'epochs'?"),
    ],
)
def test_errors_for_misspelled_settings_suggest_the_right_form(words: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["pretrain", *words])
    assert isinstance(result.exception, TwofoldError)
    assert message in str(result.exception)


def test_table_omits_the_few_labels_column_without_values() -> None:
    row = {"name": "trained", "linear_accuracy": 0.9, "knn_accuracy": 0.8}
    few = row | {"few_labels_accuracy": 0.7, "few_labels_sd": 0.01, "labels_per_class": 10}
    none = row | {"few_labels_accuracy": None, "few_labels_sd": None, "labels_per_class": None}
    columns = [[column.header for column in results_table([each]).columns] for each in (few, none)]
    assert columns == [["", "linear", "linear, 10 labels per class", "kNN"], ["", "linear", "kNN"]]


def test_training_on_an_unlabelled_folder_with_a_broken_file(tmp_path: Path, photos: Path) -> None:
    (photos / "broken.png").write_bytes((photos / "000.png").read_bytes()[:60])
    settings = [f"{key}={value}" for key, value in small("frossl", batch_size=4, epochs=1).items()]
    result = call("pretrain", "photos", "--out", "run", *settings, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "1 images could not be read" in result.stdout or "1 image could not be read" in result.stdout
    assert "no labels" in result.stdout
    assert "broken.png" in (tmp_path / "run" / "skipped.txt").read_text()
    written = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"config.json", "metrics.jsonl", "spectrum.jsonl", "timing.jsonl", "log.txt", "checkpoints",
            "encoder.safetensors", "results.json", "report.html"} <= written  # fmt: skip
    assert json.loads((tmp_path / "run" / "results.json").read_text())["table"] == []

    embedded = call("embed", "run", "photos", "--out", "features.npz", cwd=tmp_path)
    assert embedded.returncode == 0, embedded.stderr
    with np.load(tmp_path / "features.npz") as file:
        assert file["features"].shape == (12, 256)
        assert file["files"].tolist() == [f"{number:03d}.png" for number in range(12)]
        assert file["index"].tolist() == list(range(12))
        assert "labels" not in file
    assert "a folder that exists" in call("embed", "run", "photos", "--out", "no/features.npz", cwd=tmp_path).stderr


@pytest.mark.usefixtures("photos")
def test_coverage_of_a_group_file_is_printed(tmp_path: Path) -> None:
    (tmp_path / "groups.csv").write_text("000.png,a\n001.png,a\n002.png,b\nother.png,b\n")
    settings = [f"{key}={value}" for key, value in small("ridge-graph", batch_size=4, epochs=1).items()]
    words = ["pretrain", "photos", "-m", "ridge-graph", "--graph", "groups.csv", "--out", "run", *settings]
    result = call(*words, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    line = "graph    3 of 12 images in 2 groups; no image found for 1 row: "
    assert line in result.stdout
    assert line in (tmp_path / "run" / "log.txt").read_text()


def test_pretrain_prints_results_and_numbers_its_run_folders(tmp_path: Path) -> None:
    settings = [f"{key}={value}" for key, value in small("simclr", epochs=1).items()]
    result = call("pretrain", "--method", "simclr", *settings, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    for expected in ("trained", "untrained", "raw pixels", "kNN", "runs/simclr-digits-1/report.html"):
        assert expected in result.stdout
    saved = json.loads((tmp_path / "runs" / "simclr-digits-1" / "config.json").read_text())
    assert saved["values"]["epochs"] == 1
    assert saved["origin"]["epochs"] == "user"
    assert saved["origin"]["encoder"] == "chosen"
    assert saved["origin"]["optimizer"] in ("method", "data")
    again = call("pretrain", "--method", "simclr", "--quiet", *settings, cwd=tmp_path)
    assert again.returncode == 0
    assert again.stdout == ""
    assert (tmp_path / "runs" / "simclr-digits-2" / "report.html").exists()


FEW_PHOTOS = [f"{key}={value}" for key, value in small("frossl", batch_size=4, epochs=3).items()]


@pytest.mark.usefixtures("photos")
def test_characters_that_a_terminal_cannot_show_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    listed = run("methods", "alpha-cl", cwd=tmp_path)
    assert (listed.returncode, listed.stderr) == (0, "")
    trained = run("pretrain", "photos", *FEW_PHOTOS, cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert "?" in trained.stdout


@pytest.mark.usefixtures("photos")
def test_training_continues_if_its_output_pipe_is_closed(tmp_path: Path) -> None:
    process = start("pretrain", "photos", *FEW_PHOTOS, cwd=tmp_path)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.wait(timeout=300)
    assert (tmp_path / "runs" / "frossl-photos-1" / "results.json").exists()


@pytest.mark.parametrize("words", [("methods",), *(("methods", name) for name in CATALOG), ("reproduce", "--list")])
def test_names_in_lists_are_never_truncated(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.argv", ["twofold", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    output = capsys.readouterr().out
    names = TABLES if words[0] == "reproduce" else schema(words[1]) if len(words) == 2 else CATALOG
    assert [name for name in names if f" {name} " not in output] == []
    assert "…" not in output


def test_methods_lists_all_methods_or_describes_one() -> None:
    everything, one = run("methods"), run("methods", "simclr")
    for name in ("simclr", "frossl", "byol"):
        assert name in everything.stdout
    assert "temperature" in one.stdout
    assert "augment.flip" in one.stdout
    assert run("methods", "simcrl").returncode == 2


@pytest.mark.parametrize(
    "function, words",
    [
        ("twofold.verbs.embed.embed", ["embed", "run", "photos", "--out", "x.npz"]),
        ("twofold.verbs.probe.probe", ["probe", "run"]),
        ("twofold_papers.verify.claim.claims", ["verify"]),
    ],
)
def test_interrupted_commands_without_a_run_say_that_nothing_was_written(
    function: str, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(function, stopped)
    monkeypatch.setattr("sys.argv", ["twofold", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 130
    assert capsys.readouterr().err == "stopped; nothing was written\n"


def test_version_is_printed() -> None:
    assert run("--version").stdout == f"twofold {twofold.__version__}\n"


def test_unwritable_output_and_too_large_images_print_an_error_before_any_work(tmp_path: Path) -> None:
    page = call("verify", "frossl", "--report", "--out", str(tmp_path / "none" / "x.html"))
    assert (page.returncode, page.stdout) == (2, "")
    assert "none does not exist; create it" in page.stderr
    large = call("pretrain", "digits", "image_size=100000", "--dry-run")
    assert large.returncode == 2
    assert "from 1 to 4096" in large.stderr
