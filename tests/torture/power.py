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
from torture.small_runs import METHODS, begin, differences, finished, go_on
from twofold.runs.new_folder import has_no_run_yet

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
    """Return a state in which each folder and file is either durable or current."""
    disk = Disk(durable.folders, durable.files)
    disk.folders |= {
        key: names for key, names in now.folders.items() if chance.random() < 0.5 or key not in durable.folders
    }
    disk.files |= {key: content for key, content in now.files.items() if chance.random() < 0.5}
    return disk


def after_loss(state: Disk, root: Path, identity: int, method: str) -> str:
    """Continue from a state of the disk at the place of the run, and return what is wrong with the result, or ""."""
    shutil.rmtree(root)
    state.write(identity, root)
    run = root / "run"
    try:
        if not run.is_dir() or has_no_run_yet(run):
            begin(method, run)
        else:
            go_on(run)
    except Exception:
        return traceback.format_exc().splitlines()[-1]
    return differences(run, root.parent / "whole" / "run")


def run(seconds: float, seed: int) -> list[Row]:
    """Replay losses for about this time, and return a row for each method."""
    chance, rows = Random(seed), []
    for number, method in enumerate(METHODS):
        end = time.monotonic() + seconds / len(METHODS)
        with tempfile.TemporaryDirectory(prefix="twofold-power-") as aside:
            root = Path(aside) / "lost"
            finished(method, Path(aside) / "whole")
            root.mkdir()
            identity = root.stat().st_ino
            with recording(root, chance) as states:
                begin(method, root / "run")
            order = chance.sample(range(len(states)), len(states))
            failures, tried = [], 0
            for at in order:
                found = after_loss(states[at], root, identity, method)
                tried += 1
                if found:
                    failures.append(f"state {at} of {len(states)}: {found}")
                if time.monotonic() > end:
                    break
        rows.append(Row(f"power losses, {method}", tried, len(failures), "\n".join(failures[:MOST_NOTES])))
        seed += number
    return rows
