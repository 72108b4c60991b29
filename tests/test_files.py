"""Files are replaced completely or not at all, and synced in an order that survives a power loss."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from twofold import files
from twofold.errors import TwofoldError
from twofold.files import atomic, is_temporary, open_in_place, refuse_links, write_atomically

KINDS = [{"durable": True}, {"durable": False}, {"durable": False, "concurrent": True}]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "results.json"
    path.write_text("old")
    return path


@pytest.fixture
def umask_027() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


@each_kind
def test_target_changes_when_the_block_ends(target: Path, kind: dict[str, bool]) -> None:
    with atomic(target, **kind) as temporary:
        assert temporary.parent == target.parent  # a rename is atomic within one file system only
        assert is_temporary(temporary)
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert list(target.parent.iterdir()) == [target]


@each_kind
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_error_keeps_the_old_file_and_leaves_no_temporary_file(
    target: Path, kind: dict[str, bool], error: type[BaseException]
) -> None:
    def write_half() -> None:
        with atomic(target, **kind) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        write_half()
    assert target.read_text() == "old"
    assert list(target.parent.iterdir()) == [target]


@each_kind
def test_kill_keeps_the_old_file(target: Path, kind: dict[str, bool]) -> None:
    program = f"""
import os, signal
from pathlib import Path
from twofold.files import atomic
with atomic(Path({str(target)!r}), **{kind}) as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", program], env=environment).returncode == -signal.SIGKILL
    assert target.read_text() == "old"
    (left,) = [path for path in target.parent.iterdir() if path != target]
    assert is_temporary(left)
    with atomic(target, **kind) as temporary:
        temporary.write_text("new")
    assert target.read_text() == "new"
    # The next write replaces the temporary file, unless it may belong to a process that is still writing.
    assert left.exists() == kind.get("concurrent", False)


def test_failed_rename_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"), atomic(tmp_path / "folder", durable=True) as temporary:
        temporary.write_text("a file cannot take the place of a folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("durable", [True, False])
def test_durable_file_is_synced_before_the_rename_and_its_folder_after(
    target: Path, durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []

    def fsync(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        synced.append((path, target.read_text()))

    monkeypatch.setattr(os, "fsync", fsync)
    with atomic(target, durable=durable) as temporary:
        temporary.write_text("new")
    assert synced == ([(temporary, "old"), (target.parent, "new")] if durable else [])


def test_full_disk_keeps_the_old_file(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "sync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(target, "new")
    assert target.read_text() == "old"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.usefixtures("umask_027")
def test_permissions_follow_the_umask_except_for_concurrent_files(target: Path) -> None:
    for kind, expected in zip(KINDS, (0o640, 0o640, 0o600), strict=True):
        with atomic(target, **kind) as temporary:
            temporary.write_text("new")
        assert stat.S_IMODE(target.stat().st_mode) == expected


def test_concurrent_writers_of_the_same_file_do_not_interfere(target: Path) -> None:
    with atomic(target, durable=False, concurrent=True) as first:
        first.write_text("first")
        with atomic(target, durable=False, concurrent=True) as second:
            second.write_text("second")
        assert target.read_text() == "second"
    assert target.read_text() == "first"


def test_text_with_undecodable_file_names_is_written(tmp_path: Path) -> None:
    write_atomically(tmp_path / "skipped.txt", f"größe {os.fsdecode(b'bad' + bytes([255]))}.jpg\n")
    assert (tmp_path / "skipped.txt").read_text(encoding="utf-8") == "größe bad\\udcff.jpg\n"
    write_atomically(tmp_path / "rows.bin", b"\xff\x00")
    assert (tmp_path / "rows.bin").read_bytes() == b"\xff\x00"


@each_kind
def test_links_at_the_target_and_at_temporary_names_are_not_followed(target: Path, kind: dict[str, bool]) -> None:
    victim = target.with_name("victim")
    victim.write_text("precious")
    target.unlink()
    for name in (target.name, f".{target.name}.part", f".{target.name}.00000000.part"):
        target.with_name(name).symlink_to(victim)
    with atomic(target, **kind) as temporary:
        temporary.write_text("new")
    assert victim.read_text() == "precious"
    assert target.read_text() == "new"
    assert not target.is_symlink()


def test_temporary_names_that_exist_are_not_used(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = target.with_name("victim")
    victim.write_text("precious")
    names = iter(["aaaaaaaa", "bbbbbbbb"])
    monkeypatch.setattr("twofold.files.secrets.token_hex", lambda _: next(names))
    target.with_name(f".{target.name}.aaaaaaaa.part").symlink_to(victim)
    with atomic(target, durable=False, concurrent=True) as temporary:
        temporary.write_text("new")
    assert temporary.name == f".{target.name}.bbbbbbbb.part"
    assert victim.read_text() == "precious"


def test_files_of_other_targets_are_not_removed_as_leftovers(target: Path) -> None:
    others = [target.with_name(name) for name in (".other.json.part", f".{target.name}.zip.part", ".results-json.part")]
    for other in others:
        other.write_text("of another process")
    write_atomically(target, "new")
    assert all(other.exists() for other in others)


@pytest.mark.parametrize("kind", ["symlink_to", "hardlink_to"])
def test_links_are_refused_where_a_file_is_changed_in_place(tmp_path: Path, kind: str) -> None:
    victim, record = tmp_path / "victim", tmp_path / "metrics.jsonl"
    victim.write_text("precious")
    refuse_links([record])  # a path that does not exist is fine
    getattr(record, kind)(victim)
    with pytest.raises(TwofoldError, match=r"metrics\.jsonl is .* replace it by a copy, or remove it"):
        open_in_place(record, os.O_WRONLY | os.O_APPEND)
    assert victim.read_text() == "precious"
