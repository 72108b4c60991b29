"""`twofold check` finds every damaged file of a run and says what can be recovered."""

import json
from pathlib import Path

import pytest
import torch
import typer

from twofold.checksums import seal
from twofold.cli.check import check as command
from twofold.config import dump, resolve
from twofold.methods import schema
from twofold.models import SampleHead
from twofold.runs import checkpoint
from twofold.runs.folder import RunFolder
from twofold.runs.tensor_files import save_tensors
from twofold.verbs.check import check

FILES = ("config.json", "metrics.jsonl", "log.txt", "encoder.safetensors", "results.json")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder.create(
        tmp_path / "run", dump(resolve(schema("s-diet"), {"user": {"epochs": 7, "method": "s-diet"}}))
    )
    head = SampleHead(4, 3, path=folder.path / "head", schedule=[0.1] * 9)
    for step in (1, 2):
        folder.append("metrics.jsonl", {"step": step, "value": 0.125})
        folder.log(f"step {step}")
        head.step([step, 0], torch.ones(2, 3))
        head.mark()
        records = folder.record_checksums()
        state = {"records": records, "rows": head.state_dict()}
        checkpoint.save(folder.path, step, state, keep=2, facts={"records": records})
    head.close()
    return folder


def finish(folder: RunFolder) -> None:
    save_tensors(folder.path / "encoder.safetensors", {"weights": torch.ones(4)}, {})
    folder.write("results.json", json.dumps(seal({"table": [], "records": folder.record_checksums()})))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_an_intact_run_has_no_damaged_file(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    finish(folder)
    found = check(folder.path)
    assert found.damaged == []
    assert {*FILES, "checkpoints/step-1", "checkpoints/step-2"} <= {file.name for file in found.files}
    command(folder.path)
    shown = capsys.readouterr().out
    assert "intact   encoder.safetensors" in shown
    assert "all of these files are intact" in shown


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named(folder: RunFolder, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    finish(folder)
    flip(folder.path / name)
    assert name in [file.name for file in check(folder.path).damaged]
    with pytest.raises(typer.Exit):
        command(folder.path)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"damaged {name}" in shown
    if name == "config.json":
        assert f"cp {folder.path}/checkpoints/step-2/config.json {folder.path}/config.json" in shown


def test_the_newest_intact_checkpoint_is_named(folder: RunFolder) -> None:
    for file in (folder.path / "head").iterdir():
        file.unlink()
    flip(folder.path / "checkpoints" / "step-2" / "state.json")
    found = check(folder.path)
    assert "state.json has another checksum" in str(found.damaged)
    assert found.recovery == f"`twofold resume {folder.path}` continues from the checkpoint step-1"
    flip(folder.path / "checkpoints" / "step-1" / "state.safetensors")
    assert "no checkpoint is intact" in check(folder.path).recovery


def test_damaged_rows_are_counted(folder: RunFolder) -> None:
    assert check(folder.path).damaged == []
    flip(folder.path / "head" / "rows.bin")
    (damaged,) = check(folder.path).damaged
    assert "1 of 4 rows" in damaged.problem
    assert "restore the folder from a copy" in check(folder.path).recovery
