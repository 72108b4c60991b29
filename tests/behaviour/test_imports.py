"""Commands that need no tensors start fast: they import neither torch nor other slow libraries."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fake_runs import pictured_run

SLOW = ("torch", "sklearn", "matplotlib", "scipy", "safetensors")
PROGRAM = """
import sys
sys.argv = ["twofold", *sys.argv[1:]]
from twofold.__main__ import main
try:
    main()
except SystemExit as end:
    code = end.code or 0
print("imported", *(name for name in {slow} if name in sys.modules))
sys.exit(code)
"""


def imported_by(program: str, *words: str, cwd: Path, code: int = 0) -> list[str]:
    """The slow libraries that a process has imported when it ends."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TWOFOLD_CACHE": str(cwd / "cache")}
    command = [sys.executable, "-c", program, *words]
    result = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert result.returncode == code, result.stderr
    first, *names = result.stdout.splitlines()[-1].split()
    assert first == "imported"
    return names


@pytest.mark.parametrize(
    "words, code",
    [
        (["--help"], 0),
        (["--version"], 0),
        (["pretrain", "--help"], 0),
        (["methods"], 0),
        (["methods", "s-diet"], 0),
        (["methods", "s-diett"], 2),
        (["cache"], 0),
        (["cache", "--clear"], 0),
        (["pretrain", "digits", "epoch=3"], 2),
        (["pretrain", "digits", "epochs=many"], 2),
        (["pretrain", "digits", "queue=3"], 2),
        (["pretrain", "digits", "--method", "simcrl"], 2),
        (["pretrain", "digits", "--batch-size", "64"], 2),
        (["pretrain", "digits", "epochs=3", "--minutes", "2"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_commands_without_tensors_import_no_slow_library(words: list[str], code: int, tmp_path: Path) -> None:
    assert imported_by(PROGRAM.format(slow=(*SLOW, "PIL")), *words, cwd=tmp_path, code=code) == []


def test_report_and_compare_of_finished_runs_import_no_slow_library(tmp_path: Path) -> None:
    for name in ("first", "second"):
        run = pictured_run(tmp_path / name)
        (run.path / "encoder.safetensors").touch()
    program = PROGRAM.format(slow=SLOW)
    assert imported_by(program, "report", "first", cwd=tmp_path) == []
    assert imported_by(program, "compare", "first", "second", cwd=tmp_path) == []
    assert (tmp_path / "compare.html").exists()


def test_importing_twofold_and_listing_methods_imports_no_slow_library(tmp_path: Path) -> None:
    program = f"""
import sys
import twofold
from twofold.methods import entry
assert "byol" in twofold.methods()
print("imported", *(name for name in {SLOW} if name in sys.modules))
"""
    assert imported_by(program, cwd=tmp_path) == []
