"""Damaged files of a run folder are named by the report, with the line or the key."""

from pathlib import Path

import pytest

from fake_runs import finished_run
from twofold.errors import TwofoldError
from twofold.report.compare import render_comparison
from twofold.report.page import render

# Each line of a file led to an error of another type somewhere in the code of the report.
DAMAGES = {
    "metrics.jsonl": """
        null
        {"epoch": 1}
        {"step": "1"}
        {"step": 1, "loss": [1]}
        {"step": 1, "epoch": -1}
        {"step": 1, "epoch": 1e999}
        [[[
    """,
    "spectrum.jsonl": """
        {"step": 1}
        {"step": 1, "of": "features", "eigenvalues": null}
        {"step": 1, "of": "features", "eigenvalues": [1, "a"]}
        {"step": 1, "of": [], "eigenvalues": [1.0]}
    """,
    "timing.jsonl": """
        {"step": 1}
        {"seconds": 1}
        {"step": 1, "seconds": NaN}
        {"step": 1, "seconds": 1e300}
        {"step": 1, "seconds": 1, "images_per_second": "fast"}
    """,
    "results.json": """
        []
        {"table": 3}
        {"table": [{}]}
        {"table": [{"name": "trained", "linear_accuracy": 2}]}
        {"seconds": "long"}
        {"versions": []}
        {"verdict": []}
        {"verdict": {"sentence": "a", "evidence": 1}}
        {"test_images_trained_on": {}}
        {"memory": Infinity}
        {"command": 1}
        {"gain": 1}
        {"kept": "a"}
    """,
    "config.json": """
        {"values": 1}
        {"values": {"method": 1, "data": "a"}}
        {"values": {"method": "a", "data": []}}
        {"values": {"method": "a", "data": "b", "epochs": null}}
        {"values": {"method": "a", "data": "b", "c": {}}}
        {"values": {"method": "a", "data": "b", "c": [[[1]]]}}
        {"values": {"method": "a", "data": "b"}, "origin": []}
    """,
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_files_are_named(tmp_path: Path, name: str) -> None:
    folder = finished_run(tmp_path / "run", epochs=1, done=12)
    other = finished_run(tmp_path / "other", epochs=1, done=12)
    contents = [line.strip().encode() for line in DAMAGES[name].strip().splitlines()]
    for content in (*contents, b'{"caf\xe9": 1}', b"[" * 9999, b"1" * 5000):
        (folder.path / name).write_bytes(content + b"\n")
        with pytest.raises(TwofoldError, match=rf"{name} .*; restore the file"):
            render(folder)
        with pytest.raises(TwofoldError, match=rf"{name} .*; restore the file"):
            render_comparison([folder, other])
