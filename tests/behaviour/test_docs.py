"""Every command and Python snippet of the pages is executed, with settings that make it short."""

import importlib.util
import os
import pickle
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.datasets
import typer
from pages import DOCS, PAGES, ROOT, SHELL, blocks, inline_commands, name_of
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.utils import Bunch
from typer.testing import CliRunner

import twofold
from standard_files import cifar10_contents
from twofold.cli import app
from twofold.methods import CATALOG, schema
from twofold_papers.reproduce.record import read_records
from twofold_papers.reproduce.table import records_of
from twofold_papers.reproduce.tables import TABLES
from twofold_papers.verify import claim
from twofold_papers.verify.claim import Checked, check

SHORT = {"epochs": "1", "projector": "32,16", "predictor_width": "32"}
BATCH = {"photos/": "8", "table.csv": "8"}  # 24 images; other data keep their batch size
TABLE_SETTINGS = ("encoder=conv", "projector=32,16", "--epochs", "1", "--row", "InfoNCE")
ON_FEW_DIGITS = {"docs/tutorials/folder.md", "docs/tutorials/researcher.md"}
DIGITS = 400
INSTALLS = ("git", "make", "pip", "python", "source")
CLUSTER = ("torchrun", "srun", "#!/bin/bash")
# These pages have tests of their own that execute their snippets and compare what they print.
EXECUTED_ELSEWHERE = {"docs/theory.md", "docs/how-to/watch-a-loss.md"}


def is_generated_or_note(page: Path) -> bool:
    return page.parent.name in ("decisions", "results")


HAS_CODE = [page for page in PAGES if blocks(page, *SHELL, "python") and not is_generated_or_note(page)]


def shortened(words: list[str]) -> list[str]:
    """The same command with fewer epochs, a narrow projector and, for tables, one row and a small encoder."""
    if words[0] == "reproduce" and "--list" not in words:
        return [*words, *TABLE_SETTINGS]
    if words[0] != "pretrain":
        return words
    words = list(words)
    keys = schema(words[words.index("--method") + 1] if "--method" in words else "frossl")
    short = {key: value for key, value in SHORT.items() if key in keys}
    if len(words) > 1 and words[1] in BATCH:
        short["batch_size"] = BATCH[words[1]]
    if "--minutes" in words:
        words[words.index("--minutes") + 1] = "0.01"
        del short["epochs"]
    if any(word.startswith("pieces=") for word in words):
        short["pieces"] = "2"
    kept = [word for word in words if word.partition("=")[0] not in short]
    return [*kept, *(f"{key}={value}" for key, value in short.items())]


def run_command(words: list[str]) -> None:
    words = shortened(words)
    if words[0] == "pretrain" and "--out" in words and "--dry-run" not in words:
        shutil.rmtree(words[words.index("--out") + 1], ignore_errors=True)  # another page may have written it
    # In this process, because a new process would have to import everything again.
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, f"twofold {shlex.join(words)}\n{result.output}"


def run_snippet(page: Path, snippet: str, scope: dict[str, Any]) -> None:
    exec(compile(re.sub(r"\bepochs=\d+", "epochs=1", snippet), name_of(page), "exec"), scope)


@pytest.fixture(scope="module")
def prepared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages use: photos, a list of them, groups, a finished run and CIFAR-10."""
    here = tmp_path_factory.mktemp("prepared")
    generator = np.random.default_rng(0)
    for name in ("cats", "dogs"):
        (here / "photos" / name).mkdir(parents=True)
        for number in range(12):
            pixels = generator.integers(0, 255, (20, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(here / "photos" / name / f"{number}.jpg")
    shutil.copytree(here / "photos", here / "labelled")
    listed = [f"photos/cats/{number}.jpg,cat,{number // 2}\n" for number in range(12)]
    (here / "table.csv").write_text("path,label,group\n" + "".join(listed))
    (here / "groups.csv").write_text("".join(f"cats/{number}.jpg,{number // 2}\n" for number in range(12)))
    cifar = here / "data" / "cifar-10-batches-py"
    cifar.mkdir(parents=True)
    for name, content in cifar10_contents(per_batch=8).items():
        (cifar / name).write_bytes(pickle.dumps(content, protocol=2))
    twofold.pretrain(str(here / "photos"), out=here / "runs" / "photos", epochs=1, batch_size=8, projector=(32, 16))
    return here


@pytest.fixture
def workspace(prepared_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the prepared folder. It is the current folder during the test."""
    here = shutil.copytree(prepared_folder, tmp_path / "workspace")
    monkeypatch.chdir(here)
    return here


def few_digits() -> Bunch:
    """scikit-learn's digits, but only the first of them, because some pages evaluate many encoders on them."""
    digits = load_digits()
    return Bunch(data=digits.data[:DIGITS], images=digits.images[:DIGITS], target=digits.target[:DIGITS])


@pytest.fixture(scope="module", autouse=True)
def claims_checked_once() -> Iterator[None]:
    """Check each claim of the papers only once, because a page has several commands that check the same claims."""
    known: dict[str, Checked] = {}

    def check_once(made: claim.Claim) -> Checked:
        if made.id not in known:
            known[made.id] = check(made)
        return known[made.id]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claim, "check", check_once)
        yield


def check_search_and_embed(scope: dict[str, Any]) -> None:
    assert scope["cats"].shape == (12, 256)
    assert scope["matches"][0].file == "cats/0.jpg"


