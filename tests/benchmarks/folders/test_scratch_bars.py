"""The bars of short runs: which jobs start, and what the summary says."""

import json
from pathlib import Path

import pytest

from benchmarks.folders import scratch_bars
from benchmarks.folders.pool import claimed


def test_jobs_are_taken_once_and_runs_come_first(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    names = [scratch_bars.name_of(job) for job in scratch_bars.jobs(["digits", "flowers17"], [0, 1])]
    assert list(claimed(tmp_path, names[:3])) == ["digits-0-run", "flowers17-0-run", "digits-1-run"]
    assert next(claimed(tmp_path, names)) == "flowers17-1-run"


def test_summary_counts_the_folders_on_which_the_encoder_is_above(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def line(folder: str, seed: int, what: str, **rows: tuple[float, float]) -> str:
        found = {name: {"linear": linear, "knn": knn, "seconds": 1.0} for name, (linear, knn) in rows.items()}
        return json.dumps({"folder": folder, "seed": seed, "what": what, "rows": found})

    lines = []
    for folder, pixels in (("digits", (70.0, 72.0)), ("flowers17", (70.0, 90.0))):
        for seed in (0, 1):
            ours = {"trained from scratch": (80.0 + seed, 80.0), "untrained": (75.0, 75.0)}
            lines += [
                line(folder, seed, "run", **ours),
                line(folder, seed, "without training", **{"raw pixels": pixels}),
            ]
    path = tmp_path / "bars.jsonl"
    path.write_text("\n".join(lines))
    scratch_bars.summary(path)
    printed = capsys.readouterr().out
    assert "untrained: 2 (digits, flowers17); 6 of 6 needed: missed" in printed
    assert "raw pixels: 1 (digits); 6 of 6 needed: missed" in printed
    assert "| raw pixels | 70.0 | 72.0 | +10.5 (+4.1 to +16.9) | +8.0 (+8.0 to +8.0) | 2 |" in printed
