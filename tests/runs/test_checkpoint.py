"""Checkpoints: they restore the complete state, and a kill, a full disk or damaged files lose no earlier checkpoint."""

import errno
import json
from pathlib import Path

import pytest
import torch

from twofold.checksums import seal, unseal
from twofold.errors import TwofoldError
from twofold.runs import checkpoint
from twofold.runs.folder import RunFolder

STATE = {
    "weights": {"a": torch.arange(6.0).view(2, 3), "tied": torch.ones(3)},
    "optimizer": {0: {"step": torch.tensor(3.0), "exp_avg": torch.randn(4)}, 1: {}},
    "betas": (0.9, 0.999),
    "list": [1, None, "text", True, 2.5, torch.tensor([1, 2])],
}


def same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b and type(a) is type(b)


def test_loading_returns_the_saved_state(tmp_path: Path) -> None:
    shared = torch.zeros(2)  # safetensors refuses tensors that share memory
    state = STATE | {"twice": [shared, shared], "expanded": torch.ones(1).expand(4)}
    checkpoint.save(tmp_path, 7, state, keep=2)
    step, loaded = checkpoint.load_latest(tmp_path)
    assert step == 7
    assert same(state, loaded)


def test_a_checkpoint_contains_no_pickle(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 1, STATE, keep=1)
    assert sorted(item.name for item in path.iterdir()) == ["checksums.json", "state.json", "state.safetensors"]
    for name in ("state.json", "checksums.json"):
        json.loads((path / name).read_text())


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 9, 10, 30):
        checkpoint.save(tmp_path, step, {"step": step}, keep=2)
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"latest", "step-10", "step-30"}
    assert checkpoint.load_latest(tmp_path)[0] == 30


def test_a_run_without_a_checkpoint_has_none_to_load(tmp_path: Path) -> None:
    assert checkpoint.load_latest(tmp_path) is None


def test_an_incomplete_checkpoint_is_ignored_and_removed_later(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, STATE, keep=2)
    incomplete = tmp_path / "checkpoints" / ".step-2.part"
    incomplete.mkdir()
    (incomplete / "state.safetensors").write_bytes(b"incomplete")
    assert checkpoint.load_latest(tmp_path)[0] == 1
    checkpoint.save(tmp_path, 2, STATE, keep=2)
    assert checkpoint.load_latest(tmp_path)[0] == 2
    assert not incomplete.exists()


@pytest.mark.parametrize("fails_at", ["save_file", "sync"])
def test_a_full_disk_is_reported_and_the_earlier_checkpoint_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    checkpoint.save(tmp_path, 1, STATE, keep=2)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, fails_at, full)
    with pytest.raises(TwofoldError, match="No space left on device"):
        checkpoint.save(tmp_path, 2, STATE, keep=2)
    monkeypatch.undo()
    step, loaded = checkpoint.load_latest(tmp_path)
    assert step == 1
    assert same(STATE, loaded)
    assert not list((tmp_path / "checkpoints").glob(".step-*"))


def test_a_folder_that_disappears_while_saving_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_latest = checkpoint.set_latest

    def set_latest_and_disappear(root: Path, step: int) -> None:
        set_latest(root, step)
        root.rename(tmp_path / "aside")

    monkeypatch.setattr(checkpoint, "set_latest", set_latest_and_disappear)
    with pytest.raises(TwofoldError, match=r"checkpoint of step 3 could not be written.*No such file"):
        checkpoint.save(tmp_path, 3, STATE, keep=2)


def test_objects_of_other_types_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="an object of type object at /thing"):
        checkpoint.save(tmp_path, 1, {"thing": object()}, keep=1)


@pytest.mark.parametrize("name", ["state.json", "state.safetensors"])
def test_loading_a_damaged_checkpoint_raises_an_error(tmp_path: Path, name: str) -> None:
    path = checkpoint.save(tmp_path, 1, STATE, keep=1)
    (path / name).write_bytes(b"\x00" * 20)
    with pytest.raises(TwofoldError, match=f"step-1 is damaged: {name} has 20 bytes instead of"):
        checkpoint.load_latest(tmp_path)


