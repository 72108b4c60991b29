"""What is saved comes back; what was cut off is not seen; nothing is a pickle."""

import errno
import json
from pathlib import Path

import pytest
import torch

from twofold.errors import TwofoldError
from twofold.runs import checkpoint

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


def test_round_trip(tmp_path: Path) -> None:
    shared = torch.zeros(2)
    state = STATE | {"twice": [shared, shared], "expanded": torch.ones(1).expand(4)}
    checkpoint.save(tmp_path, 7, state, keep=2)
    step, loaded = checkpoint.load_latest(tmp_path)
    assert step == 7
    assert same(state, loaded)


def test_no_file_is_a_pickle(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 1, STATE, keep=1)
    assert sorted(item.name for item in path.iterdir()) == ["state.json", "state.safetensors"]
    json.loads((path / "state.json").read_text())


def test_old_ones_are_pruned(tmp_path: Path) -> None:
    for step in (1, 2, 9, 10, 30):
        checkpoint.save(tmp_path, step, {"step": step}, keep=2)
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"latest", "step-10", "step-30"}
    assert checkpoint.load_latest(tmp_path)[0] == 30


def test_none_before_the_first(tmp_path: Path) -> None:
    assert checkpoint.load_latest(tmp_path) is None


def test_a_cut_off_save_leaves_the_one_before(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, STATE, keep=2)
    half = tmp_path / "checkpoints" / ".step-2.part"
    half.mkdir()
    (half / "state.safetensors").write_bytes(b"half")
    assert checkpoint.load_latest(tmp_path)[0] == 1
    checkpoint.save(tmp_path, 2, STATE, keep=2)
    assert checkpoint.load_latest(tmp_path)[0] == 2
    assert not half.exists()


@pytest.mark.parametrize("fails_at", ["save_file", "sync"])
def test_full_disk_says_so_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: str) -> None:
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


def test_a_folder_that_goes_away_is_said_in_words_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointed = checkpoint.point_at

    def point_and_vanish(root: Path, step: int) -> None:
        pointed(root, step)
        root.rename(tmp_path / "aside")

    monkeypatch.setattr(checkpoint, "point_at", point_and_vanish)
    with pytest.raises(TwofoldError, match=r"checkpoint of step 3 could not be written.*No such file"):
        checkpoint.save(tmp_path, 3, STATE, keep=2)


def test_unknown_objects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="cannot hold a object at /thing"):
        checkpoint.save(tmp_path, 1, {"thing": object()}, keep=1)


@pytest.mark.parametrize("name", ["state.json", "state.safetensors"])
def test_damage_is_reported(tmp_path: Path, name: str) -> None:
    path = checkpoint.save(tmp_path, 1, STATE, keep=1)
    (path / name).write_bytes(b"\x00" * 20)
    with pytest.raises(TwofoldError, match="cannot be read"):
        checkpoint.load_latest(tmp_path)


def damage(path: Path) -> None:
    for name in ("state.json", "state.safetensors"):
        (path / name).write_bytes((path / name).read_bytes()[:10])


def test_the_newest_that_can_be_read_is_found(tmp_path: Path) -> None:
    said: list[str] = []
    assert checkpoint.load_sound(tmp_path, said.append) is None
    paths = [checkpoint.save(tmp_path, step, {"value": step}, keep=5) for step in (9, 10, 11)]
    assert checkpoint.load_sound(tmp_path, said.append) == (11, {"value": 11})
    assert said == []
    damage(paths[2])
    assert checkpoint.load_sound(tmp_path, said.append) == (10, {"value": 10})
    assert said[-1].startswith(f"the checkpoint {paths[2]} cannot be read")
    assert "from step 10" in said[-1]
    (paths[1] / "state.json").unlink()
    assert checkpoint.load_sound(tmp_path, said.append) == (9, {"value": 9})
    assert str(paths[1]) in said[-1]
    (tmp_path / "checkpoints" / "latest").write_bytes(b"\xff\x00")
    assert checkpoint.load_sound(tmp_path, said.append) == (9, {"value": 9})
    checkpoint.point_at(tmp_path / "checkpoints", 11)
    damage(paths[0])
    with pytest.raises(TwofoldError, match=f"the checkpoint {paths[2]} cannot be read"):
        checkpoint.load_sound(tmp_path, said.append)


def test_an_older_one_does_not_stand_in_for_one_of_another_version(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, STATE, keep=2)
    path = checkpoint.save(tmp_path, 2, STATE, keep=2) / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    with pytest.raises(TwofoldError, match="format 99"):
        checkpoint.load_sound(tmp_path, pytest.fail)


def test_those_that_were_given_up_take_no_place_of_sound_ones(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    for step in (10, 20):
        checkpoint.save(tmp_path, step, {"step": step}, keep=2)
    damage(root / "step-20")
    checkpoint.point_at(root, 10)
    assert checkpoint.load_latest(tmp_path)[0] == 10
    checkpoint.save(tmp_path, 15, {"step": 15}, keep=2)
    assert {path.name for path in root.iterdir()} == {"latest", "step-10", "step-15"}


def test_another_format_is_refused(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 1, STATE, keep=1) / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    with pytest.raises(TwofoldError, match="format 99"):
        checkpoint.load_latest(tmp_path)


def test_one_that_the_pointer_never_named_is_replaced(tmp_path: Path) -> None:
    """A kill between rename and pointer, then a redo that differs, as it may on another machine."""
    path = checkpoint.save(tmp_path, 5, {"value": torch.zeros(1)}, keep=2)
    (path.parent / "latest").unlink()
    checkpoint.save(tmp_path, 5, {"value": torch.ones(1)}, keep=2)
    assert checkpoint.load_latest(tmp_path)[1]["value"] == 1


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_step_that_is_saved_already_is_not_given_up_to_be_saved_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(tmp_path, 5, {"value": 1}, keep=2)
    monkeypatch.setattr(checkpoint, "save_file", full)
    checkpoint.save(tmp_path, 5, {"value": 1}, keep=2)
    assert checkpoint.load_latest(tmp_path) == (5, {"value": 1})


def test_a_lost_pointer_loses_nothing(tmp_path: Path) -> None:
    for step in (3, 7):
        checkpoint.save(tmp_path, step, {"value": step}, keep=2)
    (tmp_path / "checkpoints" / "latest").unlink()
    assert checkpoint.load_latest(tmp_path) == (7, {"value": 7})
    assert checkpoint.load_sound(tmp_path, pytest.fail) == (7, {"value": 7})


def test_one_that_is_newer_than_the_pointers_does_not_stand_in_for_it(tmp_path: Path) -> None:
    paths = [checkpoint.save(tmp_path, step, {"value": step}, keep=5) for step in (9, 10, 11)]
    checkpoint.point_at(tmp_path / "checkpoints", 10)
    (paths[1] / "state.json").unlink()
    assert checkpoint.load_sound(tmp_path, lambda _: None) == (9, {"value": 9})


@pytest.mark.parametrize("version", [checkpoint.FORMAT - 1, None])
def test_an_older_format_is_refused(tmp_path: Path, version: int | None) -> None:
    path = checkpoint.save(tmp_path, 1, {"value": 1}, keep=1) / "state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": version}))
    with pytest.raises(TwofoldError, match=f"format {version}, this version reads {checkpoint.FORMAT}"):
        checkpoint.load_latest(tmp_path)