def check_features(scope: dict[str, Any]) -> None:
    assert scope["features"].shape == (1, 256)


def check_own_dataset(scope: dict[str, Any]) -> None:
    assert len(scope["Squares"]()) == 32
    with np.load("squares.npz") as file:
        assert file["labels"].tolist() == [number % 2 for number in range(32)]


def check_own_method(scope: dict[str, Any]) -> None:
    assert scope["run"].config.parameters["weight"] == 20


def check_folder(scope: dict[str, Any]) -> None:
    assert len(Path("features.csv").read_text().splitlines()) == 1 + len(scope["digits"].images)


def check_pipeline(scope: dict[str, Any]) -> None:
    assert scope["accuracy"] > 0.5


CHECKS: dict[str, Callable[[dict[str, Any]], None]] = {
    "README.md": check_features,
    "docs/how-to/search-and-embed.md": check_search_and_embed,
    "docs/how-to/export-an-encoder.md": check_features,
    "docs/how-to/use-your-own-images.md": check_own_dataset,
    "docs/how-to/write-a-method.md": check_own_method,
    "docs/tutorials/folder.md": check_folder,
    "docs/tutorials/python.md": check_pipeline,
}


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize("page", [page for page in HAS_CODE if page.name != "CONTRIBUTING.md"], ids=name_of)
def test_page_runs_from_top_to_bottom(
    page: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name_of(page) in ON_FEW_DIGITS:
        monkeypatch.setattr(sklearn.datasets, "load_digits", few_digits)
    if name_of(page) in EXECUTED_ELSEWHERE:
        languages: tuple[str, ...] = SHELL
    else:
        languages = (*SHELL, "python")
    own = set(CATALOG)
    request.addfinalizer(lambda: [CATALOG.pop(name) for name in set(CATALOG) - own])
    scope: dict[str, Any] = {}
    for block in blocks(page, *languages):
        if block.language == "python":
            run_snippet(page, block.text, scope)
        else:
            for words in block.commands:
                run_command(words)
    if name_of(page) in CHECKS:
        CHECKS[name_of(page)](scope)


def test_checked_pages_exist() -> None:
    assert {*CHECKS, *EXECUTED_ELSEWHERE, *ON_FEW_DIGITS} <= {name_of(page) for page in HAS_CODE}


@pytest.mark.parametrize("page", HAS_CODE, ids=name_of)
def test_shell_blocks_contain_only_executed_commands_and_installation(page: Path) -> None:
    """Installation and cluster commands are not executed. Output belongs in blocks of the language `text`."""
    for block in blocks(page, *SHELL):
        words = [line[0] for line in block.lines]
        if not set(words) & set(CLUSTER) and not block.text.startswith(CLUSTER):
            for word in words:
                assert word.endswith(("twofold", "python", "pip", "pre-commit")) or word in INSTALLS, block.text


@pytest.mark.parametrize("page", [page for page in PAGES if inline_commands(page)], ids=name_of)
def test_inline_commands_and_their_options_exist(page: Path) -> None:
    known = typer.main.get_command(app).commands
    for command in inline_commands(page):
        words = command.split()
        if words[0] == "python":
            assert importlib.util.find_spec(words[2]) is not None, command
        elif words[1] not in ("--help", "--version"):
            assert words[1] in known, command
            options = {option for parameter in known[words[1]].params for option in parameter.opts}
            given = {word.partition("=")[0] for word in words[2:] if word.startswith("-")}
            assert given <= options, command


@pytest.mark.full
def test_torchrun_commands_of_the_docs_run(workspace: Path) -> None:
    """Commands for one machine, with two processes."""
    shutil.rmtree(workspace / "runs")
    ran = 0
    for block in blocks(DOCS / "how-to" / "use-several-gpus.md", *SHELL):
        for words in block.lines:
            if words[:2] != ["torchrun", "--standalone"]:
                continue
            start = words.index("twofold") + 1
            launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
            command = [*launcher, "-m", "twofold", *shortened(words[start:])]
            environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
            result = subprocess.run(
                command, cwd=workspace, env=environment, capture_output=True, text=True, timeout=300, check=False
            )
            assert result.returncode == 0, f"{shlex.join(words)}\n{result.stderr}"
            ran += 1
    assert ran == 2


def test_example_method_in_contributing_equals_the_catalog() -> None:
    (snippet,) = blocks(ROOT / "CONTRIBUTING.md", "python")
    assert snippet.text.strip() in (ROOT / "twofold" / "methods" / "catalog" / "covariance.py").read_text()


def test_method_described_as_most_accurate_has_the_highest_recorded_accuracy() -> None:
    table = TABLES["catalog"]
    records = read_records(ROOT / "records")
    linear = {
        row.method: record["results"]["table"][0]["linear_accuracy"]
        for row in table.rows
        for record in records_of(table, row, records).values()
    }
    del linear["supervised"]
    assert CATALOG.keys() - linear.keys() == {"supervised", "mse-diet"}  # the GPU queue has the run of mse-diet
    (called,) = [name for name, entry in CATALOG.items() if "most accurate without labels" in entry.choose]
    assert called == max(linear, key=linear.__getitem__)


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = {words[1] for block in blocks(ROOT / "README.md", *SHELL) for words in block.lines if words[0] == "make"}
    assert named == {"demo", "test"}
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_point_to_existing_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        # Links to generated pages are checked when the site is built.
        if not target.startswith("http") and "reference/" not in target:
            assert (page.parent / target).exists(), target
