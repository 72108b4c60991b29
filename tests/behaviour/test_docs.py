"""Every command and snippet in README and docs is run, with settings that make it short."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import twofold
from twofold.cli import app
from twofold.methods import CATALOG
from twofold_papers.reproduce.record import read_records
from twofold_papers.reproduce.table import records_of
from twofold_papers.reproduce.tables import TABLES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHORT = {"epochs": "1", "batch_size": "8", "projector": "32,16"}
PREDICTIVE = {"predictor_width": "32"}


def blocks(page: Path, language: str) -> list[str]:
    text = page.read_text().replace("\\\n", " ")  # a line that goes on is one line
    return [body for name, body in BLOCK.findall(text) if name == language]


def commands(page: Path) -> list[list[str]]:
    found = []
    for block in blocks(page, ""):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0].endswith("twofold"):
                found.append(words[1:])
    return found


def shortened(words: list[str]) -> list[str]:
    """The same command with fewer epochs: keys that decide how long it takes are replaced."""
    if words[0] != "pretrain":
        return words
    kept = [word for word in words if word.partition("=")[0] not in SHORT]
    return [*kept, *(f"{key}={value}" for key, value in SHORT.items())]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the pages assume it: a folder of photos, and a file of groups."""
    here = tmp_path_factory.mktemp("desk")
    generator = np.random.default_rng(0)
    for name in ("cats", "dogs"):
        (here / "photos" / name).mkdir(parents=True)
        for number in range(12):
            pixels = generator.integers(0, 255, (20, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(here / "photos" / name / f"{number}.jpg")
    listed = [f"photos/cats/{number}.jpg,cat,{number // 2}\n" for number in range(12)]
    (here / "table.csv").write_text("path,label,group\n" + "".join(listed))
    (here / "groups.csv").write_text("".join(f"cats/{number}.jpg,{number // 2}\n" for number in range(12)))
    return here


def test_commands_of_the_pages(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk)
    ran: list[list[str]] = []
    for page in PAGES:
        for words in commands(page):
            if words in ran:
                continue
            # In this process: each would else wait for its imports.
            result = CliRunner().invoke(app, shortened(words), catch_exceptions=False)
            assert result.exit_code == 0, f"{page.name}: twofold {shlex.join(words)}\n{result.output}"
            ran.append(words)
    assert len(ran) >= 4


@pytest.mark.full
def test_torchrun_of_the_pages(desk: Path, tmp_path: Path) -> None:
    """Those on one machine, with two processes."""
    own = shutil.copytree(desk, tmp_path / "desk", ignore=shutil.ignore_patterns("runs"))
    ran = 0
    for line in "\n".join(blocks(ROOT / "docs" / "scaling.md", "")).splitlines():
        words = shlex.split(line, comments=True)
        if words[:2] == ["torchrun", "--standalone"]:
            start = words.index("twofold") + 1
            launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
            command = [*launcher, "-m", "twofold", *shortened(words[start:])]
            environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
            result = subprocess.run(
                command, cwd=own, env=environment, capture_output=True, text=True, timeout=300, check=False
            )
            assert result.returncode == 0, f"{line}\n{result.stderr}"
            ran += 1
    assert ran == 2


def test_python_of_the_readme(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk)
    (snippet,) = blocks(ROOT / "README.md", "python")
    snippet = snippet.replace("epochs=100", "epochs=1, batch_size=8, projector=(32, 16), predictor_width=32")
    scope = {"picture": Image.open(desk / "photos" / "cats" / "0.jpg")}
    exec(compile(snippet, "README.md", "exec"), scope)
    assert scope["features"].shape == (1, 256)


def test_python_of_using(desk: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.chdir(desk)
    request.addfinalizer(lambda: CATALOG.pop("spread", None))
    if not Path("runs/photos").exists():  # the page follows README, whose commands another test runs
        twofold.pretrain("photos", out="runs/photos", epochs=1, batch_size=8, projector=(32, 16))
    twofold.embed("runs/photos", "photos", "features.npz")
    scope = {"picture": Image.open(desk / "photos" / "cats" / "0.jpg")}
    for snippet in blocks(ROOT / "docs" / "using.md", "python"):
        short = snippet.replace('method="frossl", epochs=100', 'epochs=1, overrides={"projector": (32, 16)}')
        short = short.replace("epochs=100", "epochs=1, projector=(32, 16)")
        exec(compile(short, "using.md", "exec"), scope)
    assert scope["cats"].shape == (12, 256)
    assert scope["matches"][0].file == "cats/0.jpg"
    assert scope["features"].shape == (1, 256)
    assert scope["accuracy"] > 0.5
    assert scope["run"].config.parameters["weight"] == 20
    with np.load("squares.npz") as file:
        assert file["labels"].tolist() == [number % 2 for number in range(32)]


def test_the_method_in_contributing_is_the_one_in_the_catalog() -> None:
    (snippet,) = blocks(ROOT / "CONTRIBUTING.md", "python")
    assert snippet.strip() in (ROOT / "twofold" / "methods" / "catalog" / "covariance.py").read_text()


def test_the_method_that_is_called_the_most_accurate_is() -> None:
    table = TABLES["catalog"]
    records = read_records(ROOT / "records")
    linear = {
        row.method: record["results"]["table"][0]["linear_accuracy"]
        for row in table.rows
        for record in records_of(table, row, records).values()
    }
    del linear["supervised"]
    assert len(linear) == len(CATALOG) - 1
    (called,) = [name for name, entry in CATALOG.items() if "most accurate without labels" in entry.choose]
    assert called == max(linear, key=linear.__getitem__)


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = {
        line.split()[1]
        for block in blocks(ROOT / "README.md", "")
        for line in block.splitlines()
        if line.startswith("make ")
    }
    assert named == {"demo", "test"}
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_generated_pages_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert generate.PAGE.read_text(encoding="utf-8") == generate.page(), "run: python docs/generate.py"
    assert generate.ERRATA.read_text(encoding="utf-8") == generate.errata_page(), "run: python docs/generate.py"
    assert generate.RESULTS.read_text(encoding="utf-8") == generate.results_page(), "run: python docs/generate.py"
    assert generate.README.read_text(encoding="utf-8") == generate.readme(), "run: python docs/generate.py"
    for path, picture in generate.figures().items():
        assert path.read_text(encoding="utf-8") == picture, "run: python docs/generate.py"
