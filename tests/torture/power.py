"""Replay power losses: train with every sync recorded, and resume from what was surely on the disk after each of them.

Only what a sync covered survives: the content of a file since its own sync, and the names in a folder since the sync of
the folder. The other states of a loss are mixtures, in which each folder and each file has either survived with what
was written later or not.
"""

import os
import resource
import shutil
import stat
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from torture.row import Row
from torture.small_runs import METHODS, begin, continue_or_begin, differences, finished, image_files

Names = dict[str, int]  # the entries of a folder: name → identity
MOST_NOTES = 5


class Disk:
    """What is on the disk: the names in folders, and the contents of files, each by identity (inode)."""

    def __init__(self, folders: dict[int, Names] | None = None, files: dict[int, bytes] | None = None):
        self.folders, self.files = dict(folders or {}), dict(files or {})

    def write(self, identity: int, target: Path) -> None:
        """Write a folder with everything in it to `target`."""
        target.mkdir()
        for name, entry in self.folders.get(identity, {}).items():
            if entry in self.folders:
                self.write(entry, target / name)
            else:
                (target / name).write_bytes(self.files.get(entry, b""))


def current(root: Path) -> Disk:
    """Return what a kill would leave now."""
    disk = Disk()
    for folder, folders, files in os.walk(root):
        names = {name: os.lstat(os.path.join(folder, name)).st_ino for name in (*folders, *files)}
        disk.folders[os.lstat(folder).st_ino] = names
        for name in files:
            disk.files[names[name]] = Path(folder, name).read_bytes()
    return disk


@contextmanager
def recording(root: Path, chance: Random) -> Iterator[list[Disk]]:
    """Collect the states after a power loss at each sync of the block, in pairs: nothing unsynced, and a mixture."""
    states: list[Disk] = []
    durable = current(root)
    open_files = []  # so that no later file gets the same identity

    def record(file: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{file}"))
        status = os.fstat(file)
        if not path.is_relative_to(root):
            return
        if stat.S_ISDIR(status.st_mode):
            durable.folders[status.st_ino] = {entry.name: entry.inode() for entry in os.scandir(path)}
            for entry in os.scandir(path):
                if entry.is_dir(follow_symlinks=False):
                    durable.folders.setdefault(entry.inode(), {})
        else:
            durable.files[status.st_ino] = os.pread(file, status.st_size, 0) if _reads(file) else path.read_bytes()
        if len(open_files) < resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2:
            open_files.append(os.dup(file))
        states.extend((Disk(durable.folders, durable.files), mixed(durable, current(root), chance)))

    def synced(sync: Any) -> Any:
        def call(file: int) -> None:
            sync(file)
            record(file if isinstance(file, int) else file.fileno())

        return call

    with patch.object(os, "fsync", synced(os.fsync)), patch.object(os, "fdatasync", synced(os.fdatasync)):
        yield states
    for file in open_files:
        os.close(file)


def _reads(file: int) -> bool:
    import fcntl

    return fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY


def mixed(durable: Disk, now: Disk, chance: Random) -> Disk:
    """Return a state in which each folder is either durable or current, and so is each file, or its new part is zeros.

    Some file systems write the new size of a file before its content.
    """
    disk = Disk(durable.folders, durable.files)
    disk.folders |= {
        key: names for key, names in now.folders.items() if chance.random() < 0.5 or key not in durable.folders
    }
    for key, content in now.files.items():
        before = durable.files.get(key, b"")
        zeros = before + bytes(max(0, len(content) - len(before)))
        disk.files[key] = chance.choice((before, content, zeros))
    return disk


def after_loss(state: Disk, root: Path, identity: int, method: str) -> str:
    """Continue from a state of the disk at the place of the run, and return what is wrong with the result, or ""."""
    shutil.rmtree(root)
    state.write(identity, root)
    run = root / "run"
    try:
        continue_or_begin(method, run)
    except Exception:
        return traceback.format_exc().splitlines()[-1]
    # A file that was removed may be there again: Twofold does not sync the removal of what nobody reads.
    return differences(run, root.parent / "whole" / "run", may_have_more=True)


def replay(method: str, root: Path, chance: Random, end: float, most: int = 10**6) -> tuple[int, int, list[str]]:
    """Record a run, and replay losses until the time ends. Return how many, of how many states, and the failures."""
    lost = root / "lost"
    finished(method, root / "whole")
    lost.mkdir()
    identity = lost.stat().st_ino
    with recording(lost, chance) as states:
        begin(method, lost / "run")
    failures, tried = [], 0
    for at in chance.sample(range(len(states)), min(most, len(states))):
        found = after_loss(states[at], lost, identity, method)
        tried += 1
        if found:
            failures.append(f"state {at} of {len(states)}: {found}")
        if time.monotonic() > end:
            break
    return tried, len(states), failures


def run(seconds: float, seed: int) -> list[Row]:
    """Replay losses for about this time, and return a row for each method."""
    image_files()
    chance, rows = Random(seed), []
    for method in METHODS:
        end = time.monotonic() + seconds / len(METHODS)
        with tempfile.TemporaryDirectory(prefix="twofold-power-") as aside:
            tried, _, failures = replay(method, Path(aside), chance, end)
        rows.append(Row(f"power losses, {method}", tried, len(failures), "\n".join(failures[:MOST_NOTES])))
    return rows
