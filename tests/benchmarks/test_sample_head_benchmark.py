"""The benchmark of the sample head, on a small one."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_it_runs_and_keeps_its_numbers(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    sizes = {"rows": 60000, "dim": 2, "batch-size": 5000, "steps": 2, "rounds": 1, "memory": 1, "out": out}
    words = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "benchmarks.sample_head", *words]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    record = json.loads(out.read_text())
    disk, memory, torch = record["rows"]
    assert (disk["head"], disk["rows"]) == ("disk", 60000)
    assert 0 < disk["lower"] <= disk["step ms"] <= disk["upper"]
    assert disk["cpu ms"] > 0
    assert memory == {"head": "memory", "rows": 60000}  # 1.4 MiB are more than the 1 that is allowed
    assert torch == {"head": "torch", "rows": 60000}
    assert str(tmp_path) not in json.dumps(record["settings"])
