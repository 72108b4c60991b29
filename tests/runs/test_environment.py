"""A run that is resumed in another environment says so."""

from pathlib import Path

import pytest
import torch

from twofold.runs import checkpoint, environment
from twofold.runs.folder import RunFolder


def test_another_version_or_number_of_threads_is_reported(tmp_path: Path) -> None:
    folder, said = RunFolder.create(tmp_path / "run", "{}"), list[str]()
    now = environment.describe(torch.device("cpu"))
    for step, (changes, expected) in enumerate(
        (
            ({}, []),
            ({"torch": "1.0"}, [f"torch 1.0, now {torch.__version__}"]),
            ({"threads": 99, "Twofold": "0.1"}, ["threads 99, now", "Twofold 0.1, now"]),
        )
    ):
        said.clear()
        checkpoint.save(folder.path, step, {}, keep=1, facts={"environment": now | changes})
        folder.load_checkpoint(said.append, allow_older=True, environment=now)
        assert len(said) == bool(expected)
        assert all(part in said[0] for part in expected)
        assert not expected or "may differ from those of an uninterrupted run" in (folder.path / "log.txt").read_text()


def test_a_checkpoint_without_environment_can_be_loaded(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "{}")
    checkpoint.save(folder.path, 1, {}, keep=1)
    folder.load_checkpoint(pytest.fail, allow_older=True, environment=environment.describe(torch.device("cpu")))
