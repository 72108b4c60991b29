"""Links in a run folder, at any name, lead to no write outside it."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from running import small, stopped_at
from twofold import pretrain, resume
from twofold.display import Display
from twofold.errors import Interrupted, TwofoldError
from twofold.report.page import write_anew
from twofold.runs.folder import RunFolder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("links") / "run"
    settings = small("frossl", epochs=1, **{"checkpoint.seconds": 0.0})
    with stopped_at(3), contextlib.suppress(Interrupted):
        pretrain({"data": "digits", **settings}, method="frossl", out=path)
    return path


def attempt(stopped: Path, folder: Path, name: str, kind: str) -> None:
    """Put a link at the name, resume the run, write its report, and compare what the link leads to."""
    folder.parent.mkdir(exist_ok=True)
    outside = folder.parent / "outside"
    shutil.copytree(stopped, folder)
    path, is_folder = folder / name, (stopped / name).is_dir()
    if path.exists():
        shutil.move(path, outside)
    else:
        outside.write_text("precious")
    before = content(outside)
    path.symlink_to(outside, target_is_directory=is_folder) if kind == "symbolic" else path.hardlink_to(outside)
    with contextlib.suppress(TwofoldError):
        resume(folder)
    with contextlib.suppress(TwofoldError):
        write_anew(RunFolder.open(folder), Display(quiet=True))
    assert content(outside) == before, name


def content(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else sorted(part for part in path.rglob("*") if part.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


@pytest.mark.full
@pytest.mark.parametrize("kind", ["symbolic", "hard"])
def test_links_at_any_name_lead_to_no_write_outside_the_run_folder(stopped: Path, tmp_path: Path, kind: str) -> None:
    names = {os.path.relpath(path, stopped) for path in stopped.rglob("*")}
    names |= {"results.json", "report.html", "pictures.json", "encoder.safetensors", "skipped.txt", "tensorboard"}
    names |= {"checkpoints/encoder-5.safetensors", "checkpoints/.step-33.part", "checkpoints/.latest.part"}
    names |= {f".{name}.part" for name in names if "/" not in name}
    for number, name in enumerate(sorted(names)):
        if kind == "symbolic" or not (stopped / name).is_dir():
            attempt(stopped, tmp_path / str(number) / "run", name, kind)