def flip_bit(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


@pytest.mark.parametrize("every", [61, pytest.param(1, marks=pytest.mark.full)])
def test_a_flipped_bit_of_a_checkpoint_is_noticed(every: int, tmp_path: Path) -> None:
    state = {"weights": torch.arange(3.0), "betas": (0.9, 0.999)}
    path = checkpoint.save(tmp_path, 1, state, keep=1)
    noticed = total = 0
    for file in path.iterdir():
        for bit in range(0, 8 * file.stat().st_size, every):
            flip_bit(file, bit)
            try:
                _, loaded = checkpoint.load_latest(tmp_path)
            except TwofoldError:
                noticed += 1
            else:  # such as a space that became a zero byte
                assert file.name == "checksums.json"
                assert same(loaded, state)
            flip_bit(file, bit)
            total += 1
    assert noticed > 0.95 * total


def damage(path: Path) -> None:
    for name in ("state.json", "state.safetensors"):
        (path / name).write_bytes((path / name).read_bytes()[:10])


def test_damaged_checkpoints_are_skipped_with_a_warning(tmp_path: Path) -> None:
    warnings: list[str] = []
    assert checkpoint.load_newest_readable(tmp_path, warnings.append) is None
    paths = [checkpoint.save(tmp_path, step, {"value": step}, keep=5) for step in (9, 10, 11)]
    assert checkpoint.load_newest_readable(tmp_path, warnings.append) == (11, {"value": 11})
    assert warnings == []
    damage(paths[2])
    assert checkpoint.load_newest_readable(tmp_path, warnings.append) == (10, {"value": 10})
    assert warnings[-1].startswith(f"the checkpoint {paths[2]} is damaged: state.json has 10 bytes instead of")
    assert "from the checkpoint of step 10" in warnings[-1]
    (paths[1] / "state.json").unlink()
    assert checkpoint.load_newest_readable(tmp_path, warnings.append) == (9, {"value": 9})
    assert str(paths[1]) in warnings[-1]
    (tmp_path / "checkpoints" / "latest").write_bytes(b"\xff\x00")
    assert checkpoint.load_newest_readable(tmp_path, warnings.append) == (9, {"value": 9})
    checkpoint.set_latest(tmp_path / "checkpoints", 11)
    damage(paths[0])
    with pytest.raises(TwofoldError, match=f"the checkpoint {paths[2]} is damaged"):
        checkpoint.load_newest_readable(tmp_path, warnings.append)


def as_written_by_a_newer_version(path: Path) -> None:
    manifest = path / "checksums.json"
    record = unseal(json.loads(manifest.read_text()), manifest)
    manifest.write_text(json.dumps(seal(record | {"format": 99, "twofold": "7.5"})))


def test_a_checkpoint_of_a_newer_format_is_not_replaced_by_an_older_one(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, STATE, keep=2)
    as_written_by_a_newer_version(checkpoint.save(tmp_path, 2, STATE, keep=2))
    for load in (checkpoint.load_latest, lambda folder: checkpoint.load_newest_readable(folder, pytest.fail)):
        with pytest.raises(TwofoldError, match=r"format 99 and was written by Twofold 7\.5.*use Twofold 7\.5 or newer"):
            load(tmp_path)


def test_unused_later_checkpoints_do_not_count_as_kept(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    for step in (10, 20):
        checkpoint.save(tmp_path, step, {"step": step}, keep=2)
    damage(root / "step-20")
    checkpoint.set_latest(root, 10)
    assert checkpoint.load_latest(tmp_path)[0] == 10
    checkpoint.save(tmp_path, 15, {"step": 15}, keep=2)
    assert {path.name for path in root.iterdir()} == {"latest", "step-10", "step-15"}


def test_a_checkpoint_that_latest_does_not_name_is_written_again(tmp_path: Path) -> None:
    """A process was killed before it wrote `latest`. The repeated step may differ, for instance on another machine."""
    path = checkpoint.save(tmp_path, 5, {"value": torch.zeros(1)}, keep=2)
    (path.parent / "latest").unlink()
    checkpoint.save(tmp_path, 5, {"value": torch.ones(1)}, keep=2)
    assert checkpoint.load_latest(tmp_path)[1]["value"] == 1


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_step_that_is_saved_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, 5, {"value": 1}, keep=2)
    monkeypatch.setattr(checkpoint, "save_file", full)
    checkpoint.save(tmp_path, 5, {"value": 1}, keep=2)
    assert checkpoint.load_latest(tmp_path) == (5, {"value": 1})


def test_without_the_file_latest_the_newest_checkpoint_is_loaded(tmp_path: Path) -> None:
    for step in (3, 7):
        checkpoint.save(tmp_path, step, {"value": step}, keep=2)
    (tmp_path / "checkpoints" / "latest").unlink()
    assert checkpoint.load_latest(tmp_path) == (7, {"value": 7})
    assert checkpoint.load_newest_readable(tmp_path, pytest.fail) == (7, {"value": 7})


def test_a_checkpoint_newer_than_the_latest_is_never_loaded(tmp_path: Path) -> None:
    paths = [checkpoint.save(tmp_path, step, {"value": step}, keep=5) for step in (9, 10, 11)]
    checkpoint.set_latest(tmp_path / "checkpoints", 10)
    (paths[1] / "state.json").unlink()
    assert checkpoint.load_newest_readable(tmp_path, lambda _: None) == (9, {"value": 9})


def test_a_pointer_to_a_checkpoint_that_does_not_exist_is_ignored(tmp_path: Path) -> None:
    for step in (9, 10):
        checkpoint.save(tmp_path, step, {"value": step}, keep=5)
    (tmp_path / "checkpoints" / "latest").write_text("step-30\n")
    assert checkpoint.load_latest(tmp_path) == (10, {"value": 10})


def without_checksums(path: Path, version: int | None) -> None:
    """Turn a checkpoint into one of an earlier format, which had no checksums."""
    (path / "checksums.json").unlink()
    state = path / "state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"format": version}))


def test_the_format_without_checksums_can_still_be_read(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    records = {"metrics.jsonl": 12, "spectrum.jsonl": 0}
    path = checkpoint.save(tmp_path, 1, {"value": 1, "records": records}, keep=1)
    without_checksums(path, 2)
    assert checkpoint.load_latest(tmp_path) == (1, {"value": 1, "records": records})
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(TwofoldError, match=r"metrics\.jsonl has 0 bytes, but had 12"):
        checkpoint.load_latest(tmp_path)


@pytest.mark.parametrize("version", [1, None])
def test_an_older_format_is_refused(tmp_path: Path, version: int | None) -> None:
    without_checksums(checkpoint.save(tmp_path, 1, {"value": 1}, keep=1), version)
    with pytest.raises(TwofoldError, match=f"format {version}, but Twofold .* reads format 2 and 3"):
        checkpoint.load_latest(tmp_path)


def test_a_checkpoint_without_its_checksums_is_damaged(tmp_path: Path) -> None:
    (checkpoint.save(tmp_path, 1, {"value": 1}, keep=1) / "checksums.json").unlink()
    with pytest.raises(TwofoldError, match=r"checksums\.json is missing"):
        checkpoint.load_latest(tmp_path)


def test_a_checkpoint_is_only_loaded_if_the_records_begin_as_they_did(tmp_path: Path) -> None:
    folder, records = RunFolder.create(tmp_path / "run", "{}"), {}
    for step in (1, 2, 3):
        folder.append("metrics.jsonl", {"step": step})
        records[step] = folder.record_checksums()
        checkpoint.save(folder.path, step, {"records": records[step]}, keep=5)
    folder.append("metrics.jsonl", {"step": 4})
    assert checkpoint.load_newest_readable(folder.path, pytest.fail)[0] == 3
    flip_bit(folder.path / "metrics.jsonl", 8 * records[2]["metrics.jsonl"]["bytes"] + 11)
    said: list[str] = []
    assert checkpoint.load_newest_readable(folder.path, said.append)[0] == 2
    assert "metrics.jsonl is damaged" in said[0]
    with pytest.raises(TwofoldError, match=r"metrics\.jsonl is damaged"):
        checkpoint.load_latest(folder.path)
    (folder.path / "metrics.jsonl").unlink()
    with pytest.raises(TwofoldError, match=r"metrics\.jsonl is missing.*no readable checkpoint is left"):
        checkpoint.load_newest_readable(folder.path, said.append)


def test_all_files_of_a_checkpoint_have_the_same_permissions(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 1, STATE, keep=1)
    assert len({file.stat().st_mode for file in path.iterdir()}) == 1
