"""The benchmark of the per-image classifier, at small size."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("kind", ["disk", "memory", "torch"])
def test_every_kind_of_classifier_is_measured(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    benchmark = importlib.import_module("benchmarks.sample_head")
    row = benchmark.measured(kind, 60_000, 2, 5000, 8, tmp_path)
    assert row.keys() == set(benchmark.COLUMNS)
    assert 0 < row["lower"] <= row["step ms"] <= row["upper"]
    assert row["cpu ms"] > 0
    assert (tmp_path / "head" / "rows.bin").exists() == (kind == "disk")


@pytest.mark.full
def test_benchmark_runs_and_writes_its_results(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    words = ["--rows", "60000", "--dim", "2", "--batch-size", "5000", "--steps", "8", "--rounds", "1", "--memory", "1"]
    command = [sys.executable, "-m", "benchmarks.sample_head", *words, "--out", str(out)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    record = json.loads(out.read_text())
    disk, memory, torch = record["rows"]
    assert disk["cpu ms"] > 0
    assert memory == {"head": "memory", "rows": 60000}  # not measured, because it needs 1.4 MiB and 1 MiB is allowed
    assert torch == {"head": "torch", "rows": 60000}
    assert str(tmp_path) not in json.dumps(record["settings"])
