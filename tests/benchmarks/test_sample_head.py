"""The benchmark of the sample head, on a small one."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("kind", ["disk", "memory", "torch"])
def test_every_head_takes_its_steps(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    benchmark = importlib.import_module("benchmarks.sample_head")
    row = benchmark.measured(kind, 60_000, 2, 5000, 8, tmp_path)
    assert row.keys() == set(benchmark.COLUMNS)
    assert 0 < row["lower"] <= row["step ms"] <= row["upper"]
    assert row["cpu ms"] > 0
    assert (tmp_path / "head" / "rows.bin").exists() == (kind == "disk")


@pytest.mark.full
def test_it_runs_and_keeps_its_numbers(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    words = ["--rows", "60000", "--dim", "2", "--batch-size", "5000", "--steps", "8", "--rounds", "1", "--memory", "1"]
    command = [sys.executable, "-m", "benchmarks.sample_head", *words, "--out", str(out)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    record = json.loads(out.read_text())
    disk, memory, torch = record["rows"]
    assert disk["cpu ms"] > 0
    assert memory == {"head": "memory", "rows": 60000}  # 1.4 MiB are more than the 1 that is allowed
    assert torch == {"head": "torch", "rows": 60000}
    assert str(tmp_path) not in json.dumps(record["settings"])
