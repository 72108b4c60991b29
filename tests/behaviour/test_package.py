"""The source distribution and the wheel contain what users need, and the wheel works outside of the repository."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import twofold

ROOT = Path(__file__).parents[2]
PACKAGES = ("twofold", "twofold_papers")
# The files that are needed to build and to describe the package. All other files of the repository stay out.
OTHER_FILES = {
    "CHANGELOG.md",
    "CITATION.cff",
    "LICENSE",
    "MANIFEST.in",
    "PKG-INFO",
    "README.md",
    "constraints.txt",
    "pyproject.toml",
    "setup.cfg",
}


def package_files() -> set[str]:
    """Every file of the two packages, as a path relative to the repository."""
    return {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel, built from a copy of the repository, as `python -m build` builds them."""
    pytest.importorskip("build", reason="build is not installed: pip install build")
    pytest.importorskip("setuptools", minversion="77", reason="needs setuptools 77 or newer")
    folder = tmp_path_factory.mktemp("package")
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "runs", "data")
    copy = folder / "repository"
    copy.mkdir()
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, copy)
    for name in (*PACKAGES, "tests", "records", "docs", "benchmarks"):
        # `twofold/data` and `twofold/runs` have the names of ignored folders of the repository but must be copied.
        kept = shutil.ignore_patterns("__pycache__") if name in PACKAGES else ignored
        shutil.copytree(ROOT / name, copy / name, ignore=kept)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(copy)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "dist"


def wheel_of(distributions: Path) -> Path:
    (wheel,) = distributions.glob("*.whl")
    return wheel


def test_wheel_contains_exactly_the_files_of_both_packages(distributions: Path) -> None:
    with zipfile.ZipFile(wheel_of(distributions)) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == package_files()
    for needed in (
        "twofold/py.typed",
        "twofold/report/page.html",
        "twofold/report/style.css",
        "twofold/report/scripts/map.js",
        "twofold_papers/py.typed",
        "twofold_papers/verify/page.html",
        "twofold_papers/reproduce/page.html",
    ):
        assert needed in names


def test_sdist_contains_the_packages_and_the_files_to_build_them(distributions: Path) -> None:
    (archive,) = distributions.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {member.name.split("/", 1)[1] for member in tar if member.isfile()}
    names = {name for name in names if ".egg-info/" not in name}
    assert names == package_files() | OTHER_FILES


def test_metadata_of_the_wheel(distributions: Path) -> None:
    with zipfile.ZipFile(wheel_of(distributions)) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(wheel.read(name).decode())
        (entry_points,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
        assert "twofold = twofold.__main__:main" in wheel.read(entry_points).decode()
        assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())
    assert metadata["Name"] == "twofold"
    assert metadata["Version"] == twofold.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata.get_all("Provides-Extra", [])) >= {"timm", "parquet", "onnx", "tensorboard", "wandb"}


def test_citation_names_the_version() -> None:
    assert f"\nversion: {twofold.__version__}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.full
def test_installed_wheel_runs_demo_and_verify(distributions: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"OMP_NUM_THREADS": "1", "TWOFOLD_CACHE": str(tmp_path / "cache")}

    def run(*command: str | Path) -> str:
        result = subprocess.run(
            [str(word) for word in command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    run(sys.executable, "-m", "venv", tmp_path / "venv")
    binaries = tmp_path / "venv" / "bin"
    constraints = ROOT / "constraints.txt"
    run(binaries / "python", "-m", "pip", "install", "--quiet", "-c", constraints, wheel_of(distributions))
    where = run(binaries / "python", "-c", "import twofold, twofold_papers; print(twofold.__file__)")
    assert Path(where.strip()).is_relative_to(tmp_path / "venv")
    run(binaries / "twofold", "pretrain", "--out", "runs/demo")
    assert (tmp_path / "runs" / "demo" / "report.html").exists()
    run(binaries / "twofold", "verify", "frossl")  # exits with 1 if a claim fails
