"""Change files of every kind and read them. Anything but the data or an error of Twofold is a failure.

Children do the work under limits of memory and time. A child that dies counts as a failure, too. Run it alone with
`PYTHONPATH=tests python -m torture.fuzz --minutes 10`.
"""

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from torture.row import Row

SECONDS = 5.0  # processor time of one input
WAIT_SECONDS = 60.0  # time of one input on a busy machine; a reader that waits for a pipe reaches it
BYTES = 10**9  # memory of one input
PER_CHILD = 600.0  # seconds until a child is replaced; it takes some seconds to train its runs


class TooSlow(BaseException):
    """An input took longer than the limit."""


def place_of(error: BaseException) -> str:
    """Return the type of an error and the line of Twofold from which it came."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/twofold" in frame.filename]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno} {frames[-1].name}" if frames else "?"
    return f"{type(error).__name__} at {where}: {str(error)[:80]!r}"


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Limit the time and the memory of the block."""

    def stop(*_: Any) -> None:
        raise TooSlow

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    handlers = {number: signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)}
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, limits[1]))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, WAIT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def attempt(found: Any, content: bytes) -> str | None:
    """Read changed content. Return what went wrong, or None."""
    from twofold.errors import TwofoldError

    if found.restores is not None:
        shutil.rmtree(found.restores)
        shutil.copytree(f"{found.restores}.pristine", found.restores, copy_function=copy_with_times)
    before = found.path.stat()
    found.path.write_bytes(content)
    if len(content) % 2:  # a file whose time did not change is checked less
        os.utime(found.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    try:
        with limited():
            found.read()
    except TwofoldError:
        return None
    except (Exception, TooSlow) as error:
        return place_of(error)
    return None


def copy_with_times(source: str, target: str) -> str:
    return str(shutil.copy2(source, target))


def child(root: Path, seconds: float, seed: int, only: str) -> None:
    """Try inputs until time is up, and print a line of JSON for each kind and each failure."""
    import torch

    from torture.inputs import inputs_in

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    kinds = [found for found in inputs_in(root) if only in found.name]
    contents = [found.path.read_bytes() for found in kinds]
    for found in kinds:
        if found.restores is not None and not Path(f"{found.restores}.pristine").exists():
            shutil.copytree(found.restores, f"{found.restores}.pristine", copy_function=copy_with_times)
    end, spent, tried = time.monotonic() + seconds, [0.0] * len(kinds), Counter[str]()
    # Kinds take turns by time and not by number, because some are a thousand times slower than others.
    while time.monotonic() < end:
        at = min(range(len(kinds)), key=spent.__getitem__)
        found, since = kinds[at], time.monotonic()
        for _ in range(20):
            number = seed * 1_000_003 + tried[found.name]
            content = found.mutate(contents[at], Random(number))
            print(json.dumps(["start", found.name, number]), flush=True) if tried[found.name] % 20 == 0 else None
            problem = attempt(found, content)
            found.path.parent.mkdir(parents=True, exist_ok=True)
            found.path.write_bytes(contents[at])
            tried[found.name] += 1
            if problem:
                print(json.dumps(["failed", found.name, number, problem]), flush=True)
            if time.monotonic() - since > 0.5:
                break
        spent[at] += time.monotonic() - since
    print(json.dumps(["tried", tried]), flush=True)


def run(seconds: float, seed: int, only: str = "") -> list[Row]:
    """Try changed files for about this time, and return a row for each kind of file."""
    tried, failed, places = Counter[str](), Counter[str](), dict[str, Counter[str]]()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with tempfile.TemporaryDirectory(prefix="twofold-fuzz-") as aside:
            left = min(end - time.monotonic(), PER_CHILD)
            words = ["--child", f"{aside}/files", "--minutes", str(left / 60), "--seed", str(seed), "--only", only]
            environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
            process = subprocess.run(
                [sys.executable, "-m", "torture.fuzz", *words], capture_output=True, text=True, env=environment
            )
        last = None
        for what, *facts in map(json.loads, process.stdout.splitlines()):
            if what == "tried":
                tried.update(facts[0])
            elif what == "start":
                last = facts
            else:
                name, _, problem = facts
                failed[name] += 1
                places.setdefault(name, Counter())[problem] += 1
        if process.returncode:
            name = last[0] if last else "start"
            text = f"child ended with {process.returncode} after {last}: {process.stderr[-300:]}"
            failed[name] += 1
            tried[name] += 1
            places.setdefault(name, Counter())[text] += 1
        seed += 1
    return [
        Row(f"fuzz {name}", tried[name], failed[name], "\n".join(f"{n} x {place}" for place, n in found.most_common()))
        for name in sorted(tried)
        for found in [places.get(name, Counter[str]())]
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="Try only kinds of files whose name contains this text.")
    parser.add_argument("--child", type=Path)
    words = parser.parse_args()
    if words.child:
        child(words.child, 60 * words.minutes, words.seed, words.only)
    else:
        for row in run(60 * words.minutes, words.seed, words.only):
            print(f"{row.test:40} {row.tried:>8,} {row.failed:>6,}")
            for line in row.note.splitlines():
                print(f"    {line}")
