"""Let the disk become full at a random time, make room, and continue. A failure is a lost run or a different result.

Each attempt has a small file system in memory of its own (tmpfs), which needs the rights to mount one. Without them, a
limit of the size of files takes its place.
"""

import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

import torch

from torture.forked import DONE, REFUSED, Forked, Outcome
from torture.row import Row
from torture.small_runs import METHODS, continue_or_begin, differences, image_files

PAGE = 4096
ROOM = 2**30
MOST_NOTES = 5
SAID = ("space", "large", "quota")  # words of the reasons that the system gives


def mount(folder: Path, size: int, *, again: bool = False) -> bool:
    """Mount a file system of this size, or change its size, and return whether that is possible here."""
    words = ["mount", "-t", "tmpfs", "-o", f"{'remount,' if again else ''}size={size}", "tmpfs", str(folder)]
    try:
        return subprocess.run(words, capture_output=True).returncode == 0
    except OSError:
        return False


@contextmanager
def disk(folder: Path, size: int) -> Iterator[bool]:
    """Mount a file system during the block."""
    is_mounted = mount(folder, size)
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def train(method: str, folder: Path, limit: int | None) -> None:
    """Start or continue the run in a folder. The cache is on the same disk."""
    os.environ["TWOFOLD_CACHE"] = str(folder / "cache")
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    continue_or_begin(method, folder / "run")


def attempt(method: str, folder: Path, whole: Path, used: int, chance: Random) -> tuple[int, str]:
    """Return how often the disk became full, and what is wrong, or ""."""
    sizes = sorted(chance.randrange(1, 1 + used // PAGE) * PAGE for _ in range(chance.randint(1, 3)))
    full = 0
    folder.mkdir()
    with disk(folder, sizes[0]) as is_mounted:
        for size in sizes:
            if is_mounted:
                mount(folder, size, again=True)
            found = Forked(partial(train, method, folder, None if is_mounted else size)).wait()
            full += found.kind == REFUSED
            if found.kind not in (DONE, REFUSED) or (found.kind == REFUSED and not is_explained(found)):
                return full, f"{size:,} bytes: {found.kind}: {found.text}"
        if is_mounted:
            mount(folder, ROOM, again=True)
        found = Forked(partial(train, method, folder, None)).wait()
        problem = differences(folder / "run", whole / "run") if found.kind == DONE else f"{found.kind}: {found.text}"
    shutil.rmtree(folder)
    return full, problem and f"after {sizes} bytes: {problem}"


def is_explained(found: Outcome) -> bool:
    return any(word in found.text for word in SAID)


def run(seconds: float, seed: int) -> list[Row]:
    """Fill disks for about this time, and return a row for each method."""
    torch.set_num_threads(1)
    image_files()
    chance, rows = Random(seed), []
    for method in METHODS:
        end, tried, failures = time.monotonic() + seconds / len(METHODS), 0, list[str]()
        with tempfile.TemporaryDirectory(prefix="twofold-disks-") as aside:
            root = Path(aside)
            whole = root / "whole"
            whole.mkdir()
            found = Forked(partial(train, method, whole, None)).wait()
            assert found.kind == DONE, found
            used = sum(PAGE * (1 + file.stat().st_size // PAGE) for file in whole.rglob("*"))
            while time.monotonic() < end:
                full, problem = attempt(method, root / "full", whole, used, chance)
                tried += full
                if problem:
                    failures.append(problem)
                    shutil.rmtree(root / "full", ignore_errors=True)
        rows.append(Row(f"full disks, {method}", tried, len(failures), "\n".join(failures[:MOST_NOTES])))
    return rows
