"""Flip one bit in a file of a stopped or a finished run, and use the run. A failure is a silent difference or a
traceback; a message that names the damage is not.
"""

import os
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from torture.row import Row
from torture.small_runs import METHODS, contents, differences, finished, go_on, image_files, stopped
from twofold.errors import TwofoldError

MOST_NOTES = 5


def flip_bit(path: Path, chance: Random) -> str:
    """Flip a random bit of a file, keep its times, and return the place in words."""
    status = path.stat()
    bit = chance.randrange(8 * status.st_size)
    with path.open("r+b") as file:
        file.seek(bit // 8)
        value = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([value ^ 1 << bit % 8]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return f"bit {bit} of {path.name}"


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


def resumed(folder: Path, whole: Path) -> str:
    """Resume the run in a folder, and return "" or the silent difference to the uninterrupted run."""
    said = go_on(folder / "run")
    found = differences(folder / "run", whole / "run")
    is_named = any(word in text for text in said for word in ("damaged", "cannot be read", "cannot be chosen"))
    return "" if is_named else found


def compared(folder: Path, expected: list[object]) -> str:
    """Read everything of a finished run, and return "" or what differs silently."""
    names = ("features", "metrics", "spectrum", "results", "report")
    found = contents(folder / "run")
    return ", ".join(name for name, a, b in zip(names, found, expected, strict=True) if a != b)


def attempts(root: Path, seed: int) -> Iterator[tuple[str, str]]:
    """Yield the name of a test and the failure, "" if there is none, again and again."""
    chance = Random(seed)
    for method in METHODS:
        finished(method, root / method / "whole")
        stopped(method, root / method / "stopped")
    # Reports contain the path of the run, so damaged runs are in the place of the whole one.
    expected = {method: in_place(root / method, "whole", lambda place: contents(place / "run")) for method in METHODS}
    while True:
        for method in METHODS:
            for kind in ("stopped", "whole"):

                def attempt(place: Path, method: str = method, kind: str = kind) -> str:
                    where = flip_bit(chance.choice(files_in(place)), chance)
                    try:
                        if kind == "stopped":
                            found = resumed(place, root / method / "whole")
                        else:
                            found = compared(place, expected[method])
                    except TwofoldError:
                        return ""
                    except Exception:
                        return f"{where}: {traceback.format_exc().splitlines()[-1]}"
                    return f"{where}: {found}" if found else ""

                title = "finished" if kind == "whole" else kind
                yield f"bit flips, {title} {method}", in_place(root / method, kind, attempt)


def in_place(folder: Path, kind: str, work: Callable[[Path], Any]) -> Any:
    """Return what `work` returns for a copy of a run. The copy is at the place where the run was trained."""
    pristine, place = folder / f"{kind}-pristine", folder / kind
    if not pristine.exists():
        shutil.copytree(place, pristine, symlinks=True)
    try:
        return work(place)
    finally:
        shutil.rmtree(place)
        shutil.copytree(pristine, place)


def run(seconds: float, seed: int) -> list[Row]:
    """Flip bits for about this time, and return a row for each kind of run."""
    end, tried, failures = time.monotonic() + seconds, dict[str, int](), dict[str, list[str]]()
    image_files()
    with tempfile.TemporaryDirectory(prefix="twofold-flips-") as aside:
        for name, failure in attempts(Path(aside), seed):
            tried[name] = tried.get(name, 0) + 1
            if failure:
                failures.setdefault(name, []).append(failure)
            if time.monotonic() > end:
                break
    return [
        Row(name, count, len(failures.get(name, ())), "\n".join(failures.get(name, ())[:MOST_NOTES]))
        for name, count in sorted(tried.items())
    ]
