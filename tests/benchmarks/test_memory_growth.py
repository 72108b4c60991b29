import sys
from pathlib import Path

import pytest

from benchmarks import memory_growth
from benchmarks.folder_load import make


def test_commands_of_a_stopped_run_use_the_finished_one(tmp_path: Path) -> None:
    make(tmp_path / "originals", 3)
    finished = tmp_path / "finished"

    def listed(name: str, files: int, *, is_whole: bool) -> list[tuple[str, list[str], Path | None]]:
        found = []
        for command in memory_growth.commands(tmp_path / "originals", tmp_path / name, files, finished, is_whole):
            (tmp_path / name / "run").mkdir(exist_ok=True)
            found.append(command)
        return found

    whole = listed("small", 5, is_whole=True)
    assert [title for title, _, _ in whole] == ["pretrain", "embed", "search", "search again", "report"]
    assert all(stop_after is None for _, _, stop_after in whole)
    assert finished.is_dir()
    stopped = listed("large", 7, is_whole=False)
    assert [title for title, _, _ in stopped] == ["pretrain, stopped", "embed", "search", "search again"]
    assert stopped[0][2] == tmp_path / "large/run/metrics.jsonl"
    assert all(words[1] == str(finished) for _, words, _ in stopped[1:])
    assert len(list((tmp_path / "large/images").iterdir())) == 7


def test_peak_is_that_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import time; content = b'a' * 2**26; time.sleep(0.5); open({!r}, 'w').write('a'); time.sleep(60)"
    program = tmp_path / "twofold.py"
    stop_after = tmp_path / "metrics"
    program.write_text(
        "import signal, sys; signal.signal(15, lambda *_: sys.exit(143))\n" + code.format(str(stop_after))
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    own, resident, seconds = memory_growth.peaks([], tmp_path / "cache", stop_after)
    assert 64 < own < 100
    assert resident > own
    assert seconds < 30
